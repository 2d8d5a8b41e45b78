//! The policy: from a picture of the tree and the load to merges, a pace and perhaps a search.
//!
//! 1. *Look*: the age line, the present model, the covered runs.
//! 2. *Park* merges whose rest no longer pays.
//! 3. *Plan* while a slot is idle: what removes most runs in its time when merging is a must, else the
//!    merge of the best score that the rewrite balance affords. Beside a long merge a small one may come
//!    in between.
//! 4. *Pace* the writers, and ask for a search when one is due.
//!
//! Runs are counted as readers meet them, so a merge helps from its first piece on.

use super::cover::Scale;
use super::drift::{Drift, Picture, Trigger};
use super::estimate::Estimate;
use super::explain::{self, Told};
use super::guard::{Balance, Resting};
use super::interval::{Candidate, Intervals};
use super::line::{AgeLine, Samples};
use super::model::{Model, Stall};
use super::real;
use super::rollout::{Limits, PIECE_BYTES, Start, StartJob};
use super::score::{Choice, Score, Tuple, UnderWay};
use super::search::{Answer, Search};
use super::state::{Reader, Writer};
use crate::pace::NARROW;
use crate::share::project;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::legal::close_plan;
use drumlin_types::contract::{
    CompactionPolicy, Decision, FileState, Outcome, Pace, PaceScope, Pin, Plan, PlanResult, PolicyError,
    PolicyInput, Think, TicketView, TreeView,
};
use drumlin_types::{RunId, TableId, Ticket};

/// Horizon of a search in windows, and the least after a cut to the usual length of phases.
const HORIZON: (f64, f64) = (400.0, 4096.0);
const LEAST_HORIZON: f64 = 64.0;
/// The share of the disk budget from which on merges free disk first.
const DISK_SHORT: f64 = 0.9;
/// Candidates that may fail in one decision.
const MOST_FAILURES: usize = 8;
/// The share of tombstones from which on a run is worth purging.
const PURGE_SHARE: f64 = 0.25;

/// The policy `arce`.
#[derive(Debug)]
pub(super) struct Arce {
    /// Fixed by the policy's argument.
    pin: Option<Pin>,
    /// Chosen by a search, or before.
    tuple: Option<Tuple>,
    estimate: Estimate,
    drift: Drift,
    /// Bytes that elective merges may rewrite; unknown before the first decision.
    balance: Option<f64>,
    resting: Resting,
    begun: Vec<Begun>,
    /// Parked, and not ended yet.
    parked: Vec<Ticket>,
    now: u64,
    flushes: u64,
    /// Bytes flushed since the last decision.
    flushed: f64,
    /// A search is under way.
    thinking: Option<Trigger>,
    found: Option<(Trigger, Answer)>,
    /// Options that the last decision was taken under.
    options: Option<(u32, Option<Pin>)>,
    told: Told,
    intervals: Intervals,
    candidates: Vec<Candidate>,
}

/// A merge that was decided here.
#[derive(Clone, Debug)]
struct Begun {
    table: TableId,
    ends: (RunId, RunId),
    removed: f64,
    must: bool,
    reason: String,
}

/// Everything that one decision looks at.
pub(super) struct Scene<'a> {
    input: &'a PolicyInput<'a>,
    pub(super) line: AgeLine<'a>,
    scale: Scale,
    pub(super) model: Model,
    pub(super) tuple: Tuple,
    stall: Stall,
    pub(super) max_runs: f64,
    pub(super) must: bool,
    disk_short: bool,
}

impl Arce {
    pub(super) fn new(pin: Option<Pin>) -> Arce {
        Arce {
            pin,
            tuple: None,
            estimate: Estimate::PRIOR,
            drift: Drift::default(),
            balance: None,
            resting: Resting::default(),
            begun: Vec::new(),
            parked: Vec::new(),
            now: 0,
            flushes: 0,
            flushed: 0.0,
            thinking: None,
            found: None,
            options: None,
            told: Told::default(),
            intervals: Intervals::default(),
            candidates: Vec::new(),
        }
    }

