//! The maintenance lane, and the start of all lanes of a store.
//!
//! Maintenance removes obsolete files, rewrites the manifest, writes the decision log, decays the lookup statistics,
//! samples the load, trains models of value lifetimes, tunes the number of compaction slots, and runs the
//! parameter searches that policies ask for. Each step does a bounded part of this.

use super::flush::FlushLane;
use super::piece::CompactionLane;
use super::preallocate::PreallocationLane;
use super::search::SearchJob;
use crate::background::{Lane, Step};
use crate::base::error::Result;
use crate::base::event::Event;
use crate::base::metrics::Counters;
use crate::store::Store;
use crate::value::Trained;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_format::manifest::{Change, Edit};

impl Store {
    /// Starts the background lanes.
    pub(crate) fn start_lanes(self: &Arc<Self>) -> Result<()> {
        self.background.start(Arc::new(FlushLane::new(self.clone())))?;
        self.background.start(Arc::new(PreallocationLane::new(self.clone())))?;
        for number in 0..self.slots.count() {
            self.background.start(Arc::new(CompactionLane::new(self.clone(), number)))?;
        }
        self.background.start(Arc::new(MaintenanceLane::new(self.clone())))
    }

    /// Appends the queued decisions to the decision log. Returns whether there were any. A failure is reported as an
    /// event and has no other effect.
    pub(crate) fn write_decisions(&self) -> bool {
        let queue = self.control.lock().decisions.take_queue();
        if let Err(error) = self.decisions.append(&self.files.env, || self.files.fresh_number(), &queue) {
            Counters::add(&self.metrics.background_errors, 1);
            self.tell(Event::BackgroundError { job: "decisions", error });
        }
        !queue.is_empty()
    }
}

impl Store {
    /// Grows one tree of a model of lifetimes. Explains and saves a complete model. Returns whether there was something
    /// to do.
    fn train_lifetimes(&self) -> Result<bool> {
        let (keyspace, rows, learned) = match self.lifetimes.train() {
            Trained::Nothing => return Ok(false),
            Trained::Tree => return Ok(true),
            Trained::Model { keyspace, rows, learned } => (keyspace, rows, learned),
        };
        let keyspaces = self.keyspaces();
        let Some(keyspace) = keyspaces.iter().find(|state| state.id == keyspace) else { return Ok(true) };
        let what = format!("model of value lifetimes trained on {rows} rows");
        let now = self.files.now();
        let mut control = self.control.lock();
        control.decisions.note(now, &keyspace.name(), what, learned.to_string());
        // On a full disk an install needs the rest of the manifest's space more.
        let may_save = !self.health.is_poisoned() && !self.health.lacks_space();
        let saved = self.lifetimes.saved(keyspace.id).filter(|_| may_save);
        if let Some(blob) = saved {
            let changes = vec![Change::ValueLifetimes { keyspace: keyspace.id, blob }];
            self.append_edit(&mut control, Edit { changes }, || {})?;
        }
        Ok(true)
    }
}

/// Maintenance lane. It also starts the lanes of compaction slots that are added later.
struct MaintenanceLane {
    store: Arc<Store>,
    /// Number of compaction lanes started so far, which is the largest number of slots so far.
    compaction_lanes: atomic::AtomicUsize,
    search: Mutex<SearchJob>,
}

impl MaintenanceLane {
    fn new(store: Arc<Store>) -> MaintenanceLane {
        let search = Mutex::new(SearchJob::new(store.files.now()));
        let compaction_lanes = atomic::AtomicUsize::new(store.slots.count());
        MaintenanceLane { store, compaction_lanes, search }
    }

    /// Adapts the number of compaction slots to the measurements, and starts missing lanes. Returns whether the number
    /// changed.
    fn tune_slots(&self) -> bool {
        let store = &self.store;
        if store.health.is_poisoned() {
            return false;
        }
        let now = store.files.now();
        let Some(change) = store.tune_slots(now) else { return false };
        let started = self.compaction_lanes.load(atomic::Ordering::Relaxed);
        for number in started..change.slots {
            if let Err(error) = store.background.start(Arc::new(CompactionLane::new(store.clone(), number))) {
                store.slots.refuse_beyond(number);
                store.background_failed("maintenance", &error);
                break;
            }
            self.compaction_lanes.store(number + 1, atomic::Ordering::Relaxed);
        }
        store.background.wake();
        true
    }

    fn try_step(&self) -> Result<Step> {
        let store = &self.store;
        // Retired views and trees that readers have not dropped when they unpinned may still hold obsolete files.
        store.files.cache.epochs().collect();
        if let Some(file) = store.files.obsolete.next(store.files.now()) {
            store.remove_obsolete(&file);
            return Ok(Step::More);
        }
        let has_worked = store.rewrite_manifest_if_grown()?
            || store.write_decisions()
            || store.age_lookups()?
            || store.renew_buckets()
            || store.tick()
            || self.tune_slots();
        if has_worked {
            return Ok(Step::More);
        }
        // Training steps may follow each other without a pause, so each step also lets the searches continue.
        let has_trained = store.train_lifetimes()?;
        let step = self.search.lock().step(store)?;
        if has_trained {
            return Ok(Step::More);
        }
        let next = [store.next_look(), store.files.obsolete.next_retry()].into_iter().flatten().min();
        Ok(match (step, next) {
            (Step::Idle, Some(look)) => Step::Until(look),
            (Step::Until(when), Some(look)) => Step::Until(when.min(look)),
            (step, _) => step,
        })
    }
}

impl Lane for MaintenanceLane {
    fn name(&self) -> String {
        "drumlin-maintenance".into()
    }

    fn step(&self) -> Step {
        match self.try_step() {
            Ok(step) => step,
            Err(error) => {
                self.store.background_failed("maintenance", &error);
                Step::Idle
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {
        self.search.lock().abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::db::Db;
    use crate::base::event::EventListener;
    use drumlin_env::MemEnv;

    /// Records the events about ignored states.
    #[derive(Default)]
    struct Ignored(Mutex<Vec<String>>);

    impl EventListener for Ignored {
        fn on_event(&self, event: &Event) {
            if let Event::StateIgnored { what } = event {
                self.0.lock().push(what.clone());
            }
        }
    }

    /// Lifetimes that a newer version saved are reported once and learned anew. They do not matter if the keyspace
    /// separates no values any more.
    #[test]
    fn saved_lifetimes_of_another_version_are_ignored() {
        for threshold in ["1KiB", "0"] {
            let mem = MemEnv::new(12);
            let db = Db::builder("/s").env(mem.env()).open().expect("open");
            let keys = db.keyspace_with("k", &[("value_threshold", "1KiB")]).expect("a keyspace");
            keys.set_option("value_threshold", threshold).expect("a live option");
            let saved = Change::ValueLifetimes { keyspace: keys.state.id, blob: vec![99; 40] };
            let edit = Edit { changes: vec![saved] };
            keys.store.append_edit(&mut keys.store.control.lock(), edit, || {}).expect("an edit");
            drop(keys);
            db.close().expect("close");
            let expected = usize::from(threshold != "0");
            for expected in [expected, 0] {
                let ignored = Arc::new(Ignored::default());
                let db = Db::builder("/s").env(mem.env()).listener(ignored.clone()).open().expect("open");
                let told = ignored.0.lock().clone();
                assert_eq!(told.len(), expected, "{told:?}");
                assert!(told.iter().all(|what| what.contains("\"k\": saved lifetimes")), "{told:?}");
                let keys = db.keyspace("k").expect("there");
                keys.put("a", vec![1; 2000]).expect("put");
                db.flush().expect("flush");
            }
        }
    }
}
