//! Newtype identifiers. A store never reuses an id (durability order rule O4).

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// Number of a table file. Table, log, manifest and value files share one number space.
    TableId(u64), "t"
);
id!(
    /// Id of a sorted run: files of one level with disjoint bounds.
    RunId(u64), "r"
);
id!(
    /// Id of a keyspace (a column family in RocksDB).
    KeyspaceId(u32), "k"
);
id!(
    /// Number of a log segment. It is also the segment's epoch.
    LogNumber(u64), "log"
);
id!(
    /// Number of a value file.
    ValueFileId(u64), "v"
);
id!(
    /// Number of a scheduled compaction. Tickets are numbered in admission order and exist in memory only.
    Ticket(u64), "#"
);
