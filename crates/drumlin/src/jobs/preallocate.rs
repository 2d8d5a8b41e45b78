//! Preallocation: makes in the background what a commit would otherwise wait for. That is the file of the next log
//! segment, the pages of the open one, and memory for the next part of a memtable.
//!
//! Each can take milliseconds: a file is created, named, and brought into memory; its pages are prefaulted; large pages
//! are cleared. A commit does not wait for this lane: it makes a missing segment itself, and takes the page faults. So
//! the lane affects latency alone.

use crate::background::{Lane, Step};
use crate::store::Store;
use drumlin_env::region;
use drumlin_env::sync::Arc;

/// The lane that preallocates.
pub(crate) struct PreallocationLane {
    store: Arc<Store>,
}

impl PreallocationLane {
    pub(crate) fn new(store: Arc<Store>) -> PreallocationLane {
        PreallocationLane { store }
    }
}

impl Lane for PreallocationLane {
    fn name(&self) -> String {
        "drumlin-ready".into()
    }

    fn step(&self) -> Step {
        if self.store.health.is_poisoned() {
            return Step::Idle;
        }
        self.store.commit_lock.prefault_log();
        // The memory belongs to the process. In a stepped world, the history of one store would change the steps of
        // another.
        if self.store.files.env.stepping().is_none() && region::make_ready() {
            return Step::More;
        }
        match self.store.commit_lock.make_ready(|| self.store.files.fresh_number()) {
            Ok(true) => Step::More,
            Ok(false) => Step::Idle,
            // The commit that needs the segment tries again, and fails with `NoSpace` if there is still no space.
            Err(error) if error.is_shortage() => {
                self.store.relieve_descriptors(&error);
                Step::Idle
            }
            Err(error) => {
                match self.store.commit_lock.directory.entries.failure() {
                    // Tables may have lost their names too.
                    Some(failure) => self.store.poison(&failure),
                    None => self.store.background_failed("log", &error),
                }
                Step::Idle
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {}
}
