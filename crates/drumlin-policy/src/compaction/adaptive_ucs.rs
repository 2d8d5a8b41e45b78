//! Adaptive unified compaction: UCS whose w follows the load by a formula, as in DataStax. It is a baseline for ARCE.
//!
//! Every 300 seconds the policy estimates the cost of each w from the reads and writes of the interval. Level 0 takes
//! the best w when that saves 15 percent or more. While the same w stays the best, one more level takes it at each
//! check. When the present w costs at most 1000, nothing changes.
//!
//! ```text
//! cost(w) = reads * read time * RA + written * (flush time + compaction time * WA)
//! L = floor(log_f(N/F)), v = ceil(N / (F * f^L))
//! RA = L*(t-1) + (w >= 0: max(0, v-1), else 1)        WA = w >= 0: L+1, else L*(f-1) + v
//! ```

use super::arguments::Arguments;
use super::preset::Preset;
use super::ucs::{BOUNDS, Ucs, growth, trigger};
use crate::real;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{CompactionPolicy, Decision, Outcome, PolicyError, PolicyInput};

/// Time between two checks, in microseconds.
const INTERVAL: u64 = 300_000_000;
/// Cost up to which w is not changed.
const LEAST_COST: f64 = 1000.0;
/// Largest ratio of a new w's cost to the present one's at which w changes.
const GAIN: f64 = 0.85;
/// Upper bound on concurrent compactions after a change of w.
const MOST_MERGES: usize = 5;
/// Upper bound on the number of levels with their own w.
const LEVELS: usize = 16;
/// Compaction speed assumed before any measurement, in bytes per second, and the time of a block read, in
/// nanoseconds.
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

/// Returns the read and write amplification of w for a tree of `flushes` flushes.
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

/// Amounts of reads and writes in one interval, and their unit costs in milliseconds.
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
        let speed = known(costs.compaction_bytes_per_s, SPEED);
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
        // The policy is not called while the store is idle, so the present load must not be scaled to all of the
        // elapsed time. One interval is counted instead.
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
            self.preset.rule.most = Some(MOST_MERGES);
        } else if best == present
            && let Some(other) = ws.iter().position(|w| *w != best)
        {
            // The last w stands for all deeper levels. It is replaced only when there are enough values before it.
            if other + 1 == ws.len() && ws.len() < LEVELS {
                ws.insert(other, best);
            } else {
                ws[other] = best;
            }
            self.preset.rule.most = Some(MOST_MERGES);
        }
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
        format!("w by level (the last also holds for all deeper levels): {:?}", self.preset.rule.ws)
    }

    fn save(&self) -> Vec<u8> {
        self.preset.rule.ws.iter().map(|w| *w as i8 as u8).collect()
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let ws: Vec<i32> = blob.iter().map(|byte| i32::from(*byte as i8)).collect();
        if ws.is_empty() || ws.len() > LEVELS || !ws.iter().all(|w| BOUNDS.contains(w)) {
            return Err(PolicyError(format!("adaptive-ucs state must be 1 to {LEVELS} valid values of w")));
        }
        // Any value other than the initial one stems from a change, so its compactions are bounded from the first
        // decision on.
        self.preset.rule.most = (ws != [0]).then_some(MOST_MERGES);
        self.preset.rule.ws = ws;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_sim::World;
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

    /// Builds a tree of 1280 flushes in one run and lets `policy` make its first decision on it.
    fn of_1280_flushes(policy: &mut AdaptiveUcs) -> World {
        let mut world = World::new(LimitView { memtable_bytes: 1280 << 20, ..LimitView::default() });
        world.flush(policy, 0, 1 << 20);
        world.limits.memtable_bytes = 1 << 20;
        world.decide(policy, 0);
        world
    }

    /// Returns the w values after the next check of a load. With the figures that hold before any measurement, an
    /// interval of reads costs 0.6 ms for each read per second and unit of RA. Writes cost 0.002 ms for each byte per
    /// second, times 1 + WA.
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

    /// The writes take 1000 ms per unit of amplification. w = 0 costs 11 r + 12,000 ms; w = 1, the best w there,
    /// costs 13 r + 8000 ms. That is 15 percent less at r = 603 ms.
    #[test]
    fn level_0_takes_what_saves_15_percent() {
        for (read, ws) in [(608.0, &[0][..]), (598.0, &[1, 0])] {
            let mut policy = fresh();
            let mut world = of_1280_flushes(&mut policy);
            assert_eq!(check(&mut world, &mut policy, read / 0.6, 500_000.0), ws, "{read}");
            assert_eq!(
                policy.preset.rule.most.is_some(),
                ws.len() > 1,
                "{read}: bounded only after a change"
            );
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
        // Write load: level 0 changes at once, the others follow one by one from the top.
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
            "compactions after a change stay bounded across a restart"
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

    /// Pairs of runs, each pair twice as large as the next. The w of level 0 puts the smallest pairs into one bucket,
    /// and each other pair is a bucket of its own.
    #[test]
    fn a_change_begins_five_merges_at_once() {
        let mut policy = fresh();
        let mut world = World::new(LimitView { slots: 8, ..LimitView::default() });
        for power in (0..12).rev() {
            world.limits.memtable_bytes = 1 << (20 + power);
            (0..2).for_each(|_| world.flush(&mut policy, 0, 1 << 20));
        }
        // A decision contains eight plans at most.
        assert_eq!(world.decide(&mut policy, 0).plans.len(), 8);
        assert_eq!(check(&mut world, &mut policy, 1e6, 0.0), [-10, 0]);
        let unbounded = Ucs { ws: Vec::from([-10, 0]), most: None };
        let mut unbounded = Preset { rule: unbounded, hard_stop: false };
        assert_eq!(world.decide(&mut unbounded, 0).plans.len(), 8);
        assert_eq!(world.decide(&mut policy, 0).plans.len(), 5);
    }
}
