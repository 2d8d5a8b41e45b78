//! Report of a repair: what is saved for certain, what is in doubt, and what is lost.

use std::collections::BTreeMap;

/// Result of [`repair`](crate::repair()): what it saved, and what it could not save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct RepairReport {
    /// Keyspaces of the new store.
    pub keyspaces: Vec<RepairedKeyspace>,
    /// Tables and log segments of the old store that were read. Segments without entries or damage are left out.
    pub files: Vec<RepairedFile>,
    /// Number of commits read from the log.
    pub commits: u64,
    /// Whether the old store was closed cleanly. Its log and its manifest then confirm each other's end. Otherwise the
    /// end of the log may be missing without a trace.
    pub was_closed: bool,
    /// Descriptions of what is lost or in doubt, one line each. They contain no keys or values.
    pub findings: Vec<String>,
    /// Other remarks that report no loss.
    pub notes: Vec<String>,
}

/// Keyspace of the new store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct RepairedKeyspace {
    /// Name of the keyspace.
    pub name: String,
    /// Number of keys with the value that they last had.
    pub certain: u64,
    /// Number of keys with a value that they once had. A newer value, or their deletion, may be lost.
    pub doubtful: u64,
    /// Number of entries that are known to be lost, including overwritten versions.
    pub lost: u64,
    /// Whether more entries may be lost, of unknown number.
    pub lost_more: bool,
}

/// File of the old store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct RepairedFile {
    /// Name of the file.
    pub name: String,
    /// Number of entries read.
    pub entries: u64,
    /// Number of entries that are known to be lost.
    pub lost: u64,
    /// Number of parts that could not be read.
    pub damages: u64,
}

/// Progress of a repair, which [`repair_with`](crate::repair_with) reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct RepairProgress {
    /// Bytes of tables and log segments read so far.
    pub bytes: u64,
    /// Bytes of all tables and log segments.
    pub total_bytes: u64,
    /// Number of entries written to the new store so far: saved keys, each with one value.
    pub entries: u64,
}

impl RepairReport {
    /// Returns whether the new store provably holds everything that the old one held: every part of it was read, and it
    /// was closed cleanly.
    pub fn nothing_lost(&self) -> bool {
        self.findings.is_empty() && self.was_closed
    }

    /// Returns the number of entries of the new store: the keys that were saved, each with one value.
    pub fn entries(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.certain + keyspace.doubtful).sum()
    }

    /// Returns the number of entries that are known to be lost.
    pub fn lost(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.lost).sum()
    }
}

/// Counts for each file, by name.
#[derive(Default)]
pub(super) struct FileReports(BTreeMap<String, RepairedFile>);

impl FileReports {
    /// Returns the counts of the file `name`.
    pub(super) fn of(&mut self, name: &str) -> &mut RepairedFile {
        let fresh = || RepairedFile { name: name.to_owned(), ..RepairedFile::default() };
        self.0.entry(name.to_owned()).or_insert_with(fresh)
    }

    /// Removes the counts of files whose names end with `suffix`, because these files are read again.
    pub(super) fn forget(&mut self, suffix: &str) {
        self.0.retain(|name, _| !name.ends_with(suffix));
    }

    pub(super) fn list(self) -> Vec<RepairedFile> {
        self.0.into_values().collect()
    }
}
