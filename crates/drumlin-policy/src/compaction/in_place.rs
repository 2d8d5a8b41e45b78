//! Intra-level compaction of extra runs in leveled levels: which part of which level goes first.
//!
//! The bounds of all files of a level divide it into segments. Neighbouring segments that two or more runs cover form
//! a window of about as many bytes as a piece (subcompaction). A window is small so that it waits briefly, others
//! wait briefly for it, and the scheduler can refuse the next one. A window takes from every file the part that lies
//! in it, including narrow files that earlier compactions left between other bounds.
//!
//! Take a window of W bytes, of which X lie outside its largest run, with n extra runs. At equal reads and writes,
//! compacting it gains n X for the W bytes that it rewrites. Here n is the mean over the bytes of the largest runs.
//! So windows of all levels are ranked by n X / W. W also includes the fixed cost of installing a piece. Without that
//! cost, a few leftovers of some KiB in the gaps of a level would be proposed again and again, and nothing else. The
//! scheduler decides whether the best window pays.
//!
//! Windows are requested often, for trees of many files, and most of them do not pay. So one sweep visits a level
//! once and keeps the files that cover the current key. Windows of one tree do not overlap, so all proposals of a
//! decision come from one sweep.

use super::reason::{Counted, size};
use super::rule::RuleScene;
use super::stack::{largest_run, overlapping};
use crate::share::KeyScale;
use alloc::format;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use drumlin_types::contract::{FileView, LevelView, Place, Plan, Take};
use drumlin_types::{Key, KeyRange};

/// Number of files of the usual size in a window.
const FILES: u64 = 4;
/// Fixed cost of installing a piece, as the bytes that are compacted in that time: one or two milliseconds.
const FIXED: f64 = (256u64 << 10) as f64;
/// Largest share of a window's bytes that a stretch without extra runs inside it may have.
const BRIDGE: f64 = 1.0 / 16.0;

/// Key range of a level between two adjacent file bounds.
#[derive(Clone, Copy, Debug)]
struct LevelSegment<'a> {
    start: &'a Key,
    end: Option<&'a Key>,
    bytes: f64,
    largest: f64,
    runs: usize,
    /// Whether no file in it is claimed or yet to come.
    is_free: bool,
}

/// Group of neighbouring segments that can be compacted in place.
#[derive(Clone, Debug)]
pub(super) struct Window {
    level: u8,
    range: KeyRange,
    bytes: f64,
    /// Sum of the bytes of the largest file in each segment.
    largest: f64,
    /// Same sum, each term times the number of runs in its segment.
    depth: f64,
}

/// Window under construction.
#[derive(Clone, Copy)]
struct WindowBuilder<'a> {
    start: &'a Key,
    end: Option<&'a Key>,
    bytes: f64,
    largest: f64,
    depth: f64,
}

impl<'a> WindowBuilder<'a> {
    fn of(segment: &LevelSegment<'a>) -> WindowBuilder<'a> {
        let LevelSegment { start, end, bytes, largest, runs, .. } = *segment;
        WindowBuilder { start, end, bytes, largest, depth: largest * runs as f64 }
    }

    /// Appends `next`, which begins where this one ends.
    fn join(&mut self, next: &WindowBuilder<'a>) {
        self.end = next.end;
        self.bytes += next.bytes;
        self.largest += next.largest;
        self.depth += next.depth;
    }

    fn done(&self, level: u8) -> Window {
        let range = KeyRange::new(self.start.clone(), self.end.cloned());
        Window { level, range, bytes: self.bytes, largest: self.largest, depth: self.depth }
    }
}

impl Window {
    /// Returns the rank of the window, n X / W.
    fn worth(&self) -> f64 {
        let many = self.depth / self.largest.max(1.0) - 1.0;
        many * (self.bytes - self.largest) / (self.bytes + FIXED)
    }

