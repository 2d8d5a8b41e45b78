//! The policy object: turns a view of the tree and the load into compactions, a write rate limit and, at times, a
//! search.
//!
//! Each `decide` call has four steps:
//!
//! 1. *Look*: build the age line, the cost model and the covered runs of this moment.
//! 2. *Withdraw* running compactions whose rest no longer pays: their pieces that have not started never run.
//! 3. *Plan* while a slot is idle. When compaction is a must, take what removes most runs per unit of time, or runs of
//!    similar size ([`Need`]). Otherwise take the best score that the rewrite budget affords. A short compaction may
//!    run between the pieces of a long one.
//! 4. *Pace* the writers (set the write rate limit), and request a search when one is due.
//!
//! While adaptation is frozen the policy learns nothing: not from operations, not from flushes and compactions, and
//! not about read costs. It still uses what the engine measures of the present, such as rates, clients and compaction
//! speed.
//!
//! Runs are counted as readers meet them now, so a compaction lowers the count with its first installed piece.

use crate::compaction::arce::candidates::cover::CoverScale;
use crate::compaction::arce::candidates::interval::{Candidate, Intervals};
use crate::compaction::arce::candidates::line::{AgeLine, Samples};
use crate::compaction::arce::decide::explain::{self, LastDecision};
use crate::compaction::arce::decide::returns::Returns;
use crate::compaction::arce::decide::search::SearchResult;
use crate::compaction::arce::decide::switches::Switches;
use crate::compaction::arce::decide::tickets::removed_by;
use crate::compaction::arce::measure::drift::{Drift, Trigger};
use crate::compaction::arce::measure::estimate::Estimate;
use crate::compaction::arce::measure::guard::{BackOffs, RewriteBudget};
use crate::compaction::arce::measure::model::Met;
use crate::compaction::arce::measure::prices::Prices;
use crate::compaction::arce::score::formula::{Need, Tuple};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::compaction::arce::score::state::{StateReader, StateWriter};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, Decision, Outcome, Pace, PaceScope, Pin, PlanResult, PolicyError, PolicyInput,
};
use drumlin_types::{RunId, Ticket};

/// Share of the disk budget from which compactions free disk space first.
pub(crate) const DISK_SHORT: f64 = 0.9;

/// A plan of the last decision.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BegunPlan {
    /// Newest and oldest run.
    pub(crate) ends: (RunId, RunId),
    /// Reason. It identifies a plan that the engine refuses.
    pub(crate) reason: String,
    /// Bytes that the rewrite budget was charged.
    pub(crate) bytes: f64,
    /// Nanoseconds of compaction time that it spent, of those for which readers had paid.
    pub(crate) paid: f64,
}

/// The policy `arce`, with everything that it has learned.
#[derive(Debug)]
pub(crate) struct Arce {
    /// Parameters fixed by the policy's argument.
    pub(crate) pin: Option<Pin>,
    pub(crate) switches: Switches,
    /// Parameters found by a search, now or before the last restart; `None` before the first search.
    pub(crate) tuple: Option<Tuple>,
    pub(crate) estimate: Estimate,
    pub(crate) drift: Drift,
    /// Read cost of runs by their sizes.
    pub(crate) prices: Prices,
    /// Rewrite budget: bytes that elective compactions may rewrite; `None` before the first decision.
    pub(crate) budget: Option<f64>,
    /// Nanoseconds of compaction time for which readers have paid (`guard`).
    pub(crate) paid: f64,
    /// Operations that the engine had counted at the last decision; `None` before the first since the store was opened.
    pub(crate) paid_until: Option<u64>,
    /// What elective compactions saved.
    pub(crate) returns: Returns,
    /// Back-off of compactions that were refused or failed.
    pub(crate) back_offs: BackOffs,
    /// Plans of the last decision.
    pub(crate) begun: Vec<BegunPlan>,
    /// Withdrawn tickets (scheduled compactions) that have not ended yet, with the bytes that they were to read; 0
    /// after a restart.
    pub(crate) withdrawn: Vec<(Ticket, u64)>,
    /// Time of the last decision, microseconds.
    pub(crate) now: u64,
    /// Number of flushes so far: the policy time of deadlines.
    pub(crate) flushes: u64,
    /// Bytes flushed since the last decision.
    pub(crate) flushed: f64,
    /// Trigger of the search under way.
    pub(crate) searching: Option<Trigger>,
    /// Latest answer of a search, with its trigger.
    pub(crate) found: Option<(Trigger, SearchResult)>,
    /// Whether adaptation was frozen at the last decision.
    pub(crate) frozen: bool,
    /// Run limit and fixed parameters at the last decision.
    pub(crate) options: Option<(u32, Option<Pin>)>,
    /// Snapshot of the last decision for [`CompactionPolicy::explain`].
    pub(crate) last_decision: LastDecision,
    /// Reused memory of the candidate search.
    pub(crate) intervals: Intervals,
    pub(crate) candidates: Vec<Candidate>,
}

