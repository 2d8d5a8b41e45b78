//! The policy: from a picture of the tree and the load to merges, a pace and perhaps a search.
//!
//! 1. *Look*: the age line, the present model, the covered runs.
//! 2. *Park* merges whose rest no longer pays.
//! 3. *Plan* while a slot is idle: what removes most runs in its time when merging is a must, else the
//!    merge of the best score that the rewrite balance affords. Beside a long merge a small one may come
//!    in between.
//! 4. *Pace* the writers, and ask for a search when one is due.
//!
//! While adaptation is frozen nothing is learned: neither of operations, nor of flushes and merges, nor what runs cost.
//! What the engine measures of the present - rates, clients, the speed of merges - is gone by all the same.
//!
//! Runs are counted as readers meet them, so a merge helps from its first piece on.

use super::cover::Scale;
use super::drift::{Drift, Trigger};
use super::estimate::{Estimate, false_positives};
use super::explain::{self, Told};
use super::guard::{Balance, Resting};
use super::interval::{Candidate, Intervals};
use super::line::{AgeLine, Samples};
use super::model::Met;
use super::plans::removed_by;
use super::prices::Prices;
use super::scene::Scene;
use super::score::{Need, Tuple};
use super::search::Answer;
use super::state::{Reader, Writer};
use super::switches::Switches;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, Decision, Outcome, Pace, PaceScope, Pin, PlanResult, PolicyError, PolicyInput,
};
use drumlin_types::{RunId, Ticket};

/// The share of the disk budget from which on merges free disk first.
const DISK_SHORT: f64 = 0.9;

#[derive(Debug)]
pub(super) struct Arce {
    /// Fixed by the policy's argument.
    pub(super) pin: Option<Pin>,
    pub(super) switches: Switches,
    /// Chosen by a search, or before.
    pub(super) tuple: Option<Tuple>,
    pub(super) estimate: Estimate,
    pub(super) drift: Drift,
    /// What runs cost by their sizes.
    pub(super) prices: Prices,
    /// Bytes that elective merges may rewrite; unknown before the first decision.
    pub(super) balance: Option<f64>,
    pub(super) resting: Resting,
    /// The ends and the reasons of the latest plans, to know those that are refused.
    pub(super) begun: Vec<((RunId, RunId), String)>,
    /// Parked, and not ended yet.
    pub(super) parked: Vec<Ticket>,
    pub(super) now: u64,
    pub(super) flushes: u64,
    /// Bytes flushed since the last decision.
    pub(super) flushed: f64,
    /// A search is under way.
    pub(super) thinking: Option<Trigger>,
    pub(super) found: Option<(Trigger, Answer)>,
    /// Adaptation was frozen at the last decision.
    pub(super) frozen: bool,
    /// Options that the last decision was taken under.
    pub(super) options: Option<(u32, Option<Pin>)>,
    pub(super) told: Told,
    pub(super) intervals: Intervals,
    pub(super) candidates: Vec<Candidate>,
}

impl Arce {
    pub(super) fn new(pin: Option<Pin>, switches: Switches) -> Arce {
        Arce {
            pin,
            switches,
            tuple: None,
            estimate: Estimate::PRIOR,
            drift: Drift::default(),
            prices: Prices::EVEN,
            balance: None,
            resting: Resting::default(),
            begun: Vec::new(),
            parked: Vec::new(),
            now: 0,
            flushes: 0,
            flushed: 0.0,
            thinking: None,
            found: None,
            frozen: false,
            options: None,
            told: Told::default(),
            intervals: Intervals::default(),
            candidates: Vec::new(),
        }
    }

