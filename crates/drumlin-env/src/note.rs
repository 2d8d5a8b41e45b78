//! What the engine tells the order monitor about the meaning of its I/O.
//!
//! The simulated disk sees writes and syncs, not what they are for. With these notes it checks the durability
//! order rules while a run goes on, and stops being blind to an order that only a crash at the wrong moment
//! would show. Outside [`crate::MemEnv`] a note costs nothing but the call. Paths are those given to
//! [`crate::Fs`].

use std::path::{Path, PathBuf};

/// One fact for the order monitor. See the variants for when to tell it.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// Before the bytes of a manifest edit are written: the edit refers to these files from now on. Each must
    /// be synced, entry included, by the time that the manifest is next written or synced (O1).
    EditAdds {
        /// Tables, value files, maps.
        files: &'a [PathBuf],
    },
    /// Before the bytes of a manifest edit are written: the edit drops its reference to these files. None of
    /// them may be unlinked or reused before [`Note::EditDurable`] (O1).
    EditRemoves {
        /// Tables, value files, maps.
        files: &'a [PathBuf],
    },
    /// Every edit noted so far is on stable storage: the manifest has been synced since (O1).
    EditDurable,
    /// After recovery, before it deletes anything: the store consists of exactly these files, tables to logs.
    /// Edits noted before are settled, one way or the other (O1).
    Recovered {
        /// Tables, value files, maps, and the logs whose records are still needed.
        files: &'a [PathBuf],
    },
    /// Before a log record is written: `log` holds the sequence numbers from `first` on.
    Logged {
        /// The segment.
        log: &'a Path,
        /// The record's first sequence number.
        first: u64,
    },
    /// Before a write is acknowledged as synced: every log record at or below `seq` must survive a
    /// power loss, in every segment (O2).
    AckSynced {
        /// The sequence number of the write.
        seq: u64,
    },
    /// With an edit, before its bytes are written: once that edit is durable nothing needs this segment. It
    /// may not be unlinked, renamed or overwritten before [`Note::EditDurable`] (O1).
    LogObsolete {
        /// The segment.
        log: &'a Path,
    },
    /// With an edit, before its bytes are written: recovery begins with this segment. Its name and the first `header`
    /// bytes must be durable (O13).
    LogBegins {
        /// The segment.
        log: &'a Path,
        /// Length of its header.
        header: u64,
    },
    /// The segment is never written again, because recovery found its tail torn or damaged (O6).
    LogSealed {
        /// The segment.
        log: &'a Path,
    },
    /// Before the pointer file moves by a rename: it will name `manifest`, which must be synced, entry
    /// included (O3).
    PointerTo {
        /// The manifest.
        manifest: &'a Path,
    },
    /// A checkpoint copied the first `end` bytes of `log`, which must be synced by now (O12).
    LogCopied {
        /// The segment.
        log: &'a Path,
        /// Bytes copied.
        end: u64,
    },
}
