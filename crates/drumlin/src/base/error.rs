//! The error type of the crate. An error has a category and a text, and names the file and offset where there is one.
//! Its text never holds user keys or values.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result type of every fallible call of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error category, which [`Error::kind`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The name, value or combination of options is invalid: nothing changed.
    InvalidOption,
    /// An argument is invalid: a key, value or batch that is too long; a keyspace of another store; a keyspace name
    /// that is empty or over 255 bytes; a time to live over 100 years; a batch over several keyspaces with
    /// `Durability::None`; an empty path; the path of a checkpoint or a repair.
    InvalidArgument,
    /// The directory holds no store, or the store has no keyspace of that name.
    NotFound,
    /// There is a keyspace of that name already.
    AlreadyExists,
    /// The keyspace of the handle was dropped.
    KeyspaceDropped,
    /// The keyspace has no merge operator, or the program did not pass it when it opened the store.
    MergeOperatorMissing,
    /// The merge operator refused the operands of a key, which [`Error::key`] returns, or panicked.
    MergeFailed,
    /// The directory is not empty and holds no Drumlin store, or the path is that of a file.
    NotAStore,
    /// The store was written by a newer version of Drumlin.
    NewerFormat,
    /// The store is already open, in another process or in this one.
    Locked,
    /// Bytes on disk differ from what was written: the error names the file, and the offset where it is known.
    Corruption,
    /// A call of the operating system failed.
    Io,
    /// The disk or the option `disk_budget` is full. Writes can be repeated once there is free space; the store need
    /// not be reopened. Reads still work.
    NoSpace,
    /// The process or the system has reached its limit of open files. A write changed nothing. A longer call, such as a
    /// scan or a compaction, stopped on its way. Calls can be repeated once other files are closed or the limit
    /// (`ulimit -n`) is raised; a close that returns it has closed the store.
    TooManyFiles,
    /// A write with `Durability::Sync` is done and visible, but not durable yet: no file descriptor was left for the
    /// sync. Call [`Db::sync`](crate::Db::sync), and do not repeat the write.
    NotDurable,
    /// A write waited longer than the option `write_timeout_ms`; another checkpoint is in progress; or a write that a
    /// close or a drop waits for has been running for over 60 s.
    Busy,
    /// An earlier failure stopped all writes until the store is reopened; reads still work. The cause is a failed write
    /// or sync of the log, the manifest or the directory, a lost directory lock, or a panic in a write or in the
    /// background.
    Poisoned,
    /// The store was opened read-only.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// An internal invariant of Drumlin is violated. Please report it.
    Bug,
}

/// Error codes for limits. They are the same on all Unix systems.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;

/// Error of a call. It has a kind, a text, and where there is one, the file and the offset. It is cheap to clone.
///
/// Its text never contains keys or values. A file is named with its path, and a keyspace with its name.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// # let db = drumlin::Db::open(dir.path())?;
/// # let users = db.keyspace("users")?;
/// let error = drumlin::Db::open(dir.path()).expect_err("the store is open already");
/// match error.kind() {
///     drumlin::ErrorKind::Locked => println!("close the other program first"),
///     kind => println!("{kind:?} in {:?}: {error}", error.path()),
/// }
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    key: Option<Box<[u8]>>,
    cause: Option<Arc<io::Error>>,
}

