//! Unified compaction whose w follows the load, as DataStax has it: the rival that adapts by formula.
//!
//! Every 300 seconds the cost of each w is estimated from what was read and written meanwhile. Level 0 takes
//! the best one when it saves 15 percent or more; while it stays the best, one more level takes it at each
//! check. A cost below 1000 changes nothing.
//!
//! ```text
//! cost(w) = reads * read time * RA + written * (flush time + merge time * WA)
//! L = floor(log_f(N/F)), v = ceil(N / (F * f^L))
//! RA = L*(t-1) + (w >= 0: max(0, v-1), else 1)        WA = w >= 0: L+1, else L*(f-1) + v
//! ```

use super::arce::real;
use super::arguments::Arguments;
use super::preset::Preset;
use super::ucs::{BOUNDS, Ucs, growth, trigger};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{CompactionPolicy, Decision, Outcome, PolicyError, PolicyInput};

/// Time between two checks, microseconds.
const INTERVAL: u64 = 300_000_000;
/// A cost up to here is not worth a change.
const LEAST_COST: f64 = 1000.0;
/// What a new w must cost of the old one at most.
const GAIN: f64 = 0.85;
/// Merges at once after a change.
const MOST_MERGES: usize = 5;
/// Levels that may have a w of their own.
const LEVELS: usize = 16;
/// Merge speed before any was measured, bytes per second; time of a block read, nanoseconds.
const SPEED: f64 = 150e6;
const READ: f64 = 2000.0;

#[derive(Debug)]
struct AdaptiveUcs {
    preset: Preset<Ucs>,
    checked: Option<u64>,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    arguments.none()?;
    let rule = Ucs { ws: Vec::from([0]), most: None };
    let preset = Preset { rule, hard_stop: arguments.hard_stop };
    Ok(Box::new(AdaptiveUcs { preset, checked: None }))
}

/// Read and write amplification of w for a tree of `flushes` flushes.
fn amplification(w: i32, flushes: f64) -> (f64, f64) {
    let (f, t) = (growth(w), trigger(w) as f64);
    let (mut levels, mut size) = (0.0, 1.0);
    while size * f <= flushes {
        size *= f;
        levels += 1.0;
    }
    let views = real::ceil(flushes / size).max(1.0);
    if w >= 0 {
        (levels * (t - 1.0) + (views - 1.0).max(0.0), levels + 1.0)
    } else {
        (levels * (t - 1.0) + 1.0, levels * (f - 1.0) + views)
    }
}

/// What reads and writes of one interval cost, in milliseconds.
struct Interval {
    reads: f64,
    read: f64,
    written: f64,
    flush: f64,
    merge: f64,
    flushes: f64,
}

impl Interval {
    fn of(input: &PolicyInput<'_>, seconds: f64) -> Interval {
        let known = |value: f64, prior: f64| if value > 0.0 { value } else { prior };
        let costs = input.costs;
        let speed = known(costs.merge_bytes_per_s, SPEED);
        Interval {
            reads: (input.load.gets + input.load.seeks) * seconds,
            read: known(costs.block_ns, READ) / 1e6,
            written: input.load.write_bytes * seconds,
            flush: 1000.0 / known(costs.flush_bytes_per_s, speed),
            merge: 1000.0 / speed,
            flushes: (input.tree.bytes() as f64 / input.limits.memtable_bytes.max(1) as f64).max(1.0),
        }
    }

    fn cost(&self, w: i32) -> f64 {
        let (reads, writes) = amplification(w, self.flushes);
        self.reads * self.read * reads + self.written * (self.flush + self.merge * writes)
    }
}

