//! Searches that policies ask for, carried out in small steps when nothing else is to be done.
//!
//! Each keyspace has at most one running search; a newer one replaces it. The [budget](SearchBudget) decides how much
//! time searches get, and whether an urgent or a calm one runs next. Of one kind, the oldest runs. When no time is
//! left, the policy uses the best answer so far while the search waits. On a simulated clock steps take no time, so
//! each is charged a fixed time, and a run is the same each time.
//!
//! The control lock is not taken for each step: only when the requested searches have changed, or when there is an
//! answer for a policy.
//!
//! The last answer is made durable with the policy's state. A search that panics disables its policy, as any other
//! panic of a policy does.

use crate::background::Step;
use crate::base::error::Result;
use crate::base::metrics::Counters;
use crate::keyspace::KeyspaceState;
use crate::store::Store;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::{Change, Edit};
use drumlin_policy::budget::{SearchBudget, SearchClass};
use drumlin_types::contract::{Outcome, SearchTask};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Smallest time charged for a step, in nanoseconds. On a simulated clock a step takes no time.
const STEP: f64 = 20e3;

/// The running searches, and the time that they may still use.
pub(crate) struct SearchJob {
    /// Oldest first.
    searches: Vec<RunningSearch>,
    budget: SearchBudget,
    /// Nanoseconds of policy calls that the budget has accounted for.
    policy_nanos: u64,
}

struct RunningSearch {
    keyspace: Arc<KeyspaceState>,
    /// Identifies the keyspace's policy that asked.
    policy: u64,
    task: Box<dyn SearchTask>,
    /// Whether the policy has received the best answer so far, because no time was left.
    told: bool,
}

impl RunningSearch {
    fn kind(&self) -> SearchClass {
        let is_urgent = guarded(|| self.task.is_urgent()).unwrap_or(false);
        if is_urgent { SearchClass::Urgent } else { SearchClass::Calm }
    }
}

/// Returns the result of `call`, or `None` if it panics. Searches are a policy's code.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

impl SearchJob {
    pub(crate) fn new(now_micros: u64) -> SearchJob {
        SearchJob {
            searches: Vec::new(),
            budget: SearchBudget::new(now_micros as f64 * 1e3),
            policy_nanos: 0,
        }
    }

    pub(crate) fn abandon(&mut self) {
        self.searches.clear();
    }

    /// Does one step of one of the running searches.
    pub(crate) fn step(&mut self, store: &Store) -> Result<Step> {
        let began = store.files.env.clock().thread_cpu_nanos();
        self.budget.pass(store.files.env.clock().monotonic_nanos() as f64);
        let used = store.metrics.policy_nanos.load(atomic::Ordering::Relaxed);
        self.budget.policy_used(used.saturating_sub(self.policy_nanos) as f64);
        self.policy_nanos = used;
        self.look(store);
        self.tell_waiting(store);
        let [urgent, calm] = [SearchClass::Urgent, SearchClass::Calm].map(|kind| self.first(kind).is_some());
        let Some(kind) = self.budget.turn(urgent, calm) else {
            let kind = if urgent { SearchClass::Urgent } else { SearchClass::Calm };
            let until = store.files.now() + (self.budget.wait(kind, STEP) / 1000.0) as u64;
            return Ok(if self.searches.is_empty() { Step::Idle } else { Step::Until(until) });
        };
        let Some(at) = self.first(kind) else { return Ok(Step::Idle) };
        let answer = guarded(|| self.searches[at].task.step());
        let took = store.files.env.clock().thread_cpu_nanos().saturating_sub(began);
        Counters::add(&store.metrics.search_nanos, took);
        self.budget.spend(kind, urgent && calm, (took as f64).max(STEP));
        match answer {
            Some(Some(answer)) => store.found(&self.searches.remove(at), answer)?,
            Some(None) => {}
            None => store.search_failed(&self.searches.remove(at)),
        }
        Ok(Step::More)
    }

    /// Returns the index of the oldest search of `kind`.
    fn first(&self, kind: SearchClass) -> Option<usize> {
        self.searches.iter().position(|search| search.kind() == kind)
    }

    /// Takes over the searches that policies have asked for since the last call. Drops searches that no policy waits
    /// for any more.
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
            entry.is_some_and(|entry| entry.search_epoch == search.policy && entry.requested_search.is_none())
        });
        for entry in &mut control.keyspaces {
            let (keyspace, policy) = (&entry.state, entry.search_epoch);
            let begin = |task| RunningSearch { keyspace: keyspace.clone(), policy, task, told: false };
            self.searches.extend(entry.requested_search.take().map(begin));
        }
    }

    /// Gives policies the best answers so far of the searches that have no time left now.
    fn tell_waiting(&mut self, store: &Store) {
        for search in &mut self.searches {
            if !search.told && !self.budget.affords(search.kind()) {
                search.told = true;
                store.starved(search, guarded(|| search.task.best()).flatten());
            }
        }
    }
}

impl Store {
    /// Handles a search that has no time left: its policy uses `best`, the best answer so far, and nobody waits for the
    /// rest.
    fn starved(&self, search: &RunningSearch, best: Option<Vec<u8>>) {
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return };
        if entry.search_epoch != search.policy || entry.requested_search.is_some() {
            return;
        }
        entry.searching = false;
        if let Some(best) = best {
            entry.policy.observe(&Outcome::SearchEnded(best));
            entry.due = true;
        }
        drop(control);
        self.background.progressed();
    }

    /// Handles a search that panicked. Its policy then counts as panicked.
    fn search_failed(&self, search: &RunningSearch) {
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return };
        if entry.search_epoch == search.policy {
            entry.searching = false;
            entry.due = true;
            entry.policy.fail();
        }
        drop(control);
        self.background.wake();
    }

    /// Handles the answer of a finished search.
    fn found(&self, search: &RunningSearch, answer: Vec<u8>) -> Result<()> {
        let now = self.files.now();
        let mut control = self.control.lock();
        let Some(entry) = control.keyspace(&search.keyspace) else { return Ok(()) };
        // A policy that has asked for another search does not use this answer.
        if entry.search_epoch != search.policy || entry.requested_search.is_some() {
            return Ok(());
        }
        entry.searching = false;
        entry.due = true;
        entry.policy.observe(&Outcome::SearchEnded(answer));
        let (name, blob) = (entry.policy.name(), entry.policy.save());
        let why = entry.policy.explain();
        control.decisions.note(now, &search.keyspace.name(), "search".to_owned(), why);
        let change = Change::Policy { keyspace: search.keyspace.id, name, blob };
        let result = match self.health.check_poison() {
            Ok(()) => self.append_edit(&mut control, Edit { changes: vec![change] }, || {}),
            // Nothing can be made durable any more. The answer is used until the store is closed.
            Err(_) => Ok(()),
        };
        drop(control);
        self.background.progressed();
        result
    }
}

#[cfg(test)]
mod tests;
