//! Locks and atomics of the standard library, for builds whose other locks come from the model checker.

use std::sync as made_of;

#[path = "locks.rs"]
#[allow(clippy::duplicate_mod, reason = "the same locks, made of something else")]
mod locks;

pub use locks::*;
