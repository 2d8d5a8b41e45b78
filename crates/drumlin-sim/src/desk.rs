//! One ARCE decision over a tree of many runs, and a search, repeatable. The decision benchmark and the regression gate
//! measure them.
//!
//! All runs are in level 0 and of one size. They cover all keys or random key ranges. With readers alone, the policy
//! makes an elective compaction; with writers alone, a mandatory one. With *prices*, the policy has already sampled
//! reads, according to which a small share of the blocks that seeks need must be fetched.

use crate::world::{World, key};
use alloc::rc::Rc;
use alloc::vec::Vec;
use drumlin_policy::{SplitMix, by_name};
use drumlin_types::contract::{CostView, LimitView, LoadView, Pin, PolicyError, PolicyInput, TreeView};

/// Exclusive upper bound on key numbers.
const KEYS: u32 = 1 << 20;
/// Number of keys that readers were observed to read.
const WANTED: u32 = 256;

/// Seconds of operations that a policy sees before its search.
const SECONDS: u64 = 4;

/// Kind of the decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Case {
    /// Whether runs cover random key ranges instead of all keys.
    pub partial: bool,
    /// Whether there are too many runs, and only writers.
    pub must: bool,
    /// Whether runs are priced by their sizes.
    pub priced: bool,
}

/// Tree, load and costs that a policy decides on.
pub struct Desk {
    world: World,
    view: Rc<TreeView>,
    /// Saved policy state that is restored before the decision.
    state: Vec<u8>,
}

impl Desk {
    /// Builds a tree of `runs` runs.
    ///
    /// # Errors
    /// Only those of the policy registry.
    pub fn new(runs: usize, case: Case) -> Result<Desk, PolicyError> {
        let max_runs = if case.must { 64 } else { 512 };
        let limits =
            LimitView { memtable_bytes: 2 << 20, file_bytes: 64 << 20, max_runs, ..LimitView::default() };
        let mut world = World::new(limits);
        let mut policy = by_name("arce")?;
        let mut dice = SplitMix::new(7);
        for _ in 0..runs {
            let half = KEYS as usize / 2;
            let from = if case.partial { dice.below(half) as u32 } else { 0 };
            let to = if case.partial { from + 1 + dice.below(half) as u32 } else { KEYS };
            world.flush(&mut *policy, from, to);
        }
        world.wanted = (0..WANTED).map(|n| key(n * (KEYS / WANTED))).collect();
        let readers = LoadView { gets: 5000.0, seeks: 5000.0, writes: 100.0, ..LoadView::default() };
        let writers = LoadView { writes: 50_000.0, ..LoadView::default() };
        let load = if case.must { writers } else { readers };
        world.load = LoadView { entry_bytes: 1024.0, clients: 1.0, ..load };
        let mut desk = Desk { view: world.view(), world, state: Vec::new() };
        if case.priced {
            desk.learn()?;
        }
        Ok(desk)
    }

    /// Lets a policy sample reads that find many of their blocks in the cache.
    fn learn(&mut self) -> Result<(), PolicyError> {
        let costs = self.world.costs;
        self.world.costs =
            CostView { cursor_cached_ns: 1000.0, fetch_ns: 20_000.0, seek_blocks: 60.0, ..costs };
        let mut policy = by_name("arce")?;
        // Pins the parameters that the policy starts with, so that it begins no search.
        let slow_above = 24.0 / 64.0 * f64::from(self.world.limits.max_runs);
        self.world.limits.pin = Some(Pin { gain_intervals: 8.0, slow_above, passes: 2.0, size_ratio: 1.0 });
        for second in 0..4 {
            self.world.load.counted = [second * 5000, second * 5000, second * 100];
            policy.decide(&self.input(1 + second * 1_000_000));
        }
        self.world.limits.pin = None;
        self.state = policy.save();
        Ok(())
    }

    fn input(&self, now: u64) -> PolicyInput<'_> {
        PolicyInput {
            tree: &self.view,
            tickets: &[],
            load: &self.world.load,
            costs: &self.world.costs,
            limits: &self.world.limits,
            wanted: &self.world.wanted,
            wanted_seeks: &self.world.wanted,
            now,
            seed: 1,
            frozen: false,
        }
    }

    /// Makes the decision with a fresh policy. Returns the number of files that its plans take.
    ///
    /// # Errors
    /// Only those of the policy registry and of the saved state.
    pub fn decide(&self) -> Result<usize, PolicyError> {
        let mut policy = by_name("arce")?;
        if !self.state.is_empty() {
            policy.restore(&self.state)?;
        }
        let decision = policy.decide(&self.input(4_000_000));
        Ok(decision.plans.iter().map(|plan| plan.take.len()).sum())
    }

    /// Lets a policy see a few seconds of operations, and makes the last search that it requests, to its end. Returns
    /// the number of its steps; 0 if the policy requests none.
    ///
    /// # Errors
    /// Only those of the policy registry and of the saved state.
    pub fn search(&self) -> Result<usize, PolicyError> {
        let mut policy = by_name("arce")?;
        if !self.state.is_empty() {
            policy.restore(&self.state)?;
        }
        let searches = (1..=SECONDS).filter_map(|second| {
            let counted = [second * 5000, second * 5000, second * 100];
            let load = LoadView { counted, ..self.world.load };
            policy.decide(&PolicyInput { load: &load, ..self.input(4_000_000 + second * 1_000_000) }).search
        });
        let Some(mut search) = searches.last() else { return Ok(0) };
        let mut steps = 1;
        while search.step().is_none() {
            steps += 1;
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_made_and_are_the_same_each_time() {
        for case in 0..8 {
            let case = Case { partial: case & 1 > 0, must: case & 2 > 0, priced: case & 4 > 0 };
            let desk = Desk::new(100, case).unwrap();
            let taken = desk.decide().unwrap();
            assert_eq!(Ok(taken), desk.decide());
            assert!(taken > 1 || case.priced, "{case:?} takes {taken}");
            let steps = desk.search().unwrap();
            assert_eq!(Ok(steps), desk.search());
            assert!(steps > 1, "{case:?} searches in {steps} steps");
        }
    }
}
