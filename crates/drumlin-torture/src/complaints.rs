//! Listener that collects the background errors of a store under test.

use drumlin::{Event, EventListener};
use drumlin_env::sync::{Mutex, MutexGuard};

/// Collects the background errors that the store reports.
#[derive(Default)]
pub(crate) struct Complaints {
    /// Whether a close with open iterators or snapshots is expected.
    may_leave_open: bool,
    errors: Mutex<Vec<String>>,
}

impl Complaints {
    /// Creates a listener that expects a close with open iterators or snapshots.
    pub(crate) fn that_may_leave_open() -> Complaints {
        Complaints { may_leave_open: true, errors: Mutex::default() }
    }

    /// Returns the errors so far.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.errors.lock()
    }
}

impl EventListener for Complaints {
    fn on_event(&self, event: &Event) {
        let is_expected = match event {
            Event::Recovered { .. } | Event::SetAside { .. } | Event::OperatorUnused { .. } => true,
            Event::Flushed { .. } | Event::Compacted { .. } => true,
            Event::WritesStopped { .. } | Event::WritesResumed { .. } => true,
            Event::Closed { iterators, snapshots } => {
                self.may_leave_open || (*iterators, *snapshots) == (0, 0)
            }
            _ => false,
        };
        if !is_expected {
            self.errors.lock().push(format!("{event:?}"));
        }
    }
}
