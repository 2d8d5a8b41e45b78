//! A rollout: the simulation of one parameter tuple from the present state, event by event.
//!
//! The next event is the end of a piece (subcompaction) or a flush, whichever comes first. Between events covered
//! runs, write delay and operation rate are constant. After each event the rollout decides as the live policy does.
//! Its result is the mean cost of an operation over the horizon.
//!
//! A compaction runs as equal pieces, and each piece removes its share of the runs. Each slot runs one compaction. It
//! may set that one aside for a shorter one and resume it afterwards.

use crate::compaction::arce::candidates::cover::{Cover, CoverScale};
use crate::compaction::arce::candidates::interval::{Candidate, CandidatePart, Intervals};
use crate::compaction::arce::measure::guard::RewriteBudget;
use crate::compaction::arce::measure::model::{CostModel, Met, Stall};
use crate::compaction::arce::score::formula::{Choice, Need, RunningCompaction, Score, Tuple, score};
use crate::pace::{WriteRate, write_rate};
use crate::schedule::PieceBytes;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drumlin_types::contract::{Pace, PaceScope};

/// The common start of all rollouts of a search.
#[derive(Clone, Debug)]
pub(crate) struct RolloutStart {
    pub(crate) model: CostModel,
    pub(crate) scale: CoverScale,
    /// Runs, newest first. Inputs of running compactions are busy; `jobs` has these compactions.
    pub(crate) line: Vec<CandidatePart>,
    /// Keys that a newly flushed run covers.
    pub(crate) flushed: Cover,
    pub(crate) jobs: Vec<StartJob>,
    pub(crate) limits: Limits,
    pub(crate) budget: RewriteBudget,
    /// Length of the simulation in flush intervals.
    pub(crate) horizon: f64,
}

/// A compaction that is running at the start: its place on the line, and what is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartJob {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: f64,
    pub(crate) removed: f64,
    pub(crate) relief: f64,
    /// Whether it is withdrawn if its rest does not pay under the simulated tuple, as the live policy would do.
    pub(crate) may_withdraw: bool,
}

/// Limits and switches of a rollout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// S_max: covered runs at which writers stop.
    pub(crate) max_runs: f64,
    /// Input bytes of pieces.
    pub(crate) pieces: PieceBytes,
    /// Whether a short compaction may interrupt a long one.
    pub(crate) interleave: bool,
    /// Whether a long compaction waits for a short part of itself.
    pub(crate) short_first: bool,
    /// Whether compactions that make room are chosen by evenness.
    pub(crate) even: bool,
    /// Fixed delay of writes above c in place of the write rate limit; for comparisons with the paper.
    pub(crate) fixed_delay: Option<f64>,
}

/// Largest number of pieces of a simulated compaction. More of them change its cost little, and each is an event.
const MOST_PIECES: u64 = 32;
/// Returns the number of pieces of a simulated compaction of `bytes` bytes.
pub(crate) fn pieces(bytes: f64, each: PieceBytes, slots: u32) -> u32 {
    each.count(bytes as u64, slots).min(MOST_PIECES) as u32
}

/// A running compaction, in `pieces` equal pieces of which `done` have ended.
#[derive(Clone, Debug)]
struct SimulatedJob {
    id: u32,
    bytes: f64,
    removed: f64,
    relief: f64,
    pieces: u32,
    done: u32,
}

/// A compaction slot: the compaction that it runs, the end of the present piece, and compactions set aside.
#[derive(Clone, Debug, Default)]
struct Slot {
    job: Option<SimulatedJob>,
    until: f64,
    aside: Vec<SimulatedJob>,
    /// Whether the compaction set aside last runs from the next end of a piece on.
    urgent: bool,
}

impl Slot {
    fn jobs(&self) -> impl Iterator<Item = &SimulatedJob> {
        self.job.iter().chain(&self.aside)
    }
}

/// The simulation of one tuple.
#[derive(Clone, Debug)]
pub(crate) struct Rollout {
    start: Arc<RolloutStart>,
    tuple: Tuple,
    line: Vec<CandidatePart>,
    /// Bytes of all runs.
    tree: f64,
    /// Job of each run of the line; 0 for none.
    owners: Vec<u32>,
    slots: Vec<Slot>,
    budget: RewriteBudget,
    next_job: u32,
    now: f64,
    operations: f64,
    until_flush: f64,
    cost: f64,
    /// Sum of covered runs over all operations.
    runs_met: f64,
    scratch: Scratch,
    /// Input bytes of all compactions started.
    pub(crate) started: f64,
}