impl Arce {
    pub(crate) fn new(pin: Option<Pin>, switches: Switches) -> Arce {
        Arce {
            pin,
            switches,
            tuple: None,
            estimate: Estimate::PRIOR,
            drift: Drift::default(),
            prices: Prices::UNIFORM,
            budget: None,
            // As the rewrite budget, it is full at the start.
            paid: f64::MAX,
            paid_until: None,
            returns: Returns::default(),
            back_offs: BackOffs::default(),
            begun: Vec::new(),
            withdrawn: Vec::new(),
            now: 0,
            flushes: 0,
            flushed: 0.0,
            searching: None,
            found: None,
            frozen: false,
            options: None,
            last_decision: LastDecision::default(),
            intervals: Intervals::default(),
            candidates: Vec::new(),
        }
    }

    /// Returns the snapshot that a decision is based on, and whether a tick (about a thousand counted operations) has
    /// passed.
    pub(crate) fn look<'a>(&mut self, input: &'a PolicyInput<'a>) -> (ScoreScene<'a>, bool) {
        let max_runs = f64::from(input.limits.max_runs.max(2));
        let (vain, false_positives) = (input.load.vain(), input.tree.false_positive_rate());
        let slopes = self.estimate.slopes(input.costs, vain, false_positives);
        let samples = Samples::of(input.wanted, input.wanted_seeks, input.tree);
        let interval_ops = self.estimate.model(input, slopes, 1.0).interval_ops;
        let ticked = if input.frozen {
            self.estimate.pass_over(input);
            false
        } else {
            self.estimate.count(input, interval_ops)
        };
        let [points, seeks, _] = self.estimate.mix;
        let scale = CoverScale::new(
            samples.points.len(),
            samples.seeks.len(),
            [points * slopes[0], seeks * slopes[1]],
        );
        let mut line = AgeLine::of(input.tree, &samples, &scale);
        if !self.switches.masks {
            line.count_whole(&scale);
        }
        if ticked {
            self.prices = if self.switches.prices {
                self.prices.learned(input.costs, line.met())
            } else {
                Prices::UNIFORM
            };
        }
        let scale = scale.priced(self.prices);
        line.price(&scale);
        let slopes = self.prices.slopes(slopes, vain * false_positives);
        if ticked {
            self.estimate.cost(input.costs, slopes, line.cost);
        }
        let mut model = self.estimate.model(input, slopes, line.cost);
        model.fresh = scale.cost(model.flush_bytes, 1.0);
        model.lost = if self.switches.whole { 1.0 } else { LOST_BY_HALF };
        let tuple = self.tuple_in_force(input, max_runs);
        let disk_short = input.limits.disk_used as f64 >= DISK_SHORT * input.limits.disk_budget as f64;
        let stall = tuple.stall(&model, Met { runs: line.runs, cost: line.cost });
        let tuple = if self.switches.rho { tuple } else { Tuple { size_ratio: f64::INFINITY, ..tuple } };
        let need = Need::at(line.runs, tuple.slow_above, max_runs, self.switches.even);
        let short_first = self.switches.first;
        let scene = ScoreScene {
            input,
            line,
            samples,
            scale,
            model,
            tuple,
            stall,
            max_runs,
            need,
            disk_short,
            shrink: self.estimate.is_shrink_known.then_some(self.estimate.shrink),
            short_first,
            by_all_keys: false,
        };
        (scene, ticked)
    }

    /// Returns the parameters that apply: fixed ones, those that a search found, or the prior ones.
    fn tuple_in_force(&self, input: &PolicyInput<'_>, max_runs: f64) -> Tuple {
        let tuple = match self.pin.or(input.limits.pin) {
            Some(Pin { gain_intervals, slow_above, passes, size_ratio }) => {
                Tuple { gain_intervals, slow_above, passes, size_ratio }
            }
            None => {
                let prior = Tuple { slow_above: Tuple::PRIOR_SLOW_ABOVE_SHARE * max_runs, ..Tuple::PRIOR };
                self.tuple.unwrap_or(prior)
            }
        };
        if tuple.slow_above > max_runs { Tuple { slow_above: f64::INFINITY, ..tuple } } else { tuple }
    }

    /// Resets times, tickets and searches after the store was reopened.
    fn begin_anew(&mut self) {
        (self.now, self.searching, self.paid_until) = (0, None, None);
        (self.back_offs, self.withdrawn) = (BackOffs::default(), Vec::new());
        self.returns.reopened();
        // The engine's counters restarted at 0. Without this reset the next calls would look like further reopenings.
        self.estimate.count_anew();
        self.drift.forget();
    }

    /// Returns the rewrite budget, credited up to now.
    fn budget(&mut self, scene: &ScoreScene<'_>) -> RewriteBudget {
        let (limits, tree) = (scene.input.limits, scene.line.bytes);
        let amp = limits.max_write_amp.clamp(1.0, 1e4);
        let mut budget = RewriteBudget::new(self.budget.unwrap_or(2.0 * tree), amp);
        let passed = scene.input.now.saturating_sub(self.now) as f64;
        budget.flushed(core::mem::take(&mut self.flushed), tree);
        if self.now > 0 {
            // With readers, the engine calls the policy every second. After a longer gap the read rate is outdated.
            let read = scene.input.load.read_bytes * passed.min(RATE_HOLDS) / 1e6;
            budget.passed(passed, read, tree);
        }
        let operations = scene.input.load.counted.iter().sum::<u64>();
        let since = self.paid_until.replace(operations).map_or(0, |until| operations.saturating_sub(until));
        self.returns.count(since as f64, &scene.model, scene.input.tree);
        if !self.switches.paid {
            return budget;
        }
        let mut budget = budget.with_paid(self.paid);
        budget.pay(since as f64, runs_that_stay(scene), &scene.model, tree);
        budget
    }

    /// Returns the write rate limit. Its drain is the fastest run removal of any running compaction or candidate.
    fn pace(&self, scene: &ScoreScene<'_>) -> Pace {
        let time = |bytes: f64| scene.model.compaction_ns(bytes).max(1.0);
        let running = scene
            .input
            .tickets
            .iter()
            .filter_map(|ticket| removed_by(ticket).map(|removed| removed / time(ticket.bytes as f64)));
        let possible = self.candidates.iter().map(|c| c.removed / time(c.bytes));
        let rate = running.chain(possible).fold(0.0, f64::max);
        Pace {
            slow: scene.slow(),
            passes: scene.tuple.passes,
            drain: rate * scene.model.flush_bytes * 1e9,
            covered: Some(scene.line.runs),
            ..Pace::free(PaceScope::All, scene.max_runs)
        }
    }
}

