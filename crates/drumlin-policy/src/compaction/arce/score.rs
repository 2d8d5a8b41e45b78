//! The score of a merge: what readers gain minus what a busy slot costs (arce.md 2.4).
//!
//! ```text
//! gain   M * g1 * y                     y runs less for M windows
//! cost   g1 * t + (F/E) * k * stalled   nothing else merges for t windows; writers are delayed in those
//!                                       that begin above c. The published code halves g1 * t (`no-whole`)
//! ```
//!
//! More runs removed at no more time always score higher, and a larger M chooses larger merges.

use super::cover::Scale;
use super::interval::{Candidate, Intervals, Part};
use super::model::{Met, Model, Stall};
use super::real;
use crate::pace::NARROW;
use alloc::vec::Vec;

/// The three numbers that steer the score, and the size balance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tuple {
    /// M: windows over which a gain counts.
    pub(crate) horizon: f64,
    /// c: covered runs above which writers are slowed; infinite for never.
    pub(crate) calm: f64,
    /// q: merge passes per written byte that the pace leaves room for.
    pub(crate) passes: f64,
    /// rho: the oldest input is at most so many times the others; infinite for any.
    pub(crate) balance: f64,
}

impl Tuple {
    /// Before anything was measured.
    pub(crate) const PRIOR: Tuple = Tuple { horizon: 8.0, calm: 24.0, passes: 2.0, balance: 1.0 };

    /// The delay of writes above c: what they take longer so that each byte leaves room for q merge passes. The pace
    /// bounds a rate, and slows nobody who is slower anyway.
    pub(crate) fn stall(&self, model: &Model, met: Met) -> Stall {
        let rate = model.speed * f64::from(model.slots) / self.passes;
        Stall { above: self.calm, delay: model.delay_for(rate, met.cost, true) }
    }
}

/// A scored candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Score {
    pub(crate) candidate: Candidate,
    /// Windows that the merge fills: t.
    pub(crate) windows: f64,
    /// E_l, nanoseconds.
    pub(crate) gain: f64,
    /// E_s, nanoseconds.
    pub(crate) cost: f64,
}

impl Score {
    pub(crate) fn value(&self) -> f64 {
        self.gain - self.cost
    }

    /// Whether the rest of a merge under way is worth its cost. What is given up in the middle leaves runs
    /// that are cut in two, so it takes more than another tuple that sees it a little otherwise.
    pub(crate) fn is_worth_ending(&self) -> bool {
        self.gain * PARKED > self.cost
    }
}

/// A merge is parked when its rest costs so many times what it gains.
const PARKED: f64 = 4.0;

/// The score of `candidate` when readers meet the runs `met`.
pub(crate) fn score(model: &Model, horizon: f64, stall: Stall, met: Met, candidate: Candidate) -> Score {
    let (windows, runs) = (model.windows(candidate.bytes, met, stall), met.runs);
    let per_window = model.run_per_window();
    let free = match model.fill {
        _ if runs > stall.above => 0.0,
        fill if fill <= 0.0 => f64::INFINITY,
        fill => ((stall.above - runs) / fill + 1.0).max(0.0),
    };
    let stalled = (windows - free).max(0.0);
    let writes = model.window_ops * model.shares[2];
    let cost =
        model.lost * per_window * windows + if stalled > 0.0 { writes * stall.delay * stalled } else { 0.0 };
    Score { candidate, windows, gain: horizon * per_window * candidate.relief, cost }
}

/// A merge under way, beside which a smaller one may be put.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct UnderWay {
    /// Time that it still takes.
    pub(crate) left: f64,
    /// What it does for readers, or for the room of writers, per nanosecond.
    pub(crate) rate: f64,
}

impl UnderWay {
    /// Whether the smallest of merges fits beside this one.
    pub(crate) fn has_room(&self, model: &Model) -> bool {
        model.merge(2.0 * model.flush_bytes) <= BETWEEN_TIME * self.left
    }
}

/// How much merging is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    /// Only what pays.
    None,
    /// More runs than c: writers are slowed.
    Slowed,
    /// Three quarters of the most runs, or more: room must be made, with as little rewriting as can be.
    Full,
    /// So near to the most runs that only speed counts.
    Urgent,
}

impl Need {
    /// The need at `runs` covered runs, where writers are slowed above `calm` and wait at `most`.
    /// Unless `even` merges are wanted, room is made as quickly as can be.
    pub(crate) fn at(runs: f64, calm: f64, most: f64, even: bool) -> Need {
        match runs {
            runs if runs >= URGENT * most || !even && runs >= NARROW * most => Need::Urgent,
            runs if runs >= NARROW * most => Need::Full,
            runs if runs > calm => Need::Slowed,
            _ => Need::None,
        }
    }

    /// What is wanted of a merge: fewer runs, or cheaper ones.
    pub(crate) fn of(self, candidate: &Candidate) -> f64 {
        if self.is_must() { candidate.removed } else { candidate.relief }
    }

    /// Whether merging is a must.
    pub(crate) fn is_must(self) -> bool {
        self != Need::None
    }
}

/// The share of the most runs from which on only speed counts.
const URGENT: f64 = 0.875;
/// Of the merges that make room, the quickest of those within this share of the most even one.
const NEARLY_AS_EVEN: f64 = 0.8;

