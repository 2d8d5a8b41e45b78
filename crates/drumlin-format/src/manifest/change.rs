//! The changes that an edit consists of.
//!
//! Numbers are stored as the engine keeps them. No field is derived from another change of the same edit. `fault`
//! checks the conditions that a record must satisfy by itself, both when it is written and when it is read.

use crate::MAX_BOUND_LEN;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyRange, KeyspaceId, LogNumber, MAX_LEVEL, RunId, Seq, TableId, ValueFileId};

/// Maximum length of the name of a keyspace, an option or a policy, in bytes.
pub const MAX_NAME_LEN: usize = 255;
/// Maximum length of the value of an option or the state of a policy, in bytes.
pub const MAX_BLOB_LEN: usize = 1 << 24;
/// Maximum number of changes in one edit. It bounds the memory that a hostile manifest can consume. A larger state is
/// written as several edits.
pub const MAX_CHANGES: usize = 1 << 16;
/// Maximum number of buckets in the lookup statistics of a keyspace.
pub const MAX_BUCKETS: usize = 1 << 12;
/// Maximum number of value files that a table points to.
pub const MAX_VALUE_REFS: usize = 1 << 16;

/// A set of changes that take effect atomically.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Edit {
    /// Changes, in the order in which they apply. An empty edit is valid: it carries the mark of the last sync.
    pub changes: Vec<Change>,
}

/// One change of the store's state.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Creates a keyspace.
    CreateKeyspace {
        /// Id of the keyspace, never used before.
        id: KeyspaceId,
        /// Name of the keyspace, not empty.
        name: String,
    },
    /// Renames a keyspace.
    RenameKeyspace {
        /// Id of the keyspace.
        id: KeyspaceId,
        /// New name, not empty. No other keyspace has it.
        name: String,
    },
    /// Drops a keyspace with all its data.
    DropKeyspace {
        /// Id of the keyspace.
        id: KeyspaceId,
    },
    /// Sets an option of a keyspace.
    KeyspaceOption {
        /// The keyspace.
        id: KeyspaceId,
        /// Name of the option.
        name: String,
        /// Value as text.
        value: String,
    },
    /// Creates a run, empty until files are added. A run that loses its last file ceases to exist.
    AddRun {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Id of the run, never used before.
        run: RunId,
        /// Level of the run.
        level: u8,
        /// Tag set by the policy.
        tag: RunTag,
    },
    /// Adds a reference to a table to a run.
    AddFile {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The reference.
        file: FileRecord,
    },
    /// Removes a reference to a table.
    RemoveFile {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The table.
        table: TableId,
        /// Start of the reference's bounds, which distinguishes it from other references to the same table.
        start: Key,
    },
    /// Records that all writes to a keyspace up to a sequence number are in tables.
    Flushed {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The sequence number.
        seq: Seq,
    },
    /// Sets the merge operator of a keyspace: how its merge operands are interpreted.
    MergeOperator {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Name of the operator.
        name: String,
    },
    /// Log floor: log segments with smaller numbers are not needed.
    LogFloor(LogNumber),
    /// Next file number: smaller numbers are in use or were used.
    NextFile(u64),
    /// Next run id: smaller ids are in use or were used.
    NextRun(u64),
    /// Next keyspace id: smaller ids are in use or were used. Ids of dropped keyspaces count, since the log may still
    /// refer to them.
    NextKeyspace(u64),
    /// Largest sequence number that was durable when the edit was written.
    LastSeq(Seq),
    /// Log position up to which the log was durable: the log never ends before it. If the log ends exactly there with a
    /// close record, the store was closed cleanly.
    LogEnd(u64),
    /// Time of the clock in microseconds since the Unix epoch. The clock must not appear to run backwards past it.
    ClockMark(u64),
    /// Saves the state of a policy.
    Policy {
        /// The keyspace of the policy.
        keyspace: KeyspaceId,
        /// Name of the policy.
        name: String,
        /// State in the policy's own format.
        blob: Vec<u8>,
    },
    /// Sets an option of the store.
    StoreOption {
        /// Name of the option.
        name: String,
        /// Value as text.
        value: String,
    },
    /// Updates the lookup statistics of a file. They are advisory and updated occasionally.
    Lookups {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The table.
        table: TableId,
        /// Start of the reference's bounds.
        start: Key,
        /// Counts of empty, found and dead lookups, as in [`FileRecord::lookups`].
        lookups: [f32; 3],
    },
    /// Updates the lookup statistics of a keyspace. They are advisory and updated occasionally.
    KeyspaceLookups {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The statistics.
        lookups: KeyspaceLookups,
    },
    /// Updates how long tables of a keyspace live. This is advisory and updated occasionally.
    TableLives {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The lives by level, each level at most once, in increasing order.
        lives: Vec<TableLife>,
    },
    /// Updates what was learned about the lifetimes of the values of a keyspace. This is advisory and updated
    /// occasionally.
    ValueLifetimes {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its own encoding, which has a version.
        blob: Vec<u8>,
    },
    /// Adds a value file, or updates its state.
    ValueFile(ValueFileRecord),
    /// Updates the counts of dead data in a value file.
    ValueCounters {
        /// The value file.
        file: ValueFileId,
        /// Dead bytes.
        dead_bytes: u64,
        /// Dead entries.
        dead_entries: u64,
    },
    /// A change with an unknown tag. Readers keep it unchanged, so that rewriting the manifest does not lose it, or
    /// refuse the store if `critical`.
    Extension {
        /// Tag of the change.
        tag: u16,
        /// Whether a version that does not understand the change must refuse to open the store.
        critical: bool,
        /// Body of the change.
        bytes: Vec<u8>,
    },
}

