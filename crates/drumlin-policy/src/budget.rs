//! CPU budget of policy searches, and the choice of the search that runs next.
//!
//! A search is the stepwise background work of a policy that looks for better parameters. Searches and policy calls
//! together may use two percent of a core. At most half of that is charged for policy calls, so that searches always
//! make progress. Unused time accumulates up to a limit. Half of the limit is reserved for *urgent* searches, which
//! respond to a changed load; otherwise the searches of a growing tree would spend it all.
//!
//! When several searches wait, an urgent one goes first, and the account records the time that it takes from *calm*
//! searches. After four units of urgent search time, a waiting calm search gets one unit, from the reserve if nothing
//! else is left. So a calm search finishes however many urgent ones follow each other.
//!
//! The account only counts nanoseconds. The code that steps the searches passes in the current time and the time
//! used.

/// CPU time account of policy searches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchBudget {
    left: f64,
    /// Time of the last credit, in nanoseconds.
    at: f64,
    /// Time that calm searches may use before the next urgent search; negative when they used more than that.
    owed: f64,
    /// Part of the credited time that policy calls may still be charged for.
    calls: f64,
}

/// Class of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchClass {
    /// Responds to a changed load.
    Urgent,
    /// Any other search.
    Calm,
}

/// Units of urgent search time for each unit that an overtaken calm search gets.
const OVERTAKEN: f64 = 4.0;

impl SearchBudget {
    /// Share of a core that searches and policy calls may use.
    pub const SHARE: f64 = 0.02;
    /// Fraction of the share that may be charged for policy calls.
    pub const CALLS: f64 = 0.5;
    /// Upper bound on accumulated time, in nanoseconds.
    pub const SAVED: f64 = 400e6;
    /// Part of the accumulated time that is reserved for urgent searches, in nanoseconds.
    pub const RESERVE: f64 = SearchBudget::SAVED / 2.0;

    /// Returns a full account at time `now`, in nanoseconds.
    pub fn new(now: f64) -> SearchBudget {
        SearchBudget { left: SearchBudget::SAVED, at: now, owed: 0.0, calls: 0.0 }
    }

    /// Credits the time up to `now`. A clock that goes back earns nothing.
    pub fn pass(&mut self, now: f64) {
        let gained = (now - self.at).max(0.0) * SearchBudget::SHARE;
        self.left = (self.left + gained).min(SearchBudget::SAVED);
        self.calls = (self.calls + gained * SearchBudget::CALLS).min(SearchBudget::RESERVE);
        self.at = now;
    }

    /// Charges `nanos` nanoseconds of policy calls.
    pub fn policy_used(&mut self, nanos: f64) {
        let counted = nanos.min(self.calls);
        self.calls -= counted;
        self.left -= counted;
    }

    /// Returns the class of the search that runs next, given which classes wait; `None` when all must wait.
    pub fn turn(&self, urgent: bool, calm: bool) -> Option<SearchClass> {
        let is_owed = urgent && calm && self.owed > 0.0;
        match (urgent, calm) {
            (true, _) if self.left > 0.0 => {
                Some(if is_owed { SearchClass::Calm } else { SearchClass::Urgent })
            }
            (false, true) if self.left > SearchBudget::RESERVE => Some(SearchClass::Calm),
            _ => None,
        }
    }

    /// Returns whether a search of `kind` may run when no other search waits.
    pub fn affords(&self, kind: SearchClass) -> bool {
        self.turn(kind == SearchClass::Urgent, kind == SearchClass::Calm).is_some()
    }

    /// Returns the nanoseconds until a search of `kind` has `least` available when no other search waits; 0 if it has
    /// it now.
    pub fn wait(&self, kind: SearchClass, least: f64) -> f64 {
        let kept = if kind == SearchClass::Urgent { 0.0 } else { SearchBudget::RESERVE };
        (kept + least - self.left).max(0.0) / SearchBudget::SHARE
    }

    /// Charges `nanos` nanoseconds to a search of `kind`. `both`: a search of the other class waited as well.
    pub fn spend(&mut self, kind: SearchClass, both: bool, nanos: f64) {
        self.left -= nanos;
        match kind {
            _ if !both => self.owed = 0.0,
            SearchClass::Urgent => self.owed += nanos / OVERTAKEN,
            SearchClass::Calm => self.owed -= nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_kept_for_urgent_searches() {
        let mut budget = SearchBudget::new(0.0);
        let spend_all = |budget: &mut SearchBudget, kind| {
            let steps = (0..).take_while(|_| {
                let goes_on = budget.affords(kind);
                budget.spend(kind, false, if goes_on { 1e6 } else { 0.0 });
                goes_on
            });
            steps.count()
        };
        assert_eq!(
            [SearchClass::Calm, SearchClass::Urgent].map(|kind| spend_all(&mut budget, kind)),
            [200, 200]
        );
        assert_eq!(
            [SearchClass::Calm, SearchClass::Urgent].map(|kind| budget.wait(kind, 1e6)),
            [201e6, 1e6].map(|n| n * 50.0)
        );
        budget.pass(50e6);
        assert_eq!(spend_all(&mut budget, SearchClass::Urgent), 1);
        budget.pass(1e15);
        assert_eq!(budget.wait(SearchClass::Calm, 1e6), 0.0);
        assert_eq!(spend_all(&mut budget, SearchClass::Urgent), 400, "no more than that is saved");
        budget.pass(0.0);
        assert!(!budget.affords(SearchClass::Urgent), "no time has passed");
    }

    #[test]
    fn calls_take_from_searches_half_of_what_there_is() {
        let mut budget = SearchBudget::new(0.0);
        budget.policy_used(1e9);
        assert_eq!(budget, SearchBudget::new(0.0), "nothing was gained yet");
        // A calm search may use the 200 ms above the reserve; after that both demand more than the budget earns.
        budget.spend(SearchClass::Calm, false, 200e6);
        let mut searched: f64 = 0.0;
        for tick in 1..=1000 {
            budget.pass(f64::from(tick) * 1e6);
            budget.policy_used(1e6);
            while budget.affords(SearchClass::Calm) {
                budget.spend(SearchClass::Calm, false, 1e3);
                searched += 1e3;
            }
        }
        assert!((searched - 10e6).abs() <= 1e3, "{searched} of 20 ms");
        // Searches get the time that policy calls leave unused.
        budget.pass(2000e6);
        budget.policy_used(1e6);
        assert_eq!(budget.wait(SearchClass::Calm, 19e6), 0.0);
        assert!(budget.wait(SearchClass::Calm, 19.1e6) > 0.0);
    }

    #[test]
    fn calm_searches_get_a_fifth_of_the_time_beside_urgent_ones() {
        let mut budget = SearchBudget::new(0.0);
        let mut used = [0.0; 2];
        let mut now = 0.0;
        for step in 0..10_000 {
            now += 1e6;
            budget.pass(now);
            // A calm step takes as long as three urgent ones.
            let Some(kind) = budget.turn(true, true) else { continue };
            let nanos = if kind == SearchClass::Urgent { 100e3 } else { 300e3 };
            budget.spend(kind, true, nanos);
            used[usize::from(kind == SearchClass::Calm)] += nanos;
            assert!(step > 0 || kind == SearchClass::Urgent, "it goes first");
        }
        assert!(used[0] + used[1] <= SearchBudget::SAVED + SearchBudget::SHARE * now + 300e3);
        assert!((used[0] / used[1] - OVERTAKEN).abs() < 0.01, "{used:?}");
    }
}
