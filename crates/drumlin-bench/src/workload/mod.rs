//! Workloads made of phases, as plain data.
//!
//! A [`Workload`] contains everything that the generators need. So a child process that receives it as JSON does the
//! same work. Each family has a file that translates its arguments to workloads; none of them depends on an engine.

pub mod dynamic;
pub mod micro;
pub mod papers;
pub mod suites;
pub mod trace;
pub mod ycsb;

use crate::engine::{Direction, Durability, Io};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
pub use crate::generate::trace::TraceSource;
use serde::{Deserialize, Serialize};

/// Number of entries that a range reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entries {
    /// A fixed number.
    Fixed(u32),
    /// Uniformly distributed from one to this number.
    UpTo(u32),
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Put one entry.
    Put(Target),
    /// Put this many entries at once; each counts as an operation.
    Batch(Target, u32),
    /// Get one value.
    Get(Target),
    /// Get a key that does not exist.
    GetAbsent(Target),
    /// Get this many values at once; each counts as an operation.
    MultiGet(Target, u32),
    /// Create an iterator, seek, and read this many entries.
    Range(Target, Entries, Direction),
    /// Seek a reused iterator and read this many entries.
    Reseek(Target, Entries),
    /// Scan the whole store; each entry counts as an operation.
    Scan(Direction),
    /// Delete a key.
    Delete(Target),
    /// Read a value and write another one (read-modify-write).
    Modify(Target),
    /// Execute the next request of a recorded trace.
    Replay,
}

impl Action {
    /// Returns whether the action writes.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Action::Put(_) | Action::Batch(..) | Action::Delete(_) | Action::Modify(_) | Action::Replay
        )
    }

    /// Returns whether the action inserts new entries.
    pub fn inserts(&self) -> bool {
        matches!(self, Action::Put(Target::New) | Action::Batch(Target::New, _))
    }

    /// Returns the number below which the action may write any id.
    fn reaches(&self) -> u64 {
        match self {
            Action::Put(Target::Below(n)) | Action::Batch(Target::Below(n), _) => *n,
            _ => 0,
        }
    }
}

/// Action after a phase, outside its measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Continue with the next phase immediately.
    #[default]
    Nothing,
    /// Wait until no flush or compaction is pending. What is in the memtable stays there.
    Wait,
    /// Flush, and wait until no compaction is pending.
    Idle,
    /// Flush, and compact the whole store.
    Compact,
}

/// Conditions under which a store is opened for a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Memory in bytes for block cache, memtables, filters and indexes together.
    pub memory_bytes: u64,
    /// I/O mode of table reads.
    pub io: Io,
}

/// A sequence of operations with one mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Name in reports.
    pub name: String,
    /// Number of operations over all threads; of scans, the number of calls. Without effect if `seconds` is set.
    pub ops: u64,
    /// Time after which the phase ends, in place of a number of operations. What a concurrent writer writes then does
    /// not depend on how fast the engine reads.
    pub seconds: Option<f64>,
    /// Kinds of operations, each with its weight.
    pub mix: Vec<(f64, Action)>,
    /// Number of threads.
    pub threads: u32,
    /// Durability of writes, if different from the configuration.
    pub durability: Option<Durability>,
    /// Action after the phase.
    pub after: After,
    /// Bytes per second that one additional thread writes concurrently, overwriting existing entries.
    pub writer: Option<f64>,
    /// Start with an empty store.
    pub fresh: bool,
    /// Conditions under which the store is opened, if different from the configuration. The store is closed and
    /// reopened between phases with different conditions. In-memory files do not survive a close, so they ignore this
    /// field.
    pub under: Option<Conditions>,
    /// Prepare the next phases; the phase is not reported itself.
    pub warm: bool,
    /// Operations started per second, even if earlier ones are unfinished.
    pub rate: Option<f64>,
    /// Number of operations in the window whose lowest rate is reported.
    pub window: Option<u64>,
    /// Each operation is an open of the closed store, up to its first answer. This many puts precede each close, and
    /// are in the log when the store opens.
    pub opens_after: Option<u64>,
}

impl Phase {
    /// Creates a phase of `ops` operations with the given mix on one thread.
    pub fn new(name: &str, ops: u64, mix: &[(f64, Action)]) -> Phase {
        Phase {
            name: name.to_owned(),
            ops,
            seconds: None,
            mix: mix.iter().copied().filter(|(weight, _)| *weight > 0.0).collect(),
            threads: 1,
            durability: None,
            after: After::Nothing,
            writer: None,
            fresh: false,
            under: None,
            warm: false,
            rate: None,
            window: None,
            opens_after: None,
        }
    }