/// Memory that one rollout passes on to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    intervals: Intervals,
    candidates: Vec<Candidate>,
}

/// State of a rollout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ended {
    /// The horizon is not reached yet.
    No,
    /// The horizon is reached; holds the mean cost of an operation.
    At(f64),
    /// Given up, because its cost can no longer stay within the bound.
    Abandoned,
}

impl Rollout {
    /// Starts the simulation of `tuple`, and takes its first decision.
    pub(crate) fn new(start: &Arc<RolloutStart>, tuple: Tuple, scratch: Scratch) -> Rollout {
        let slots = start.model.slots as usize;
        let mut rollout = Rollout {
            start: start.clone(),
            tuple,
            owners: alloc::vec![0; start.line.len()],
            line: start.line.clone(),
            tree: start.line.iter().map(|part| part.bytes).sum(),
            slots: alloc::vec![Slot::default(); slots],
            budget: start.budget,
            next_job: 1,
            now: 0.0,
            operations: 0.0,
            until_flush: start.model.flush_ops(),
            cost: 0.0,
            runs_met: 0.0,
            scratch,
            started: 0.0,
        };
        let jobs: Vec<StartJob> = start.jobs.iter().copied().filter(|job| rollout.goes_on(job)).collect();
        for job in jobs {
            let StartJob { from, to, bytes, removed, relief, .. } = job;
            rollout.admit(Candidate { from, to, bytes, removed, relief }, None);
        }
        rollout.decide();
        rollout
    }

    /// Returns whether this tuple lets a running compaction continue.
    fn goes_on(&self, job: &StartJob) -> bool {
        let StartJob { bytes, removed, relief, .. } = *job;
        let rest = Candidate { from: 0, to: 0, bytes, removed, relief };
        !job.may_withdraw
            || score(&self.start.model, self.tuple.gain_intervals, self.stall(self.met()), self.met(), rest)
                .is_worth_ending()
    }

    /// Returns when writes are delayed, and by how much, if readers meet the runs `met`.
    fn stall(&self, met: Met) -> Stall {
        match self.start.limits.fixed_delay {
            Some(delay) => Stall { above: self.tuple.slow_above, delay },
            None => self.tuple.stall(&self.start.model, met),
        }
    }

    pub(crate) fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// Returns the covered runs, averaged over the operations so far.
    pub(crate) fn mean_runs(&self) -> f64 {
        if self.operations > 0.0 { self.runs_met / self.operations } else { self.runs() }
    }

    pub(crate) fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// Returns the covered runs; pieces that have ended count.
    pub(crate) fn runs(&self) -> f64 {
        self.met().runs
    }

    /// Returns the runs that readers meet.
    fn met(&self) -> Met {
        let mut met = Met { runs: 0.0, cost: 0.0 };
        for part in &self.line {
            met = Met { runs: met.runs + part.weight, cost: met.cost + part.cost };
        }
        for job in self.slots.iter().flat_map(Slot::jobs) {
            let done = f64::from(job.done) / f64::from(job.pieces);
            met = Met { runs: met.runs - job.removed * done, cost: met.cost - job.relief * done };
        }
        met
    }

    fn horizon(&self) -> f64 {
        self.start.horizon * self.start.model.interval_ops
    }

    /// Simulates up to `events` events. Abandons the tuple once its mean cost must exceed `bound`.
    pub(crate) fn advance(&mut self, events: u32, bound: f64) -> Ended {
        let horizon = self.horizon();
        for _ in 0..events {
            if self.operations >= horizon {
                return Ended::At(self.cost / horizon);
            }
            // A lower bound on what the rest costs: no delays, no compactions, and no covered runs.
            let least = (horizon - self.operations) * self.start.model.operation(0.0, 0.0, false);
            if (self.cost + least) / horizon > bound {
                return Ended::Abandoned;
            }
            self.event(horizon);
        }
        Ended::No
    }

