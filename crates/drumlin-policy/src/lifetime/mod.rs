//! How long a value is likely to live, and which other values it is written with.
//!
//! A value that is overwritten becomes garbage in its value file. If the values of a file become garbage at about the
//! same time, collecting the file copies little. So values are divided into *classes* by their predicted remaining
//! lifetime, and each class is written to files of its own, both by flushes and by compactions that copy values. Time
//! is the store's sequence number: a lifetime is the number of writes until a value is overwritten or deleted.
//!
//! - [`recent`]: when the keys of recent flushes were written. It serves flushes, which know nothing else of a key.
//! - [`history`]: the past writes of one key, which its pointers carry through compactions.
//! - [`histogram`]: logarithmic histograms of lifetimes.
//! - [`predict`]: the predicted lifetime, and the class.
//! - [`learner`]: a model of lifetimes, its samples and labels, and whether it places values. The model consists of
//!   regression trees ([`trees`]) over [`features`] of a value.
//! - `saved`: what a keyspace has learned, as bytes.
//! - [`dumpkv`]: DumpKV's own classes and times to live, for comparisons in simulations.
//!
//! After DumpKV (Zhuang, Zeng and Chen, PVLDB 18(4), 2024). DumpKV writes flushed values to one class, and has two for
//! values that it copies.

mod bytes;
pub mod dumpkv;
pub mod features;
pub mod histogram;
pub mod history;
pub mod learner;
pub mod predict;
pub mod recent;
mod saved;
pub mod trees;

pub use histogram::Histogram;
pub use learner::{Expected, Learned, Learner, Predictor};
pub use predict::{CLASSES, KeyOf, Placer, expected_lifetime};
pub use recent::{RecentWrites, Seen};
pub use trees::{Training, Trees};
