//! Drumlin: an embedded, ordered, durable key-value store.

mod cursor;
mod error;
mod iter;
mod merge_operator;
mod rangedel;
mod read;
mod slice;

pub use error::{Error, ErrorKind, Result};
pub use iter::RangeIter;
pub use merge_operator::{AddI64, Append, MergeOperator};
pub use slice::Slice;
