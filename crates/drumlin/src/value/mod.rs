//! Value files: large values apart from the tree, which holds pointers to them.
//!
//! - [`separator`] writes the values of at least `value_threshold` bytes of a flush or compaction to value files.
//! - [`reader`] follows a pointer to its value.
//!
//! A value is written to a value file once. Compactions copy its pointer. A value file is removed when no table points
//! to it any more.

mod reader;
mod separator;
mod writer;

pub(crate) use reader::ValueFiles;
pub(crate) use separator::{Separator, ValueSpec, references};
