//! Drumlin's only door to the operating system: files, clock, randomness, threads and locks.
//!
//! The engine takes an [`Env`] and knows nothing else of the world. [`Env::os`] is the machine; [`MemEnv`] is
//! a simulated one, whose disk forgets what was not synced, fails on demand and counts every call, whose
//! clock moves only when told, and whose random numbers follow from one seed. Lints keep the standard
//! library's files, threads, clocks and locks out of every other crate.

mod batch;
mod clock;
mod direct;
mod env;
mod fs;
mod holders;
#[cfg(target_os = "linux")]
mod map;
mod mem;
mod note;
mod os;
mod random;
pub mod region;
#[cfg(all(target_os = "linux", not(miri)))]
mod ring;
mod slow;
pub mod sync;
mod temp;

pub use batch::ReadRequest;
pub use clock::Clock;
pub use env::{Env, JoinHandle, Stepping};
pub use fs::{DirEntry, File, FileKind, FileLock, Fs};
pub use mem::{
    Call, Disk, Effect, Fault, Fired, ImageMode, ImageReport, MemEnv, Op, Site, SyncFailure, When,
};
pub use note::Note;
pub use random::Random;
pub use temp::TempDir;