    /// Creates a phase of one kind of operation.
    pub fn of(name: &str, ops: u64, action: Action) -> Phase {
        Phase::new(name, ops, &[(1.0, action)])
    }

    /// Sets the action after the phase.
    #[must_use]
    pub fn then(self, after: After) -> Phase {
        Phase { after, ..self }
    }

    /// Starts the phase with an empty store.
    #[must_use]
    pub fn on_empty(self) -> Phase {
        Phase { fresh: true, ..self }
    }

    /// Excludes the phase from the report.
    #[must_use]
    pub fn unreported(self) -> Phase {
        Phase { warm: true, ..self }
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn on_threads(self, threads: u32) -> Phase {
        Phase { threads: threads.max(1), ..self }
    }

    /// Opens the store with this much memory and I/O mode for the phase.
    #[must_use]
    pub fn under(self, memory_bytes: u64, io: Io) -> Phase {
        Phase { under: Some(Conditions { memory_bytes, io }), ..self }
    }

    /// Returns the fraction of operations that insert.
    pub fn insert_share(&self) -> f64 {
        let total: f64 = self.mix.iter().map(|(weight, _)| weight).sum();
        let inserts: f64 = self.mix.iter().filter(|(_, a)| a.inserts()).map(|(weight, _)| weight).sum();
        inserts / total.max(f64::MIN_POSITIVE)
    }
}

/// A named list of phases over one set of keys and values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Name: family and variant.
    pub name: String,
    /// Format of the keys.
    pub keys: KeyForm,
    /// Value size in bytes.
    pub value_bytes: usize,
    /// Compressed size of the values as a fraction of their size.
    pub value_ratio: f64,
    /// Trace for `Action::Replay`.
    pub trace: Option<TraceSource>,
    /// Phases in order.
    pub phases: Vec<Phase>,
}

impl Workload {
    /// Returns an upper bound on the ids that the phases use.
    pub fn ids(&self) -> u64 {
        let mut next = 0;
        let mut most = 1;
        for phase in &self.phases {
            if phase.fresh {
                next = 0;
            }
            if phase.mix.iter().any(|(_, action)| action.inserts() || *action == Action::Replay) {
                // Upper bound: every operation inserts, on every thread.
                next = u64::saturating_add(next, phase.ops.saturating_add(u64::from(phase.threads)));
            }
            let reached = phase.mix.iter().map(|(_, action)| action.reaches()).max().unwrap_or(0);
            next = next.max(reached);
            most = most.max(next);
        }
        most
    }

    /// Sets the rate of all phases except those that only prepare others: warm-ups, and loads before other phases. A
    /// reported load of a micro benchmark gets the rate too, because the user named it.
    pub fn pace(&mut self, rate: f64) {
        let last = self.phases.len().saturating_sub(1);
        let names_its_loads = self.name.split(' ').next() == Some("micro");
        for (position, phase) in self.phases.iter_mut().enumerate() {
            let prepares = phase.fresh && position < last && !names_its_loads;
            if !phase.warm && !prepares {
                phase.rate = Some(rate);
            }
        }
    }

    /// Returns the approximate disk space needed: twice the entries of the largest store, to allow for compactions.
    pub fn disk_bytes(&self) -> u64 {
        let most = self.entries().into_iter().fold(0.0, f64::max);
        ((most * self.entry_bytes() * 2.2) as u64).saturating_add(256 << 20)
    }

    /// Returns the approximate key and value bytes that are live after the last phase.
    pub fn live_bytes(&self) -> u64 {
        (self.entries().last().unwrap_or(&0.0) * self.entry_bytes()) as u64
    }

    fn entry_bytes(&self) -> f64 {
        (self.keys.typical_len() + self.value_bytes) as f64
    }

    /// Returns the approximate number of entries after each phase.
    fn entries(&self) -> Vec<f64> {
        let mut entries = 0.0;
        let mut after = Vec::new();
        for phase in &self.phases {
            if phase.fresh {
                entries = 0.0;
            }
            entries += phase.ops as f64 * phase.insert_share();
            let reached = phase.mix.iter().map(|(_, action)| action.reaches()).max().unwrap_or(0);
            entries = f64::max(entries, reached as f64);
            after.push(entries);
        }
        after
    }
}

/// Returns `n` times `scale`, at least 1.
pub fn scaled(n: u64, scale: f64) -> u64 {
    ((n as f64 * scale).round() as u64).max(1)
}
