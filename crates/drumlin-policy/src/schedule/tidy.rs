//! Cost test for tidying, the intra-level compaction of extra runs.
//!
//! Policies propose such plans with a negative priority whenever a level has more runs than its target shape. Extra
//! runs let plans proceed without waiting, so compacting them at once would undo that. Tidying pays when reads would
//! spend more on the extra runs than the compaction takes of a slot. It also pays when nothing is written and no other
//! work is due.
//!
//! Reads count for at most one minute. While writes go on, they count for half the time in which the same number of
//! bytes arrives again, because later compactions would then remove the runs anyway. Suppose that n extra runs hold X
//! bytes together, and that w bytes a second enter a level that holds W bytes including them. If reads spend e on
//! each extra run, tidying pays when
//!
//! ```text
//! n e X / 2w > W c
//! ```
//!
//! where c is the price of a slot's time per byte. Each compaction also pays the fixed cost of installing a piece.
//! For runs of x bytes, so X = n x, this is the rule of [`fold_period`](super::fold::fold_period): n has reached k*.
//! So a level is tidied at the depth at which incoming pieces would fold it, and not earlier. For a plan over a part
//! of the keys, only that part of the reads and writes counts. The factor cancels out of this rule but not out of the
//! limit of one minute. n is the mean over the keys of the plan, so runs with few keys count little.

use super::limits::Concurrency;
use super::scene::Scene;
use super::tickets::Flight;
use crate::share::share;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, LevelView, TreeView};
use drumlin_types::{KeyRange, RunId};

/// Upper bound on the seconds in which reads must win back the cost of the compaction.
const HORIZON: f64 = 60.0;

/// Returns whether compacting `spans` in place pays.
pub fn pays(flight: &Flight, scene: &Scene<'_>, tree: &TreeView, spans: &[FileSpan]) -> bool {
    if scene.settings.mode != Concurrency::Pipelined {
        return flight.tickets.is_empty();
    }
    if flight.tickets.is_empty() && scene.costs.rests {
        return true;
    }
    let Some(hull) = hull(spans.iter().map(|span| &span.range)) else { return false };
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
    let too_many = too_many(&hull, spans);
    let coming_again = (bytes - largest) / (2.0 * scene.costs.inflow.max(f64::MIN_POSITIVE));
    let part = part_of_level(tree, spans, bytes);
    too_many * scene.costs.extra_run * coming_again.min(HORIZON * part)
        > scene.costs.fixed + bytes * scene.costs.rewrite
}

/// Returns the mean number of runs beyond the first that a read of `hull` meets, over its keys.
fn too_many(hull: &KeyRange, spans: &[FileSpan]) -> f64 {
    let mut ranges: Vec<&KeyRange> = spans.iter().map(|span| &span.range).collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut covered = 0.0;
    let mut open: Option<KeyRange> = None;
    for range in &ranges {
        open = match open.take() {
            Some(open) if open.is_before_end(&range.start) => Some(open.hull(range)),
            before => {
                covered += before.map_or(0.0, |before| share(hull, &before));
                Some((*range).clone())
            }
        };
    }
    covered += open.map_or(0.0, |open| share(hull, &open));
    ranges.iter().map(|range| share(hull, range)).sum::<f64>() - covered
}

/// Returns the share of their level's bytes that `bytes` at `spans` are. Where the level is deepest, this exceeds
/// their share of its keys.
fn part_of_level(tree: &TreeView, spans: &[FileSpan], bytes: f64) -> f64 {
    let levels: BTreeSet<u8> = spans.iter().map(|span| span.level).collect();
    let levels = levels.into_iter().filter_map(|level| tree.levels.get(usize::from(level)));
    (bytes / levels.map(LevelView::bytes).sum::<u64>().max(1) as f64).min(1.0)
}

