//! Searches that policies ask for, carried out in small steps when nothing else is to be done.
//!
//! A search gets two percent of a core: time that is not used is saved, up to a limit. While there is none
//! left the search waits, and the policy goes by the best answer so far. On a simulated clock, on which
//! steps take no time, each is charged a fixed one, so that a run is the same each time.
//!
//! Half of what may be saved is kept for searches that answer to another load: those of a tree that grows would spend it
//! all. A newer search of the same keyspace takes the place of the one under way.
//!
//! The last answer is made durable with the policy's state.

use crate::background::Step;
use crate::compaction::control::KeyspaceControl;
use crate::error::Result;
use crate::keyspace::KeyspaceState;
use crate::metrics::Counters;
use crate::store::Store;
use drumlin_env::sync::Arc;
use drumlin_format::manifest::{Change, Edit};
use drumlin_types::contract::{Outcome, Think};

/// The share of a core that searches may use.
const SHARE: f64 = 0.02;
/// Time that may be saved up, nanoseconds.
const SAVED: f64 = 400e6;
/// What is kept for urgent searches, nanoseconds.
const RESERVE: f64 = SAVED / 2.0;
/// What a step is charged at least, nanoseconds; on a simulated clock it takes no time.
const STEP: f64 = 20e3;

/// The search under way, and the time that it may still use.
pub(crate) struct SearchJob {
    search: Option<Search>,
    balance: f64,
    /// Monotonic nanoseconds of the last gain.
    at: u64,
}

struct Search {
    keyspace: Arc<KeyspaceState>,
    /// Which of the keyspace's policies asked.
    policy: u64,
    think: Box<dyn Think>,
    /// The best answer so far was given while there was no time left.
    told: bool,
}

impl SearchJob {
    pub(crate) fn new(now_micros: u64) -> SearchJob {
        SearchJob { search: None, balance: SAVED, at: now_micros * 1000 }
    }

    pub(crate) fn abandon(&mut self) {
        self.search = None;
    }

    /// One step of the search under way, or of the next one.
    pub(crate) fn step(&mut self, store: &Store) -> Result<Step> {
        let began = store.env.clock().monotonic_nanos();
        self.balance = (self.balance + began.saturating_sub(self.at) as f64 * SHARE).min(SAVED);
        self.at = began;
        self.search = newest(store, self.search.take());
        let Some(search) = &mut self.search else { return Ok(Step::Idle) };
        let kept = if search.think.is_urgent() { 0.0 } else { RESERVE };
        if self.balance <= kept {
            if !search.told {
                search.told = true;
                let best = search.think.best();
                store.starved(search, best);
            }
            let wait = (STEP + kept - self.balance) / SHARE / 1000.0;
            return Ok(Step::Until(store.now() + wait as u64));
        }
        let answer = search.think.step();
        let took = store.env.clock().monotonic_nanos().saturating_sub(began);
        Counters::add(&store.metrics.search_nanos, took);
        self.balance -= (took as f64).max(STEP);
        if let Some(answer) = answer
            && let Some(search) = self.search.take()
        {
            store.found(&search, answer)?;
        }
        Ok(Step::More)
    }
}

/// The search under way, unless its policy asks for another one by now; the next one where there is none.
fn newest(store: &Store, search: Option<Search>) -> Option<Search> {
    let mut control = store.control.lock();
    let is_newer = |entry: &KeyspaceControl| {
        search.as_ref().is_none_or(|search| Arc::ptr_eq(&search.keyspace, &entry.state))
    };
    let newer = control.keyspaces.iter_mut().filter(|entry| is_newer(entry)).find_map(|entry| {
        let think = entry.think.take()?;
        Some(Search { keyspace: entry.state.clone(), policy: entry.policies, think, told: false })
    });
    newer.or(search)
}

impl Store {
    /// A search has no time left: its best answer so far serves, and nobody waits for the rest.
    fn starved(&self, search: &Search, best: Option<Vec<u8>>) {
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return };
        if entry.policies != search.policy || entry.think.is_some() {
            return;
        }
        entry.searching = false;
        if let Some(best) = best {
            entry.policy.observe(&Outcome::Thought(best));
            entry.due = true;
        }
        drop(control);
        self.background.progressed();
    }

    /// A search ended.
    fn found(&self, search: &Search, answer: Vec<u8>) -> Result<()> {
        let now = self.now();
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return Ok(()) };
        // Who asks for another one does not go by the answer to this one.
        if entry.policies != search.policy || entry.think.is_some() {
            return Ok(());
        }
        entry.searching = false;
        entry.due = true;
        entry.policy.observe(&Outcome::Thought(answer));
        let (name, blob) = (entry.policy.name(), entry.policy.save());
        let why = entry.policy.explain();
        control.decisions.note(now, &search.keyspace.name, "search".to_owned(), why);
        let change = Change::Policy { keyspace: search.keyspace.id, name, blob };
        let result = match self.check_poison() {
            Ok(()) => self.append_edit(&mut control, Edit { changes: vec![change] }, || {}),
            // Nothing can be made durable any more; the answer serves until the store is closed.
            Err(_) => Ok(()),
        };
        drop(control);
        self.background.progressed();
        result
    }
}
