//! Drumlin: an embedded, ordered, durable key-value store.

mod cursor;
mod error;
mod memtable;
mod merge_operator;
mod options;
mod rangedel;

pub use error::{Error, ErrorKind, Result};
pub use merge_operator::{AddI64, Append, MergeOperator};
pub use options::{
    Compression, Durability, KeyspaceOptions, OptionDef, Options, Scope, Shape, options_help,
    options_markdown,
};
