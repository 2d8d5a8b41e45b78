//! Settings: what a user may choose, said once.
//!
//! Every option is one entry in `defs`: name, type, default, bounds, whether an open store takes it, and the
//! text that explains it. From that entry come
//! * a field of [`Options`] (one per store) or [`KeyspaceOptions`] (one per keyspace), with that text as its
//!   doc,
//! * parsing and printing: `set("memory_budget", "64MiB")`, `get`, and the text pairs that the manifest
//!   keeps,
//! * the check of fields that were assigned directly (`validate`), with the same errors as parsing,
//! * the help text and `docs/options.md`,
//! * random settings for tests.
//!
//! Settings are plain numbers and names. Components, which are code (environment, merge operator, listener),
//! are given apart from them and never stored.
//!
//! Invariants:
//! * An option is printed so that parsing gives the same value again.
//! * A value out of bounds is refused with the option's name, the value and the bounds, before anything
//!   changes.
//! * An option only exists once something obeys it.
//! * Names are never reused with another meaning: stores in the field have them in their manifests.

mod defs;
mod parse;
mod random;
mod registry;
mod render;
#[cfg(test)]
mod tests;

pub use defs::{KeyspaceOptions, Options};
pub use drumlin_format::compression::Compression;
pub use registry::{OptionDef, Scope, Shape};
pub use render::{options_help, options_markdown};

use registry::named;

named! {
    /// What a returned write survives.
    #[derive(Default)]
    pub enum Durability {
        /// Nothing, until the memtable that holds it is flushed: no log is written.
        None = "none",
        /// The end of the process: the log record was handed to the operating system.
        #[default]
        Buffered = "buffered",
        /// Power loss: the log was synced.
        Sync = "sync",
    }
}

named! {
    /// Where reads of tables come from, when the block cache does not have them.
    #[derive(Default)]
    pub enum TableReads {
        /// The page cache of the operating system.
        #[default]
        Buffered = "buffered",
        /// The disk, past the page cache: memory is what `memory_budget` says and no more.
        Direct = "direct",
    }
}

named! {
    /// How merges follow each other.
    #[derive(Default)]
    pub enum Pipeline {
        /// Any legal merge may run at any time.
        #[default]
        Pipelined = "pipelined",
        /// As without a pipeline: busy neighbours exclude each other, and a merge is installed as a whole.
        Split = "split",
        /// The same, with one thread for a merge.
        Unsplit = "unsplit",
    }
}

named! {
    /// Whether a policy tunes itself.
    #[derive(Default)]
    pub enum Adaptation {
        /// It follows the load.
        #[default]
        On = "on",
        /// It keeps the settings that it has found, and merges by them.
        Frozen = "frozen",
    }
}

impl Options {
    /// The memtable size of a keyspace: its own option, or derived from the memory budget.
    pub fn memtable_bytes(&self, keyspace: &KeyspaceOptions) -> u64 {
        match keyspace.memtable_bytes {
            0 => self.usual_memtable(),
            bytes => bytes,
        }
    }

    /// What memtables of a keyspace that are flushed together hold at most: its own option, or as much as a memtable whose
    /// size is left open.
    pub fn flush_bytes(&self, keyspace: &KeyspaceOptions) -> u64 {
        match keyspace.flush_bytes {
            0 => self.usual_memtable(),
            bytes => bytes,
        }
    }

    fn usual_memtable(&self) -> u64 {
        (self.memory_budget / 8).min(64 << 20)
    }
}

impl KeyspaceOptions {
    /// The compression of files in the bottom level.
    pub fn bottom_compression(&self) -> Compression {
        self.compression_bottom.unwrap_or(self.compression)
    }
}
