//! Returns of elective compactions: what each was expected to save, and what it has saved.
//!
//! From its end on, a compaction saves every operation the read cost of the runs that it removed, at the prices of
//! that time. The saving counts until the output is compacted further, because that compaction would have removed the
//! runs anyway. A compaction *paid* if it saved at least what it took from clients while it ran
//! ([`CostModel::taken`]).
//!
//! The figures are for people. They change no decision. A gain that is always overestimated by the same factor needs
//! no correction: the search then chooses a smaller M.

use crate::compaction::arce::measure::model::{CostModel, bounded};
use crate::compaction::arce::score::formula::Score;
use crate::compaction::arce::score::state::{StateReader, StateWriter};
use alloc::vec::Vec;
use drumlin_types::Seq;
use drumlin_types::contract::{FileState, PlanResult, PolicyError, RunView, TreeView};

/// Largest number of compactions that are followed.
pub(crate) const MOST: usize = 4;
/// Upper bound on all numbers, so that the saved state is restored unchanged.
const MOST_NUMBER: f64 = 1e18;

/// An elective compaction that runs, or whose output is still there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Return {
    /// Number of the compaction, as its reason gives it.
    pub(crate) number: u64,
    /// Bytes read.
    pub(crate) bytes: f64,
    /// Smallest and largest sequence number of its inputs.
    seqs: (Seq, Seq),
    /// Read cost that it removes, in uncached runs.
    relief: f64,
    /// Nanoseconds that it was expected to save.
    pub(crate) expected: f64,
    /// Nanoseconds that it takes from clients.
    pub(crate) price: f64,
    /// Nanoseconds that it has saved.
    pub(crate) saved: f64,
    pub(crate) is_done: bool,
}

/// Sums over the compactions that are no longer followed: their output was compacted further, or [`MOST`] later ones
/// have begun.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) count: f64,
    /// How many of them paid.
    pub(crate) paid: f64,
    pub(crate) expected: f64,
    pub(crate) saved: f64,
}

/// Returns of the elective compactions.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Returns {
    /// Number of the last compaction.
    last: u64,
    /// Compactions that are followed, the oldest first.
    pub(crate) open: Vec<Return>,
    pub(crate) ended: Ended,
}

impl Returns {
    /// Returns the number that the next compaction gets.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Begins to follow a compaction of runs with these smallest and largest sequence numbers. Its number is
    /// [`Returns::next`].
    pub(crate) fn begin(&mut self, score: &Score, model: &CostModel, seqs: (Seq, Seq)) {
        self.last = self.next();
        if self.open.len() == MOST {
            let done = self.open.iter().position(|one| one.is_done);
            let oldest = self.open.remove(done.unwrap_or(0));
            self.end(&oldest);
        }
        let bytes = score.candidate.bytes;
        self.open.push(Return {
            number: self.last,
            bytes,
            seqs,
            relief: bounded(score.candidate.relief, 0.0, MOST_NUMBER),
            expected: bounded(score.gain, 0.0, MOST_NUMBER),
            price: bounded(model.taken * model.compaction_ns(bytes), 0.0, MOST_NUMBER),
            saved: 0.0,
            is_done: false,
        });
    }

    /// Notes the result of the compaction whose plan has this reason. It has read `bytes`.
    pub(crate) fn result(&mut self, reason: &str, result: PlanResult, bytes: u64) {
        let number = number_in(reason);
        let Some(at) = self.open.iter().position(|one| Some(one.number) == number) else { return };
        let one = &mut self.open[at];
        match result {
            PlanResult::Done => one.is_done = true,
            // A part of the inputs was compacted.
            PlanResult::Withdrawn if bytes > 0 => {
                let part = (bytes as f64 / one.bytes.max(1.0)).min(1.0);
                let all = [&mut one.relief, &mut one.price, &mut one.expected, &mut one.bytes];
                all.into_iter().for_each(|whole| *whole *= part);
                one.is_done = true;
            }
            PlanResult::Withdrawn | PlanResult::Refused | PlanResult::Deferred => drop(self.open.remove(at)),
        }
    }

