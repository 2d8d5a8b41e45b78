//! The score of a compaction: what readers gain minus what a busy compaction slot costs (Equations 9 to 11
//! of the paper).
//!
//! ```text
//! gain   M * g1 * y                     y fewer covered runs for M flush intervals
//! cost   g1 * t + (F/E) * k * n_stall   the slot is busy for t flush intervals; writers are delayed by k in those
//!                                       that begin above c covered runs
//! ```
//!
//! The paper's published code counts only half of g1 * t; the switch `no-whole` does the same. At equal time, a
//! compaction that removes more runs always scores higher. A larger M favours larger compactions.
//!
//! [`Choice`] selects the compaction to start: by score while compaction is elective, by speed or by evenness when
//! there are too many runs ([`Need`]).

use crate::compaction::arce::candidates::cover::CoverScale;
use crate::compaction::arce::candidates::interval::{Candidate, CandidatePart, Intervals};
use crate::compaction::arce::measure::model::{CostModel, Met, Stall};
use crate::pace::THROTTLE_FROM;
use crate::real;
use alloc::vec::Vec;

/// Parameters that steer the score and the write rate limit: M, c, q and the size ratio rho.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tuple {
    /// M: flush intervals over which a gain counts.
    pub(crate) gain_intervals: f64,
    /// c: covered runs above which writers are slowed; infinite for never.
    pub(crate) slow_above: f64,
    /// q: compaction passes per written byte that the write rate limit leaves room for.
    pub(crate) passes: f64,
    /// rho: largest ratio of the oldest input's bytes to the bytes of the other inputs; infinite for any ratio.
    pub(crate) size_ratio: f64,
}

impl Tuple {
    /// Parameters in force until the first search ends.
    pub(crate) const PRIOR: Tuple =
        Tuple { gain_intervals: 8.0, slow_above: 24.0, passes: 2.0, size_ratio: 1.0 };
    /// c of these parameters as a share of the run limit; 24 is that of the default limit.
    pub(crate) const PRIOR_SLOW_ABOVE_SHARE: f64 = 24.0 / 64.0;

    /// Returns the delay k of a write while there are more than c covered runs. The delay lowers the write rate so
    /// far that every written byte leaves room for q compaction passes. It is 0 if clients already write more slowly
    /// than that.
    pub(crate) fn stall(&self, model: &CostModel, met: Met) -> Stall {
        let rate = model.speed * f64::from(model.slots) / self.passes;
        Stall { above: self.slow_above, delay: model.delay_for(rate, met.cost, true) }
    }
}

/// A candidate with its score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Score {
    pub(crate) candidate: Candidate,
    /// t: flush intervals that the compaction takes.
    pub(crate) intervals: f64,
    /// M * E_l, in nanoseconds.
    pub(crate) gain: f64,
    /// E_s, in nanoseconds.
    pub(crate) cost: f64,
}

impl Score {
    pub(crate) fn value(&self) -> f64 {
        self.gain - self.cost
    }

    /// Returns whether the rest of a running compaction is worth its cost. Stopping halfway leaves runs that are only
    /// partly compacted. A slightly lower score under another tuple is therefore no reason to stop: the cost must
    /// reach [`WITHDRAW_RATIO`] times the gain.
    pub(crate) fn is_worth_ending(&self) -> bool {
        self.gain * WITHDRAW_RATIO > self.cost
    }
}

/// Ratio of cost to gain at which the rest of a compaction is withdrawn.
const WITHDRAW_RATIO: f64 = 4.0;

/// Returns the score of `candidate` when readers meet the runs `met`.
pub(crate) fn score(
    model: &CostModel,
    gain_intervals: f64,
    stall: Stall,
    met: Met,
    candidate: Candidate,
) -> Score {
    let intervals = model.compaction_intervals(candidate.bytes, met, stall);
    let per_window = model.run_per_interval();
    let stalled = (intervals - model.intervals_before(stall, met.runs)).max(0.0);
    let writes = model.interval_ops * model.shares[2];
    let cost = model.lost * per_window * intervals
        + if stalled > 0.0 { writes * stall.delay * stalled } else { 0.0 };
    Score { candidate, intervals, gain: gain_intervals * per_window * candidate.relief, cost }
}

/// A running compaction that a shorter one could interrupt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct RunningCompaction {
    /// Remaining time, in nanoseconds.
    pub(crate) left: f64,
    /// Runs, or read cost, that it removes per nanosecond; [`Need::objective`] says which.
    pub(crate) rate: f64,
}