/// Decayed counts of the point lookups of a keyspace, and where in its keys they are.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KeyspaceLookups {
    /// Number of lookups, and of those that no memtable answered.
    pub totals: [f32; 2],
    /// Number of keys of the keyspace when the buckets were made.
    pub keys: u64,
    /// Lookups in the first bucket of keys.
    pub first: f32,
    /// First key of each other bucket, in increasing order, and the lookups in it.
    pub buckets: Vec<(Key, f32)>,
}

impl KeyspaceLookups {
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.buckets.len() > MAX_BUCKETS {
            Some("lookup statistics of too many buckets")
        } else if self.buckets.iter().any(|(start, _)| start.len() > MAX_BOUND_LEN) {
            Some("bucket bound exceeds the maximum length")
        } else if self.buckets.first().is_some_and(|(start, _)| start.is_empty())
            || !self.buckets.is_sorted_by(|(a, _), (b, _)| a < b)
        {
            Some("buckets out of order")
        } else {
            None
        }
    }
}

/// How long the tables of a level live: from their installation until they are compacted away.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TableLife {
    /// The level.
    pub level: u8,
    /// Number of tables that were compacted away.
    pub tables: u32,
    /// Mean life in lookups of the keyspace.
    pub lookups: f32,
}

/// Returns what is wrong with the lives of a keyspace's tables.
pub(super) fn lives_fault(lives: &[TableLife]) -> Option<&'static str> {
    if lives.iter().any(|life| life.level > MAX_LEVEL) {
        Some("life of a table in a level that does not exist")
    } else if !lives.is_sorted_by(|a, b| a.level < b.level) {
        Some("lives of tables out of order")
    } else {
        None
    }
}

/// References from a table to a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRef {
    /// The value file.
    pub file: ValueFileId,
    /// Number of entries that point to it.
    pub entries: u64,
    /// Stored bytes of the values that they point to.
    pub bytes: u64,
}

