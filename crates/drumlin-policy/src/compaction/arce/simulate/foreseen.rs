//! Predicts how many flush intervals a compaction takes; the deadline of its plan follows from that.
//!
//! The time of a compaction follows from its bytes. How many flushes fit into that time depends on the writers, whom
//! the write rate limit slows. The limit depends on the number of runs, which rises with each flush and falls with
//! each installed piece (subcompaction). So this file steps from run to run. Where no writer is slowed, the result is
//! the sum that [model](super::model) has in closed form.
//!
//! Near the run limit, the write rate depends on the drain: the fastest run removal of any compaction that runs or
//! could start. Beside a long compaction, a compaction of all runs that are newer than its inputs could start.

use crate::compaction::arce::candidates::interval::Candidate;
use crate::compaction::arce::measure::model::{CostModel, Met, Stall};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::compaction::arce::simulate::rollout;
use crate::pace::{THROTTLE_FROM, WriteRate, write_rate};
use crate::schedule::PieceBytes;
use drumlin_types::contract::{Pace, PaceScope};

/// A compaction and how it runs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct TimedCompaction {
    merge: Candidate,
    /// Equal pieces; each removes its share of the runs when it ends.
    pieces: f64,
    /// Runs that are newer than its inputs.
    newer: f64,
}

impl ScoreScene<'_> {
    /// Returns the flush intervals until the compaction of `candidate` ends, if no other one runs in between.
    pub(crate) fn foreseen(&self, candidate: &Candidate) -> f64 {
        let pace = Pace {
            slow: self.slow(),
            passes: self.tuple.passes,
            ..Pace::free(PaceScope::All, self.max_runs)
        };
        let pieces = PieceBytes::of_files(self.input.limits.file_bytes);
        let pieces = f64::from(rollout::pieces(candidate.bytes, pieces, self.model.slots));
        intervals(
            &self.model,
            TimedCompaction { merge: *candidate, pieces, newer: candidate.from as f64 },
            self.met(),
            &pace,
        )
    }
}

/// Returns the flush intervals that pass while `course` runs and `pace` limits writers, beginning at the runs `met`.
fn intervals(model: &CostModel, course: TimedCompaction, met: Met, pace: &Pace) -> f64 {
    let TimedCompaction { merge, pieces, mut newer } = course;
    let free = model.compaction_intervals(merge.bytes, met, Stall::NEVER);
    if met.runs + free * model.fill <= pace.slow.min(THROTTLE_FROM * pace.stop) {
        return free;
    }
    let Met { mut runs, mut cost } = met;
    let whole = model.compaction_ns(merge.bytes).max(1.0);
    let (piece, speed) = (whole / pieces, model.speed * f64::from(model.slots) * 1e9);
    let mut count = 0.0;
    for _ in 0..pieces as u32 {
        let mut left = piece;
        while left > piece * 1e-6 {
            let others = (newer - 1.0) / model.compaction_ns(newer * model.flush_bytes).max(1.0);
            let drain = others.max(merge.removed / whole) * model.flush_bytes * 1e9;
            let delay = match write_rate(&Pace { drain, ..pace.clone() }, runs, speed) {
                WriteRate::Open => 0.0,
                WriteRate::Limited(rate) => model.delay_for(rate / 1e9, cost, true),
                // No flush until the piece ends.
                WriteRate::Shut => break,
            };
            // Step to the next flushed run or to the end of the piece.
            let interval = model.interval_ns(cost, delay, true).max(1.0);
            let time = (interval / model.fill).min(left);
            let flushed = time / interval * model.fill;
            (left, count) = (left - time, count + time / interval);
            (newer, runs, cost) = (newer + flushed, runs + flushed, cost + flushed * model.fresh);
        }
        (runs, cost) = ((runs - merge.removed / pieces).max(0.0), (cost - merge.relief / pieces).max(0.0));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::measure::model::paper::{MIB, met, model, thirds};

    fn pace(slow: f64) -> Pace {
        Pace { slow, passes: 2.0, ..Pace::free(PaceScope::All, 64.0) }
    }

    fn course(mib: f64, removed: f64) -> TimedCompaction {
        let merge = Candidate { from: 0, to: 2, bytes: mib * MIB, removed, relief: removed };
        TimedCompaction { merge, pieces: 1.0, newer: 0.0 }
    }

    #[test]
    fn where_nobody_is_slowed_it_is_the_formula() {
        let m = thirds();
        let expected = m.compaction_intervals(1024.0 * MIB, met(10.0), Stall::NEVER);
        assert_eq!(intervals(&m, course(1024.0, 6.0), met(10.0), &pace(f64::INFINITY)), expected);
        // Reads take most of the time here, so the limit slows no writer: stepping from run to run gives the same
        // result.
        let found = intervals(&m, course(1024.0, 6.0), met(10.0), &pace(5.0));
        assert!((found - expected).abs() < 1e-6 * expected, "{found} is not {expected}");
    }

    /// Nearly all operations are writes.
    #[test]
    fn the_nearer_to_the_limit_the_fewer_windows_pass() {
        let m = model(1.0, 98.0, 1.0);
        let at = |runs: f64| intervals(&m, course(80.0, 40.0), met(runs), &pace(f64::INFINITY));
        let free = |runs: f64| m.compaction_intervals(80.0 * MIB, met(runs), Stall::NEVER);
        assert_eq!(at(20.0), free(20.0));
        assert!(at(40.0) < 0.95 * free(40.0) && at(56.0) < 0.6 * free(56.0), "{} {}", at(40.0), at(56.0));
        assert_eq!(at(72.0), 0.0, "nobody is admitted");
        assert!((20..72).all(|runs| f64::from(runs) + at(f64::from(runs)) <= 72.0 + 1e-6));
        let pieces = TimedCompaction { pieces: 4.0, ..course(80.0, 40.0) };
        assert!(
            intervals(&m, pieces, met(56.0), &pace(f64::INFINITY)) > at(56.0),
            "what is installed makes room"
        );
    }

    #[test]
    fn any_figures_come_to_an_end() {
        let mut dice = crate::SplitMix::new(9);
        for _ in 0..2000 {
            let mut draw = |most: usize| dice.below(most + 1) as f64;
            let mut m = model(draw(100), draw(100), 1.0 + draw(100));
            (m.fill, m.setup) = (m.fill * draw(4) / 4.0, draw(1 << 30));
            let course = TimedCompaction {
                pieces: 1.0 + draw(31),
                newer: draw(80),
                ..course(draw(1 << 20), draw(80))
            };
            let found = intervals(&m, course, met(draw(90)), &pace(draw(90)));
            assert!(found.is_finite() && found >= 0.0, "{found}");
        }
    }
}
