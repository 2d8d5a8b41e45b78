//! What the commands need of a store, and the plain data they get from it.
//!
//! [`engine`] is the one file of the command that names the engine; everything else works on `&dyn Store`
//! and the types here, which also fix what `--json` prints. Unit tests put an ordered map behind the trait.

pub(crate) mod engine;
#[cfg(test)]
pub(crate) mod fake;

use crate::args::Durability;
use crate::escape::escape;
use crate::failure::Result;
use serde::{Serialize, Serializer};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// How to open a store.
#[derive(Clone, Debug)]
pub(crate) struct OpenOptions {
    /// Its directory.
    pub(crate) path: PathBuf,
    /// The keyspace that keys are read from and written to.
    pub(crate) keyspace: String,
    /// Options by name, as given.
    pub(crate) settings: Vec<(String, String)>,
    /// What will be done with it.
    pub(crate) access: Access,
}

/// What a command does with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// It writes, and makes the store and the keyspace when they are not there.
    Create,
    /// It may write to a store that is there.
    Existing,
    /// It reads a store that is there. Where that cannot be opened for writing, read-only will do.
    Read,
}

/// Keys from `start` on and below `end`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    /// The first key that belongs to them.
    pub(crate) start: Vec<u8>,
    /// The first key after them; `None` when they have no end.
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    /// Keys in `[from, to)` that start with `prefix`.
    pub(crate) fn new(from: Option<&[u8]>, to: Option<&[u8]>, prefix: Option<&[u8]>) -> Bounds {
        let prefix = prefix.unwrap_or_default();
        let start = from.unwrap_or_default().max(prefix).to_vec();
        let prefix_end = prefix_end(prefix);
        let end = match (to, prefix_end.as_deref()) {
            (Some(to), Some(prefix_end)) => Some(to.min(prefix_end).to_vec()),
            (Some(end), None) | (None, Some(end)) => Some(end.to_vec()),
            (None, None) => None,
        };
        Bounds { start, end }
    }

    /// Whether no key can lie in them.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// The same as a pair that ordered maps take.
    pub(crate) fn as_range(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(&self.start), end)
    }
}

/// The smallest key above every key that starts with `prefix`, if there is one.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Whether a scan reads values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// Keys and values.
    Entries,
    /// Keys; values come out empty.
    Keys,
}

/// Entries of a scan: key and value.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + 'a>;

/// An open store and one keyspace of it.
pub(crate) trait Store {
    /// Writes one entry, and returns once it has reached `durability`.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;
    /// Writes several entries as one batch.
    fn put_all(&self, entries: &[(Vec<u8>, Vec<u8>)], durability: Durability) -> Result<()>;
    /// Deletes a key, whether it is there or not.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The entries within `bounds` in key order, or backwards.
    fn scan(&self, bounds: &Bounds, want: Want, reverse: bool) -> Result<Entries<'_>>;

    /// The policy of the keyspace.
    fn policy(&self) -> Result<String>;

    /// What the compaction policy goes by, in lines; empty when its name says it all.
    fn policy_state(&self) -> Result<String>;
    /// Gives the keyspace another policy.
    fn set_policy(&self, name: &str) -> Result<()>;
    /// Whether the policy of the keyspace keeps what it has found.
    fn is_frozen(&self) -> Result<bool>;
    /// Makes it keep that, or tune itself again.
    fn freeze(&self, frozen: bool) -> Result<()>;
    /// Names of all keyspaces.
    fn keyspaces(&self) -> Result<Vec<String>>;

    /// Writes all memtables out.
    fn flush(&self) -> Result<()>;
    /// Merges everything, and returns once background work has come to rest.
    fn compact(&self) -> Result<()>;
    /// Copies the store, as it is now, to a new directory.
    fn checkpoint(&self, path: &Path) -> Result<()>;

    /// Reads every byte and checks it.
    fn verify(&self) -> Result<Verification>;
    /// All metrics by name.
    fn metrics(&self) -> Result<Vec<(String, u64)>>;
    /// The trees of all keyspaces.
    fn tree(&self) -> Result<Vec<KeyspaceShape>>;
    /// The recent decisions of the policies, oldest first.
    fn explain(&self) -> Result<Vec<DecisionRecord>>;
    /// Makes the logged decisions again.
    fn replay_decisions(&self) -> Result<DecisionReplay>;

    /// Ends background work and closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a verification read and found.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Verification {
    /// Tables read.
    pub(crate) tables: u64,
    /// Blocks read.
    pub(crate) blocks: u64,
    /// Entries read.
    pub(crate) entries: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Records of the log read.
    pub(crate) log_records: u64,
    /// Keys whose versions were compared between levels.
    pub(crate) keys: u64,
    /// Damage; empty when all is well.
    pub(crate) findings: Vec<Finding>,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Finding {
    /// The file it is in.
    pub(crate) file: String,
    /// Where in that file, if known.
    pub(crate) offset: Option<u64>,
    /// What is wrong.
    pub(crate) what: String,
}

/// What a repair saved and lost.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RepairReport {
    /// Tables in the new store.
    pub(crate) tables_kept: u64,
    /// Entries in the new store.
    pub(crate) entries_kept: u64,
    /// Commits saved from the log.
    pub(crate) commits_kept: u64,
    /// What could not be saved, in words.
    pub(crate) lost: Vec<String>,
}

