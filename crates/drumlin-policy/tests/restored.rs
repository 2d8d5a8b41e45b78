//! ARCE's saved state is complete. A policy that is saved and restored after every notification and decision behaves
//! like one that never was: it returns the same plans, rate limits and searches, and ends in the same state.

use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::World;
use drumlin_types::Ticket;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, LimitView, LoadView, Outcome, Pin, PlanResult, SearchTask,
};
use std::collections::BTreeSet;

const FLUSH: u64 = 2 << 20;
const KEYS: u32 = 1 << 20;
const STEPS: u32 = 360;
/// Number of steps of a phase.
const PHASE: u32 = 30;
/// Number of search steps for each step of a life.
const SEARCH_STEPS: usize = 40;

/// Lookups, seeks and writes per second in each phase, and the compaction bytes per second of a slot. Some
/// compactions become too slow to continue.
const PHASES: [([f64; 3], f64); 6] = [
    ([2000.0, 4000.0, 3000.0], 60e6),
    ([200.0, 300.0, 6000.0], 2e6),
    ([9000.0, 100.0, 2000.0], 60e6),
    ([500.0, 6000.0, 500.0], 20e6),
    ([30.0, 30.0, 9000.0], 1e6),
    ([4000.0, 4000.0, 1000.0], 150e6),
];

struct Life {
    world: World,
    policy: Box<dyn CompactionPolicy>,
    restarts: bool,
    /// Time between two decisions, in microseconds: shorter or longer than the back-off after a refused compaction.
    pause: u64,
    search: Option<Box<dyn SearchTask>>,
    counted: [f64; 3],
    dice: SplitMix,
    /// Tickets that the policy withdraws, which end some steps later.
    withdrawn: Vec<(u32, Ticket)>,
    refused: u32,
    withdrawals: u32,
    triggers: BTreeSet<String>,
    /// Every decision, and every state in between.
    log: Vec<String>,
}

