//! Accuracy of a policy's predictions: how long its compactions take, and what an operation costs.
//!
//! A plan says at which flush it should be done. Only compactions without interruption are compared: they begin while
//! nothing runs, and end before anything else begins. Compactions that end under another load than their plan assumed
//! are counted separately. The load changed after they began, or the policy was not aware of it.
//!
//! The assumptions of a plan are in its reason: `due in 12.345 of 6400 operations` gives the number of flush
//! intervals and the operations of each. The predicted cost of an operation is in the line of the policy's
//! explanation that begins with `last search`.

/// Prediction errors of the compared compactions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Missed {
    /// Number of compactions.
    pub merges: u64,
    /// Sum of the errors, in flush intervals.
    pub sum: f64,
    /// Largest error, in flush intervals.
    pub most: f64,
}

impl Missed {
    fn add(&mut self, error: f64) {
        *self = Missed { merges: self.merges + 1, sum: self.sum + error, most: self.most.max(error) };
    }

    /// Returns the mean error, in flush intervals.
    pub fn mean(&self) -> f64 {
        self.sum / self.merges.max(1) as f64
    }
}

/// Prediction errors by whether the assumed load held.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Foreseen {
    /// Compactions that ended under the assumed load.
    pub held: Missed,
    /// Compactions that ended under another load.
    pub changed: Missed,
}

/// Prediction of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Due {
    /// Number of flush intervals that the compaction should take.
    pub windows: f64,
    /// Operations of each flush interval.
    pub operations: f64,
}

impl Due {
    /// Parses the reason of a plan.
    pub fn parse(reason: &str) -> Option<Due> {
        let (windows, rest) = reason.split_once(", due in ")?.1.split_once(" of ")?;
        let operations = rest.split_once(" operations")?.0.parse().ok()?;
        Some(Due { windows: windows.parse().ok()?, operations })
    }
}

/// Parses the cost of an operation that the last search predicted, in nanoseconds, from a policy's explanation.
pub fn predicted(words: &str) -> Option<f64> {
    let line = words.lines().find(|line| line.starts_with("last search"))?;
    let (number, rest) = line.split_once(" at ")?.1.split_once(' ')?;
    let unit = match rest.split_once(' ')?.0 {
        "us" => 1e3,
        "ms" => 1e6,
        _ => 1e9,
    };
    number.parse::<f64>().ok().map(|number| number * unit)
}

/// Ratio of operations per flush interval from which on the load counts as changed.
const ANOTHER: f64 = 1.25;

/// Compaction under observation.
#[derive(Clone, Copy, Debug)]
struct Watched {
    ticket: u64,
    /// Number of flushes at its start.
    began: f64,
    due: Due,
}

/// Errors so far, and the compaction under observation.
#[derive(Clone, Debug, Default)]
pub struct Foresight {
    watched: Option<Watched>,
    seen: Foreseen,
}

impl Foresight {
    /// Records that compaction `ticket` began after `flushes` flushes, with its prediction if there is one. `alone`:
    /// nothing else is under way.
    pub fn began(&mut self, ticket: u64, due: Option<Due>, flushes: f64, alone: bool) {
        self.watched = due.filter(|_| alone).map(|due| Watched { ticket, began: flushes, due });
    }

    /// Records that compaction `ticket` finished after `flushes` flushes, under a load of `operations` operations per
    /// flush interval.
    pub fn ended(&mut self, ticket: u64, flushes: f64, operations: f64) {
        let Some(Watched { began, due, .. }) = self.watched.take_if(|watched| watched.ticket == ticket)
        else {
            return;
        };
        let error = (flushes - began - due.windows).abs();
        let has_changed = operations.max(due.operations) > ANOTHER * operations.min(due.operations);
        let seen = &mut self.seen;
        if has_changed { seen.changed.add(error) } else { seen.held.add(error) }
    }

    /// Returns the errors since the last call, and resets them.
    pub fn take(&mut self) -> Foreseen {
        core::mem::take(&mut self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_read_from_words() {
        let state =
            "tuple\nlast search, none: 8/24/2/1 at 12.50 us per operation and 3 runs; before 1 s; 2 steps";
        assert_eq!(predicted(state), Some(12_500.0));
        assert_eq!(predicted("no search yet"), None);
    }

    #[test]
    fn merges_are_compared_when_nothing_comes_in_between() {
        let due = |windows, operations| Some(Due { windows, operations });
        assert_eq!(Due::parse("must: t 9.1, due in 3.500 of 128 operations, gain 1 us"), due(3.5, 128.0));
        assert_eq!(Due::parse("must: t 9.1, due in 3.500, gain 1 us"), None);
        let mut foresight = Foresight::default();
        let mut merge = |due, from, to, alone| {
            foresight.began(1, due, from, alone);
            foresight.ended(1, to, 128.0);
        };
        merge(due(2.5, 128.0), 10.5, 13.0, true);
        merge(due(2.5, 110.0), 10.0, 14.5, true);
        merge(due(2.5, 150.0), 10.0, 11.5, true);
        merge(due(0.5, 6400.0), 10.0, 17.5, true);
        merge(due(2.5, 128.0), 10.0, 99.0, false);
        merge(None, 10.0, 99.0, true);
        foresight.began(1, due(3.0, 128.0), 10.0, true);
        foresight.began(2, due(1.0, 128.0), 11.0, false);
        foresight.ended(2, 12.0, 128.0);
        foresight.ended(1, 20.0, 128.0);
        let Foreseen { held, changed } = foresight.take();
        assert_eq!((held, changed.merges), (Missed { merges: 3, sum: 3.0, most: 2.0 }, 1));
        assert_eq!((held.mean(), changed.mean(), changed.most), (1.0, 7.0, 7.0));
        assert_eq!(foresight.take(), Foreseen::default());
    }
}