    pub(super) fn look<'a>(&mut self, input: &'a PolicyInput<'a>) -> (Scene<'a>, bool) {
        let max_runs = f64::from(input.limits.max_runs.max(2));
        let false_positives = false_positives(input.tree);
        let slopes = self.estimate.slopes(input.costs, false_positives);
        let samples = Samples::of(input.wanted, input.wanted_seeks, input.tree);
        let window_ops = self.estimate.model(input, slopes, 1.0).window_ops;
        let ticked = if input.frozen {
            self.estimate.pass_over(input);
            false
        } else {
            self.estimate.count(input, window_ops)
        };
        let [points, seeks, _] = self.estimate.mix;
        let scale =
            Scale::new(samples.points.len(), samples.seeks.len(), [points * slopes[0], seeks * slopes[1]]);
        let mut line = AgeLine::of(input.tree, &samples, &scale);
        if !self.switches.masks {
            line.count_whole(&scale);
        }
        if ticked {
            self.prices = if self.switches.prices {
                self.prices.learned(input.costs, line.met())
            } else {
                Prices::EVEN
            };
        }
        let scale = scale.priced(self.prices);
        line.price(&scale);
        let slopes = self.prices.slopes(slopes, false_positives);
        if ticked {
            self.estimate.cost(input.costs, slopes, line.cost);
        }
        let mut model = self.estimate.model(input, slopes, line.cost);
        model.fresh = scale.cost(model.flush_bytes, 1.0);
        model.lost = if self.switches.whole { 1.0 } else { LOST_BY_HALF };
        let pinned = self.pin.or(input.limits.pin);
        let tuple = match pinned {
            Some(Pin { horizon, calm, passes, balance }) => Tuple { horizon, calm, passes, balance },
            None => {
                let prior = Tuple { calm: Tuple::PRIOR.calm / 64.0 * max_runs, ..Tuple::PRIOR };
                self.tuple.unwrap_or(prior)
            }
        };
        let tuple = if tuple.calm > max_runs { Tuple { calm: f64::INFINITY, ..tuple } } else { tuple };
        let disk_short = input.limits.disk_used as f64 >= DISK_SHORT * input.limits.disk_budget as f64;
        let stall = tuple.stall(&model, Met { runs: line.runs, cost: line.cost });
        let tuple = if self.switches.rho { tuple } else { Tuple { balance: f64::INFINITY, ..tuple } };
        let need = Need::at(line.runs, tuple.calm, max_runs, self.switches.even);
        let short_first = self.switches.first;
        let scene = Scene {
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

    /// The store was opened since the last decision: times, tickets and searches of then are gone.
    fn begin_anew(&mut self) {
        (self.now, self.thinking) = (0, None);
        (self.resting, self.parked) = (Resting::default(), Vec::new());
        // Counters began from nothing too: once is enough.
        self.estimate.count_anew();
        self.drift.forget();
    }

    /// The rewrite balance, brought up to now.
    fn balance(&mut self, scene: &Scene<'_>) -> Balance {
        let (limits, tree) = (scene.input.limits, scene.line.bytes);
        let amp = limits.max_write_amp.clamp(1.0, 1e4);
        let mut balance = Balance::new(self.balance.unwrap_or(2.0 * tree), amp);
        let passed = scene.input.now.saturating_sub(self.now) as f64;
        balance.flushed(core::mem::take(&mut self.flushed), tree);
        if self.now > 0 {
            // While anyone reads there is a question each second; without, the rate is an old one.
            let read = scene.input.load.read_bytes * passed.min(RATE_HOLDS) / 1e6;
            balance.passed(passed, read, tree);
        }
        balance
    }

    fn pace(&self, scene: &Scene<'_>) -> Pace {
        let time = |bytes: f64| scene.model.merge(bytes).max(1.0);
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
        let mut balance = self.balance(&scene);
        self.now = input.now;
        self.begun.clear();
        let park = self.park(&scene);
        let think = self.think(&scene, ticked, &balance);
        self.candidates.clear();
        self.regard_all(&mut scene);
        // What is parked changes the tree: merges that count on that are decided next time.
        let plans = if park.is_empty() { self.plans(&mut scene, &mut balance) } else { Vec::new() };
        self.balance = Some(balance.left());
        let pace = self.pace(&scene);
        let horizon = self.horizon(&scene);
        self.told = Told::of(&scene, &self.estimate, &self.drift, horizon, &balance, &pace);
        Decision { plans, park, pace: Some(pace), forecast: Vec::new(), think }
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
            Outcome::Plan { result: PlanResult::Refused, reason, .. } => {
                if let Some((ends, _)) = self.begun.iter().find(|(_, own)| own == reason) {
                    self.resting.failed(*ends, self.now);
                }
            }
            Outcome::Plan { .. } => {}
            Outcome::Thought(answer) => {
                let Ok(answer) = Answer::decode(answer) else {
                    self.thinking = None;
                    return;
                };
                if let Some(trigger) = self.thinking {
                    if answer.done {
                        self.thinking = None;
                    }
                    self.tuple = Some(answer.tuple);
                    self.drift.predicted(answer.runs, answer.cost);
                    self.found = Some((trigger, answer));
                }
            }
        }
    }

    fn explain(&self) -> String {
        explain::policy(&self.told, self.found.as_ref(), self.thinking)
    }

    fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(VERSION);
        let known = self.tuple.is_some();
        writer.tuple(&self.tuple.unwrap_or(Tuple::PRIOR));
        writer.numbers(&[f64::from(u8::from(known)), self.balance.unwrap_or(-1.0)]);
        writer.numbers(&self.estimate.mix);
        writer.numbers(&[self.estimate.flush_bytes, self.estimate.flush_entries, self.estimate.shrink]);
        let mut phases = [0.0; 4];
        phases.iter_mut().zip(&self.drift.phases).for_each(|(to, from)| *to = *from);
        writer.numbers(&phases);
        writer.numbers(&self.estimate.numbers());
        writer.numbers(&self.estimate.interference.numbers());
        writer.numbers(&self.drift.numbers());
        writer.numbers(&self.prices.numbers());
        let trigger = self.thinking.and_then(|t| Trigger::ALL.iter().position(|other| *other == t));
        let trigger = trigger.map_or(-1.0, |at| at as f64);
        writer.numbers(&[self.now as f64, self.flushes as f64, self.flushed, trigger]);
        let (max_runs, pin) = self.options.map_or((0, None), |(max_runs, pin)| (max_runs, pin));
        writer.numbers(&[f64::from(max_runs), f64::from(u8::from(pin.is_some()))]);
        let Pin { horizon, calm, passes, balance } = pin.unwrap_or(NO_PIN);
        writer.tuple(&Tuple { horizon, calm, passes, balance });
        let parked = &self.parked[..self.parked.len().min(MOST_PARKED)];
        writer.numbers(&[parked.len() as f64, self.resting.numbers().count() as f64]);
        parked.iter().for_each(|ticket| writer.numbers(&[ticket.0 as f64]));
        self.resting.numbers().for_each(|rest| writer.numbers(&rest));
        writer.numbers(&[f64::from(u8::from(self.frozen))]);
        writer.numbers(&[f64::from(u8::from(self.estimate.is_shrink_known))]);
        writer.numbers(&self.estimate.turning());
        writer.done()
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let mut reader = Reader::new(blob, VERSION)?;
        let tuple = reader.tuple()?;
        let [known, balance] = reader.numbers()?;
        let mix = reader.numbers()?;
        let [flush_bytes, flush_entries, shrink] = reader.numbers()?;
        let phases: [f64; 4] = reader.numbers()?;
        let counted: [f64; 10] = reader.numbers()?;
        let interference: [f64; 7] = reader.numbers()?;
        let drift: [f64; Drift::NUMBERS] = reader.numbers()?;
        let prices: [f64; 3] = reader.numbers()?;
        let [now, flushes, flushed, trigger] = reader.numbers()?;
        let [max_runs, is_pinned] = reader.numbers()?;
        let Tuple { horizon, calm, passes, balance: rho } = reader.tuple()?;
        let [parked, resting] = reader.numbers()?;
        let sane = |figures: &[f64]| figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0);
        let all = [&mix[..], &[flush_bytes, flush_entries, shrink], &phases, &counted, &interference, &drift];
        if !all.iter().all(|figures| sane(figures)) || !sane(&[now, flushes, flushed, parked, resting]) {
            return Err(PolicyError("the state of arce holds what is no number".into()));
        }
        let mut next = Arce::new(self.pin, self.switches);
        for _ in 0..(parked as usize).min(MOST_PARKED) {
            let [ticket] = reader.numbers()?;
            next.parked.push(Ticket(ticket as u64));
        }
        for _ in 0..(resting as usize).min(64) {
            next.resting.push(reader.numbers()?);
        }
        // States that were saved before these numbers were end here.
        next.frozen = reader.numbers().is_ok_and(|[frozen]: [f64; 1]| frozen == 1.0);
        let is_shrink_known = reader.numbers().is_ok_and(|[known]: [f64; 1]| known == 1.0);
        if let Ok(turning) = reader.numbers() {
            next.estimate.restore_turning(turning);
        }
        next.tuple = (known == 1.0).then_some(tuple);
        next.balance = (balance.is_finite() && balance != -1.0).then_some(balance);
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
        next.thinking = if trigger < 0.0 { None } else { Trigger::ALL.get(trigger as usize).copied() };
        let pin = (is_pinned == 1.0).then_some(Pin { horizon, calm, passes, balance: rho });
        next.options = (max_runs > 0.0).then_some((max_runs as u32, pin));
        *self = next;
        Ok(())
    }
}

/// Microseconds for which a measured rate of reads holds.
const RATE_HOLDS: f64 = 2e6;
/// What of the cost to readers counts in the code that the paper's authors published.
const LOST_BY_HALF: f64 = 0.5;
/// Tickets whose parking is saved.
const MOST_PARKED: usize = 4;
/// Stands where there is no pin.
const NO_PIN: Pin = Pin { horizon: 1.0, calm: 2.0, passes: 1.0, balance: 1.0 };
/// First byte of the saved state.
const VERSION: u8 = 5;
