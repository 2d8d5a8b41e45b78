//! Whether it pays to merge extra runs of a level in place (downforce.md 3.6).
//!
//! Policies propose such plans with a negative priority, whenever a level has more runs than they mean it to have.
//! Extra runs are how plans get on without waiting, so merging them at once would undo that. It pays when what reads
//! would spend on them is more than the merge takes of a slot; or when nothing is written and nothing else is to be done.
//!
//! Reads are counted for a minute at most, and while writes go on for half the time in which as much comes anew: then
//! the runs would soon be merged without this. With runs of x bytes that come at w bytes a second and a level of W that
//! is the rule of [`fold_period`](super::fold::fold_period) for a period of one run: x e / 2w against W c. So a level is
//! never tidied where its pieces would not have folded.

use super::tickets::Flight;
use super::{Mode, Scene};
use crate::share::share;
use alloc::collections::BTreeMap;
use drumlin_types::RunId;
use drumlin_types::contract::{FileSpan, TreeView};

/// Most seconds over which reads must win back the merge.
const HORIZON: f64 = 60.0;
/// Written bytes per second below which a keyspace counts as idle.
const IDLE: f64 = 1024.0;

/// Whether merging `spans` in place is worth it.
pub fn pays(flight: &Flight, scene: &Scene<'_>, tree: &TreeView, spans: &[FileSpan]) -> bool {
    if scene.settings.mode != Mode::Pipelined {
        return flight.tickets.is_empty();
    }
    if flight.tickets.is_empty() && scene.costs.inflow < IDLE {
        return true;
    }
    let mut bytes = 0.0;
    let mut of_runs: BTreeMap<RunId, f64> = BTreeMap::new();
    for span in spans {
        let runs = tree.levels.get(usize::from(span.level)).map_or(&[][..], |level| &level.runs);
        for (run, file) in runs.iter().flat_map(|run| run.files.iter().map(move |file| (run, file))) {
            if file.table == span.table && file.bounds.overlaps(&span.range) {
                let part = file.bytes as f64 * share(&file.bounds, &span.range);
                bytes += part;
                *of_runs.entry(run.id).or_default() += part;
            }
        }
    }
    let largest = of_runs.values().copied().fold(0.0, f64::max);
    let coming_again = (bytes - largest) / (2.0 * scene.costs.inflow.max(f64::MIN_POSITIVE));
    let extra = spans.len().saturating_sub(1).min(1) as f64;
    extra * scene.costs.extra_run * coming_again.min(HORIZON) > bytes * scene.costs.rewrite
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::fold::fold_period;
    use crate::schedule::{FoldCosts, Settings};
    use drumlin_types::contract::draw::{parse_plan, parse_tree};
    use drumlin_types::contract::legal;

    const MIB: f64 = 1048576.0;

    /// Whether merging a run of 64 MiB into one of 1024 MiB pays, at so many written bytes and so many seconds per
    /// second that reads spend on a run.
    fn answer(inflow: f64, extra_run: f64) -> bool {
        let tree = parse_tree("L1: [a..z #41-50 64M] | [a..z #1-20 1024M]").unwrap();
        let plan = parse_plan(&tree, "t1 t2 -> L1").unwrap();
        let settings = Settings::default();
        let costs = FoldCosts { inflow, rewrite: 1.0 / (200.0 * MIB), extra_run };
        let scene = Scene { tree: &tree, design: &[], settings: &settings, costs, room: u64::MAX, now: 0 };
        pays(&Flight::default(), &scene, &tree, &legal::spans(&tree, &plan.take))
    }

    #[test]
    fn what_writes_undo_soon_is_left_alone() {
        assert!(answer(0.0, 0.0), "nothing else is to be done");
        assert!(!answer(30.0 * MIB, 0.0), "nobody reads");
        // 1088 MiB take 5.44 s. Of a minute that is a share of 0.09, but in 64 MiB / 2 / 1 MiB/s = 32 s of 0.17.
        assert!(!answer(2e3, 0.09) && answer(2e3, 0.092));
        assert!(!answer(MIB, 0.165) && answer(MIB, 0.175));
        // As folding does, but for the run itself, which is rewritten too.
        let costs = FoldCosts { inflow: MIB, rewrite: 1.0 / (200.0 * MIB), extra_run: 0.17 };
        assert!((fold_period(&costs, 1088.0 * MIB, 64.0 * MIB) - 1.0).abs() < 0.01);
    }
}
