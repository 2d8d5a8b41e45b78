//! Notes from the engine to the order monitor about the purpose of its I/O.
//!
//! The simulated disk sees writes and syncs, but not their purpose. With these notes it checks the durability order
//! rules during a run. So it finds a wrong order that otherwise only a crash at the wrong moment would reveal.
//! Outside [`crate::MemEnv`] a note costs only the call. Paths are those passed to [`crate::Fs`].

use std::path::{Path, PathBuf};

/// One fact for the order monitor. Each variant says when to send it.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// Send before writing a manifest edit: the edit refers to these files from now on. Each file and its directory
    /// entry must be synced before the next write or sync of the manifest (O1).
    EditAdds {
        /// Tables, value files and maps.
        files: &'a [PathBuf],
    },
    /// Send before writing a manifest edit: the edit drops its reference to these files. None of them may be unlinked
    /// or reused before [`Note::EditDurable`] (O1).
    EditRemoves {
        /// Tables, value files and maps.
        files: &'a [PathBuf],
    },
    /// The last noted edit failed for lack of disk space. The manifest holds at most a part of its bytes, which
    /// recovery ignores. The files that it was to add may be deleted; the files that it was to drop stay (O1).
    EditRefused,
    /// A manifest sync has made every edit noted so far durable (O1).
    EditDurable {
        /// Directory of the store. A checkpoint writes a manifest in another one meanwhile.
        dir: &'a Path,
    },
    /// Send after recovery, before it deletes anything: the store consists of exactly these files, from tables to
    /// logs. This settles all edits noted before, whether they are durable or not (O1).
    Recovered {
        /// Tables, value files, maps, and the logs whose records are still needed.
        files: &'a [PathBuf],
    },
    /// Send before writing a log record: `log` holds the sequence numbers from `first` on.
    Logged {
        /// The segment.
        log: &'a Path,
        /// First sequence number of the record.
        first: u64,
    },
    /// Send before acknowledging a synced write: every log record at or below `seq`, in every segment, must survive a
    /// power loss (O2).
    AckSynced {
        /// Sequence number of the write.
        seq: u64,
    },
    /// Send with an edit, before writing it: once the edit is durable, the segment is not needed. The segment may not
    /// be unlinked, renamed or overwritten before [`Note::EditDurable`] (O1).
    LogObsolete {
        /// The segment.
        log: &'a Path,
    },
    /// Send with an edit, before writing it: recovery begins with this segment. Its directory entry and its first
    /// `header` bytes must be durable (O13).
    LogBegins {
        /// The segment.
        log: &'a Path,
        /// Length of the segment's header.
        header: u64,
    },
    /// Recovery found the segment's tail torn or damaged; the segment is never written again (O6).
    LogSealed {
        /// The segment.
        log: &'a Path,
    },
    /// Send before renaming the pointer file: it will name `manifest`, which must be synced with its directory entry
    /// (O3).
    PointerTo {
        /// The manifest.
        manifest: &'a Path,
    },
    /// A checkpoint copied the first `end` bytes of `log`; they must be durable by now (O12).
    LogCopied {
        /// The segment.
        log: &'a Path,
        /// Number of bytes copied.
        end: u64,
    },
}