    /// Returns the plan that compacts the window in place. `scene` is the one that it was made from, or what the
    /// plans of other windows left of that.
    pub(super) fn plan(&self, scene: &RuleScene<'_>) -> Plan {
        let Window { level, range, .. } = self;
        let mut take = Vec::new();
        let mut runs = 0;
        for run in &scene.tree.levels[usize::from(*level)].runs {
            let before = take.len();
            take.extend(overlapping(run, range).filter_map(|file| {
                let range = file.bounds.intersect(range)?;
                Some(Take { table: file.table, range })
            }));
            runs += usize::from(take.len() > before);
        }
        let reason = format!(
            "level {level} has {}, {} with {} beside the largest: {} in place",
            Counted(runs, "run"),
            size(self.bytes as u64),
            size((self.bytes - self.largest) as u64),
            Counted(take.len(), "file")
        );
        let mut plan = Plan::new(take, *level, reason);
        plan.place = largest_run(scene.tree, *level).map_or(Place::NewRun, Place::Run);
        plan.priority = -1.0;
        plan
    }
}

/// Returns the `most` best windows of `levels` for intra-level compaction, best first. No two of them overlap.
pub(super) fn in_place(scene: &RuleScene<'_>, levels: RangeInclusive<u8>, most: usize) -> Vec<Window> {
    let bytes = (FILES * scene.limits.file_bytes) as f64;
    let mut windows: Vec<Window> = levels.flat_map(|level| windows(scene, level, bytes)).collect();
    windows.sort_by(|a, b| {
        let worth = b.worth().total_cmp(&a.worth());
        worth.then_with(|| (a.level, &a.range.start).cmp(&(b.level, &b.range.start)))
    });
    windows.truncate(most);
    windows
}

/// Returns the windows of `level`, each of about `most` bytes.
fn windows(scene: &RuleScene<'_>, level: u8, most: f64) -> Vec<Window> {
    let Some(view) = scene.tree.levels.get(usize::from(level)).filter(|view| view.runs.len() > 1) else {
        return Vec::new();
    };
    let mut windows = Vec::new();
    let mut open: Option<WindowBuilder<'_>> = None;
    // Segments between the open window and the next segment that has an extra run.
    let mut between: Option<WindowBuilder<'_>> = None;
    sweep(view, |segment| {
        let next = WindowBuilder::of(segment);
        let is_wide = segment.runs < 2 && segment.bytes > BRIDGE * most;
        if !segment.is_free || is_wide {
            windows.extend(open.take().map(|window| window.done(level)));
            between = None;
        } else if segment.runs < 2 {
            match &mut between {
                Some(between) => between.join(&next),
                None => between = open.is_some().then_some(next),
            }
        } else {
            match &mut open {
                Some(window) => {
                    between.take().iter().for_each(|part| window.join(part));
                    window.join(&next);
                }
                None => open = Some(next),
            }
            if open.as_ref().is_some_and(|window| window.bytes >= most) {
                windows.extend(open.take().map(|window| window.done(level)));
            }
        }
    });
    windows.extend(open.map(|window| window.done(level)));
    windows
}

/// File that covers the current key.
struct Covering<'a> {
    run: usize,
    file: &'a FileView,
    scale: KeyScale,
    last: Option<usize>,
}

