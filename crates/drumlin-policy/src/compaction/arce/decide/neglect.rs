//! Runs that no reader meets, because their keys are written but not read.
//!
//! Scores count runs by requested keys. Runs over other keys would therefore pile up without end: compacting them
//! never gains any reader anything. Yet they hold garbage, use memory and slow every decision down. So the run limit
//! and the disk budget apply to all keys. If that many runs lie over one key, or disk space is short, compactions are
//! chosen by the first keys of files instead, the keys under most runs first. In that case writers are slowed by the
//! run count at those keys, and only near the run limit.

use crate::compaction::arce::candidates::cover::CoverScale;
use crate::compaction::arce::candidates::line::{AgeLine, Samples};
use crate::compaction::arce::decide::policy::Arce;
use crate::compaction::arce::score::formula::{Need, Tuple};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::pace::THROTTLE_FROM;

/// Only keys under at least this share of the largest number of runs over one key are sampled.
const DEEP: f64 = 0.9;

impl Arce {
    /// Counts runs by all keys if the runs that readers do not meet come near the run limit, or if disk space is
    /// short.
    pub(crate) fn count_by_all_keys_if_crowded(&self, scene: &mut ScoreScene<'_>) {
        let full = THROTTLE_FROM * scene.max_runs;
        let is_crowded = scene.need < Need::MakeRoom && scene.line.count() as f64 >= full;
        if !self.switches.masks || !(is_crowded || scene.disk_short) {
            return;
        }
        let tree = scene.input.tree;
        let (samples, most) = Samples::deepest(tree, if scene.disk_short { 0.0 } else { DEEP });
        let is_crowded = is_crowded && most >= full;
        if samples.points.len() == 0 || !(is_crowded || scene.disk_short) {
            return;
        }
        let scale = CoverScale::new(samples.points.len(), 0, [1.0, 0.0]);
        let mut line = AgeLine::of(tree, &samples, &scale);
        line.price(&scale);
        if is_crowded {
            line.runs = most;
            // These runs do not slow readers, so c does not apply.
            scene.tuple = Tuple { slow_above: f64::INFINITY, ..scene.tuple };
        }
        scene.need = scene.need.max(Need::at(line.runs, f64::INFINITY, scene.max_runs, self.switches.even));
        (scene.line, scene.samples, scene.scale, scene.by_all_keys) = (line, samples, scale, true);
        scene.model.fresh = 1.0;
        scene.stall = scene.tuple.stall(&scene.model, scene.met());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::decide::switches::Switches;
    use crate::compaction::arce::decide::switches::tests::{input, world};
    use drumlin_sim::world::key;
    use drumlin_types::contract::draw::plain_file;
    use drumlin_types::contract::legal::legal;
    use drumlin_types::contract::{
        CompactionPolicy, Decision, LimitView, PolicyInput, RunTag, RunView, TreeView,
    };
    use drumlin_types::{Key, KeyRange, LEVELS, RunId, TableId};
    use std::string::String;
    use std::vec::Vec;

    /// Builds this number of 2 MiB runs over the keys 0 to 1000, and an old run over 5000 to 6000.
    fn tree(runs: u64) -> TreeView {
        let mut tree = TreeView::empty(LEVELS);
        for number in 0..=runs {
            let (from, to) = if number == 0 { (5000, 6000) } else { (0, 1000) };
            let bounds = KeyRange::new(key(from), Some(key(to)));
            let mut file = plain_file(TableId(number + 1), bounds, number * 10 + 1, number * 10 + 9);
            (file.bytes, file.entries, file.keys) = (2 << 20, 1000, 1000);
            let run = RunView { id: RunId(number + 1), tag: RunTag::default(), files: Vec::from([file]) };
            tree.levels[if number == 0 { 3 } else { 0 }].runs.push(run);
        }
        tree
    }

    /// Returns the decision when readers request 200 keys from `from` on and `used` of 1000 MiB of disk are used.
    fn decide(tree: &TreeView, from: u32, used: u64) -> Decision {
        let mut world = world(&[]);
        world.limits = LimitView { disk_used: used << 20, disk_budget: 1000 << 20, ..LimitView::default() };
        let wanted: Vec<Key> = (from..from + 200).map(key).collect();
        let asked = PolicyInput { wanted: &wanted, wanted_seeks: &wanted, ..input(&world, tree, &[]) };
        Arce::new(None, Switches::ALL).decide(&asked)
    }

    /// Returns the tables that are compacted, with the reason.
    fn merged(decision: &Decision, tree: &TreeView) -> Option<(Vec<u64>, String)> {
        let plan = decision.plans.iter().find(|plan| !plan.reason.contains("0 bytes rewritten"))?;
        legal(tree, plan).unwrap_or_else(|e| panic!("{e}: {}", plan.reason));
        Some((plan.take.iter().map(|take| take.table.0).collect(), plan.reason.clone()))
    }

    #[test]
    fn what_nobody_reads_is_merged_near_the_most_runs() {
        let few = tree(47);
        let decision = decide(&few, 5100, 0);
        assert_eq!(merged(&decision, &few), None);
        assert_eq!(decision.pace.and_then(|pace| pace.covered), Some(1.0));
        let many = tree(48);
        let decision = decide(&many, 5100, 0);
        let (tables, reason) = merged(&decision, &many).expect("a merge");
        assert!(reason.starts_with("must: ") && reason.contains("counted over all keys"), "{reason}");
        assert!(tables.len() > 1 && !tables.contains(&1), "{tables:?}");
        let pace = decision.pace.expect("a pace");
        assert_eq!((pace.covered, pace.slow), (Some(48.0), f64::INFINITY), "no reader minds");
        // Runs that readers meet count by requested keys as usual.
        let (_, reason) = merged(&decide(&many, 100, 0), &many).expect("a merge");
        assert!(!reason.contains("counted over all keys"), "{reason}");
    }

    #[test]
    fn what_nobody_reads_frees_the_disk() {
        let tree = tree(8);
        assert_eq!(merged(&decide(&tree, 5100, 890), &tree), None);
        let (tables, reason) = merged(&decide(&tree, 5100, 910), &tree).expect("a merge");
        assert!(reason.contains("disk space is short") && !tables.contains(&1), "{reason}");
    }
}