impl Life {
    fn new(seed: u64, restarts: bool) -> Life {
        let limits = LimitView {
            memtable_bytes: FLUSH,
            file_bytes: 16 * FLUSH,
            slots: 1 + seed as u32 % 2,
            max_write_amp: 4.0,
            ..LimitView::default()
        };
        Life {
            world: World::new(limits),
            policy: by_name("arce").unwrap(),
            restarts,
            pause: if seed == 3 { 300_000 } else { 1_000_000 },
            search: None,
            counted: [0.0; 3],
            dice: SplitMix::new(seed),
            withdrawn: Vec::new(),
            refused: 0,
            withdrawals: 0,
            triggers: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn saved(&mut self) {
        let blob = self.policy.save();
        if self.restarts {
            self.policy = by_name("arce").unwrap();
            self.policy.restore(&blob).unwrap();
        }
        let numbers = blob[1..].chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
        self.log.push(format!("{:?}", numbers.collect::<Vec<f64>>()));
    }

    fn ended(&mut self, reason: String, result: PlanResult, bytes_out: u64) {
        let (ticket, why) = (Ticket(1 << 40), String::new());
        let outcome = Outcome::Plan { ticket, reason, result, why, bytes_in: 1000, bytes_out, dropped: 0 };
        self.policy.observe(&outcome);
    }

    /// Updates load and costs as the engine would: more runs cost more, and compactions slow everything down.
    fn tell(&mut self, step: u32) {
        let (rates, speed) = PHASES[(step / PHASE) as usize % PHASES.len()];
        // A phase begins with few operations. Even fewer than a tick has may reveal another mix.
        let part = if step % PHASE < 6 { 0.1 } else { 1.0 };
        let rates = rates.map(|rate| part * rate * (0.95 + self.dice.below(100) as f64 / 1000.0));
        self.counted.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        let [gets, seeks, writes] = rates;
        let runs = self.world.tree().runs() as f64;
        let busy = if self.world.in_flight() > 0 { 1.0 } else { self.dice.below(30) as f64 / 100.0 };
        let slower = 1.0 + 0.4 * busy;
        self.world.load = LoadView {
            gets,
            seeks,
            writes,
            entry_bytes: 900.0,
            read_bytes: self.dice.below(1 << 20) as f64,
            counted: self.counted.map(|count| count as u64),
            clients: 1.0,
            ..LoadView::default()
        };
        self.world.costs = CostView {
            compaction_bytes_per_s: speed,
            compaction_fixed_ns: 1e6,
            cursor_ns: 3000.0,
            cursor_cached_ns: 1000.0,
            fetch_ns: 8000.0,
            // The policy can infer the effect of run sizes from this figure only while some runs are small.
            seek_blocks: if step.is_multiple_of(4) { 0.4 * runs } else { 0.3 * runs },
            get_ns: (2000.0 + 300.0 * runs) * slower,
            scan_ns: (4000.0 + 3000.0 * runs) * slower,
            write_ns: 3000.0 * slower,
            busy_share: busy,
            ..CostView::default()
        };
        self.world.now += self.pause + u64::from(step == 170) * 400_000_000;
        self.world.limits.max_runs = if (95..140).contains(&step) { 48 } else { 64 };
        let pin = Pin { gain_intervals: 4.0, slow_above: 20.0, passes: 2.0, size_ratio: 1.0 };
        self.world.limits.pin = (250..256).contains(&step).then_some(pin);
        self.world.frozen = (200..215).contains(&step);
    }

    fn step(&mut self, step: u32) {
        self.tell(step);
        for _ in 0..self.dice.below(3) {
            // Flushes of two sizes, some of them over a part of the keys.
            self.world.limits.memtable_bytes = FLUSH << self.dice.below(2);
            let from = if self.dice.one_in(3) { self.dice.below(KEYS as usize) as u32 } else { 0 };
            self.world.flush(&mut *self.policy, from, KEYS);
            self.saved();
        }
        self.world.limits.memtable_bytes = FLUSH;
        let Decision { plans, withdraw, pace, search, .. } = self.world.decide(&mut *self.policy, 0);
        self.log.push(format!(
            "{step}: {plans:?} {withdraw:?} {pace:?} {:?}",
            search.as_ref().map(|t| t.is_urgent())
        ));
        if let Some((_, trigger)) = self.policy.explain().split_once("a search is under way: ") {
            self.triggers.insert(trigger.to_owned());
        }
        self.search = search.or(self.search.take());
        self.withdrawals += withdraw.len() as u32;
        self.withdrawn.extend(withdraw.into_iter().map(|ticket| (step + 3, ticket)));
        // Plans are admitted or refused before anything is saved, so the state need not record which.
        let is_refused = step % 5 == 4 && !plans.is_empty();
        for plan in plans {
            if is_refused {
                self.refused += 1;
                self.ended(plan.reason, PlanResult::Refused, 0);
            } else {
                let pieces = 1 + self.dice.below(6) as u32;
                self.world.admit(&plan, pieces).unwrap_or_else(|e| panic!("{}: {e}", plan.reason));
            }
        }
        self.saved();
        let (now, later): (Vec<_>, Vec<_>) = self.withdrawn.iter().partition(|(due, _)| *due <= step);
        self.withdrawn = later;
        for (_, ticket) in now {
            self.world.withdraw(ticket, &[], &mut *self.policy);
            self.saved();
        }
        for _ in 0..self.dice.below(3) {
            let Some(&id) = self.world.ready().first() else { break };
            self.world.install(id, &mut *self.policy);
            self.saved();
        }
        if self.dice.one_in(4) {
            let bytes_out = 600 + self.dice.below(400) as u64;
            self.ended(String::new(), PlanResult::Done, bytes_out);
            self.saved();
        }
        let Some(search) = &mut self.search else { return };
        let answer = (0..SEARCH_STEPS).find_map(|_| search.step());
        let is_done = answer.is_some();
        if let Some(answer) = answer.or_else(|| search.best().filter(|_| step.is_multiple_of(9))) {
            self.policy.observe(&Outcome::SearchEnded(answer));
            self.saved();
        }
        self.search.take_if(|_| is_done);
    }
}

#[test]
fn what_is_saved_comes_back_and_the_same_answers_follow() {
    let (mut refused, mut withdrawals, mut triggers) = (0, 0, BTreeSet::new());
    for seed in 0..6 {
        let [mut one, mut other] = [false, true].map(|restarts| Life::new(seed, restarts));
        for step in 0..STEPS {
            for life in [&mut one, &mut other] {
                life.log.clear();
                life.step(step);
            }
            for (at, (one, other)) in one.log.iter().zip(&other.log).enumerate() {
                assert!(one == other, "seed {seed}, step {step}, answer {at}:\n{one}\n{other}");
            }
            assert_eq!(one.log.len(), other.log.len());
        }
        assert!(one.policy.save().len() <= 1256, "{} bytes", one.policy.save().len());
        (refused, withdrawals) = (refused + one.refused, withdrawals + one.withdrawals);
        triggers.append(&mut one.triggers);
    }
    // The states saved for back-offs, withdrawn compactions and search triggers were exercised.
    assert!(refused > 5 && withdrawals > 3 && triggers.len() >= 6, "{refused} {withdrawals} {triggers:?}");
}
