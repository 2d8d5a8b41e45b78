//! Background work as step functions, run by threads or, in simulation, by seeded choices.
//!
//! A *lane* is one background job queue for one kind of work, such as flushing, one compaction slot, or maintenance.
//! A step does a bounded part of the work and returns whether there is more. Outside simulation each lane has a
//! thread that loops over steps and sleeps when idle. In simulation there are no threads. Before each client
//! operation, and whenever a client waits, the environment's seeded choices select lanes and run steps of them.
//!
//! A client that waits for a condition (free memory, a flush, an idle store) calls [`Background::wait`]. With threads
//! it sleeps until some work is installed. In simulation it runs steps until the condition holds. If no lane can run
//! and no timer is pending, that is a deadlock and a bug. In a paced simulation ([`paced`]) scheduling is
//! deterministic, and each lane has its own time.

mod lane;
mod paced;

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Arc, Condvar, Mutex, atomic};
use drumlin_env::{Env, JoinHandle, Stepping};
pub(crate) use lane::{Lane, Step};
use paced::Paced;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Identity of the current lane's thread: its `Background` object and its thread number there.
    static RUNNING: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Signals {
    /// Counts events that may give a lane work.
    work: u64,
    /// Counts events that may end a wait.
    progress: u64,
    stopping: bool,
}

/// All lanes of a store, with the means to run them.
pub(crate) struct Background {
    env: Env,
    lanes: Mutex<Vec<Arc<dyn Lane>>>,
    threads: Mutex<Vec<JoinHandle>>,
    signals: Mutex<Signals>,
    work: Condvar,
    progress: Condvar,
    /// In simulation: whether steps are running, so that they do not nest.
    stepping: atomic::AtomicBool,
    /// In simulation: number of further client operations without background steps.
    starved: atomic::AtomicUsize,
    paced: Paced,
}

/// Maximum sleep of an idle lane in microseconds, so that a missed timer cannot hang it.
const IDLE_SLEEP_MICROS: u64 = 500_000;
/// Number of steps in one simulated wait after which the wait counts as hung.
const STEP_BUDGET: u64 = 20_000_000;

impl Background {
    pub(crate) fn new(env: Env) -> Background {
        Background {
            env,
            lanes: Mutex::new(Vec::new()),
            threads: Mutex::new(Vec::new()),
            signals: Mutex::new(Signals::default()),
            work: Condvar::new(),
            progress: Condvar::new(),
            stepping: atomic::AtomicBool::new(false),
            starved: atomic::AtomicUsize::new(0),
            paced: Paced::default(),
        }
    }

    /// Returns a number that identifies this object as long as it lives.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns whether this thread runs one of the lanes.
    pub(crate) fn is_lane_thread(&self) -> bool {
        RUNNING.get().is_some_and(|(id, _)| id == self.id())
    }

    /// Starts `lane`, on its own thread or, in simulation, as a lane to step.
    pub(crate) fn start(self: &Arc<Self>, lane: Arc<dyn Lane>) -> Result<()> {
        self.lanes.lock().push(lane.clone());
        if self.env.stepping().is_some() {
            return Ok(());
        }
        let this = self.clone();
        let name = lane.name();
        let mut threads = self.threads.lock();
        if self.signals.lock().stopping {
            return Ok(());
        }
        let number = threads.len();
        let thread = self
            .env
            .spawn(&name, move || {
                RUNNING.set(Some((this.id(), number)));
                this.run(&*lane);
            })
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start thread {name}: {e}")))?;
        threads.push(thread);
        Ok(())
    }

    fn run(&self, lane: &dyn Lane) {
        loop {
            let seen = {
                let signals = self.signals.lock();
                if signals.stopping {
                    break;
                }
                signals.work
            };
            // A panic drops the state of its job uninspected. In simulation the panic propagates to the test.
            let step = catch_unwind(AssertUnwindSafe(|| lane.step())).unwrap_or_else(|_| {
                lane.panicked();
                Step::Idle
            });
            let sleep = match step {
                Step::More => continue,
                Step::Idle => IDLE_SLEEP_MICROS,
                Step::Until(when) => {
                    when.saturating_sub(self.env.clock().monotonic_micros()).clamp(1, IDLE_SLEEP_MICROS)
                }
            };
            let signals = self.signals.lock();
            if signals.work == seen && !signals.stopping {
                let _ = self.work.wait_timeout(signals, std::time::Duration::from_micros(sleep));
            }
        }
        lane.abandon();
    }

