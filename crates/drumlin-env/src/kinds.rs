//! Words of the file calls: what a file is for, how it is opened, what a call returns.
//!
//! Every world and every handle uses these types, so this file imports nothing of the crate.

use std::fmt;
use std::panic::Location;

/// Purpose of a file. The simulated disk injects faults and counts call sites by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A segment of the write-ahead log.
    Log,
    /// A sorted table.
    Table,
    /// A value file.
    Value,
    /// A map of moved values.
    Map,
    /// A manifest.
    Manifest,
    /// The file that names the current manifest.
    Pointer,
    /// The file whose lock keeps other processes out.
    Lock,
    /// A file that is renamed or deleted before anything depends on it.
    Temp,
    /// A file of the decision log.
    Decisions,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [FileKind; 9] = [
        FileKind::Log,
        FileKind::Table,
        FileKind::Value,
        FileKind::Map,
        FileKind::Manifest,
        FileKind::Pointer,
        FileKind::Lock,
        FileKind::Temp,
        FileKind::Decisions,
    ];
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Log => "log",
            FileKind::Table => "table",
            FileKind::Value => "value",
            FileKind::Map => "map",
            FileKind::Manifest => "manifest",
            FileKind::Pointer => "pointer",
            FileKind::Lock => "lock",
            FileKind::Temp => "temp",
            FileKind::Decisions => "decisions",
        })
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Last component of the path.
    pub name: String,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether the entry is a directory.
    pub is_dir: bool,
}

/// Status of an open file, which detects changes by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Length in bytes.
    pub len: u64,
    /// Whether a directory entry refers to the file. Without one, its content disappears with the last handle.
    pub is_named: bool,
}

/// Mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Create,
    Read,
    ReadDirect,
    Write,
}

/// Source location of a call.
pub(crate) type Caller = &'static Location<'static>;

/// Extent of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Data,
    All,
}