    /// Credits what `operations` operations saved, and stops following compactions whose output is gone from `tree`.
    pub(crate) fn count(&mut self, operations: f64, model: &CostModel, tree: &TreeView) {
        if !self.open.iter().any(|one| one.is_done) {
            return;
        }
        let each = operations.max(0.0) * model.run_per_operation();
        let done = self.open.iter_mut().filter(|one| one.is_done);
        done.for_each(|one| one.saved = bounded(one.saved + each * one.relief, 0.0, MOST_NUMBER));
        let runs = tree.levels.iter().flat_map(|level| &level.runs);
        let hulls: Vec<(Seq, Seq)> = runs.filter_map(hull).collect();
        let is_there = |one: &Return| hulls.iter().any(|(min, max)| one.seqs.0 <= *min && *max <= one.seqs.1);
        let (open, gone) = self.open.iter().partition(|one| !one.is_done || is_there(one));
        self.open = open;
        let gone: Vec<Return> = gone;
        gone.iter().for_each(|one| self.end(one));
    }

    /// Stops following compactions that did not end before the store was closed.
    pub(crate) fn reopened(&mut self) {
        self.open.retain(|one| one.is_done);
    }

    fn end(&mut self, one: &Return) {
        if one.is_done {
            self.ended.count += 1.0;
            self.ended.paid += f64::from(u8::from(one.saved >= one.price));
            self.ended.expected = (self.ended.expected + one.expected).min(MOST_NUMBER);
            self.ended.saved = (self.ended.saved + one.saved).min(MOST_NUMBER);
        }
    }

    /// Writes the returns to the saved state.
    pub(crate) fn save(&self, writer: &mut StateWriter) {
        let Ended { count, paid, expected, saved } = self.ended;
        writer.numbers(&[self.last as f64, count, paid, expected, saved, self.open.len() as f64]);
        for one in &self.open {
            let Return { number, bytes, seqs: (min, max), relief, expected, price, saved, is_done } = *one;
            let done = f64::from(u8::from(is_done));
            writer.numbers(&[number as f64, bytes, min as f64, max as f64]);
            writer.numbers(&[relief, expected, price, saved, done]);
        }
    }

    /// Reads what [`Returns::save`] wrote.
    pub(crate) fn restored(reader: &mut StateReader<'_>) -> Result<Returns, PolicyError> {
        let mut next = || -> Result<f64, PolicyError> {
            let [number] = reader.numbers()?;
            Ok(bounded(number, 0.0, MOST_NUMBER))
        };
        let (last, count, paid, expected, saved) = (next()? as u64, next()?, next()?, next()?, next()?);
        let mut returns = Returns { last, open: Vec::new(), ended: Ended { count, paid, expected, saved } };
        for _ in 0..(next()? as usize).min(MOST) {
            returns.open.push(Return {
                number: next()? as u64,
                bytes: next()?,
                seqs: (next()? as Seq, next()? as Seq),
                relief: next()?,
                expected: next()?,
                price: next()?,
                saved: next()?,
                is_done: next()? == 1.0,
            });
        }
        Ok(returns)
    }
}

/// Returns the smallest and the largest sequence number of a run that is installed, in part at least.
fn hull(run: &RunView) -> Option<(Seq, Seq)> {
    let files = || run.files.iter().filter(|file| !matches!(file.state, FileState::Coming(_)));
    Some((files().map(|file| file.min_seq).min()?, files().map(|file| file.max_seq).max()?))
}