/// A decision of a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct DecisionRecord {
    /// When, in microseconds of Unix time.
    pub(crate) micros: u64,
    /// For which keyspace.
    pub(crate) keyspace: String,
    /// What was decided.
    pub(crate) what: String,
    /// Why, with the numbers that led to it.
    pub(crate) reason: String,
}

/// What came of making the logged decisions again.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct DecisionReplay {
    /// Decisions made again.
    pub(crate) decisions: u64,
    /// Those that came out otherwise, in words.
    pub(crate) differing: Vec<String>,
    /// What could not be made again, and why.
    pub(crate) left_out: Vec<String>,
}

/// An option of the engine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct OptionRow {
    /// Its name, as `--set` takes it.
    pub(crate) name: &'static str,
    /// `store` or `keyspace`.
    pub(crate) scope: &'static str,
    /// The unit of its value, empty for plain numbers and words.
    pub(crate) unit: &'static str,
    /// Its default.
    pub(crate) default: String,
    /// The values it takes, in words.
    pub(crate) bounds: String,
    /// Whether an open store takes a new value.
    pub(crate) live: bool,
    /// Whether it is for experts.
    pub(crate) expert: bool,
    /// What it does.
    pub(crate) about: &'static str,
}

/// The tree of a keyspace.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct KeyspaceShape {
    /// Name of the keyspace.
    pub(crate) name: String,
    /// Its policy.
    pub(crate) policy: String,
    /// Bytes in the memtable that takes writes.
    pub(crate) active_bytes: u64,
    /// Memtables that wait for their flush.
    pub(crate) sealed_memtables: u64,
    /// Bytes in them.
    pub(crate) sealed_bytes: u64,
    /// Its levels, newest first.
    pub(crate) levels: Vec<LevelShape>,
}

/// A level.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct LevelShape {
    /// Its number.
    pub(crate) level: u8,
    /// Its runs.
    pub(crate) runs: Vec<RunShape>,
}

/// A sorted run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RunShape {
    /// Its id.
    pub(crate) id: u64,
    /// The policy's tag, as text.
    pub(crate) tag: String,
    /// Its files in key order.
    pub(crate) files: Vec<FileShape>,
}

/// A reference to a table.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct FileShape {
    /// The table.
    pub(crate) table: u64,
    /// The first key it answers for.
    #[serde(serialize_with = "as_text")]
    pub(crate) first: Vec<u8>,
    /// The first key it no longer answers for; none when it has no end.
    #[serde(serialize_with = "as_optional_text")]
    pub(crate) end: Option<Vec<u8>>,
    /// Stored bytes.
    pub(crate) bytes: u64,
    /// Entries.
    pub(crate) entries: u64,
    /// Tombstones among them.
    pub(crate) tombstones: u64,
    /// Range tombstones of the table.
    pub(crate) range_tombstones: u64,
    /// Smallest sequence number.
    pub(crate) min_seq: u64,
    /// Largest sequence number.
    pub(crate) max_seq: u64,
    /// Whether the reference is narrower than its table.
    pub(crate) narrowed: bool,
    /// Point lookups, decayed, that reached it and found nothing.
    pub(crate) lookups_empty: f64,
    /// Those that found a version.
    pub(crate) lookups_found: f64,
    /// The part of these that found a tombstone.
    pub(crate) lookups_dead: f64,
    /// What plans in flight do to it; `free` when none does anything.
    pub(crate) state: String,
}

impl FileShape {
    /// Whether an unfinished plan touches it.
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
    fn bounds_and_prefix_meet() {
        let bounds = |from: Option<&str>, to: Option<&str>, prefix: Option<&str>| {
            Bounds::new(from.map(str::as_bytes), to.map(str::as_bytes), prefix.map(str::as_bytes))
        };
        let expect = |start: &str, end: Option<&str>| Bounds {
            start: start.as_bytes().to_vec(),
            end: end.map(|e| e.as_bytes().to_vec()),
        };
        assert_eq!(bounds(None, None, None), expect("", None));
        assert_eq!(bounds(Some("b"), Some("d"), None), expect("b", Some("d")));
        assert_eq!(bounds(None, None, Some("ab")), expect("ab", Some("ac")));
        assert_eq!(bounds(Some("aba"), None, Some("ab")), expect("aba", Some("ac")));
        assert_eq!(bounds(Some("a"), Some("abz"), Some("ab")), expect("ab", Some("abz")));
        assert!(bounds(Some("b"), Some("b"), None).is_empty());
        assert!(bounds(Some("x"), None, Some("ab")).is_empty());
        assert!(!bounds(None, None, Some("ab")).is_empty());
    }

    #[test]
    fn a_prefix_of_high_bytes_has_no_end() {
        assert_eq!(Bounds::new(None, None, Some(b"\xff\xff")).end, None);
        assert_eq!(Bounds::new(None, None, Some(b"a\xff")).end, Some(b"b".to_vec()));
    }

    #[test]
    fn keys_are_escaped_in_json() {
        let file = FileShape { first: b"\xff\t".to_vec(), end: Some(b"z".to_vec()), ..FileShape::default() };
        let json = serde_json::to_value(file).expect("plain data");
        assert_eq!((json["first"].as_str(), json["end"].as_str()), (Some("\\xff\\t"), Some("z")));
    }
}