    fn look<'a>(&mut self, input: &'a PolicyInput<'a>) -> (Scene<'a>, bool) {
        let max_runs = f64::from(input.limits.max_runs.max(2));
        let slopes = self.estimate.slopes(input.costs, input.tree);
        let samples = Samples::of(input.wanted, input.wanted_seeks, input.tree);
        let window_ops = self.estimate.model(input, slopes, 1.0).window_ops;
        let ticked = self.estimate.count(input, window_ops);
        let [points, seeks, _] = self.estimate.mix;
        let scale =
            Scale::new(samples.points.len(), samples.seeks.len(), [points * slopes[0], seeks * slopes[1]]);
        let line = AgeLine::of(input.tree, &samples, &scale);
        let model = self.estimate.model(input, slopes, line.runs);
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
        let stall = tuple.stall(&model);
        let must = line.runs > tuple.calm || line.runs >= NARROW * max_runs;
        (Scene { input, line, scale, model, tuple, stall, max_runs, must, disk_short }, ticked)
    }

    /// The rewrite balance, brought up to now.
    fn balance(&mut self, scene: &Scene<'_>) -> Balance {
        let (limits, tree) = (scene.input.limits, scene.line.bytes);
        let amp = limits.max_write_amp.clamp(1.0, 1e4);
        let mut balance = Balance::new(self.balance.unwrap_or(2.0 * tree), amp);
        let passed = scene.input.now.saturating_sub(self.now) as f64;
        balance.flushed(core::mem::take(&mut self.flushed), tree);
        if self.now > 0 {
            balance.passed(passed, scene.input.load.read_bytes * passed / 1e6, tree);
        }
        balance
    }

    /// Merges under way whose rest costs more than it gains.
    fn park(&mut self, scene: &Scene<'_>) -> Vec<Ticket> {
        let pays = |ticket: &TicketView| {
            let Some(begun) = self.begun_as(ticket).filter(|begun| !begun.must && !scene.must) else {
                return true;
            };
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let bytes = ticket.bytes as f64 * left;
            let rest = Candidate { from: 0, to: 0, bytes, removed: begun.removed * left };
            ticket.pieces <= ticket.pieces_done + 1 || scene.choice(0.0).score(rest).value() > 0.0
        };
        let tickets = || scene.input.tickets.iter();
        let lost = |t: &&TicketView| !self.parked.contains(&t.ticket) && !pays(t);
        let lost: Vec<Ticket> = tickets().filter(lost).map(|ticket| ticket.ticket).collect();
        self.parked.retain(|parked| tickets().any(|ticket| ticket.ticket == *parked));
        self.parked.extend(&lost);
        lost
    }

    fn begun_as(&self, ticket: &TicketView) -> Option<&Begun> {
        let table = ticket.plan.take.first()?.table;
        self.begun.iter().find(|begun| begun.table == table && begun.reason == ticket.plan.reason)
    }

    /// What is left of the longest merge under way, and how fast it removes runs.
    fn longest(&self, scene: &Scene<'_>) -> Option<UnderWay> {
        let under_way = |ticket: &TicketView| {
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let time = scene.model.merge(ticket.bytes as f64);
            let removed = self.begun_as(ticket).map_or(1.0, |begun| begun.removed);
            UnderWay { left: time * left, rate: removed / time.max(1.0) }
        };
        scene.input.tickets.iter().map(under_way).reduce(|a, b| if b.left > a.left { b } else { a })
    }

    fn plans(&mut self, scene: &mut Scene<'_>, balance: &mut Balance) -> Vec<Plan> {
        let slots = scene.model.slots as usize;
        let mut under_way = scene.input.tickets.len();
        let mut plans: Vec<Plan> = Vec::new();
        // The tree after the first few of the plans: made when a further one is to be judged on it.
        let (mut projected, mut applied): (Option<TreeView>, usize) = (None, 0);
        let mut failures = 0;
        while under_way <= slots && failures < MOST_FAILURES {
            let idle = slots - under_way;
            let beside = if idle == 0 { self.longest(scene) } else { None };
            if idle == 0 && beside.is_none() {
                break;
            }
            let choice = Choice { last_slot: slots > 1 && idle == 1, beside, ..scene.choice(balance.left()) };
            let Some(score) = self.choose(scene, &choice) else { break };
            let candidate = score.candidate;
            let links = &scene.line.links[candidate.from..candidate.to];
            let ends = (links[0].id(), links[links.len() - 1].id());
            let tree = projected.get_or_insert_with(|| scene.input.tree.projected());
            for (number, plan) in plans.iter().enumerate().skip(applied) {
                project(tree, plan, Ticket(u64::MAX / 2 + number as u64));
            }
            applied = plans.len();
            let plan = if self.resting.holds(ends, self.now) {
                None
            } else {
                let reason = explain::plan(&choice, scene, &score, &self.candidates, balance);
                let last = (tree.levels.len() as u8).saturating_sub(1);
                let plan = scene.line.plan(&candidate, scene.model.flush_bytes, last, reason);
                close_plan(tree, &plan).ok().filter(|plan| !plan.take.is_empty())
            };
            let Some(mut plan) = plan else {
                if !self.resting.holds(ends, self.now) {
                    self.resting.failed(ends, self.now);
                }
                scene.line.parts[candidate.to - 1].idle = false;
                failures += 1;
                continue;
            };
            plan.deadline = Some(self.flushes + real::ceil(score.windows.min(1e9)) as u64);
            balance.merged(candidate.bytes, scene.line.bytes);
            scene.line.parts[candidate.from..candidate.to].iter_mut().for_each(|part| part.idle = false);
            self.begun.push(Begun {
                table: plan.take[0].table,
                ends,
                removed: candidate.removed,
                must: scene.must,
                reason: plan.reason.clone(),
            });
            plans.push(plan);
            under_way += 1;
        }
        if plans.is_empty() && scene.input.tickets.is_empty() {
            plans.extend(self.join(scene));
        }
        plans
    }

    /// The best merge, with bytes counted exactly where runs cover keys in part.
    fn choose(&mut self, scene: &Scene<'_>, choice: &Choice<'_>) -> Option<Score> {
        let (line, candidates) = (&scene.line, &mut self.candidates);
        let exact = |candidate: &mut Candidate| {
            let parts = &line.parts[candidate.from..candidate.to];
            if parts.iter().any(|part| part.cover != scene.scale.full) {
                candidate.bytes = line.rewritten(candidate);
            }
        };
        let best = choice.choose(&line.parts, &scene.scale, &mut self.intervals, candidates, exact);
        if scene.disk_short && !candidates.is_empty() {
            return self.freeing(scene, choice);
        }
        best.or_else(|| self.purge(scene, choice))
    }

    /// With the disk short: the merge that frees most for its bytes.
    fn freeing(&self, scene: &Scene<'_>, choice: &Choice<'_>) -> Option<Score> {
        let freed = |c: &Candidate| {
            let newer: f64 = scene.line.parts[c.from..c.to - 1].iter().map(|part| part.bytes).sum();
            ((1.0 - scene.model.shrink) * newer + scene.line.tombstone_share(c) * c.bytes) / c.bytes.max(1.0)
        };
        let affordable = self.candidates.iter().filter(|c| scene.must || c.bytes <= choice.balance);
        let best = affordable.copied().reduce(|a, b| if freed(&b) > freed(&a) { b } else { a })?;
        Some(choice.score(best))
    }

    /// A merge that rids scans of tombstones: from a run that is full of them down to the oldest run that
    /// shares keys with it. Skipping them costs a seek about their share of placing a cursor.
    fn purge(&self, scene: &Scene<'_>, choice: &Choice<'_>) -> Option<Score> {
        let line = &scene.line;
        let candidates = (0..line.links.len()).filter_map(|from| {
            let share = line.tombstone_share(&Candidate { from, to: from + 1, bytes: 0.0, removed: 0.0 });
            if share < PURGE_SHARE {
                return None;
            }
            let to = line.oldest_below(from)? + 1;
            if to < from + 2 || !line.parts[from..to].iter().all(|part| part.idle) {
                return None;
            }
            let mut candidate =
                Candidate { from, to, bytes: 0.0, removed: line.removed(from..to, &scene.scale) };
            candidate.bytes = line.rewritten(&candidate);
            let mut score = choice.score(candidate);
            let skipped = scene.model.seek.per_run * share * line.parts[from].weight;
            score.gain += choice.tuple.horizon * scene.model.window_ops * scene.model.shares[1] * skipped;
            Some(score)
        });
        let affordable = candidates.filter(|s| s.value() > 0.0 && s.candidate.bytes <= choice.balance);
        let affordable = affordable.filter(|_| choice.beside.is_none());
        affordable.reduce(|a, b| if b.value() > a.value() { b } else { a })
    }

    /// A run that only changes its place.
    fn join(&mut self, scene: &Scene<'_>) -> Option<Plan> {
        let last = (scene.input.tree.levels.len() as u8).saturating_sub(1);
        let plan = scene.line.join(&scene.scale, scene.model.flush_bytes, last)?;
        let closed = close_plan(&scene.input.tree.projected(), &plan).ok()?;
        // Whatever had to come along would be rewritten: then it is no mere move.
        (closed.take == plan.take).then_some(closed)
    }

    fn pace(&self, scene: &Scene<'_>) -> Pace {
        let time = |bytes: f64| scene.model.merge(bytes).max(1.0);
        let running = scene.input.tickets.iter().filter_map(|ticket| {
            self.begun_as(ticket).map(|begun| begun.removed / time(ticket.bytes as f64))
        });
        let possible = self.candidates.iter().map(|c| c.removed / time(c.bytes));
        let rate = running.chain(possible).fold(0.0, f64::max);
        let mut slow = scene.tuple.calm.min(scene.max_runs);
        if scene.tuple.calm.is_infinite() {
            slow = f64::INFINITY;
        }
        if scene.disk_short {
            slow = slow.min((scene.line.runs - 1.0).max(0.0));
        }
        Pace {
            slow,
            passes: scene.tuple.passes,
            drain: rate * scene.model.flush_bytes * 1e9,
            covered: Some(scene.line.runs),
            ..Pace::free(PaceScope::All, scene.max_runs)
        }
    }

    fn picture(&self, scene: &Scene<'_>) -> Picture {
        let model = &scene.model;
        let busy = !scene.input.tickets.is_empty();
        Picture {
            now: scene.input.now,
            operations: self.estimate.operations,
            mix: self.estimate.mix,
            bytes: scene.line.bytes,
            flushes: scene.line.bytes / model.flush_bytes,
            costs: [model.speed, model.point.per_run, model.seek.per_run, model.clients],
            runs: scene.line.runs,
            cost: model.operation(scene.line.runs, 0.0, busy),
            window_ops: model.window_ops,
            horizon: self.horizon(scene),
        }
    }

    /// A search, if one is due.
    fn think(&mut self, scene: &Scene<'_>, ticked: bool, balance: &Balance) -> Option<Box<dyn Think>> {
        let input = scene.input;
        let options = (input.limits.max_runs, input.limits.pin);
        if self.options.replace(options).is_some_and(|before| before != options) {
            self.drift.forget();
        }
        if !ticked || input.frozen || self.thinking.is_some() || self.pin.or(input.limits.pin).is_some() {
            return None;
        }
        let picture = self.picture(scene);
        let trigger = self.drift.tick(&picture, self.estimate.fast, self.estimate.last_tick)?;
        if trigger == Trigger::Mix {
            // The past is of another phase.
            self.estimate.mix = self.estimate.fast;
        }
        self.drift.searched(Picture { mix: self.estimate.fast, ..picture });
        self.thinking = Some(trigger);
        let whole_tree = scene.model.windows(scene.line.bytes, 1.0, Stall::NEVER);
        Some(Box::new(Search::new(self.start(scene, *balance), scene.tuple, whole_tree)))
    }

    /// Windows that a search looks ahead: longer for larger trees, cut to the usual length of phases.
    fn horizon(&self, scene: &Scene<'_>) -> f64 {
        let model = &scene.model;
        let windows = (scene.line.bytes / (4.0 * model.flush_bytes)).clamp(HORIZON.0, HORIZON.1);
        let usual = self.drift.usual_phase().map_or(windows, |operations| operations / model.window_ops);
        windows.min(usual).max(LEAST_HORIZON)
    }

    /// The present as rollouts begin with it.
    fn start(&self, scene: &Scene<'_>, balance: Balance) -> Start {
        let model = Model { shares: self.estimate.mix, ..scene.model };
        let mut line = scene.line.parts.clone();
        line.iter_mut().for_each(|part| part.idle = true);
        let mut jobs = Vec::new();
        for ticket in scene.input.tickets {
            let of_ticket = |state: FileState| {
                state == FileState::Coming(ticket.ticket) || state == FileState::Settling(ticket.ticket)
            };
            let Some(at) = scene.line.links.iter().position(|link| link.files().any(|f| of_ticket(f.state)))
            else {
                continue;
            };
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let removed = self.begun_as(ticket).map_or(1.0, |begun| begun.removed) * left;
            line[at].weight += removed;
            jobs.push(StartJob { from: at, to: at + 1, bytes: ticket.bytes as f64 * left, removed });
        }
        Start {
            model: Model::new(model),
            scale: scene.scale,
            flushed: line.first().map_or(scene.scale.full, |part| part.cover),
            line,
            jobs,
            limits: Limits {
                max_runs: scene.max_runs,
                piece_bytes: PIECE_BYTES,
                interleave: true,
                fixed_delay: None,
            },
            balance,
            horizon: self.horizon(scene),
        }
    }
}