    /// Wakes the lanes after an event that may give a lane work.
    pub(crate) fn wake(&self) {
        self.signals.lock().work += 1;
        self.work.notify_all();
    }

    /// Wakes waiters and lanes after an event that may end a wait and may give a lane work.
    pub(crate) fn progressed(&self) {
        {
            let mut signals = self.signals.lock();
            signals.progress += 1;
            signals.work += 1;
        }
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// Returns the number of events that woke waiters.
    #[cfg(test)]
    pub(crate) fn progress(&self) -> u64 {
        self.signals.lock().progress
    }

    /// Waits until `done` holds. `what` describes the waiter and the condition, for errors.
    pub(crate) fn wait(&self, what: &str, done: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait_until(u64::MAX, what, done)
    }

    /// Waits like `wait`, but also calls `done` at the monotonic time `end` in microseconds, when `done` can return an
    /// error to give up.
    pub(crate) fn wait_until(
        &self,
        end: u64,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        if self.env.stepping().is_some() {
            return self.wait_stepping(what, done);
        }
        loop {
            let seen = self.signals.lock().progress;
            if done()? {
                return Ok(());
            }
            let signals = self.signals.lock();
            if signals.stopping {
                return Err(Error::new(ErrorKind::Closed, "the store was closed"));
            }
            if signals.progress == seen {
                let left = end.saturating_sub(self.env.clock().monotonic_micros());
                let longest = left.clamp(1000, IDLE_SLEEP_MICROS);
                let _ = self.progress.wait_timeout(signals, std::time::Duration::from_micros(longest));
            }
        }
    }

    fn wait_stepping(&self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let is_paced = self.env.stepping().is_some_and(|stepping| stepping.is_paced());
        for _ in 0..STEP_BUDGET {
            if done()? {
                return Ok(());
            }
            if is_paced {
                self.let_pass();
                continue;
            }
            if self.signals.lock().stopping {
                return Err(Error::new(ErrorKind::Closed, "the store was closed"));
            }
            if !self.step_any()? {
                if done()? {
                    return Ok(());
                }
                return Err(Error::new(
                    ErrorKind::Bug,
                    format!("deadlock: {what}, and no background work can run"),
                ));
            }
        }
        Err(Error::new(ErrorKind::Bug, format!("hung: {what} for {STEP_BUDGET} background steps")))
    }

    /// Runs one step of a lane that can run. If all lanes wait for timers, advances virtual time. Returns `false` if
    /// no lane can run any more.
    pub(crate) fn step_any(&self) -> Result<bool> {
        let Some(choices) = self.env.stepping() else { return Ok(false) };
        if self.stepping.swap(true, atomic::Ordering::AcqRel) {
            return Err(Error::new(ErrorKind::Bug, "a background step waited for background work"));
        }
        let mut lanes: Vec<Arc<dyn Lane>> = self.lanes.lock().clone();
        let mut timer: Option<u64> = None;
        let mut ran = false;
        while !lanes.is_empty() {
            let lane = lanes.swap_remove(choices.choose(lanes.len()));
            let step = choices.step(|| lane.step()).unwrap_or_else(|| {
                lane.panicked();
                Step::Idle
            });
            match step {
                Step::More => {
                    ran = true;
                    break;
                }
                Step::Idle => {}
                Step::Until(when) => timer = Some(timer.map_or(when, |t| t.min(when))),
            }
        }
        if let (false, Some(when)) = (ran, timer) {
            let now = self.env.clock().monotonic_micros();
            self.env.clock().sleep_micros(when.saturating_sub(now).max(1));
            ran = true;
        }
        self.stepping.store(false, atomic::Ordering::Release);
        Ok(ran)
    }

    /// In simulation, runs a few steps before a client operation. Sometimes it runs none for a while, as on a busy
    /// machine. Work then piles up that otherwise rarely waits.
    pub(crate) fn step_in_simulation(&self) {
        let Some(choices) = self.env.stepping() else { return };
        if self.stepping.load(atomic::Ordering::Acquire) {
            return;
        }
        if choices.is_paced() {
            self.run_paced(&choices);
            return;
        }
        let starved = self.starved.load(atomic::Ordering::Relaxed);
        if starved > 0 {
            self.starved.store(starved - 1, atomic::Ordering::Relaxed);
            return;
        }
        if choices.choose(STARVED_ONE_IN) == 0 {
            self.starved.store(choices.choose(STARVED_OPERATIONS), atomic::Ordering::Relaxed);
        }
        for _ in 0..choices.choose(INTERLEAVED_STEPS) {
            if !matches!(self.step_any(), Ok(true)) {
                break;
            }
        }
    }

    /// Runs the steps of a paced simulation that are due.
    fn run_paced(&self, stepping: &Stepping) {
        if self.stepping.swap(true, atomic::Ordering::AcqRel) {
            return;
        }
        let lanes: Vec<Arc<dyn Lane>> = self.lanes.lock().clone();
        self.paced.run(&lanes, stepping, self.env.clock(), || self.signals.lock().work);
        self.stepping.store(false, atomic::Ordering::Release);
    }

    /// Advances a waiting client's time to the next step and runs that step.
    fn let_pass(&self) {
        let Some(stepping) = self.env.stepping() else { return };
        let (now, work) = (self.env.clock().monotonic_nanos(), self.signals.lock().work);
        if let Some(next) = self.paced.next_at(self.lanes.lock().len(), now, work) {
            stepping.pass_until(next);
        }
        self.run_paced(&stepping);
    }

    /// Stops all lanes after their current step.
    pub(crate) fn stop(&self) {
        self.signals.lock().stopping = true;
        self.work.notify_all();
        self.progress.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        // No lane starts any more. A thread cannot join itself: an event listener on a lane's thread may have called
        // this.
        let own = RUNNING.get();
        for (number, thread) in threads.into_iter().enumerate() {
            if own == Some((self.id(), number)) {
                continue;
            }
            // A lane that panicked has ended too.
            let _ = thread.join();
        }
        for lane in std::mem::take(&mut *self.lanes.lock()) {
            lane.abandon();
        }
    }
}

/// Exclusive upper bound on the steps that simulation runs before one client operation.
const INTERLEAVED_STEPS: usize = 4;
/// Simulation stops running background steps before operations at one in this many client operations.
const STARVED_ONE_IN: usize = 48;
/// Exclusive upper bound on the number of operations without steps.
const STARVED_OPERATIONS: usize = 48;

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::error::ErrorKind;
    use crate::base::event::{Event, EventListener};
    use drumlin_env::TempDir;
    use drumlin_env::sync::Arc;
    use drumlin_types::contract::{CompactionPolicy, Decision, PolicyInput};