/// Returns the runs that readers meet, without what running compactions will still remove. Each removes its runs piece
/// by piece.
fn runs_that_stay(scene: &ScoreScene<'_>) -> Met {
    let Met { mut runs, mut cost } = scene.met();
    for ticket in scene.input.tickets {
        let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
        // Other compactions than those of this policy do not say how many runs they remove.
        let removed =
            removed_by(ticket).map_or_else(|| scene.removed_by_other(ticket.ticket), |all| all * left);
        runs -= removed;
        cost -= scene.relief_of(ticket.ticket, removed);
    }
    Met { runs: runs.max(0.0), cost: cost.max(0.0) }
}

impl CompactionPolicy for Arce {
    fn name(&self) -> String {
        let off = self.switches.to_string();
        match (self.pin, off.as_str()) {
            (Some(pin), "") => format!("arce:{pin}"),
            (Some(pin), off) => format!("arce:{pin},{off}"),
            (None, "") => String::from("arce"),
            (None, off) => format!("arce:{off}"),
        }
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        if input.now < self.now || self.estimate.is_behind(&input.load.counted) {
            self.begin_anew();
        }
        self.frozen = input.frozen;
        let (mut scene, ticked) = self.look(input);
        let mut budget = self.budget(&scene);
        self.now = input.now;
        self.begun.clear();
        let withdraw = self.withdraw(&scene);
        let search = self.search(&scene, ticked, &budget);
        self.candidates.clear();
        self.count_by_all_keys_if_crowded(&mut scene);
        // Withdrawn compactions change the tree, so plans wait for the next decision.
        let plans = if withdraw.is_empty() { self.plans(&mut scene, &mut budget) } else { Vec::new() };
        self.budget = Some(budget.left());
        if budget.paid().is_finite() {
            self.paid = budget.paid();
        }
        let pace = self.pace(&scene);
        let horizon = self.horizon(&scene);
        self.last_decision = LastDecision::of(&scene, &self.estimate, &self.drift, horizon, &budget, &pace);
        Decision { plans, withdraw, pace: Some(pace), forecast: Vec::new(), search }
    }

    fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    fn observe(&mut self, outcome: &Outcome) {
        if !self.frozen {
            self.estimate.observe(outcome);
        }
        match outcome {
            Outcome::Flushed { bytes, .. } => {
                self.flushes += 1;
                self.flushed += *bytes as f64;
            }
            // Nothing was rewritten, so the charge is given back. A refused plan would be refused again; a deferred one
            // may be admitted at the next call.
            Outcome::Plan {
                result: result @ (PlanResult::Refused | PlanResult::Deferred), reason, ..
            } => {
                self.returns.result(reason, *result, 0);
                if let Some(at) = self.begun.iter().position(|plan| plan.reason == *reason) {
                    let plan = self.begun.remove(at);
                    self.budget = self.budget.map(|budget| budget + plan.bytes);
                    self.paid += plan.paid;
                    if *result == PlanResult::Refused {
                        self.back_offs.failed(plan.ends, self.now);
                    }
                }
            }
            // When this policy withdraws a compaction, the bytes that it has not read are credited back. What the
            // engine withdraws stays charged: the next plan may meet the same obstacle.
            Outcome::Plan { ticket, result: PlanResult::Withdrawn, bytes_in, reason, .. } => {
                self.returns.result(reason, PlanResult::Withdrawn, *bytes_in);
                let of_ticket = self.withdrawn.iter().find(|(withdrawn, _)| withdrawn == ticket);
                let unread = of_ticket.map_or(0, |(_, bytes)| bytes.saturating_sub(*bytes_in));
                self.budget = self.budget.map(|budget| budget + unread as f64);
            }
            Outcome::Plan { result: PlanResult::Done, bytes_in, reason, .. } => {
                self.returns.result(reason, PlanResult::Done, *bytes_in);
            }
            Outcome::SearchEnded(answer) => {
                let Ok(answer) = SearchResult::decode(answer) else {
                    self.searching = None;
                    return;
                };
                if let Some(trigger) = self.searching {
                    if answer.done {
                        self.searching = None;
                    }
                    self.tuple = Some(answer.tuple);
                    self.drift.predicted(answer.runs, answer.cost);
                    self.found = Some((trigger, answer));
                }
            }
        }
    }

    fn explain(&self) -> String {
        let decided =
            || explain::policy(&self.last_decision, self.found.as_ref(), self.searching, &self.returns);
        explain::undecided(&self.last_decision, self.tuple).unwrap_or_else(decided)
    }

