//! Types of the options whose values have names.

use super::macros::named;

named! {
    /// Durability of a write: what it survives once the call has returned. The default is `Buffered`.
    ///
    /// Calls such as [`Db::write_with`](crate::Db::write_with) and [`Keyspace::put_with`](crate::Keyspace::put_with)
    /// take it for one write. The option `durability` sets it for all other writes. [`Db::sync`](crate::Db::sync) makes
    /// all logged writes so far durable, and [`Db::flush`](crate::Db::flush) all writes.
    ///
    /// After a crash the store holds a prefix of the logged commits, in commit order: if one survives, so do all logged
    /// ones before it.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// use drumlin::Durability;
    /// let db = drumlin::Db::builder(dir.path()).set("durability", "sync")?.open()?;
    /// let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?; // survives power loss
    /// users.put_with("visits", "7", Durability::Buffered)?; // may be lost with the next ones at power loss
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    #[derive(Default)]
    pub enum Durability {
        /// No log is written. The write survives nothing until the memtable that holds it is flushed: a close, a drop
        /// and the end of the process lose it. It may be lost although later logged writes survive. RocksDB calls this
        /// `disableWAL`.
        None = "none",
        /// The log record was handed to the operating system, without an fsync. The write survives the end of the
        /// process, also by a crash or a kill. It does not survive a crash of the operating system or power loss before
        /// the next sync of the log. This is the default of RocksDB (`sync = false`), too.
        #[default]
        Buffered = "buffered",
        /// The log was synced (`fdatasync` or `msync`). The write survives power loss, if the device keeps what it has
        /// acknowledged. It costs one fsync, which concurrent writers share. Other threads may read the write before it
        /// is durable.
        Sync = "sync",
    }
}

named! {
    /// How table blocks that are not in the block cache are read: the option `table_reads`.
    #[derive(Default)]
    pub enum TableReads {
        /// Reads go through the page cache of the operating system.
        #[default]
        Buffered = "buffered",
        /// All table reads bypass the page cache where the file system allows it, those of compactions included, so
        /// that `memory_budget` bounds the memory used for tables. Reads of value files and all writes still go through
        /// the page cache.
        Direct = "direct",
    }
}

named! {
    /// How the budget of filter bits is divided over tables: the option `filter_mode`. No mode changes an answer; it
    /// changes how many blocks lookups read that do not hold their key.
    #[derive(Default)]
    pub enum FilterMode {
        /// Every table gets the average.
        Uniform = "uniform",
        /// Bits follow the level capacities that the compaction policy designs, as if lookups probed each run equally
        /// often. Level 0 gets the average. Under a policy without capacities, the mode is the same as `mnemosyne`.
        Monkey = "monkey",
        /// Same as `mnemosyne` for now. It is meant for future shapes of the tree, which no compaction policy predicts
        /// yet.
        MonkeyDynamic = "monkey-dynamic",
        /// Bits follow the sizes of tables, as if lookups probed each run equally often.
        Mnemosyne = "mnemosyne",
        /// Bits follow the sizes of tables and the observed lookups of each table.
        #[default]
        MnemosynePlus = "mnemosyne+",
    }
}

named! {
    /// Concurrency mode of compactions: the option `pipeline`. All values but the default are for comparisons.
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
    /// How values are grouped into value files, and which value files are collected first: the option `value_policy`.
    /// All values but the default are for comparisons. No value changes an answer.
    #[derive(Default)]
    pub enum ValuePolicy {
        /// Values with similar predicted lifetimes share a file. The prediction is the mean interval between the writes
        /// of the key, or that of a model, whichever was more accurate lately. Old files with much garbage are
        /// collected first.
        #[default]
        Lifetimes = "lifetimes",
        /// The same without the model.
        MeanInterval = "mean-interval",
        /// A flush or compaction writes one value file at a time. Those with the largest share of garbage are collected
        /// first, as in TerarkDB and Titan, but started by the space target.
        GarbageRatio = "garbage-ratio",
    }
}

named! {
    /// Whether a compaction policy tunes itself: the option `adaptation`.
    #[derive(Default)]
    pub enum Adaptation {
        /// The policy adapts to the load.
        #[default]
        On = "on",
        /// The policy keeps the settings that it has found and compacts by them.
        Frozen = "frozen",
    }
}