/// A reference to a table with the key bounds in force.
#[derive(Clone, PartialEq, Debug)]
pub struct FileRecord {
    /// Number of the table file.
    pub table: TableId,
    /// First key of the bounds.
    pub start: Key,
    /// First key after the bounds; `None` when they are unbounded.
    pub end: Option<Key>,
    /// Level of the run.
    pub level: u8,
    /// Id of the run.
    pub run: RunId,
    /// Length of the table file.
    pub file_len: u64,
    /// Stored bytes inside the bounds.
    pub bytes: u64,
    /// Number of entries inside the bounds.
    pub entries: u64,
    /// Number of distinct user keys inside the bounds.
    pub keys: u64,
    /// Number of point tombstones inside the bounds.
    pub tombstones: u64,
    /// Number of range tombstones of the whole table.
    pub range_tombstones: u64,
    /// Number of entries of the whole table.
    pub table_entries: u64,
    /// Smallest sequence number of the table.
    pub min_seq: Seq,
    /// Largest sequence number of the table.
    pub max_seq: Seq,
    /// Filter bits per key, as built.
    pub filter_bits: f32,
    /// False-positive rate of the filter, as built.
    pub fp_rate: f32,
    /// XXH3-64 hash of the whole file.
    pub checksum: u64,
    /// Whether the entries that this table's entries supersede are counted as dead in their value files.
    pub accounted: bool,
    /// All value files that the table points to.
    pub value_refs: Vec<ValueRef>,
    /// Decayed counts of lookups: empty, found, and those of found that met a tombstone.
    pub lookups: [f32; 3],
}

impl FileRecord {
    /// Returns the bounds as a range.
    #[must_use]
    pub fn bounds(&self) -> KeyRange {
        KeyRange::new(self.start.clone(), self.end.clone())
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.level > MAX_LEVEL {
            Some("file below the deepest level")
        } else if self.bounds().is_empty() {
            Some("file with empty bounds")
        } else if self.start.len() > MAX_BOUND_LEN
            || self.end.as_ref().is_some_and(|end| end.len() > MAX_BOUND_LEN)
        {
            Some("key bound exceeds the maximum length")
        } else if self.min_seq > self.max_seq {
            Some("file with its sequence numbers reversed")
        } else if self.value_refs.len() > MAX_VALUE_REFS {
            Some("table that points to too many value files")
        } else if self.entries > self.table_entries {
            Some("file with more entries than its table")
        } else if self.bytes > self.file_len {
            Some("file with more bytes than its table")
        } else {
            None
        }
    }
}

/// The map file of a collected value file. It stores the new places of the live values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRecord {
    /// Number of the map file.
    pub number: u64,
    /// Length of the map file.
    pub file_len: u64,
    /// Number of entries.
    pub entries: u64,
    /// XXH3-64 hash of the whole file.
    pub checksum: u64,
}

/// State of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueFileState {
    /// The file is in use.
    Live,
    /// The file was garbage collected. Its map stores the new places of the live values. Without a map no value was
    /// live.
    Moved(Option<MapRecord>),
    /// No entry points to the file.
    Gone,
}

/// State and counts of a value file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueFileRecord {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Number of the value file.
    pub file: ValueFileId,
    /// State of the file.
    pub state: ValueFileState,
    /// Lifetime class, 0 for the shortest.
    pub class: u8,
    /// Length of the file.
    pub file_len: u64,
    /// Number of records.
    pub entries: u64,
    /// Stored bytes of all records.
    pub total_bytes: u64,
    /// Stored bytes of records known to be dead.
    pub dead_bytes: u64,
    /// Number of records known to be dead.
    pub dead_entries: u64,
    /// Sequence number at which the file was created.
    pub created_seq: Seq,
    /// Sequence number by which its values are expected to be dead; `Seq::MAX` for never.
    pub end_seq: Seq,
    /// Smallest sequence number of a record.
    pub min_seq: Seq,
    /// Largest sequence number of a record.
    pub max_seq: Seq,
    /// XXH3-64 hash of the whole file.
    pub checksum: u64,
}

impl ValueFileRecord {
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.min_seq > self.max_seq {
            Some("value file with its sequence numbers reversed")
        } else if self.dead_bytes > self.total_bytes || self.dead_entries > self.entries {
            Some("value file has more dead data than data")
        } else {
            None
        }
    }
}