/// Returns the number in the reason of a plan, if it has one.
fn number_in(reason: &str) -> Option<u64> {
    let (_, rest) = reason.split_once(" #")?;
    rest.split_once(':')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::candidates::interval::Candidate;
    use crate::compaction::arce::measure::model::LinearCost;
    use crate::compaction::arce::measure::model::paper::thirds;
    use alloc::format;
    use drumlin_types::contract::RunTag;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::{KeyRange, RunId, TableId};

    /// A run costs an operation 100 ns. A compaction of 1 MB takes 1 ms, of which clients lose a tenth.
    fn model() -> CostModel {
        let point = LinearCost { base: 1000.0, per_run: 100.0 };
        CostModel { shares: [1.0, 0.0, 0.0], point, setup: 0.0, speed: 1.0, ..thirds() }
    }

    fn score(gain: f64) -> Score {
        let candidate = Candidate { from: 0, to: 2, bytes: 1e6, removed: 2.0, relief: 2.0 };
        Score { candidate, intervals: 1.0, gain, cost: 0.0 }
    }

    /// A tree of runs with these sequence numbers.
    fn tree(runs: &[(Seq, Seq)]) -> TreeView {
        let mut tree = TreeView::empty(3);
        for (number, &(min, max)) in (1..).zip(runs) {
            let files = Vec::from([plain_file(TableId(number), KeyRange::all(), min, max)]);
            tree.levels[1].runs.push(RunView { id: RunId(number), tag: RunTag::default(), files });
        }
        tree
    }

    #[test]
    fn a_compaction_saves_from_its_end_until_its_output_is_compacted_further() {
        let (mut returns, model) = (Returns::default(), model());
        returns.begin(&score(1e6), &model, (10, 29));
        let (inputs, output, later) = (tree(&[(20, 29), (10, 19)]), tree(&[(10, 28)]), tree(&[(10, 40)]));
        returns.count(1000.0, &model, &inputs);
        assert_eq!((returns.open[0].saved, returns.open[0].price), (0.0, 1e5), "it still runs");
        returns.result("elective #1: ", PlanResult::Done, 1_000_000);
        returns.count(400.0, &model, &output);
        assert_eq!(returns.open[0].saved, 400.0 * 100.0 * 2.0);
        returns.count(100.0, &model, &later);
        let saved = 500.0 * 100.0 * 2.0;
        assert_eq!(returns.ended, Ended { count: 1.0, paid: 1.0, expected: 1e6, saved });
        assert!(returns.open.is_empty());
        // One that saves less than it took.
        returns.begin(&score(1e6), &model, (10, 40));
        returns.result("elective #2: ", PlanResult::Done, 1_000_000);
        returns.count(499.0, &model, &tree(&[(10, 50)]));
        assert_eq!((returns.ended.count, returns.ended.paid), (2.0, 1.0));
    }

    #[test]
    fn what_did_not_run_is_forgotten_and_a_part_counts_as_a_part() {
        let (mut returns, model) = (Returns::default(), model());
        for (result, bytes) in [
            (PlanResult::Refused, 0),
            (PlanResult::Deferred, 0),
            (PlanResult::Withdrawn, 0),
            (PlanResult::Withdrawn, 250_000),
        ] {
            let number = returns.next();
            returns.begin(&score(1e6), &model, (1, 9));
            returns.result(&format!("elective #{number}: "), result, bytes);
        }
        assert_eq!(returns.open.len(), 1);
        assert_eq!((returns.open[0].number, returns.open[0].price), (4, 25_000.0));
        assert_eq!((returns.open[0].expected, returns.open[0].bytes), (250_000.0, 250_000.0));
        returns.count(1000.0, &model, &tree(&[(1, 9)]));
        assert_eq!(returns.open[0].saved, 1000.0 * 100.0 * 0.5);
        assert_eq!(returns.ended.count, 0.0);
    }

    #[test]
    fn few_are_followed_and_all_come_back_from_their_numbers() {
        let (mut returns, model) = (Returns::default(), model());
        for number in 1..=10 {
            returns.begin(&score(1e6), &model, (1, number));
            returns.result(&format!("elective #{number}: "), PlanResult::Done, 1_000_000);
        }
        assert_eq!((returns.open.len(), returns.open[0].number, returns.ended.count), (MOST, 7, 6.0));
        let mut writer = StateWriter::new(1);
        returns.save(&mut writer);
        let bytes = writer.done();
        let restored = |bytes: &[u8]| {
            let mut reader = StateReader::new(bytes, 1).expect("the version");
            Returns::restored(&mut reader)
        };
        assert_eq!(restored(&bytes), Ok(returns.clone()));
        assert!((1..bytes.len()).all(|end| restored(&bytes[..end]).is_err()));
        returns.begin(&score(1e6), &model, (1, 11));
        returns.reopened();
        assert!(returns.open.iter().all(|one| one.is_done), "compactions end with the process");
    }

    #[test]
    fn those_that_run_are_followed_before_those_that_have_ended() {
        let (mut returns, model) = (Returns::default(), model());
        (1..=4).for_each(|number| returns.begin(&score(1e6), &model, (1, number)));
        returns.result("elective #3: ", PlanResult::Done, 1_000_000);
        returns.begin(&score(1e6), &model, (1, 5));
        let open = |returns: &Returns| returns.open.iter().map(|one| one.number).collect::<Vec<_>>();
        assert_eq!((open(&returns), returns.ended.count), (Vec::from([1, 2, 4, 5]), 1.0));
        returns.begin(&score(1e6), &model, (1, 6));
        assert_eq!(
            (open(&returns), returns.ended.count),
            (Vec::from([2, 4, 5, 6]), 1.0),
            "no end is made up"
        );
    }

    #[test]
    fn reasons_give_their_number() {
        assert_eq!(number_in("elective #17: compacts runs 1 to 2"), Some(17));
        assert_eq!(number_in("elective, in between #3: compacts"), Some(3));
        assert_eq!((number_in("must: compacts runs 1 to 2"), number_in("")), (None, None));
    }
}