/// What is chosen from, and under which conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) model: &'a Model,
    pub(crate) tuple: Tuple,
    pub(crate) stall: Stall,
    /// The runs that readers meet.
    pub(crate) met: Met,
    /// How much merging is needed.
    pub(crate) need: Need,
    /// Bytes that an elective merge may rewrite.
    pub(crate) balance: f64,
    /// Several slots, and this is the last idle one.
    pub(crate) last_slot: bool,
    /// All slots are taken; only a merge that is small beside this one may come in between.
    pub(crate) beside: Option<UnderWay>,
    /// Whether a merge waits for a short one that would take most of its runs away at once.
    pub(crate) short_first: bool,
}

// Of the values from 2 to 8, and from a quarter to a twentieth, these cost least in the mean of simulator and engine.
/// A merge comes between when it removes so many times the runs per second.
const BETWEEN_RATE: f64 = 4.0;
/// And when it takes no more than this share of the time that is left.
const BETWEEN_TIME: f64 = 0.125;
/// Windows of a merge that may not take the last idle slot.
const LONG: f64 = 16.0;

impl Choice<'_> {
    fn allows(&self, candidate: &Candidate) -> bool {
        self.beside.is_none_or(|under_way| {
            let time = self.model.merge(candidate.bytes);
            time <= BETWEEN_TIME * under_way.left
                && self.need.of(candidate) >= BETWEEN_RATE * under_way.rate * time
        })
    }

    pub(crate) fn score(&self, candidate: Candidate) -> Score {
        score(self.model, self.tuple.horizon, self.stall, self.met, candidate)
    }

    /// The merge to start among `candidates` of `line`, all of which pass the size balance: when merging is
    /// a must, what removes most runs in its time, or what makes room with least rewriting; else the highest
    /// score above nothing.
    pub(crate) fn best(&self, line: &[Part], candidates: &[Candidate]) -> Option<Score> {
        let allowed = candidates.iter().filter(|candidate| self.allows(candidate));
        match self.need {
            Need::Slowed | Need::Urgent => {
                let rate = |c: &Candidate| c.removed / self.model.merge(c.bytes).max(1.0);
                let better = |best, next| if rate(next) > rate(best) { next } else { best };
                return allowed.reduce(better).map(|candidate| self.score(*candidate));
            }
            // While there is room for more runs, it is better to wait for a wider one.
            Need::Full if self.beside.is_some() => return None,
            Need::Full => {
                let even: Vec<(f64, &Candidate)> = allowed.map(|c| (evenness(line, c), c)).collect();
                let most = even.iter().map(|(even, _)| *even).fold(0.0, f64::max);
                let nearly = even.iter().filter(|(even, _)| *even >= NEARLY_AS_EVEN * most).map(|(_, c)| *c);
                let quicker = |best: &'_ Candidate, next: &'_ Candidate| next.bytes < best.bytes;
                let quickest = nearly.reduce(|best, next| if quicker(best, next) { next } else { best });
                return quickest.map(|candidate| self.score(*candidate));
            }
            Need::None => {}
        }
        let affordable = allowed.filter(|candidate| candidate.bytes <= self.balance);
        let scored = affordable.map(|candidate| self.score(*candidate));
        let useful = scored.filter(|s| s.value() > 0.0 && !(self.last_slot && s.windows > LONG));
        let best = useful.reduce(|best, next| if next.value() > best.value() { next } else { best })?;
        Some(if self.short_first { self.shortest(best, candidates) } else { best })
    }

    /// What of `best` goes first: a part of it that takes a small share of its time and removes runs much
    /// faster is done while the whole would still be at its beginning, and the whole comes next.
    fn shortest(&self, mut best: Score, candidates: &[Candidate]) -> Score {
        loop {
            let whole = best.candidate;
            let time = self.model.merge(whole.bytes);
            let beside = UnderWay { left: time, rate: self.need.of(&whole) / time.max(1.0) };
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

    /// The merge of `line` to start. `candidates` is left with what it was chosen from; `exact` corrects
    /// the bytes of each.
    pub(crate) fn choose(
        &self,
        line: &[Part],
        scale: &Scale,
        intervals: &mut Intervals,
        candidates: &mut Vec<Candidate>,
        mut exact: impl FnMut(&mut Candidate),
    ) -> Option<Score> {
        intervals.list(line, scale, self.tuple.balance, candidates);
        candidates.iter_mut().for_each(&mut exact);
        let best = self.best(line, candidates);
        if best.is_some()
            || self.need < Need::Slowed
            || self.beside.is_some()
            || self.tuple.balance.is_infinite()
        {
            return best;
        }
        // Nothing passes the size balance, and merging is a must.
        intervals.list(line, scale, f64::INFINITY, candidates);
        candidates.iter_mut().for_each(&mut exact);
        self.best(line, candidates)
    }
}

/// How far a merge brings its bytes: the entropy of its sizes, for each run that it removes.
///
/// Merging runs of sizes b into one of B raises the sum of b*ln(b) by B times this; all of it has to be
/// raised once for every byte, so merges that raise it most per byte rewrite least in the end. Two runs
/// give 0.69, forty of one size 3.7, and a large run with small ones next to nothing.
fn evenness(line: &[Part], candidate: &Candidate) -> f64 {
    let parts = line.get(candidate.from..candidate.to).unwrap_or_default();
    let sum: f64 = parts.iter().map(|part| part.bytes).sum();
    let share = |part: &Part| part.bytes / sum.max(1.0);
    let entropy: f64 = parts.iter().map(share).filter(|s| *s > 0.0).map(|s| -s * real::ln(s)).sum();
    entropy * candidate.removed / (parts.len() as f64 - 1.0).max(1.0)
}

#[cfg(test)]
mod tests;
