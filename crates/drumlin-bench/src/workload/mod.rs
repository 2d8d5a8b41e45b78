//! What is run: workloads made of phases, as plain data.
//!
//! A [`Workload`] is everything that the generators need, so a child process gets it as JSON and does the same work.
//! Each family has a file that turns its arguments into workloads; none of them knows an engine.

pub mod dynamic;
pub mod micro;
pub mod papers;
pub mod suites;
pub mod trace;
pub mod ycsb;

use crate::engine::{Direction, Durability, Io};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How many entries a range takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entries {
    /// So many.
    Fixed(u32),
    /// From one to so many, all alike.
    UpTo(u32),
}

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Write a value.
    Put(Target),
    /// Write so many values at once; each counts as an operation.
    Batch(Target, u32),
    /// Read a value.
    Get(Target),
    /// Look for a key that is not there.
    GetAbsent(Target),
    /// Read so many values at once; each counts as an operation.
    MultiGet(Target, u32),
    /// A new iterator, a seek, and so many entries.
    Range(Target, Entries, Direction),
    /// A seek of an iterator that is kept, and so many entries.
    Reseek(Target, Entries),
    /// The whole store; each entry counts as an operation.
    Scan(Direction),
    /// Remove a key.
    Delete(Target),
    /// Read a value and write another.
    Modify(Target),
    /// What a recorded trace says next.
    Replay,
}

impl Action {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Action::Put(_) | Action::Batch(..) | Action::Delete(_) | Action::Modify(_) | Action::Replay
        )
    }

    /// Whether it makes new entries.
    pub fn inserts(&self) -> bool {
        matches!(self, Action::Put(Target::New) | Action::Batch(Target::New, _))
    }

    /// The largest number of ids below which it may write.
    fn reaches(&self) -> u64 {
        match self {
            Action::Put(Target::Below(n)) | Action::Batch(Target::Below(n), _) => *n,
            _ => 0,
        }
    }
}

/// What follows a phase, outside its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// The next phase, at once.
    #[default]
    Nothing,
    /// Flush, and wait until nothing is left to merge.
    Idle,
    /// Flush, and merge everything.
    Compact,
}

/// What a store is opened with for a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Block cache, memtables, filters and indexes together.
    pub memory_bytes: u64,
    /// How tables are read.
    pub io: Io,
}

/// A stretch of operations of one mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Operations over all threads.
    pub ops: u64,
    /// Kinds of operations, each with its weight.
    pub mix: Vec<(f64, Action)>,
    /// Threads that do them.
    pub threads: u32,
    /// What writes survive, if not what the configuration says.
    pub durability: Option<Durability>,
    /// What follows it.
    pub after: After,
    /// Bytes per second that one more thread writes meanwhile, over entries that are there.
    pub writer: Option<f64>,
    /// Starts from an empty store.
    pub fresh: bool,
    /// What the store is opened with, if not what the configuration says. Where phases differ in it, the store is closed
    /// and opened between them; files in memory would not outlive that, and there it means nothing.
    pub under: Option<Conditions>,
    /// Prepares the next phases and is no result of its own.
    pub warm: bool,
    /// Operations per second that are started, whether or not earlier ones have ended.
    pub rate: Option<f64>,
    /// Operations in the window whose lowest rate is reported.
    pub window: Option<u64>,
}

impl Phase {
    /// A phase of `ops` operations of the given mix on one thread.
    pub fn new(name: &str, ops: u64, mix: &[(f64, Action)]) -> Phase {
        Phase {
            name: name.to_owned(),
            ops,
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
        }
    }

    /// A phase of one kind of operation.
    pub fn of(name: &str, ops: u64, action: Action) -> Phase {
        Phase::new(name, ops, &[(1.0, action)])
    }

    /// The same, followed by `after`.
    #[must_use]
    pub fn then(self, after: After) -> Phase {
        Phase { after, ..self }
    }

    /// The same, on an empty store.
    #[must_use]
    pub fn on_empty(self) -> Phase {
        Phase { fresh: true, ..self }
    }

    /// The same, unreported.
    #[must_use]
    pub fn unreported(self) -> Phase {
        Phase { warm: true, ..self }
    }

    /// The same on so many threads.
    #[must_use]
    pub fn on_threads(self, threads: u32) -> Phase {
        Phase { threads: threads.max(1), ..self }
    }

    /// The same on a store that is opened with this much memory and reads its tables so.
    #[must_use]
    pub fn under(self, memory_bytes: u64, io: Io) -> Phase {
        Phase { under: Some(Conditions { memory_bytes, io }), ..self }
    }

    /// The share of operations that insert.
    pub fn insert_share(&self) -> f64 {
        let total: f64 = self.mix.iter().map(|(weight, _)| weight).sum();
        let inserts: f64 = self.mix.iter().filter(|(_, a)| a.inserts()).map(|(weight, _)| weight).sum();
        inserts / total.max(f64::MIN_POSITIVE)
    }
}

/// A recorded trace to replay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceSource {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub form: trace::Form,
    /// Sizes of values, for traces that keep them apart.
    pub sizes: Option<PathBuf>,
}

/// A named list of phases over one set of keys and values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Its name: family and variant.
    pub name: String,
    /// How ids become keys.
    pub keys: KeyForm,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share to which values can be compressed.
    pub value_ratio: f64,
    /// The trace behind `Action::Replay`.
    pub trace: Option<TraceSource>,
    /// What is run, in order.
    pub phases: Vec<Phase>,
}

impl Workload {
    /// How many ids it can use: no phase goes beyond.
    pub fn ids(&self) -> u64 {
        let mut next = 0;
        let mut most = 1;
        for phase in &self.phases {
            if phase.fresh {
                next = 0;
            }
            if phase.mix.iter().any(|(_, action)| action.inserts() || *action == Action::Replay) {
                // Every operation could insert, on every thread.
                next += phase.ops + u64::from(phase.threads);
            }
            let reached = phase.mix.iter().map(|(_, action)| action.reaches()).max().unwrap_or(0);
            next = next.max(reached);
            most = most.max(next);
        }
        most
    }

    /// About how many bytes of disk it needs: the entries of its largest store, twice, for merges.
    pub fn disk_bytes(&self) -> u64 {
        let most = self.entries().into_iter().fold(0.0, f64::max);
        (most * self.entry_bytes() * 2.2) as u64 + (256 << 20)
    }

    /// About how many bytes of keys and values are live after the last phase.
    pub fn live_bytes(&self) -> u64 {
        (self.entries().last().unwrap_or(&0.0) * self.entry_bytes()) as u64
    }

    fn entry_bytes(&self) -> f64 {
        (self.keys.typical_len() + self.value_bytes) as f64
    }

    /// About how many entries there are after each phase.
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

/// `n` scaled, at least 1.
pub fn scaled(n: u64, scale: f64) -> u64 {
    ((n as f64 * scale).round() as u64).max(1)
}