fn hull<'a>(ranges: impl Iterator<Item = &'a KeyRange>) -> Option<KeyRange> {
    ranges.fold(None, |hull, range| Some(hull.map_or_else(|| range.clone(), |hull| hull.hull(range))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::fold::fold_period;
    use crate::schedule::{FoldCosts, Settings};
    use alloc::format;
    use alloc::string::String;
    use drumlin_types::contract::draw::{parse_plan, parse_tree};
    use drumlin_types::contract::legal;

    const MIB: f64 = 1048576.0;

    /// Returns the costs of a slot and of reads in these tests; reads spend `extra_run` seconds per second on an
    /// extra run.
    fn costs(inflow: f64, extra_run: f64) -> FoldCosts {
        FoldCosts { inflow, rewrite: 1.0 / (200.0 * MIB), extra_run, ..FoldCosts::default() }
    }

    fn judged(tree: &str, plan: &str, costs: FoldCosts) -> bool {
        let tree = parse_tree(tree).unwrap();
        let plan = parse_plan(&tree, plan).unwrap();
        let settings = Settings::default();
        let scene = Scene { tree: &tree, design: &[], settings: &settings, costs, room: u64::MAX, now: 0 };
        pays(&Flight::default(), &scene, &tree, &legal::spans(&tree, &plan.take))
    }

    /// Returns the least time that reads must spend on a run for `plan` to pay.
    fn least(tree: &str, plan: &str, inflow: f64) -> f64 {
        let (mut no, mut yes) = (0.0, 1e6);
        for _ in 0..60 {
            let extra_run = (no + yes) / 2.0;
            match judged(tree, plan, costs(inflow, extra_run)) {
                true => yes = extra_run,
                false => no = extra_run,
            }
        }
        yes
    }

    const ONE: (&str, &str) = ("L1: [a..z #41-50 64M] | [a..z #1-20 1024M]", "t1 t2 -> L1");

    #[test]
    fn what_writes_undo_soon_is_left_alone() {
        let answer = |inflow, extra_run| judged(ONE.0, ONE.1, costs(inflow, extra_run));
        assert!(
            judged(ONE.0, ONE.1, FoldCosts { rests: true, ..costs(0.0, 0.0) }),
            "nothing else is to be done"
        );
        assert!(!answer(0.0, 0.0), "the pause may be short");
        assert!(!answer(30.0 * MIB, 0.0), "there are no reads");
        // 1088 MiB take 5.44 s. That is a share of 0.09 of a minute, and of 0.17 of 32 s = 64 MiB / 2 / 1 MiB/s.
        assert!(!answer(2e3, 0.09) && answer(2e3, 0.092));
        assert!(!answer(MIB, 0.165) && answer(MIB, 0.175));
    }

    #[test]
    fn runs_are_merged_when_pieces_would_have_folded() {
        for runs in 1..=8_u32 {
            let extra =
                (1..=runs).map(|run| format!("[a..z #{0}-{0} 64M] | ", 100 - run)).collect::<String>();
            let tree = format!("L1: {extra}[a..z #1-20 1024M]");
            let plan = (1..=runs + 1).map(|table| format!("t{table} ")).collect::<String>() + "-> L1";
            let found = least(&tree, &plan, 10.0 * MIB);
            let all = 1024.0 + 64.0 * f64::from(runs);
            let period = fold_period(&costs(10.0 * MIB, found), all * MIB, 64.0 * MIB);
            assert!((period - f64::from(runs)).abs() < 0.01, "{runs} runs at {found}: {period}");
        }
    }

    #[test]
    fn a_part_of_the_keys_is_judged_by_its_own_reads_and_writes() {
        let halves = "L1: [a..c #41-50 32M][c..e #31-40 32M] | [a..c #1-20 512M][c..e #1-20 512M]";
        let (whole, half) = ("t1 t2 t3 t4 -> L1", "t1 t3 -> L1");
        let with = |plan, inflow| least(halves, plan, inflow);
        assert!((with(whole, MIB) / with(half, MIB) - 1.0).abs() < 0.01);
        assert!((with(whole, 2e3) / with(half, 2e3) - 1.0).abs() < 0.01);
        // A run over half of the keys counts as half a run.
        let one = "L1: [a..c #41-50 64M] | [a..e #1-20 1024M]";
        let found = least(one, "t1 t2 -> L1", MIB) / least(ONE.0, ONE.1, MIB);
        assert!((found - 2.0).abs() < 0.01, "{found}");
    }

    #[test]
    fn leftovers_of_no_size_do_not_make_a_merge_pay() {
        let narrow = "L1: [a..b #41-50 1K] | [a..z #1-20 1024M]";
        assert!(least(narrow, "t1 t2 -> L1", MIB) > 1e5);
        assert!(!judged("L1: [a..z #1-20 1024M]", "t1 -> L1", costs(1.0, 1e3)), "there are no extra runs");
    }
}
