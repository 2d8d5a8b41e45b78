//! The shape of a tree as plain data: levels, runs and files. These types define the output of `tree --json`.

use crate::escape::escape;
use serde::{Serialize, Serializer};

/// The tree of a keyspace.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct KeyspaceShape {
    /// Name of the keyspace.
    pub(crate) name: String,
    /// Name of its policy.
    pub(crate) policy: String,
    /// Bytes in the active memtable.
    pub(crate) active_bytes: u64,
    /// Number of sealed memtables that wait for a flush.
    pub(crate) sealed_memtables: u64,
    /// Bytes in the sealed memtables.
    pub(crate) sealed_bytes: u64,
    /// Levels, newest first.
    pub(crate) levels: Vec<LevelShape>,
}

/// A level of a tree.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct LevelShape {
    /// Level number.
    pub(crate) level: u8,
    /// Runs of the level.
    pub(crate) runs: Vec<RunShape>,
}

/// A sorted run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RunShape {
    /// Id of the run.
    pub(crate) id: u64,
    /// Tag that the policy gave the run, as text.
    pub(crate) tag: String,
    /// Files in key order.
    pub(crate) files: Vec<FileShape>,
}

/// A reference to a table, with the bounds in force.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct FileShape {
    /// Number of the table.
    pub(crate) table: u64,
    /// Lower bound of the file (inclusive).
    #[serde(serialize_with = "as_text")]
    pub(crate) first: Vec<u8>,
    /// Upper bound of the file (exclusive); `None` if unbounded.
    #[serde(serialize_with = "as_optional_text")]
    pub(crate) end: Option<Vec<u8>>,
    /// Stored bytes.
    pub(crate) bytes: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Number of tombstones among the entries.
    pub(crate) tombstones: u64,
    /// Number of range tombstones in the table.
    pub(crate) range_tombstones: u64,
    /// Smallest sequence number.
    pub(crate) min_seq: u64,
    /// Largest sequence number.
    pub(crate) max_seq: u64,
    /// Whether the file's bounds are narrower than its table.
    pub(crate) narrowed: bool,
    /// Decayed count of point lookups that read this file and found no version.
    pub(crate) lookups_empty: f64,
    /// Decayed count of point lookups that found a version.
    pub(crate) lookups_found: f64,
    /// Part of `lookups_found` that found a tombstone.
    pub(crate) lookups_dead: f64,
    /// Role of the file in unfinished compactions; `free` if it has none.
    pub(crate) state: String,
}

impl FileShape {
    /// Returns whether an unfinished compaction involves the file.
    pub(crate) fn is_busy(&self) -> bool {
        self.state != "free"
    }
}

fn as_text<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(bytes))
}

fn as_optional_text<S: Serializer>(
    bytes: &Option<Vec<u8>>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    bytes.as_deref().map(escape).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_in_json() {
        let file = FileShape { first: b"\xff\t".to_vec(), end: Some(b"z".to_vec()), ..FileShape::default() };
        let json = serde_json::to_value(file).expect("plain data");
        assert_eq!((json["first"].as_str(), json["end"].as_str()), (Some("\\xff\\t"), Some("z")));
    }
}
