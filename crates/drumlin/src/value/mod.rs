//! Value files: large values apart from the tree, which holds pointers to them.
//!
//! - [`separator`] writes the values of at least `value_threshold` bytes of a flush or compaction to value files.
//! - [`lifetimes`] says which values are written together.
//! - [`collect`] says which value files a compaction collects, and how much garbage there is.
//! - [`reader`] follows a pointer to its value.
//!
//! Compactions copy pointers, not values, except for the values that they meet in collected files, those with much
//! garbage (`drumlin_policy::value`). A value file is removed when no table points to it any more.

mod collect;
mod lifetimes;
mod reader;
mod separator;
mod writer;

pub(crate) use collect::{all_value_bytes, chosen_files, files_to_collect, value_file_sizes, value_space};
pub(crate) use lifetimes::{FlushedValues, Lifetimes, Placement, Trained};
pub(crate) use reader::{ValueFiles, WantedValue};
pub(crate) use separator::{Separator, Superseded, ValueSpec, Waiting, references};