    fn event(&mut self, horizon: f64) {
        let model = &self.start.model;
        let Met { runs, cost } = self.met();
        let busy = self.slots.iter().any(|slot| slot.job.is_some());
        let each = model.operation(cost, self.delay(runs, cost, busy), busy);
        let spacing = (model.think + each) / model.clients;
        let ends = self.slots.iter().filter(|slot| slot.job.is_some()).map(|slot| slot.until);
        let next_end = ends.fold(f64::INFINITY, f64::min);
        let to_flush = self.until_flush.min(horizon - self.operations);
        let piece_first = next_end - self.now <= to_flush * spacing;
        let operations = if piece_first { (next_end - self.now).max(0.0) / spacing } else { to_flush };
        self.now = if piece_first { next_end.max(self.now) } else { self.now + to_flush * spacing };
        self.operations += operations;
        self.until_flush -= operations;
        self.cost += operations * each;
        self.runs_met += operations * runs;
        self.budget.pay(operations, Met { runs, cost }, &self.start.model, self.tree);
        if piece_first {
            self.end_piece(next_end);
        } else if self.until_flush < 1e-3 {
            // Less than a thousandth of an operation is a rounding error.
            self.flush();
        } else {
            // The end of the horizon.
            self.operations = horizon;
        }
        // A decision at the end of the horizon changes no cost.
        if self.operations < horizon {
            self.decide();
        }
    }

    /// Returns the delay of writes at `runs` covered runs, whose read cost is that of `cost` uncached runs.
    fn delay(&self, runs: f64, cost: f64, busy: bool) -> f64 {
        if let Some(delay) = self.start.limits.fixed_delay {
            return if runs > self.tuple.slow_above { delay } else { 0.0 };
        }
        let model = &self.start.model;
        let rate = |job: &SimulatedJob| job.removed / model.compaction_ns(job.bytes).max(1.0);
        let drain = self.slots.iter().flat_map(Slot::jobs).map(rate).fold(0.0, f64::max);
        let pace = Pace {
            slow: self.tuple.slow_above,
            passes: self.tuple.passes,
            drain: drain * model.flush_bytes * 1e9,
            ..Pace::free(PaceScope::All, self.start.limits.max_runs)
        };
        let rate = match write_rate(&pace, runs, model.speed * f64::from(model.slots) * 1e9) {
            WriteRate::Open => return 0.0,
            WriteRate::Limited(rate) => rate,
            // The mean rate that passes between two compactions.
            WriteRate::Shut => pace.drain / 64.0,
        };
        model.delay_for(rate / 1e9, cost, busy)
    }

