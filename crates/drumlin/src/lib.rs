//! Drumlin: an embedded, ordered, durable key-value store.

mod cursor;
mod error;
mod rangedel;
mod slice;
#[allow(dead_code, unused_imports)]
mod table;

pub use error::{Error, ErrorKind, Result};
pub use slice::Slice;