    #[derive(Debug)]
    struct Fails;

    impl CompactionPolicy for Fails {
        fn name(&self) -> String {
            "leveling".to_owned()
        }

        fn decide(&mut self, _: &PolicyInput<'_>) -> Decision {
            panic!("unexpected policy call");
        }
    }

    /// Event listener that panics on the lane thread that reports a failed policy.
    struct FailsToo;

    impl EventListener for FailsToo {
        fn on_event(&self, event: &Event) {
            assert!(!matches!(event, Event::PolicyFailed { .. }), "unexpected event");
        }
    }

    #[test]
    fn who_waits_for_a_thread_that_panicked_hears_of_it() {
        let dir = TempDir::new("drumlin-panic").expect("a temporary directory");
        let builder = Db::builder(dir.path().join("s")).listener(Arc::new(FailsToo));
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put(b"a", b"1").expect("put");
        keys.store.control.lock().keyspaces.iter_mut().for_each(|k| k.set_policy(Box::new(Fails)));
        let error = db.flush().and_then(|()| db.wait_idle()).expect_err("the store is never idle");
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("drumlin-compact"), "{error}");
        assert!(error.to_string().contains(" panicked"), "{error}");
        assert_eq!(keys.put(b"b", b"2").expect_err("no more writes").kind(), ErrorKind::Poisoned);
        assert_eq!(keys.get(b"a").expect("reads go on").as_deref(), Some(&b"1"[..]));
        drop((keys, db));
        let db = Db::open(dir.path().join("s")).expect("open again");
        let keys = db.keyspace("k").expect("keyspace");
        assert_eq!(keys.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    }
}