    fn end_piece(&mut self, end: f64) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(job) = slot.job.as_mut().filter(|_| slot.until <= end) else { continue };
            job.done += 1;
            let finished = (job.done == job.pieces).then_some(job.id);
            if finished.is_some() {
                slot.job = slot.aside.pop();
            } else if slot.urgent {
                slot.job = slot.aside.pop().inspect(|_| slot.aside.extend(slot.job.take()));
            }
            slot.urgent = false;
            if let Some(id) = finished {
                self.finish(id);
            }
            self.begin_piece(at);
        }
    }

    fn begin_piece(&mut self, slot: usize) {
        let (model, now) = (&self.start.model, self.now);
        if let Some(job) = &self.slots[slot].job {
            self.slots[slot].until = now + model.setup + job.bytes / f64::from(job.pieces) / model.speed;
        }
    }

    /// Replaces the inputs of a job by one run, in the place of the oldest.
    fn finish(&mut self, id: u32) {
        let Some(from) = self.owners.iter().position(|owner| *owner == id) else { return };
        let to = from + self.owners[from..].iter().take_while(|owner| **owner == id).count();
        let mut union = Cover::default();
        let mut bytes = 0.0;
        for part in &self.line[from..to] {
            union.union(&part.cover);
            bytes += part.bytes;
        }
        let read = bytes;
        let bytes = read * self.start.model.shrink;
        self.tree -= read - bytes;
        let weight = self.start.scale.runs(&union);
        let cost = self.start.scale.cost(bytes, weight);
        self.line[from] = CandidatePart { bytes, cover: union, weight, cost, idle: true };
        self.owners[from] = 0;
        self.line.drain(from + 1..to);
        self.owners.drain(from + 1..to);
    }

    fn flush(&mut self) {
        let RolloutStart { model, scale, flushed, .. } = &*self.start;
        let (bytes, weight) = (model.flush_bytes, scale.runs(flushed));
        let part =
            CandidatePart { bytes, cover: *flushed, weight, cost: scale.cost(bytes, weight), idle: true };
        self.line.insert(0, part);
        self.owners.insert(0, 0);
        self.until_flush = model.flush_ops();
        self.tree += bytes;
        self.budget.flushed(bytes, self.tree);
    }

    fn decide(&mut self) {
        let Limits { max_runs, interleave, even, short_first, .. } = self.start.limits;
        loop {
            let met = self.met();
            let need = Need::at(met.runs, self.tuple.slow_above, max_runs, even);
            let idle = self.slots.iter().filter(|slot| slot.job.is_none()).count();
            let longest = match idle {
                0 if !interleave || self.slots.iter().any(|slot| !slot.aside.is_empty()) => return,
                0 => match self.slowest(need) {
                    // Not even a compaction of two flushes would be short enough.
                    Some((_, under_way)) if !under_way.has_room(&self.start.model) => return,
                    slowest => slowest,
                },
                _ => None,
            };
            let choice = Choice {
                model: &self.start.model,
                tuple: self.tuple,
                stall: self.stall(met),
                met,
                need,
                budget: self.budget.affordable(&self.start.model),
                last_slot: self.slots.len() > 1 && idle == 1,
                beside: longest.map(|(_, under_way)| under_way),
                short_first,
            };
            let Scratch { intervals, candidates } = &mut self.scratch;
            let found = choice.choose(&self.line, &self.start.scale, intervals, candidates, |_| ());
            let Some(Score { candidate, .. }) = found else { return };
            self.budget.merged(candidate.bytes, self.tree);
            self.budget.spend(candidate.bytes, &self.start.model);
            self.started += candidate.bytes;
            self.admit(candidate, longest.map(|(slot, _)| slot));
        }
    }

    /// Returns the slot whose compaction has most time left, with that compaction.
    fn slowest(&self, need: Need) -> Option<(usize, RunningCompaction)> {
        let model = &self.start.model;
        let left = |(at, slot): (usize, &Slot)| {
            let job = slot.job.as_ref()?;
            let share = f64::from(job.pieces - job.done) / f64::from(job.pieces);
            let time = model.compaction_ns(job.bytes);
            let done = if need.is_must() { job.removed } else { job.relief };
            Some((at, RunningCompaction { left: time * share, rate: done / time.max(1.0) }))
        };
        let slots = self.slots.iter().enumerate().filter_map(left);
        slots.reduce(|a, b| if b.1.left > a.1.left { b } else { a })
    }

    /// Starts a compaction on a free slot, or on `slot` at its next end of a piece.
    fn admit(&mut self, merge: Candidate, slot: Option<usize>) {
        let Candidate { from, to, bytes, removed, relief } = merge;
        let id = self.next_job;
        self.next_job += 1;
        for at in from..to {
            self.line[at].idle = false;
            self.owners[at] = id;
        }
        let pieces = pieces(bytes, self.start.limits.pieces, self.start.model.slots);
        let job = SimulatedJob { id, bytes, removed, relief, pieces, done: 0 };
        if let Some(slot) = slot {
            self.slots[slot].aside.push(job);
            self.slots[slot].urgent = true;
            return;
        }
        match self.slots.iter().position(|slot| slot.job.is_none()) {
            Some(free) => {
                self.slots[free].job = Some(job);
                self.begin_piece(free);
            }
            // More compactions are running than there are slots: queue this one behind the others.
            None => self.slots[0].aside.insert(0, job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::candidates::interval::tests::{full_scale, line};
    use crate::compaction::arce::measure::model::paper::{MIB, close, model, thirds};

    const LINE: [f64; 8] = [2.0, 2.0, 2.0, 2.0, 20.0, 24.0, 400.0, 4096.0];

    /// Pieces of 64 MiB.
    const PIECES: PieceBytes = PieceBytes { least: 64 << 20, most: 64 << 20 };
    /// One piece.
    const WHOLE: PieceBytes = PieceBytes { least: u64::MAX, most: u64::MAX };

    fn start(model: CostModel, horizon: f64, pieces: PieceBytes) -> Arc<RolloutStart> {
        Arc::new(RolloutStart {
            model,
            scale: full_scale(),
            line: line(&LINE),
            flushed: full_scale().full,
            jobs: Vec::new(),
            limits: Limits {
                max_runs: f64::INFINITY,
                pieces,
                interleave: false,
                short_first: false,
                even: true,
                fixed_delay: Some(0.0),
            },
            budget: RewriteBudget::new(f64::INFINITY, 20.0),
            horizon,
        })
    }

    fn tuple(gain_intervals: f64, size_ratio: f64) -> Tuple {
        Tuple { gain_intervals, slow_above: f64::INFINITY, passes: 2.0, size_ratio }
    }

    /// Returns microseconds per operation, MiB started, and runs at the end.
    fn run(start: &Arc<RolloutStart>, tuple: Tuple) -> (f64, f64, usize) {
        let mut rollout = Rollout::new(start, tuple, Scratch::default());
        let Ended::At(cost) = rollout.advance(u32::MAX, f64::INFINITY) else { panic!("no end") };
        (cost / 1e3, rollout.started / MIB, rollout.line.len())
    }

    #[track_caller]
    fn check(start: &Arc<RolloutStart>, tuple: Tuple, expected: (f64, f64, usize), digits: i32) {
        let found = run(start, tuple);
        close(found.0, expected.0, digits);
        assert_eq!((found.1, found.2), (expected.1, expected.2));
    }

    #[test]
    fn fixed_tuples_of_the_paper() {
        const ANY: f64 = f64::INFINITY;
        let whole = start(thirds(), 20.0, WHOLE);
        let pieces = start(thirds(), 20.0, PIECES);
        check(&whole, tuple(1.0, ANY), (26.094, 256.0, 6), 3);
        check(&whole, tuple(6.0, ANY), (31.840, 614.0, 8), 3);
        check(&pieces, tuple(6.0, ANY), (30.878, 618.0, 7), 3);
        check(&whole, tuple(6.0, 1.0), (28.455, 136.0, 7), 3);
        check(&whole, tuple(50.0, ANY), (75.950, 4548.0, 28), 3);
        check(&pieces, tuple(50.0, ANY), (73.010, 4548.0, 28), 3);
        let writes = start(model(1.0, 98.0, 1.0), 100.0, WHOLE);
        check(&writes, tuple(5.0, ANY), (6.5096, 212.0, 24), 4);
        let mut stalled = RolloutStart::clone(&writes);
        stalled.limits.fixed_delay = Some(13_500.0);
        check(&Arc::new(stalled), Tuple { slow_above: 12.0, ..tuple(5.0, ANY) }, (14.839, 456.0, 19), 3);
    }

    #[test]
    fn what_a_tuple_would_withdraw_it_is_not_credited_with() {
        let start = start(thirds(), 20.0, PIECES);
        let goes_on = |horizon, may_withdraw| {
            let job =
                StartJob { from: 7, to: 8, bytes: 4096.0 * MIB, removed: 1.0, relief: 1.0, may_withdraw };
            Rollout::new(&start, tuple(horizon, f64::INFINITY), Scratch::default()).goes_on(&job)
        };
        assert!(!goes_on(1.0, true) && goes_on(1.0, false) && goes_on(100.0, true));
        // Whether another compaction takes the free slot at once.
        let begins_another = |may_withdraw| {
            let jobs = Vec::from([StartJob {
                from: 7,
                to: 8,
                bytes: 4096.0 * MIB,
                removed: 6.0,
                relief: 6.0,
                may_withdraw,
            }]);
            let start = Arc::new(RolloutStart { jobs, ..RolloutStart::clone(&start) });
            Rollout::new(&start, tuple(1.0, 1.0), Scratch::default()).started > 0.0
        };
        assert!(begins_another(true) && !begins_another(false));
    }

    /// Cached runs cost less than one uncached run. A tuple is given up only if it cannot stay within the bound.
    #[test]
    fn a_rollout_within_the_bound_is_not_given_up() {
        let mut start = RolloutStart::clone(&start(model(98.0, 1.0, 1.0), 20.0, WHOLE));
        start.line.truncate(1);
        start.line[0].cost = 0.3;
        start.scale =
            start.scale.priced(crate::compaction::arce::measure::prices::Prices::restored([1e9; 3]));
        let start = Arc::new(start);
        let rollout = || Rollout::new(&start, tuple(1.0, f64::INFINITY), Scratch::default());
        let Ended::At(cost) = rollout().advance(u32::MAX, f64::INFINITY) else { panic!("no end") };
        assert!(cost < start.model.operation(1.0, 0.0, false), "less than with an uncached run");
        assert_eq!(rollout().advance(u32::MAX, cost * 1.0001), Ended::At(cost));
        assert_eq!(rollout().advance(u32::MAX, cost * 0.5), Ended::Abandoned);
    }

    #[test]
    fn merges_start_when_the_last_one_ends() {
        let start = start(thirds(), 20.0, WHOLE);
        let mut rollout = Rollout::new(&start, tuple(6.0, f64::INFINITY), Scratch::default());
        let mut starts = Vec::from([(rollout.started / MIB, 0.0)]);
        while starts.len() < 5 {
            let before = rollout.started;
            rollout.advance(1, f64::INFINITY);
            if rollout.started > before {
                starts.push(((rollout.started - before) / MIB, rollout.now / 1e6));
            }
        }
        let expected = [(52.0, 0.0), (54.0, 359.4), (58.0, 732.7), (62.0, 1133.6), (68.0, 1562.1)];
        for (found, expected) in starts.into_iter().zip(expected) {
            assert_eq!(found.0, expected.0);
            close(found.1, expected.1, 1);
        }
    }
}