    fn save(&self) -> Vec<u8> {
        let mut writer = StateWriter::new(VERSION);
        let known = self.tuple.is_some();
        writer.tuple(&self.tuple.unwrap_or(Tuple::PRIOR));
        writer.numbers(&[f64::from(u8::from(known)), self.budget.unwrap_or(-1.0)]);
        writer.numbers(&self.estimate.mix);
        writer.numbers(&[self.estimate.flush_bytes, self.estimate.flush_entries, self.estimate.shrink]);
        let mut phases = [0.0; 4];
        phases.iter_mut().zip(&self.drift.phases).for_each(|(to, from)| *to = *from);
        writer.numbers(&phases);
        writer.numbers(&self.estimate.numbers());
        writer.numbers(&self.estimate.interference.numbers());
        writer.numbers(&self.drift.numbers());
        writer.numbers(&self.prices.numbers());
        let trigger = self.searching.and_then(|t| Trigger::ALL.iter().position(|other| *other == t));
        let trigger = trigger.map_or(-1.0, |at| at as f64);
        writer.numbers(&[self.now as f64, self.flushes as f64, self.flushed, trigger]);
        let (max_runs, pin) = self.options.map_or((0, None), |(max_runs, pin)| (max_runs, pin));
        writer.numbers(&[f64::from(max_runs), f64::from(u8::from(pin.is_some()))]);
        let Pin { gain_intervals, slow_above, passes, size_ratio } = pin.unwrap_or(NO_PIN);
        writer.tuple(&Tuple { gain_intervals, slow_above, passes, size_ratio });
        let withdrawn = &self.withdrawn[..self.withdrawn.len().min(MOST_WITHDRAWN)];
        writer.numbers(&[withdrawn.len() as f64, self.back_offs.numbers().count() as f64]);
        withdrawn.iter().for_each(|(ticket, _)| writer.numbers(&[ticket.0 as f64]));
        self.back_offs.numbers().for_each(|rest| writer.numbers(&rest));
        writer.numbers(&[f64::from(u8::from(self.frozen))]);
        writer.numbers(&[f64::from(u8::from(self.estimate.is_shrink_known))]);
        writer.numbers(&self.estimate.shift_numbers());
        writer.numbers(&[self.paid, self.paid_until.map_or(-1.0, |operations| operations as f64)]);
        self.returns.save(&mut writer);
        writer.done()
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let mut reader = StateReader::new(blob, VERSION)?;
        let tuple = reader.tuple()?;
        let [known, budget] = reader.numbers()?;
        let mix = reader.numbers()?;
        let [flush_bytes, flush_entries, shrink] = reader.numbers()?;
        let phases: [f64; 4] = reader.numbers()?;
        let counted: [f64; 10] = reader.numbers()?;
        let interference: [f64; 7] = reader.numbers()?;
        let drift: [f64; Drift::NUMBERS] = reader.numbers()?;
        let prices: [f64; 3] = reader.numbers()?;
        let [now, flushes, flushed, trigger] = reader.numbers()?;
        let [max_runs, is_pinned] = reader.numbers()?;
        let Tuple { gain_intervals, slow_above, passes, size_ratio: rho } = reader.tuple()?;
        let [withdrawn, resting] = reader.numbers()?;
        let sane = |figures: &[f64]| figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0);
        let all = [&mix[..], &[flush_bytes, flush_entries, shrink], &phases, &counted, &interference, &drift];
        if !all.iter().all(|figures| sane(figures)) || !sane(&[now, flushes, flushed, withdrawn, resting]) {
            return Err(PolicyError("the saved state of arce holds an invalid number".into()));
        }
        if now > MOST_COUNTED || flushes > MOST_COUNTED {
            return Err(PolicyError("the saved state of arce holds a count above 2^53".into()));
        }
        let mut next = Arce::new(self.pin, self.switches);
        for _ in 0..(withdrawn as usize).min(MOST_WITHDRAWN) {
            let [ticket] = reader.numbers()?;
            next.withdrawn.push((Ticket(ticket as u64), 0));
        }
        for _ in 0..(resting as usize).min(64) {
            next.back_offs.push(reader.numbers()?);
        }
        // States saved by older versions end before these numbers.
        next.frozen = reader.numbers().is_ok_and(|[frozen]: [f64; 1]| frozen == 1.0);
        let is_shrink_known = reader.numbers().is_ok_and(|[known]: [f64; 1]| known == 1.0);
        if let Ok(turning) = reader.numbers() {
            next.estimate.restore_shift(turning);
        }
        if let Ok([paid, until]) = reader.numbers() {
            next.paid = if sane(&[paid]) { paid } else { 0.0 };
            next.paid_until = sane(&[until]).then_some(until as u64);
        }
        next.returns = Returns::restored(&mut reader).unwrap_or_default();
        next.tuple = (known == 1.0).then_some(tuple);
        next.budget = (budget.is_finite() && budget != -1.0).then_some(budget);
        next.estimate.restore(counted);
        next.estimate.mix = mix;
        (next.estimate.flush_bytes, next.estimate.flush_entries) = (flush_bytes, flush_entries);
        next.estimate.shrink = shrink.clamp(0.01, 1.0);
        next.estimate.is_shrink_known = is_shrink_known || shrink < 1.0;
        next.estimate.interference.restore(interference);
        next.drift.restore(drift);
        next.prices = Prices::restored(prices);
        next.drift.phases = phases.into_iter().filter(|length| *length > 0.0).collect();
        (next.now, next.flushes, next.flushed) = (now as u64, flushes as u64, flushed);
        next.searching = if trigger < 0.0 { None } else { Trigger::ALL.get(trigger as usize).copied() };
        let pin = (is_pinned == 1.0).then_some(Pin { gain_intervals, slow_above, passes, size_ratio: rho });
        let max_runs = max_runs as u32;
        next.options = (max_runs > 0).then_some((max_runs, pin));
        *self = next;
        Ok(())
    }
}

/// Longest time for which a measured read rate counts, in microseconds.
const RATE_HOLDS: f64 = 2e6;
/// Weight of the read slowdown g1*t in the code published by the paper's authors.
const LOST_BY_HALF: f64 = 0.5;
/// Largest number of withdrawn tickets in the saved state.
const MOST_WITHDRAWN: usize = 4;
/// Placeholder in the saved state when no parameters are fixed.
const NO_PIN: Pin = Pin { gain_intervals: 1.0, slow_above: 2.0, passes: 1.0, size_ratio: 1.0 };
/// First byte of the saved state.
const VERSION: u8 = 5;
/// Largest count that a saved state may hold. Up to 2^53 every whole number is an exact f64, and a counter that
/// continues from here never overflows in practice.
const MOST_COUNTED: f64 = (1u64 << 53) as f64;
