//! Drumlin: an embedded, ordered, durable key-value store.

mod cursor;
mod error;
mod memtable;
mod merge_operator;
mod rangedel;

pub use error::{Error, ErrorKind, Result};
pub use merge_operator::{AddI64, Append, MergeOperator};
