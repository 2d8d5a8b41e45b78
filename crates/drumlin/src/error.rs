//! The one error type. An error has a kind, says what went wrong, and names the file and offset where
//! there is one. It never holds user keys or values.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of every fallible call of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of trouble it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option's name, value or combination cannot be used. Nothing changed.
    InvalidOption,
    /// An argument cannot be used: a key or value too long, an empty range, an unknown keyspace.
    InvalidArgument,
    /// The directory holds no store.
    NotFound,
    /// The directory is not empty and not a Drumlin store.
    NotAStore,
    /// The store was written by a newer version of Drumlin.
    NewerFormat,
    /// Another process, or this one, has the store open.
    Locked,
    /// Bytes on disk are not what was written. The file and offset are named.
    Corruption,
    /// The operating system failed a call.
    Io,
    /// The disk, or the disk budget, is full. Writes may be tried again once there is room.
    NoSpace,
    /// Writers waited longer than the write timeout.
    Busy,
    /// An earlier failure of the log or the manifest, or a panic in the background, stopped writes for good; reads go
    /// on. Reopen.
    Poisoned,
    /// The store was opened read-only.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// An invariant of Drumlin itself is broken.
    Bug,
}

/// An error. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of `kind` that says `what`.
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, what: what.into(), path: None, offset: None, source: None }))
    }

    /// A write to a store that was opened read-only.
    pub(crate) fn read_only() -> Error {
        Error::new(ErrorKind::ReadOnly, "the store was opened read-only: nothing in it can be changed")
    }

    /// Damage in `path` at `offset`.
    pub(crate) fn corruption(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error(Arc::new(Inner {
            kind: ErrorKind::Corruption,
            what: what.into(),
            path: Some(path.to_owned()),
            offset: Some(offset),
            source: None,
        }))
    }

    /// A failed call of the operating system on `path`. A full disk becomes [`ErrorKind::NoSpace`].
    pub(crate) fn io(path: &Path, what: &str, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error(Arc::new(Inner {
            kind,
            what: what.to_owned(),
            path: Some(path.to_owned()),
            offset: None,
            source: Some(source),
        }))
    }

    /// The same error under another kind, keeping its text, file and cause.
    pub(crate) fn with_kind(&self, kind: ErrorKind) -> Error {
        let inner = &self.0;
        Error(Arc::new(Inner {
            kind,
            what: match &inner.source {
                Some(source) => format!("{}: {source}", inner.what),
                None => inner.what.clone(),
            },
            path: inner.path.clone(),
            offset: inner.offset,
            source: None,
        }))
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file concerned, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The offset in that file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Whether bytes on disk are damaged.
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corruption
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        match inner.kind {
            ErrorKind::Corruption => f.write_str("corruption: ")?,
            ErrorKind::NoSpace => f.write_str("no space: ")?,
            ErrorKind::Poisoned => f.write_str("store is read-only after a failure: ")?,
            ErrorKind::Bug => f.write_str("broken invariant: ")?,
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
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}