impl AdaptiveUcs {
    fn check(&mut self, input: &PolicyInput<'_>) {
        let since = *self.checked.get_or_insert(input.now);
        let elapsed = input.now.saturating_sub(since);
        if elapsed < INTERVAL || input.frozen {
            return;
        }
        self.checked = Some(input.now);
        // Nobody is asked while nothing is done: the load of now is not that of all the time since then.
        let interval = Interval::of(input, INTERVAL as f64 / 1e6);
        let ws = &mut self.preset.rule.ws;
        let present = ws[0];
        if interval.cost(present) <= LEAST_COST {
            return;
        }
        let best =
            BOUNDS.fold(present, |best, w| if interval.cost(w) < interval.cost(best) { w } else { best });
        if best != present && interval.cost(best) <= GAIN * interval.cost(present) {
            let deeper = ws.last().copied().unwrap_or(present);
            if ws.len() == 1 {
                ws.push(deeper);
            }
            ws[0] = best;
        } else if best == present
            && let Some(other) = ws.iter().position(|w| *w != best)
        {
            // The last one stands for all deeper levels: it is taken over once there are enough before it.
            if other + 1 == ws.len() && ws.len() < LEVELS {
                ws.insert(other, best);
            } else {
                ws[other] = best;
            }
        }
        self.preset.rule.most = Some(MOST_MERGES);
    }
}

impl CompactionPolicy for AdaptiveUcs {
    fn name(&self) -> String {
        String::from(if self.preset.hard_stop { "adaptive-ucs:hard-stop" } else { "adaptive-ucs" })
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.check(input);
        self.preset.decide(input)
    }

    fn observe(&mut self, outcome: &Outcome) {
        self.preset.observe(outcome);
    }

    fn explain(&self) -> String {
        format!("w by level, the last for all deeper ones: {:?}", self.preset.rule.ws)
    }

