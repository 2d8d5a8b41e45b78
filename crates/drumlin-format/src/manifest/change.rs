//! What an edit can say.
//!
//! Numbers are as the engine keeps them; nothing here is derived from anything else in the same edit. What must
//! hold for a record by itself (`fault`) is checked when it is written and when it is read.

use crate::MAX_BOUND_LEN;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyRange, KeyspaceId, LogNumber, MAX_LEVEL, RunId, Seq, TableId, ValueFileId};

/// Longest name of a keyspace, an option or a policy, in bytes.
pub const MAX_NAME_LEN: usize = 255;
/// Longest value of an option or state of a policy, in bytes.
pub const MAX_BLOB_LEN: usize = 1 << 24;
/// Most changes in one edit. It bounds the memory that a hostile manifest can cost; a larger state is written as
/// several edits.
pub const MAX_CHANGES: usize = 1 << 16;
/// Most value files that a table points to.
pub const MAX_VALUE_REFS: usize = 1 << 16;

/// Changes that take effect together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Edit {
    /// In the order in which they apply. An edit without any is valid: it carries the mark of the last sync.
    pub changes: Vec<Change>,
}

/// One change of the store's state.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A keyspace exists from now on.
    CreateKeyspace {
        /// Its id, never used before.
        id: KeyspaceId,
        /// Its name, not empty.
        name: String,
    },
    /// A keyspace is gone, with all that it held.
    DropKeyspace {
        /// Its id.
        id: KeyspaceId,
    },
    /// A keyspace's option was set.
    KeyspaceOption {
        /// The keyspace.
        id: KeyspaceId,
        /// The option.
        name: String,
        /// Its value as text.
        value: String,
    },
    /// A run exists from now on, empty until files are added. A run that loses its last file is gone.
    AddRun {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its id, never used before.
        run: RunId,
        /// Where it is.
        level: u8,
        /// What the policy attached to it.
        tag: RunTag,
    },
    /// A reference to a table was added to a run.
    AddFile {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The reference.
        file: FileRecord,
    },
    /// A reference to a table was removed.
    RemoveFile {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The table.
        table: TableId,
        /// Start of the reference's bounds, which tells it from others to the same table.
        start: Key,
    },
    /// All writes to a keyspace up to a sequence number are in tables.
    Flushed {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The sequence number.
        seq: Seq,
    },
    /// Log segments below this one are not needed.
    LogFloor(LogNumber),
    /// File numbers below this one are taken.
    NextFile(u64),
    /// Run ids below this one are taken.
    NextRun(u64),
    /// Sequence numbers up to this one are taken.
    LastSeq(Seq),
    /// The clock was here, in microseconds since the Unix epoch: it must not seem to go back.
    ClockMark(u64),
    /// A policy's state.
    Policy {
        /// The keyspace that it decides for.
        keyspace: KeyspaceId,
        /// The policy.
        name: String,
        /// Its state in its own format.
        blob: Vec<u8>,
    },
    /// An option of the store was set.
    StoreOption {
        /// The option.
        name: String,
        /// Its value as text.
        value: String,
    },
    /// What lookups found in a file: advice, kept up to date now and then.
    Lookups {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The table.
        table: TableId,
        /// Start of the reference's bounds.
        start: Key,
        /// Empty, found, and dead, as in [`FileRecord::lookups`].
        lookups: [f32; 3],
    },
    /// A value file exists or has a new state.
    ValueFile(ValueFileRecord),
    /// The dead bytes of a value file were counted again.
    ValueCounters {
        /// The value file.
        file: ValueFileId,
        /// Dead bytes.
        dead_bytes: u64,
        /// Dead entries.
        dead_entries: u64,
    },
    /// A change that this version does not know, and may ignore: kept as it is, so that it is not lost when the
    /// manifest is rewritten.
    Extension {
        /// Which change.
        tag: u16,
        /// Whether a version that does not know it must refuse the store.
        critical: bool,
        /// Its body.
        bytes: Vec<u8>,
    },
}