impl RunningCompaction {
    /// Returns whether the smallest possible compaction, one of two flushes, is short enough to interrupt this one.
    pub(crate) fn has_room(&self, model: &CostModel) -> bool {
        model.compaction_ns(2.0 * model.flush_bytes) <= BETWEEN_TIME * self.left
    }
}

/// How urgently the number of runs must fall.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    /// Compaction is elective: only a positive score justifies one.
    Elective,
    /// More covered runs than c: writers are slowed.
    Slowed,
    /// At least 0.75 of the run limit: compactions must make room, with as little rewriting as possible.
    MakeRoom,
    /// At least 0.875 of the run limit: only speed counts.
    Urgent,
}

impl Need {
    /// Returns the need at `runs` covered runs, where writers are slowed above `slow_above` and the limit is `most`.
    /// With `even` off, [`Need::Urgent`] replaces [`Need::MakeRoom`].
    pub(crate) fn at(runs: f64, slow_above: f64, most: f64, even: bool) -> Need {
        match runs {
            runs if runs >= URGENT * most || !even && runs >= THROTTLE_FROM * most => Need::Urgent,
            runs if runs >= THROTTLE_FROM * most => Need::MakeRoom,
            runs if runs > slow_above => Need::Slowed,
            _ => Need::Elective,
        }
    }

    /// Returns what a compaction should reduce: the number of runs when it is a must, otherwise their read cost.
    pub(crate) fn objective(self, candidate: &Candidate) -> f64 {
        if self.is_must() { candidate.removed } else { candidate.relief }
    }

    /// Returns whether compaction is a must.
    pub(crate) fn is_must(self) -> bool {
        self != Need::Elective
    }
}

/// Share of the run limit from which only speed counts.
const URGENT: f64 = 0.875;
/// Among compactions that make room, those with at least this share of the best evenness compete by size; the
/// smallest wins.
const NEARLY_AS_EVEN: f64 = 0.8;

/// The conditions of one choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) model: &'a CostModel,
    pub(crate) tuple: Tuple,
    pub(crate) stall: Stall,
    /// The runs that readers meet.
    pub(crate) met: Met,
    /// How urgently the number of runs must fall.
    pub(crate) need: Need,
    /// Rewrite budget: bytes that an elective compaction may rewrite.
    pub(crate) budget: f64,
    /// There are several compaction slots, and only one is idle.
    pub(crate) last_slot: bool,
    /// All slots are busy. Only a compaction that is short compared with this one may start, in between.
    pub(crate) beside: Option<RunningCompaction>,
    /// Whether a compaction waits for a short part of itself that would remove most of its runs at once.
    pub(crate) short_first: bool,
}

// Of the rates from 2 to 8 and the time shares from 1/4 to 1/20, these two values gave the lowest mean cost in the
// simulator and on the engine.
/// A compaction may interrupt another if it removes runs (or read cost) at least this many times as fast ...
const BETWEEN_RATE: f64 = 4.0;
/// ... and takes at most this share of the other one's remaining time.
const BETWEEN_TIME: f64 = 0.125;
/// Compactions of more flush intervals than this may not take the last idle slot.
const LONG: f64 = 16.0;