    fn save(&self) -> Vec<u8> {
        self.preset.rule.ws.iter().map(|w| *w as i8 as u8).collect()
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let ws: Vec<i32> = blob.iter().map(|byte| i32::from(*byte as i8)).collect();
        if ws.is_empty() || ws.len() > LEVELS || !ws.iter().all(|w| BOUNDS.contains(w)) {
            return Err(PolicyError(format!("the state of adaptive-ucs is not 1 to {LEVELS} values of w")));
        }
        // What is not as it began was changed, and its merges are bounded from the first decision on.
        self.preset.rule.most = (ws != [0]).then_some(MOST_MERGES);
        self.preset.rule.ws = ws;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::World;
    use drumlin_types::contract::{LimitView, LoadView};

    #[test]
    fn amplifications_are_exact() {
        let of = |flushes: f64| [-8, -2, 0, 2, 8].map(|w| amplification(w, flushes));
        assert_eq!(of(1280.0), [(4.0, 29.0), (6.0, 17.0), (11.0, 11.0), (16.0, 6.0), (28.0, 4.0)]);
        assert_eq!(of(20480.0), [(5.0, 39.0), (8.0, 23.0), (15.0, 15.0), (22.0, 8.0), (38.0, 5.0)]);
    }

    fn fresh() -> AdaptiveUcs {
        let rule = Ucs { ws: Vec::from([0]), most: None };
        AdaptiveUcs { preset: Preset { rule, hard_stop: false }, checked: None }
    }

    /// A tree of 1280 flushes in one run, and the first look of `policy` at it.
    fn of_1280_flushes(policy: &mut AdaptiveUcs) -> World {
        let mut world = World::new(LimitView { memtable_bytes: 1280 << 20, ..LimitView::default() });
        world.flush(policy, 0, 1 << 20);
        world.limits.memtable_bytes = 1 << 20;
        world.decide(policy, 0);
        world
    }

    /// What the next check makes of a load. With the figures of before anything was measured, reads of an interval cost
    /// 0.6 ms for each one per second and unit of RA, writes 0.002 ms for each byte per second, times 1 + WA.
    fn check(world: &mut World, policy: &mut AdaptiveUcs, gets: f64, write_bytes: f64) -> Vec<i32> {
        world.load = LoadView { gets, write_bytes, ..LoadView::default() };
        world.now += INTERVAL - 1;
        world.decide(policy, 0);
        policy.preset.rule.ws.clone()
    }

    #[test]
    fn a_small_cost_changes_nothing() {
        for (gets, ws) in [(151.0, &[0][..]), (152.0, &[-10, 0])] {
            let mut policy = fresh();
            let mut world = of_1280_flushes(&mut policy);
            assert_eq!(check(&mut world, &mut policy, gets, 0.0), ws, "RA is 11: {} ms", gets * 6.6);
        }
        let mut policy = fresh();
        let mut world = of_1280_flushes(&mut policy);
        world.now -= 1;
        assert_eq!(check(&mut world, &mut policy, 1e6, 0.0), [0], "it is not time yet");
        world.frozen = true;
        assert_eq!(check(&mut world, &mut policy, 1e6, 0.0), [0], "it is frozen");
    }

    /// Writes of 1000 ms: w = 0 costs 11 r + 12,000 ms, and w = 1, the best there, 13 r + 8000: 15 percent less at r = 603 ms.
    #[test]
    fn level_0_takes_what_saves_15_percent() {
        for (read, ws) in [(608.0, &[0][..]), (598.0, &[1, 0])] {
            let mut policy = fresh();
            let mut world = of_1280_flushes(&mut policy);
            assert_eq!(check(&mut world, &mut policy, read / 0.6, 500_000.0), ws, "{read}");
        }
    }

    #[test]
    fn deeper_levels_follow_one_at_each_check() {
        let mut policy = fresh();
        let mut world = of_1280_flushes(&mut policy);
        for follow in 1..20 {
            let mut ws = Vec::from([-10; LEVELS]);
            if follow < LEVELS {
                ws.truncate(follow);
                ws.push(0);
            }
            assert_eq!(check(&mut world, &mut policy, 1e6, 0.0), ws, "check {follow}");
        }
        // Writes: level 0 turns at once, the others one by one from the upper ones on.
        let turned = check(&mut world, &mut policy, 0.0, 1e9);
        let tiered = turned[0];
        assert!(tiered > 0 && turned[1..] == [-10; LEVELS - 1], "{turned:?}");
        assert_eq!(check(&mut world, &mut policy, 0.0, 1e9)[..3], [tiered, tiered, -10]);
    }

    #[test]
    fn what_is_saved_goes_on_where_it_was() {
        let mut policy = fresh();
        let mut world = of_1280_flushes(&mut policy);
        (0..3).for_each(|_| drop(check(&mut world, &mut policy, 1e6, 0.0)));
        let mut restored = fresh();
        restored.restore(&policy.save()).unwrap();
        assert_eq!(restored.preset.rule.ws, [-10, -10, -10, 0]);
        assert!(
            restored.preset.rule.most.is_some(),
            "the merges of a change are bounded after a restart too"
        );
        assert_eq!(restored.save(), policy.save());
        world.decide(&mut restored, 0);
        let next = check(&mut world.clone(), &mut restored, 1e6, 0.0);
        assert_eq!(next, check(&mut world, &mut policy, 1e6, 0.0));
        assert_eq!(next, [-10, -10, -10, -10, 0]);
        for wrong in [&[100][..], &[], &[0; LEVELS + 1], &[0, (-11i8) as u8]] {
            assert!(restored.restore(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(restored.preset.rule.ws, next, "what is refused changes nothing");
    }

    /// Pairs of runs, each pair twice as large as the next: w of level 0 takes the smallest pairs for one bucket, and each other
    /// pair is one.
    #[test]
    fn a_change_begins_five_merges_at_once() {
        let mut policy = fresh();
        let mut world = World::new(LimitView { slots: 8, ..LimitView::default() });
        for power in (0..12).rev() {
            world.limits.memtable_bytes = 1 << (20 + power);
            (0..2).for_each(|_| world.flush(&mut policy, 0, 1 << 20));
        }
        // A decision makes eight plans at most.
        assert_eq!(world.decide(&mut policy, 0).plans.len(), 8);
        assert_eq!(check(&mut world, &mut policy, 1e6, 0.0), [-10, 0]);
        let unbounded = Ucs { ws: Vec::from([-10, 0]), most: None };
        let mut unbounded = Preset { rule: unbounded, hard_stop: false };
        assert_eq!(world.decide(&mut unbounded, 0).plans.len(), 8);
        assert_eq!(world.decide(&mut policy, 0).plans.len(), 5);
    }
}
