//! Events that the store reports to a listener while it runs.

use crate::base::error::Error;

/// Event in the background or during open and close. An [`EventListener`] receives it.
///
/// Events hold no user keys or values, but names of keyspaces and files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A background job failed. Flushes, compactions and removals of files are tried again. Preallocation of the log is
    /// tried again with the next segment, and a part of the decision log that cannot be written is lost.
    BackgroundError {
        /// Kind of the job: `flush`, `compaction`, `log` (preallocation), `maintenance` or `decisions`.
        job: &'static str,
        /// Cause of the failure.
        error: Error,
    },
    /// Writes fail from now on; reads still work. See [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned) for the
    /// causes.
    Poisoned {
        /// The first failure.
        error: Error,
    },
    /// A part of the stored state was unusable and was replaced by defaults: the state of a policy, or what was learned
    /// about the lifetimes of values.
    StateIgnored {
        /// The part of the state, and why it was unusable.
        what: String,
    },
    /// A merge operator was given for a keyspace that does not exist. It takes effect when the keyspace is created.
    OperatorUnused {
        /// Name of the keyspace.
        keyspace: String,
        /// Name of the operator.
        operator: String,
    },
    /// A merge operator panicked in a flush or compaction. The operands that it should have combined are kept, so no
    /// data is affected. Reported once for a keyspace until the store is closed; [`Metrics::operator_panics`] counts
    /// all panics.
    ///
    /// [`Metrics::operator_panics`]: crate::Metrics::operator_panics
    OperatorPanicked {
        /// Name of the keyspace.
        keyspace: String,
        /// Name of the operator.
        operator: String,
    },
    /// A compaction policy panicked. A fallback policy replaces it until the store is closed. No data is affected.
    PolicyFailed {
        /// Name of the keyspace.
        keyspace: String,
        /// Name of the policy that panicked.
        policy: String,
    },
    /// The number of compaction slots has changed. The store tunes it by measurement when the option
    /// `compaction_slots` is 0.
    SlotsChanged {
        /// Number of slots before the change.
        before: usize,
        /// Number of slots after the change.
        slots: usize,
        /// Reason for the change, with the measured numbers.
        reason: String,
    },
    /// A flush is installed: its tables are durable and part of the tree.
    Flushed {
        /// Name of the keyspace.
        keyspace: String,
        /// Bytes of the new tables; 0 if nothing was left to write.
        bytes: u64,
    },
    /// The output of a subcompaction is installed. A compaction consists of one or more of them. Trivial moves are not
    /// reported.
    Compacted {
        /// Name of the keyspace.
        keyspace: String,
        /// Level of the new tables.
        level: u8,
        /// Bytes of the inputs.
        bytes_read: u64,
        /// Bytes of the new tables.
        bytes_written: u64,
    },
    /// A write begins to wait, and no other one waits for the same cause. Writes that are only slowed are not reported;
    /// [`Metrics`](crate::Metrics) count their delays.
    WritesStopped {
        /// What the write waits for.
        cause: StallCause,
    },
    /// No write waits for `cause` any more.
    WritesResumed {
        /// What the writes waited for.
        cause: StallCause,
        /// Time since [`Event::WritesStopped`] in microseconds.
        micros: u64,
    },
    /// The store was closed. Live iterators and cursors can still read the state that they have pinned. Reads through
    /// snapshots fail.
    Closed {
        /// Number of live iterators and cursors.
        iterators: u64,
        /// Number of live snapshots.
        snapshots: u64,
    },
    /// Open found an unreferenced table that contains sequence numbers newer than anything recovered. The table was
    /// renamed to `*.lost` and is ignored. Repair reads it only when the manifest is unusable. The store never removes
    /// such files, and `disk_budget` does not count them: delete them when you do not need them.
    SetAside {
        /// New path of the file.
        file: std::path::PathBuf,
    },
    /// Recovery completed.
    Recovered {
        /// Number of commits read from the log.
        commits: u64,
        /// Bytes of log read.
        log_bytes: u64,
        /// Whether bytes after the last complete record were discarded, as an interrupted write leaves them.
        torn: bool,
    },
}

/// What a write waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StallCause {
    /// Memtables are full: a flush must free memory.
    Memory,
    /// There are too many runs: a compaction must reduce them. The policy decides which runs count. `1-leveling`,
    /// `leveling`, `tiering`, `lazy-leveling` and `fluid` count those of level 0, `universal`, `ucs`,
    /// `adaptive-ucs` and the policies that grow by schedules all, and `arce` those that cover recently read keys.
    Runs,
}

/// Receives events, on the thread where they occur. [`Builder::listener`](crate::Builder::listener) sets it.
///
/// It should return soon. It must not call back into the store, or wait for a thread that does: the store may hold its
/// locks. It must not panic: a panic on a background thread poisons the store, and one on a caller's thread unwinds
/// through the call. Several threads may call it at the same time.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// struct Alarm;
///
/// impl drumlin::EventListener for Alarm {
///     fn on_event(&self, event: &drumlin::Event) {
///         match event {
///             drumlin::Event::Poisoned { error } => eprintln!("no more writes: {error}"),
///             drumlin::Event::BackgroundError { job, error } => eprintln!("{job} failed: {error}"),
///             _ => {}
///         }
///     }
/// }
///
/// let db = drumlin::Db::builder(dir.path()).listener(std::sync::Arc::new(Alarm)).open()?;
/// # Ok::<(), drumlin::Error>(())
/// ```
pub trait EventListener: Send + Sync {
    /// Called for each event.
    fn on_event(&self, event: &Event);
}
