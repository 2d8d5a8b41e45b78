//! The time that searches of policies get, and which of them goes on (arce.md 3.7.5).
//!
//! Searches and questions to policies together get two percent of a core; of what questions take half of that at most is
//! counted, so that searches always go on. What is not used is saved, up to a limit, and half of that is kept for *urgent*
//! searches, which answer to another load: those of a tree that grows would spend it all.
//!
//! Of several searches an urgent one goes first. What it takes from the others is counted: after four parts of time of
//! urgent searches a *calm* one that waits gets one part, out of what is kept if there is nothing else. So however many
//! urgent ones follow each other, it ends.
//!
//! A plain account of nanoseconds: whoever steps the searches says what time it is and what they took.

/// What searches may still use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchBudget {
    left: f64,
    /// Nanoseconds of the last gain.
    at: f64,
    /// What calm searches may take before the next urgent one; negative when they took more.
    owed: f64,
    /// What of the gains so far questions may still use.
    questions: f64,
}

/// A kind of search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It answers to another load.
    Urgent,
    /// Any other.
    Calm,
}

/// Parts of time that urgent searches use for each one of the calm searches that they overtake.
const OVERTAKEN: f64 = 4.0;

impl SearchBudget {
    /// The share of a core that searches and questions may use.
    pub const SHARE: f64 = 0.02;
    /// The part of it that questions may take from searches.
    pub const QUESTIONS: f64 = 0.5;
    /// Time that may be saved up, nanoseconds.
    pub const SAVED: f64 = 400e6;
    /// What of it is kept for urgent searches, nanoseconds.
    pub const RESERVE: f64 = SearchBudget::SAVED / 2.0;

    /// A full one, at `now` in nanoseconds.
    pub fn new(now: f64) -> SearchBudget {
        SearchBudget { left: SearchBudget::SAVED, at: now, owed: 0.0, questions: 0.0 }
    }

    /// Time has passed up to `now`; one that goes back gains nothing.
    pub fn pass(&mut self, now: f64) {
        let gained = (now - self.at).max(0.0) * SearchBudget::SHARE;
        self.left = (self.left + gained).min(SearchBudget::SAVED);
        self.questions = (self.questions + gained * SearchBudget::QUESTIONS).min(SearchBudget::RESERVE);
        self.at = now;
    }

    /// Policies were asked for so many nanoseconds.
    pub fn asked(&mut self, nanos: f64) {
        let counted = nanos.min(self.questions);
        self.questions -= counted;
        self.left -= counted;
    }

    /// Of which kind the search is that goes on now, when there are `urgent` and `calm` ones; `None` when all have to wait.
    pub fn turn(&self, urgent: bool, calm: bool) -> Option<Kind> {
        let is_owed = urgent && calm && self.owed > 0.0;
        match (urgent, calm) {
            (true, _) if self.left > 0.0 => Some(if is_owed { Kind::Calm } else { Kind::Urgent }),
            (false, true) if self.left > SearchBudget::RESERVE => Some(Kind::Calm),
            _ => None,
        }
    }

    /// Whether a search of `kind` goes on when there is no other.
    pub fn affords(&self, kind: Kind) -> bool {
        self.turn(kind == Kind::Urgent, kind == Kind::Calm).is_some()
    }

    /// Nanoseconds until a search of `kind` has `least` to use, when there is no other; 0 when it has.
    pub fn wait(&self, kind: Kind, least: f64) -> f64 {
        let kept = if kind == Kind::Urgent { 0.0 } else { SearchBudget::RESERVE };
        (kept + least - self.left).max(0.0) / SearchBudget::SHARE
    }

    /// A search of `kind` took so many nanoseconds. `both`: a search of the other kind was there too.
    pub fn spend(&mut self, kind: Kind, both: bool, nanos: f64) {
        self.left -= nanos;
        match kind {
            _ if !both => self.owed = 0.0,
            Kind::Urgent => self.owed += nanos / OVERTAKEN,
            Kind::Calm => self.owed -= nanos,
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
        assert_eq!([Kind::Calm, Kind::Urgent].map(|kind| spend_all(&mut budget, kind)), [200, 200]);
        assert_eq!(
            [Kind::Calm, Kind::Urgent].map(|kind| budget.wait(kind, 1e6)),
            [201e6, 1e6].map(|n| n * 50.0)
        );
        budget.pass(50e6);
        assert_eq!(spend_all(&mut budget, Kind::Urgent), 1);
        budget.pass(1e15);
        assert_eq!(budget.wait(Kind::Calm, 1e6), 0.0);
        assert_eq!(spend_all(&mut budget, Kind::Urgent), 400, "no more than that is saved");
        budget.pass(0.0);
        assert!(!budget.affords(Kind::Urgent), "no time has passed");
    }

    #[test]
    fn questions_take_from_searches_half_of_what_there_is() {
        let mut budget = SearchBudget::new(0.0);
        budget.asked(1e9);
        assert_eq!(budget, SearchBudget::new(0.0), "nothing was gained yet");
        // A calm search may take the 200 ms that are saved; then both ask for more than there is.
        budget.spend(Kind::Calm, false, 200e6);
        let mut searched: f64 = 0.0;
        for tick in 1..=1000 {
            budget.pass(f64::from(tick) * 1e6);
            budget.asked(1e6);
            while budget.affords(Kind::Calm) {
                budget.spend(Kind::Calm, false, 1e3);
                searched += 1e3;
            }
        }
        assert!((searched - 10e6).abs() <= 1e3, "{searched} of 20 ms");
        // What they do not use is left to searches.
        budget.pass(2000e6);
        budget.asked(1e6);
        assert_eq!(budget.wait(Kind::Calm, 19e6), 0.0);
        assert!(budget.wait(Kind::Calm, 19.1e6) > 0.0);
    }

    #[test]
    fn calm_searches_get_a_fifth_of_the_time_beside_urgent_ones() {
        let mut budget = SearchBudget::new(0.0);
        let mut used = [0.0; 2];
        let mut now = 0.0;
        for step in 0..10_000 {
            now += 1e6;
            budget.pass(now);
            // Calm steps are as long as three urgent ones.
            let Some(kind) = budget.turn(true, true) else { continue };
            let nanos = if kind == Kind::Urgent { 100e3 } else { 300e3 };
            budget.spend(kind, true, nanos);
            used[usize::from(kind == Kind::Calm)] += nanos;
            assert!(step > 0 || kind == Kind::Urgent, "it goes first");
        }
        assert!(used[0] + used[1] <= SearchBudget::SAVED + SearchBudget::SHARE * now + 300e3);
        assert!((used[0] / used[1] - OVERTAKEN).abs() < 0.01, "{used:?}");
    }
}
