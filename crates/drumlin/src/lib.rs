//! Drumlin: an embedded, ordered, durable key-value store.

mod cursor;
mod error;
mod memtable;
mod rangedel;

pub use error::{Error, ErrorKind, Result};
