//! What a commit would wait for, made ready ahead in the background: the file of the next log segment, and memory for
//! the next part of a memtable.
//!
//! Both take milliseconds when they are new: a file is made, named, and brought into memory; large pages are cleared. A
//! commit that needs one which is not ready makes it itself, so nothing depends on this lane but time.

use crate::background::{Lane, Step};
use crate::error::ErrorKind;
use crate::store::Store;
use drumlin_env::region;
use drumlin_env::sync::Arc;

/// The lane that makes things ready.
pub(crate) struct ReadyLane {
    store: Arc<Store>,
}

impl ReadyLane {
    pub(crate) fn new(store: Arc<Store>) -> ReadyLane {
        ReadyLane { store }
    }
}

impl Lane for ReadyLane {
    fn name(&self) -> String {
        "drumlin-ready".into()
    }

    fn step(&self) -> Step {
        if self.store.is_poisoned() {
            return Step::Idle;
        }
        // Memory is the process's: in a stepped world it would let one store's past choose another's steps.
        if self.store.env.stepping().is_none() && region::make_ready() {
            return Step::More;
        }
        match self.store.lane.make_ready(|| self.store.fresh_number()) {
            Ok(true) => Step::More,
            Ok(false) => Step::Idle,
            // A full disk is told, and waited for, by the commit that needs the segment.
            Err(error) if error.kind() == ErrorKind::NoSpace => Step::Idle,
            Err(error) => {
                self.store.background_failed("log", &error);
                Step::Idle
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {}
}
