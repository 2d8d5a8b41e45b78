//! What the store tells about itself: events for a listener, and the bounded log of decisions.

use crate::error::Error;
use std::collections::VecDeque;

/// Something that happened in the background. Events hold no user keys or values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A background job failed. It is tried again, or its inputs stay as they are.
    BackgroundError {
        /// `flush`, `merge` or `maintenance`.
        job: &'static str,
        /// What went wrong.
        error: Error,
    },
    /// The log or the manifest failed: writes fail from now on, reads go on.
    Poisoned {
        /// The first cause.
        error: Error,
    },
    /// Something in the store's state was unusable and was replaced by defaults.
    StateIgnored {
        /// What and why.
        what: String,
    },
    /// Recovery ended.
    Recovered {
        /// Commits read from the log.
        commits: u64,
        /// Bytes of log read.
        log_bytes: u64,
        /// Bytes after the last whole record that were left out, as an interrupted write leaves them.
        torn: bool,
    },
}

/// Hears events, on the thread that meets them. It must not call back into the store.
pub trait EventListener: Send + Sync {
    /// Something happened.
    fn on_event(&self, event: &Event);
}

/// A decision or its outcome, as `explain` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRecord {
    /// Monotonic time of the store's process, in microseconds.
    pub micros: u64,
    /// The keyspace.
    pub keyspace: String,
    /// What was decided, or how it ended.
    pub what: String,
    /// Why, with the numbers that led to it.
    pub reason: String,
}

/// Decisions kept for `explain`.
const DECISIONS_KEPT: usize = 4096;

/// The latest decisions, oldest first.
#[derive(Default)]
pub(crate) struct DecisionLog {
    records: VecDeque<DecisionRecord>,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl DecisionLog {
    pub(crate) fn records(&self) -> Vec<DecisionRecord> {
        self.records.iter().cloned().collect()
    }

    pub(crate) fn note(&mut self, micros: u64, keyspace: &str, what: String, reason: String) {
        if self.records.len() == DECISIONS_KEPT {
            self.records.pop_front();
        }
        self.records.push_back(DecisionRecord { micros, keyspace: keyspace.to_owned(), what, reason });
    }
}
