//! Searches that policies ask for, carried out in small steps when nothing else is to be done.
//!
//! Each keyspace has one search under way at most; a newer one takes the place of the one before. What time they get, and
//! of which kind goes on, says their [budget](SearchBudget); of a kind, the oldest goes on. While there is no time left a
//! search waits, and the policy goes by the best answer so far. On a simulated clock, on which steps take no time, each
//! is charged a fixed one, so that a run is the same each time.
//!
//! The control lock is taken when a policy asked for something else, and when there is something to tell it, not for
//! each step.
//!
//! The last answer is made durable with the policy's state. A search that panics ends its policy, as any question does.

use crate::background::Step;
use crate::error::Result;
use crate::keyspace::KeyspaceState;
use crate::metrics::Counters;
use crate::store::Store;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::{Change, Edit};
use drumlin_policy::budget::{Kind, SearchBudget};
use drumlin_types::contract::{Outcome, Think};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a step is charged at least, nanoseconds; on a simulated clock it takes no time.
const STEP: f64 = 20e3;

/// The searches under way, and the time that they may still use.
pub(crate) struct SearchJob {
    /// Oldest first.
    searches: Vec<Search>,
    budget: SearchBudget,
    /// Nanoseconds of questions to policies that the budget knows of.
    asked: u64,
}

struct Search {
    keyspace: Arc<KeyspaceState>,
    /// Which of the keyspace's policies asked.
    policy: u64,
    think: Box<dyn Think>,
    /// The best answer so far was given while there was no time left.
    told: bool,
}

impl Search {
    fn kind(&self) -> Kind {
        let is_urgent = guarded(|| self.think.is_urgent()).unwrap_or(false);
        if is_urgent { Kind::Urgent } else { Kind::Calm }
    }
}

/// What `ask` gives, unless it panics: searches are a policy's code.
fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).ok()
}

impl SearchJob {
    pub(crate) fn new(now_micros: u64) -> SearchJob {
        SearchJob { searches: Vec::new(), budget: SearchBudget::new(now_micros as f64 * 1e3), asked: 0 }
    }

    pub(crate) fn abandon(&mut self) {
        self.searches.clear();
    }

    /// One step of one of the searches under way.
    pub(crate) fn step(&mut self, store: &Store) -> Result<Step> {
        let began = store.env.clock().thread_cpu_nanos();
        self.budget.pass(store.env.clock().monotonic_nanos() as f64);
        let asked = store.metrics.policy_nanos.load(atomic::Ordering::Relaxed);
        self.budget.asked(asked.saturating_sub(self.asked) as f64);
        self.asked = asked;
        self.look(store);
        self.tell_waiting(store);
        let [urgent, calm] = [Kind::Urgent, Kind::Calm].map(|kind| self.first(kind).is_some());
        let Some(kind) = self.budget.turn(urgent, calm) else {
            let kind = if urgent { Kind::Urgent } else { Kind::Calm };
            let until = store.now() + (self.budget.wait(kind, STEP) / 1000.0) as u64;
            return Ok(if self.searches.is_empty() { Step::Idle } else { Step::Until(until) });
        };
        let Some(at) = self.first(kind) else { return Ok(Step::Idle) };
        let answer = guarded(|| self.searches[at].think.step());
        let took = store.env.clock().thread_cpu_nanos().saturating_sub(began);
        Counters::add(&store.metrics.search_nanos, took);
        self.budget.spend(kind, urgent && calm, (took as f64).max(STEP));
        match answer {
            Some(Some(answer)) => store.found(&self.searches.remove(at), answer)?,
            Some(None) => {}
            None => store.search_failed(&self.searches.remove(at)),
        }
        Ok(Step::More)
    }

    /// Where the oldest search of `kind` is.
    fn first(&self, kind: Kind) -> Option<usize> {
        self.searches.iter().position(|search| search.kind() == kind)
    }

    /// Takes what policies have asked for since the last look, and lets go of what none of them waits for any more.
    fn look(&mut self, store: &Store) {
        let changed =
            |keyspace: &KeyspaceState| keyspace.search_changed.swap(false, atomic::Ordering::AcqRel);
        let changes = store.keyspaces().iter().filter(|keyspace| changed(keyspace)).count();
        if changes == 0 && !self.searches.iter().any(|search| search.keyspace.is_dropped()) {
            return;
        }
        let mut control = store.control.lock();
        self.searches.retain(|search| {
            let entry = control.keyspace(&search.keyspace);
            entry.is_some_and(|entry| entry.policies == search.policy && entry.think.is_none())
        });
        for entry in &mut control.keyspaces {
            let (keyspace, policy) = (&entry.state, entry.policies);
            let begin = |think| Search { keyspace: keyspace.clone(), policy, think, told: false };
            self.searches.extend(entry.think.take().map(begin));
        }
    }

    /// Gives policies the best answers so far of the searches for which there is no time now.
    fn tell_waiting(&mut self, store: &Store) {
        for search in &mut self.searches {
            if !search.told && !self.budget.affords(search.kind()) {
                search.told = true;
                store.starved(search, guarded(|| search.think.best()).flatten());
            }
        }
    }
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

    /// A search panicked: so did its policy, then.
    fn search_failed(&self, search: &Search) {
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return };
        if entry.policies == search.policy {
            entry.searching = false;
            entry.due = true;
            entry.policy.fail();
        }
        drop(control);
        self.background.wake();
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

#[cfg(test)]
mod tests;
