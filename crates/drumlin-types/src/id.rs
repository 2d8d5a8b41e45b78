//! Newtype identifiers. None is ever reused within a store (order rule O4).

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
    /// A physical table file. Table, log, manifest and value files share one number space.
    TableId(u64), "t"
);
id!(
    /// A sorted run: files with disjoint bounds in one level.
    RunId(u64), "r"
);
id!(
    /// A keyspace (column family).
    KeyspaceId(u32), "k"
);
id!(
    /// A log segment. It is also the segment's epoch.
    LogNumber(u64), "log"
);
id!(
    /// A value file.
    ValueFileId(u64), "v"
);
id!(
    /// An admitted plan. Tickets are numbered in admission order and live in memory only.
    Ticket(u64), "#"
);