/// Entries of a table that point into a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRef {
    /// The value file.
    pub file: ValueFileId,
    /// Pointers to it.
    pub entries: u64,
    /// Stored bytes that they point to.
    pub bytes: u64,
}

/// A reference to a table with the bounds that are in force.
#[derive(Clone, PartialEq, Debug)]
pub struct FileRecord {
    /// The physical table.
    pub table: TableId,
    /// First key it answers for.
    pub start: Key,
    /// First key after those; `None` for no end.
    pub end: Option<Key>,
    /// Level of the run.
    pub level: u8,
    /// The run.
    pub run: RunId,
    /// Length of the table file.
    pub file_len: u64,
    /// Stored bytes inside the bounds.
    pub bytes: u64,
    /// Entries inside the bounds.
    pub entries: u64,
    /// Distinct user keys inside the bounds.
    pub keys: u64,
    /// Tombstones inside the bounds.
    pub tombstones: u64,
    /// Range tombstones of the whole table.
    pub range_tombstones: u64,
    /// Entries of the whole table.
    pub table_entries: u64,
    /// Smallest sequence number of the table.
    pub min_seq: Seq,
    /// Largest sequence number of the table.
    pub max_seq: Seq,
    /// Filter bits per key as built.
    pub filter_bits: f32,
    /// False-positive rate as built.
    pub fp_rate: f32,
    /// Hash of the whole file.
    pub checksum: u64,
    /// Whether the predecessor of each entry is counted as dead in its value file.
    pub accounted: bool,
    /// Every value file that the table points to.
    pub value_refs: Vec<ValueRef>,
    /// Decayed counts of lookups: empty, found, and those of found that met a tombstone.
    pub lookups: [f32; 3],
}

impl FileRecord {
    /// The bounds as a range.
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
            Some("bound longer than a key can be")
        } else if self.min_seq > self.max_seq {
            Some("file with its sequence numbers reversed")
        } else if self.value_refs.len() > MAX_VALUE_REFS {
            Some("table that points to too many value files")
        } else if self.entries > self.table_entries {
            Some("file with more entries than its table")
        } else {
            None
        }
    }
}

/// Where the survivors of a collected value file went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRecord {
    /// Number of the map file.
    pub number: u64,
    /// Length of the map file.
    pub file_len: u64,
    /// Entries.
    pub entries: u64,
    /// Hash of the whole file.
    pub checksum: u64,
}

/// What has become of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueFileState {
    /// It is there.
    Live,
    /// It was collected. Its map tells where the survivors are; there are none without a map.
    Moved(Option<MapRecord>),
    /// Nothing points to it.
    Gone,
}

/// A value file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueFileRecord {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The file.
    pub file: ValueFileId,
    /// What has become of it.
    pub state: ValueFileState,
    /// Lifetime class, 0 for the shortest.
    pub class: u8,
    /// Length of the file.
    pub file_len: u64,
    /// Records.
    pub entries: u64,
    /// Stored bytes of all records.
    pub total_bytes: u64,
    /// Stored bytes of records known to be dead.
    pub dead_bytes: u64,
    /// Records known to be dead.
    pub dead_entries: u64,
    /// Sequence number at which it was made.
    pub created_seq: Seq,
    /// Sequence number by which its values should be dead; `Seq::MAX` for never.
    pub end_seq: Seq,
    /// Smallest sequence number of a record.
    pub min_seq: Seq,
    /// Largest sequence number of a record.
    pub max_seq: Seq,
    /// Hash of the whole file.
    pub checksum: u64,
}

impl ValueFileRecord {
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.min_seq > self.max_seq {
            Some("value file with its sequence numbers reversed")
        } else if self.dead_bytes > self.total_bytes || self.dead_entries > self.entries {
            Some("value file with more dead than there is")
        } else {
            None
        }
    }
}