impl<'a> Scene<'a> {
    fn choice(&self, balance: f64) -> Choice<'_> {
        Choice {
            model: &self.model,
            tuple: self.tuple,
            stall: self.stall,
            runs: self.line.runs,
            must: self.must,
            balance,
            last_slot: false,
            beside: None,
        }
    }
}

impl CompactionPolicy for Arce {
    fn name(&self) -> String {
        match self.pin {
            Some(pin) => format!("arce:{pin}"),
            None => String::from("arce"),
        }
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let (mut scene, ticked) = self.look(input);
        let mut balance = self.balance(&scene);
        self.now = input.now;
        let tickets = input.tickets;
        self.begun.retain(|begun| tickets.iter().any(|t| t.plan.reason == begun.reason));
        let park = self.park(&scene);
        let think = self.think(&scene, ticked, &balance);
        self.candidates.clear();
        // What is parked changes the tree: merges that count on that are decided next time.
        let plans = if park.is_empty() { self.plans(&mut scene, &mut balance) } else { Vec::new() };
        self.balance = Some(balance.left());
        let pace = self.pace(&scene);
        self.told = Told::of(&scene, &self.estimate, &balance, &pace);
        Decision { plans, park, pace: Some(pace), forecast: Vec::new(), think }
    }

    fn observe(&mut self, outcome: &Outcome) {
        self.estimate.observe(outcome);
        match outcome {
            Outcome::Flushed { bytes, .. } => {
                self.flushes += 1;
                self.flushed += *bytes as f64;
            }
            Outcome::Plan { result: PlanResult::Refused, reason, .. } => {
                if let Some(begun) = self.begun.iter().find(|begun| begun.reason == *reason) {
                    self.resting.failed(begun.ends, self.now);
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
        writer.done()
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let mut reader = Reader::new(blob, VERSION)?;
        let tuple = reader.tuple()?;
        let [known, balance] = reader.numbers()?;
        let mix = reader.numbers()?;
        let [flush_bytes, flush_entries, shrink] = reader.numbers()?;
        let phases: [f64; 4] = reader.numbers()?;
        let sane = |figures: &[f64]| figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0);
        if !sane(&mix) || !sane(&[flush_bytes, flush_entries, shrink]) || !sane(&phases) {
            return Err(PolicyError("the state of arce holds what is no number".into()));
        }
        self.tuple = (known == 1.0).then_some(tuple);
        self.balance = (balance.is_finite() && balance != -1.0).then_some(balance);
        self.estimate = Estimate::PRIOR;
        (self.estimate.mix, self.estimate.fast) = (mix, mix);
        self.estimate.is_counted = mix != Estimate::PRIOR.mix;
        (self.estimate.flush_bytes, self.estimate.flush_entries) = (flush_bytes, flush_entries);
        self.estimate.shrink = shrink.clamp(0.01, 1.0);
        self.drift.phases = phases.into_iter().filter(|length| *length > 0.0).collect();
        Ok(())
    }
}

/// First byte of the saved state.
const VERSION: u8 = 1;
