//! Drumlin's only door to the operating system: files, clock, randomness, threads and locks.
//!
//! The engine receives an [`Env`] and reaches the outside only through it. [`Env::os`] is the real machine.
//! [`MemEnv`] is a simulated world: its disk drops unsynced data on power loss, injects faults on demand and counts
//! every call; its clock moves only when a test advances it; its random numbers follow from one seed. Lints keep the
//! standard library's files, threads, clocks and locks out of every other crate.

mod backend;
mod batch;
mod clock;
mod direct;
mod env;
mod fs;
mod holders;
mod host;
mod kinds;
pub mod local;
#[cfg(target_os = "linux")]
mod map;
mod mem;
mod note;
mod os;
mod random;
pub mod region;
mod request;
#[cfg(all(target_os = "linux", not(miri)))]
mod ring;
mod slow;
pub mod sync;
mod temp;
mod threads;

pub use clock::Clock;
pub use env::{Env, Stepping};
pub use fs::{File, FileLock, Fs};
pub use kinds::{DirEntry, FileKind, FileStatus};
pub use mem::{
    Call, Disk, Effect, Fault, Fired, ImageMode, ImageReport, MemEnv, Op, Site, SyncFailure, When,
};
pub use note::Note;
pub use random::Random;
pub use request::ReadRequest;
pub use temp::TempDir;
pub use threads::{JoinHandle, is_unwinding, yield_now};