impl Error {
    /// Creates an error of `kind` with the text `what`.
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, what: what.into(), path: None, offset: None, key: None, cause: None }))
    }

    /// Creates the error for a write to a store that was opened read-only.
    pub(crate) fn read_only() -> Error {
        Error::new(ErrorKind::ReadOnly, "the store was opened read-only: nothing in it can be changed")
    }

    /// Creates the error for damage in `path` at `offset`.
    pub(crate) fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind: ErrorKind::Corruption,
            what: what.into(),
            path: Some(path.to_owned()),
            offset: Some(offset),
            key: None,
            cause: None,
        }))
    }

    /// Creates the error for a failed system call on `path`. A full disk becomes [`ErrorKind::NoSpace`], too many open
    /// files become [`ErrorKind::TooManyFiles`], and the text names the limit that was reached.
    pub(crate) fn io(path: &Path, what: &str, source: io::Error) -> Error {
        let kind = match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => ErrorKind::NoSpace,
            (_, Some(EMFILE | ENFILE)) => ErrorKind::TooManyFiles,
            _ => ErrorKind::Io,
        };
        let limit = match source.raw_os_error() {
            Some(EMFILE) => ": the process may open no more files (RLIMIT_NOFILE, `ulimit -n`)",
            Some(ENFILE) => ": the system can open no more files (fs.file-max)",
            Some(EFBIG) => {
                ": a file may be no larger (RLIMIT_FSIZE, `ulimit -f`, or the file system's limit)"
            }
            _ => "",
        };
        Error(Arc::new(Inner {
            kind,
            what: format!("{what}{limit}"),
            path: Some(path.to_owned()),
            offset: None,
            key: None,
            cause: Some(Arc::new(source)),
        }))
    }

    /// Creates an error of `kind` with the text `what`, about the file at `path`.
    pub(crate) fn file(kind: ErrorKind, path: &Path, what: impl Into<String>) -> Error {
        let path = Some(path.to_owned());
        Error(Arc::new(Inner { kind, what: what.into(), path, offset: None, key: None, cause: None }))
    }

    /// Returns the same error with another kind. It keeps the text, the file and the cause.
    pub(crate) fn with_kind(&self, kind: ErrorKind) -> Error {
        Error(Arc::new(Inner { kind, ..self.copied() }))
    }

    /// Returns the same error with `what` before its text.
    pub(crate) fn with_context(&self, what: &str) -> Error {
        let copied = self.copied();
        Error(Arc::new(Inner { what: format!("{what}: {}", copied.what), ..copied }))
    }

    /// Returns the same error, marked as one that affects only the versions of `key`.
    pub(crate) fn with_key(&self, key: &[u8]) -> Error {
        Error(Arc::new(Inner { key: Some(key.into()), ..self.copied() }))
    }

    fn copied(&self) -> Inner {
        let Inner { kind, what, path, offset, key, cause } = &*self.0;
        Inner {
            kind: *kind,
            what: what.clone(),
            path: path.clone(),
            offset: *offset,
            key: key.clone(),
            cause: cause.clone(),
        }
    }

    /// Returns the text without the file and the offset, for a report that has them in fields of their own.
    pub(crate) fn text_without_place(&self) -> String {
        Error(Arc::new(Inner { path: None, offset: None, ..self.copied() })).to_string()
    }

    /// Returns the error category.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the file or directory concerned, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the offset in that file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Returns the error of the operating system, if a system call failed. The text of this error contains its text, so
    /// [`source`](std::error::Error::source) returns `None`: programs that print a chain of causes print it once.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.cause.as_deref()
    }

    /// Returns whether the call lacked disk space or file descriptors. It had no effect and may succeed later.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoSpace | ErrorKind::TooManyFiles)
    }

    /// Returns the key that cannot be read, if the error is about a single key: its merge operands could not be merged
    /// (`MergeFailed`), or its value in a value file is damaged (`Corruption`). All other keys are readable. The key is
    /// user data, so the error's text never contains it.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// # let db = drumlin::Db::builder(dir.path()).merge_operator("hits", sum).open()?;
    /// # let hits = db.keyspace("hits")?;
    /// hits.merge("home", "not a number")?;
    /// let error = hits.get("home").expect_err("the operator refuses it");
    /// assert_eq!(error.key(), Some(&b"home"[..]));
    /// assert_eq!(error.kind(), drumlin::ErrorKind::MergeFailed);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// Returns whether the kind is [`ErrorKind::Corruption`].
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corruption
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        match inner.kind {
            ErrorKind::Corruption => f.write_str("corruption: ")?,
            // An error of the operating system says so itself.
            ErrorKind::NoSpace if inner.cause.is_none() => f.write_str("no space: ")?,
            ErrorKind::Poisoned => f.write_str("writes are stopped until the store is reopened: ")?,
            ErrorKind::Bug => f.write_str("internal error, please report it: ")?,
            _ => {}
        }
        f.write_str(&inner.what)?;
        if let Some(path) = &inner.path {
            write!(f, " ({}", path.display())?;
            if let Some(offset) = inner.offset {
                write!(f, ", offset {offset}")?;
            }
            f.write_str(")")?;
        }
        if let Some(cause) = &inner.cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text of some kinds begins with the kind.
        match self.0.kind {
            ErrorKind::Corruption => write!(f, "{self}"),
            kind => write!(f, "{kind:?}: {self}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_stays_with_copies_and_is_printed_once() {
        let disk_full = || io::Error::from_raw_os_error(28);
        let error = Error::io(Path::new("/s/000001.log"), "cannot write log", disk_full());
        let copy = error.with_kind(ErrorKind::Poisoned).with_context("the write is lost").with_key(b"k");
        for error in [&error, &copy] {
            assert_eq!(error.io_error().and_then(io::Error::raw_os_error), Some(28));
            assert_eq!(error.to_string().matches(&disk_full().to_string()).count(), 1, "{error}");
            assert!(std::error::Error::source(error).is_none());
        }
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let text = copy.to_string();
        assert!(text.contains("the write is lost: cannot write log (/s/000001.log)"), "{text}");
    }
}