impl Choice<'_> {
    fn allows(&self, candidate: &Candidate) -> bool {
        self.beside.is_none_or(|under_way| {
            let time = self.model.compaction_ns(candidate.bytes);
            time <= BETWEEN_TIME * under_way.left
                && self.need.objective(candidate) >= BETWEEN_RATE * under_way.rate * time
        })
    }

    pub(crate) fn score(&self, candidate: Candidate) -> Score {
        score(self.model, self.tuple.gain_intervals, self.stall, self.met, candidate)
    }

    /// Returns the compaction to start among `candidates` of `line`, all of which pass the size ratio. When
    /// compaction is a must, this is the one that removes most runs per unit of time, or an even one that makes room
    /// with little rewriting. Otherwise it is the one with the highest positive score.
    pub(crate) fn best(&self, line: &[CandidatePart], candidates: &[Candidate]) -> Option<Score> {
        let allowed = candidates.iter().filter(|candidate| self.allows(candidate));
        match self.need {
            Need::Slowed | Need::Urgent => {
                let rate = |c: &Candidate| c.removed / self.model.compaction_ns(c.bytes).max(1.0);
                let better = |best, next| if rate(next) > rate(best) { next } else { best };
                return allowed.reduce(better).map(|candidate| self.score(*candidate));
            }
            // A run count below the urgent limit leaves time to wait for the long compaction and then choose a wider
            // one.
            Need::MakeRoom if self.beside.is_some() => return None,
            Need::MakeRoom => {
                let even: Vec<(f64, &Candidate)> = allowed.map(|c| (evenness(line, c), c)).collect();
                let most = even.iter().map(|(even, _)| *even).fold(0.0, f64::max);
                let nearly = even.iter().filter(|(even, _)| *even >= NEARLY_AS_EVEN * most).map(|(_, c)| *c);
                let quicker = |best: &'_ Candidate, next: &'_ Candidate| next.bytes < best.bytes;
                let quickest = nearly.reduce(|best, next| if quicker(best, next) { next } else { best });
                return quickest.map(|candidate| self.score(*candidate));
            }
            Need::Elective => {}
        }
        let affordable = allowed.filter(|candidate| candidate.bytes <= self.budget);
        let scored = affordable.map(|candidate| self.score(*candidate));
        let useful = scored.filter(|s| s.value() > 0.0 && !(self.last_slot && s.intervals > LONG));
        let best = useful.reduce(|best, next| if next.value() > best.value() { next } else { best })?;
        Some(if self.short_first { self.part_to_run_first(best, candidates) } else { best })
    }

    /// Returns the part of `best` that goes first, or `best` itself. A part goes first if it takes a small share of
    /// the time and removes runs much faster: it then ends while the whole compaction would still be at its
    /// beginning.
    fn part_to_run_first(&self, mut best: Score, candidates: &[Candidate]) -> Score {
        loop {
            let whole = best.candidate;
            let time = self.model.compaction_ns(whole.bytes);
            let beside = RunningCompaction { left: time, rate: self.need.objective(&whole) / time.max(1.0) };
            if !beside.has_room(self.model) {
                return best;
            }
            let first = Choice { beside: Some(beside), ..*self };
            let inside = |c: &&Candidate| c.from >= whole.from && c.to <= whole.to && c.bytes < whole.bytes;
            let parts = candidates.iter().filter(inside).filter(|c| first.allows(c));
            let scored = parts.map(|candidate| self.score(*candidate)).filter(|s| s.value() > 0.0);
            match scored.reduce(|best, next| if next.value() > best.value() { next } else { best }) {
                Some(part) => best = part,
                None => return best,
            }
        }
    }

    /// Returns the compaction of `line` to start. `exact` corrects the bytes of each candidate. On return,
    /// `candidates` holds the candidates that competed.
    pub(crate) fn choose(
        &self,
        line: &[CandidatePart],
        scale: &CoverScale,
        intervals: &mut Intervals,
        candidates: &mut Vec<Candidate>,
        mut exact: impl FnMut(&mut Candidate),
    ) -> Option<Score> {
        intervals.list(line, scale, self.tuple.size_ratio, candidates);
        candidates.iter_mut().for_each(&mut exact);
        let best = self.best(line, candidates);
        if best.is_some()
            || self.need < Need::Slowed
            || self.beside.is_some()
            || self.tuple.size_ratio.is_infinite()
        {
            return best;
        }
        // Compaction is a must, and no candidate passes the size ratio: drop the ratio.
        intervals.list(line, scale, f64::INFINITY, candidates);
        candidates.iter_mut().for_each(&mut exact);
        self.best(line, candidates)
    }
}

/// Returns how much a compaction raises the sum of b*ln(b) over the runs, per rewritten byte: the entropy of its
/// input sizes, scaled by the share of its runs that it removes.
///
/// Compacting runs of sizes b into one of size B raises the sum of b*ln(b) by B times the entropy of the sizes. Every
/// byte must rise through the same total in the end. Compactions that raise the sum most per byte therefore rewrite
/// least in the long run. Two equal runs give 0.69, forty equal runs 3.7, and one large run with a few small ones
/// almost 0.
fn evenness(line: &[CandidatePart], candidate: &Candidate) -> f64 {
    let parts = line.get(candidate.from..candidate.to).unwrap_or_default();
    let sum: f64 = parts.iter().map(|part| part.bytes).sum();
    let share = |part: &CandidatePart| part.bytes / sum.max(1.0);
    let entropy: f64 = parts.iter().map(share).filter(|s| *s > 0.0).map(|s| -s * real::ln(s)).sum();
    entropy * candidate.removed / (parts.len() as f64 - 1.0).max(1.0)
}

#[cfg(test)]
mod tests;
