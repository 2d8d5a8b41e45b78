//! Value files: large values apart from the tree, which holds pointers to them.
//!
//! - [`separator`] writes the values of at least `value_threshold` bytes of a flush or compaction to value files.
//! - [`collect`] says which value files a compaction collects.
//! - [`reader`] follows a pointer to its value.
//!
//! A value is written to a value file once, and compactions copy its pointer. A compaction that meets a pointer into a
//! value file with much garbage copies the value (`drumlin_policy::value`). A value file is removed when no table
//! points to it any more.

mod collect;
mod reader;
mod separator;
mod writer;

pub(crate) use collect::{collected, value_loads};
pub(crate) use reader::ValueFiles;
pub(crate) use separator::{Separator, ValueSpec, references};