/// Calls `each` for every segment of a level, in key order.
fn sweep<'a>(level: &'a LevelView, mut each: impl FnMut(&LevelSegment<'a>)) {
    let mut keys: Vec<&Key> =
        level.files().flat_map(|f| [Some(&f.bounds.start), f.bounds.end.as_ref()]).flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    let mut next_of: Vec<core::slice::Iter<'_, FileView>> =
        level.runs.iter().map(|run| run.files.iter()).collect();
    let mut starts: Vec<(&Key, usize, &FileView)> = Vec::new();
    for (run, files) in next_of.iter_mut().enumerate() {
        starts.extend(files.filter(|f| !f.bounds.is_empty()).map(|f| (&f.bounds.start, run, f)));
    }
    starts.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut starts = starts.into_iter().peekable();
    let mut covering: Vec<Covering<'_>> = Vec::new();
    for (at, start) in keys.iter().copied().enumerate() {
        covering.retain(|c| c.last != Some(at));
        while let Some((_, run, file)) = starts.next_if(|(key, ..)| *key == start) {
            let last = file.bounds.end.as_ref().map(|end| keys.partition_point(|key| *key < end));
            let place = covering.partition_point(|c| c.run < run);
            covering.insert(place, Covering { run, file, scale: KeyScale::of(&file.bounds), last });
        }
        let end = keys.get(at + 1).copied();
        let mut segment =
            LevelSegment { start, end, bytes: 0.0, largest: 0.0, runs: covering.len(), is_free: true };
        for Covering { file, scale, .. } in &covering {
            let bytes = file.bytes as f64 * scale.share(start, end);
            segment.bytes += bytes;
            segment.largest = segment.largest.max(bytes);
            segment.is_free &= file.is_takeable();
        }
        each(&segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use drumlin_types::contract::draw::parse_tree;
    use drumlin_types::contract::legal::close_plan;
    use drumlin_types::contract::{LimitView, TreeView};

    fn plans(tree: &TreeView) -> Vec<Plan> {
        let limits = LimitView { file_bytes: 4 << 20, ..LimitView::default() };
        let scene = RuleScene { tree, limits: &limits, seed: 0 };
        in_place(&scene, 1..=4, 8).iter().map(|window| window.plan(&scene)).collect()
    }

    fn hull(plan: &Plan) -> KeyRange {
        plan.take.iter().map(|t| t.range.clone()).reduce(|a, b| a.hull(&b)).unwrap()
    }

    #[test]
    fn windows_hold_all_that_lies_in_them() {
        // The narrow leftovers have the best overlap for their size and are taken together with the other files.
        let tree = parse_tree(
            "L2: [a..b #50-51 1K] | [a..f #30-40 4M][g..k #30-40 2M] | [a..f #1-20 8M][g..k #1-20 6M][p..z #1-9 9M]",
        )
        .unwrap();
        let plans = plans(&tree);
        assert_eq!(plans.len(), 1, "{plans:?}");
        let plan = close_plan(&tree, &plans[0]).unwrap();
        assert_eq!(plan.take.len(), 5, "{plan:?}");
        assert_eq!((plan.out, plan.priority), (2, -1.0));
        assert_eq!(hull(&plan), KeyRange::new(Key::new(b"a"), Some(Key::new(b"k"))));
    }

    #[test]
    fn deep_parts_go_first_whatever_their_level() {
        let tree = parse_tree(
            "L1: [a..z #90-91 1M] | [a..z #1-20 30M]  L3: [a..f #70-71 3M] | [a..f #50-60 3M] \
             | [a..f #30-40 3M][p..z #30-40 3M] | [a..f #1-20 9M][p..z #1-9 9M]",
        )
        .unwrap();
        let plans = plans(&tree);
        let found: Vec<(u8, usize)> = plans.iter().map(|plan| (plan.out, plan.take.len())).collect();
        assert_eq!(found, [(3, 4), (3, 2), (1, 2)]);
    }

    #[test]
    fn leftovers_do_not_keep_others_from_being_proposed() {
        // Ten times three tiny runs between the files of level 1. For their size they are deeper than the runs of
        // level 3.
        let of = |ends: [char; 2], rest: &str| {
            let file = |i| format!("[k{i}{}..k{i}{} {rest}]", ends[0], ends[1]);
            (0..10).map(file).collect::<String>()
        };
        let narrow = |seq: u32| of(['a', 'b'], &format!("#{seq}-{seq} 1K"));
        let between = of(['c', 'd'], "#50-60 2M");
        let level3 = "[a..z #30-40 3M] | [a..z #1-20 9M]";
        let tree = format!("L1: {} | {} | {} | {between}  L3: {level3}", narrow(92), narrow(91), narrow(90));
        let plans = plans(&parse_tree(&tree).unwrap());
        assert_eq!((plans.len(), plans[0].out, plans[0].take.len()), (8, 3, 2));
    }

    #[test]
    fn what_others_have_claimed_is_left_alone() {
        let tree = parse_tree("L1: [a..z #90-91 1M ~1] | [a..z #1-20 3M]").unwrap();
        assert!(plans(&tree).is_empty());
        assert!(plans(&parse_tree("L1: [a..z #1-20 3M]").unwrap()).is_empty());
    }
}
