//! What the store tells about itself while it works: events for a listener.

use crate::error::Error;

/// Something that happened in the background. Events hold no user keys or values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A background job failed. It is tried again, or its inputs stay as they are.
    BackgroundError {
        /// `flush`, `merge`, `maintenance` or `decisions`.
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
    /// A compaction policy panicked. Another one decides until the store is closed; no data is concerned.
    PolicyFailed {
        /// The keyspace.
        keyspace: String,
        /// The name of the policy that panicked.
        policy: String,
    },
    /// The number of merges that may run at a time has changed: `workers` is 0, and it is found by measuring.
    SlotsChanged {
        /// Slots until now.
        before: usize,
        /// Slots from now on.
        slots: usize,
        /// Why, with what was measured.
        reason: String,
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
