//! Options of stores and keyspaces, generated from one list.
//!
//! Every option is one entry in `defs`: name, type, default, bounds, whether it can be changed while the store is open,
//! and its description. The following is generated from the entry:
//! * a field of [`Options`] (one per store) or [`KeyspaceOptions`] (one per keyspace), with the description as its doc;
//! * parsing and printing: `set("memory_budget", "64MiB")`, `get`, and the text pairs that the manifest stores;
//! * `validate`, which checks fields that were assigned directly and returns the same errors as parsing;
//! * the help text and `docs/options.md`;
//! * random options for tests.
//!
//! Options are plain numbers and names. Components are code (environment, merge operator, listener). Programs pass them
//! separately, and the store does not persist them.
//!
//! Invariants:
//! * Parsing the printed form of an option gives the same value again.
//! * A value out of bounds is refused before anything changes. The error names the option, the value and the bounds.
//! * Every option in the list is implemented.
//! * A name is never reused with another meaning, because existing stores have it in their manifests.

mod defs;
mod derived;
mod macros;
mod parse;
#[cfg(feature = "testing")]
mod random;
mod registry;
mod render;
mod settings;
#[cfg(test)]
mod tests;
mod values;

pub use defs::{KeyspaceOptions, Options};
pub(crate) use derived::is_left_out;
pub use drumlin_format::compression::Compression;
pub use registry::{OptionDef, Scope, Shape};
pub use render::{options_help, options_markdown};
pub use settings::KeyspaceSettings;
pub use values::{Adaptation, Durability, FilterMode, Pipeline, TableReads, ValuePolicy};
