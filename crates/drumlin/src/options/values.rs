//! Types of the options whose values have names.

use super::macros::named;

named! {
    /// Durability of a write once the call has returned.
    #[derive(Default)]
    pub enum Durability {
        /// No log is written. The write survives nothing until the memtable that holds it is flushed.
        None = "none",
        /// The log record was handed to the operating system. The write survives the end of the process.
        #[default]
        Buffered = "buffered",
        /// The log was synced. The write survives power loss.
        Sync = "sync",
    }
}

named! {
    /// How table blocks that are not in the block cache are read.
    #[derive(Default)]
    pub enum TableReads {
        /// Reads go through the page cache of the operating system.
        #[default]
        Buffered = "buffered",
        /// Reads bypass the page cache, so that `memory_budget` bounds the memory used for tables.
        Direct = "direct",
    }
}

named! {
    /// Concurrency mode of compactions.
    #[derive(Default)]
    pub enum Pipeline {
        /// Any legal compaction may run at any time, and each piece (subcompaction) is installed on its own.
        #[default]
        Pipelined = "pipelined",
        /// As in engines without a pipeline: compactions of overlapping files exclude each other, and each compaction
        /// is installed as a whole.
        Split = "split",
        /// Like `Split`, with a single thread per compaction.
        Unsplit = "unsplit",
    }
}

named! {
    /// Whether a policy tunes itself.
    #[derive(Default)]
    pub enum Adaptation {
        /// The policy adapts to the load.
        #[default]
        On = "on",
        /// The policy keeps the settings that it has found and compacts by them.
        Frozen = "frozen",
    }
}
