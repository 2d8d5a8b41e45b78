//! Merging the extra runs of leveled levels in place: which part of which level first.
//!
//! A level is looked at in segments, between the bounds of all its files. Neighbouring segments that two runs or more
//! cover make a window, of about as many bytes as a piece: so what a window waits for, and what waits for it, is short,
//! and the scheduler may say no to the next one. A window takes of every file the part that lies in it, the narrow ones
//! too, that earlier merges left between their bounds.
//!
//! Of a window of W bytes with X beside its largest run and n runs too many, a merge wins n X for each W that it
//! rewrites, at equal reads and writes; n is the mean over what the largest runs hold. So windows of all levels are
//! ranked by n X / W. Whether the best one pays is for the scheduler to say.

use super::preset::{Counted, Scene, size};
use super::stack::largest_run;
use crate::share::share;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::contract::{FileView, LevelView, Place, Plan, RunView, Take};
use drumlin_types::{Key, KeyRange};

/// Windows that are tried when the best cannot be closed.
const TRIED: usize = 4;
/// Files of usual size in a window.
const FILES: u64 = 4;
/// Share of a window's bytes that a stretch with no extra run may have inside it.
const BRIDGE: f64 = 1.0 / 16.0;

/// Keys of a level between two bounds of files.
#[derive(Debug)]
struct Segment {
    range: KeyRange,
    bytes: f64,
    largest: f64,
    runs: usize,
    /// Nothing of it is claimed, or yet to come.
    is_free: bool,
}

/// Neighbouring segments.
#[derive(Debug)]
struct Window {
    level: u8,
    range: KeyRange,
    bytes: f64,
    /// Bytes of the largest file in each segment.
    largest: f64,
    /// Those times the runs of their segments.
    depth: f64,
}

impl Window {
    fn of(level: u8, segment: &Segment) -> Window {
        Window {
            level,
            range: segment.range.clone(),
            bytes: segment.bytes,
            largest: segment.largest,
            depth: segment.largest * segment.runs as f64,
        }
    }

    fn join(&mut self, next: Window) {
        self.range = self.range.hull(&next.range);
        self.bytes += next.bytes;
        self.largest += next.largest;
        self.depth += next.depth;
    }

    /// n X / W.
    fn worth(&self) -> f64 {
        (self.depth / self.largest.max(1.0) - 1.0) * (self.bytes - self.largest) / self.bytes.max(1.0)
    }
}

/// Plans that merge extra runs of `levels` in place, the best first.
pub(super) fn in_place(scene: &Scene<'_>, levels: impl Iterator<Item = u8>) -> Vec<Plan> {
    let most = (FILES * scene.limits.file_bytes) as f64;
    let mut windows: Vec<Window> = levels.flat_map(|level| windows(scene, level, most)).collect();
    windows.sort_by(|a, b| {
        let worth = b.worth().total_cmp(&a.worth());
        worth.then_with(|| (a.level, &a.range.start).cmp(&(b.level, &b.range.start)))
    });
    windows.truncate(TRIED);
    windows.into_iter().map(|window| plan(scene, &window)).collect()
}

fn plan(scene: &Scene<'_>, window: &Window) -> Plan {
    let Window { level, range, .. } = window;
    let mut take = Vec::new();
    let mut runs = 0;
    for run in &scene.tree.levels[usize::from(*level)].runs {
        let before = take.len();
        take.extend(run.files.iter().filter_map(|file| {
            let range = file.bounds.intersect(range)?;
            Some(Take { table: file.table, range })
        }));
        runs += usize::from(take.len() > before);
    }
    let reason = format!(
        "level {level} has {}, {} with {} beside the largest: {} in place",
        Counted(runs, "run"),
        size(window.bytes as u64),
        size((window.bytes - window.largest) as u64),
        Counted(take.len(), "file")
    );
    let mut plan = Plan::new(take, *level, reason);
    plan.place = largest_run(scene.tree, *level).map_or(Place::NewRun, Place::Run);
    plan.priority = -1.0;
    plan
}

/// The windows of `level`, each of about `most` bytes.
fn windows(scene: &Scene<'_>, level: u8, most: f64) -> Vec<Window> {
    let Some(view) = scene.tree.levels.get(usize::from(level)).filter(|view| view.runs.len() > 1) else {
        return Vec::new();
    };
    let mut windows = Vec::new();
    let mut open: Option<Window> = None;
    // What lies between the open window and the next segment that has an extra run.
    let mut between: Option<Window> = None;
    for segment in segments(view) {
        let next = Window::of(level, &segment);
        let is_wide = segment.runs < 2 && segment.bytes > BRIDGE * most;
        if !segment.is_free || is_wide {
            windows.extend(open.take());
            between = None;
        } else if segment.runs < 2 {
            match &mut between {
                Some(between) => between.join(next),
                None => between = open.is_some().then_some(next),
            }
        } else {
            match &mut open {
                Some(window) => {
                    between.take().into_iter().for_each(|part| window.join(part));
                    window.join(next);
                }
                None => open = Some(next),
            }
            if open.as_ref().is_some_and(|window| window.bytes >= most) {
                windows.extend(open.take());
            }
        }
    }
    windows.extend(open);
    windows
}

/// The segments of a level, by key.
fn segments(level: &LevelView) -> Vec<Segment> {
    let bounds = level.files().flat_map(|f| [Some(&f.bounds.start), f.bounds.end.as_ref()]);
    let bounds: BTreeSet<&Key> = bounds.flatten().collect();
    let ends = bounds.iter().skip(1).map(|key| Some((*key).clone())).chain([None]);
    let mut cursors: Vec<(&RunView, usize)> = level.runs.iter().map(|run| (run, 0)).collect();
    let mut segments = Vec::new();
    for (start, end) in bounds.iter().zip(ends) {
        let mut segment = Segment {
            range: KeyRange::new((*start).clone(), end),
            bytes: 0.0,
            largest: 0.0,
            runs: 0,
            is_free: true,
        };
        for (run, at) in &mut cursors {
            let is_before =
                |f: &FileView| f.bounds.end.as_ref().is_some_and(|end| *end <= segment.range.start);
            while run.files.get(*at).is_some_and(is_before) {
                *at += 1;
            }
            let Some(file) = run.files.get(*at).filter(|f| f.bounds.overlaps(&segment.range)) else {
                continue;
            };
            let bytes = file.bytes as f64 * share(&file.bounds, &segment.range);
            segment.bytes += bytes;
            segment.largest = segment.largest.max(bytes);
            segment.runs += 1;
            segment.is_free &= file.is_takeable();
        }
        segments.push(segment);
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::draw::parse_tree;
    use drumlin_types::contract::legal::close_plan;
    use drumlin_types::contract::{LimitView, TreeView};

    fn plans(tree: &TreeView) -> Vec<Plan> {
        let limits = LimitView { file_bytes: 4 << 20, ..LimitView::default() };
        in_place(&Scene { tree, limits: &limits, seed: 0 }, 1..5)
    }

    fn hull(plan: &Plan) -> KeyRange {
        plan.take.iter().map(|t| t.range.clone()).reduce(|a, b| a.hull(&b)).unwrap()
    }

    #[test]
    fn windows_hold_all_that_lies_in_them() {
        // Narrow leftovers, best by their overlap for their size, come along with the rest.
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
    fn what_others_have_claimed_is_left_alone() {
        let tree = parse_tree("L1: [a..z #90-91 1M ~1] | [a..z #1-20 3M]").unwrap();
        assert!(plans(&tree).is_empty());
        assert!(plans(&parse_tree("L1: [a..z #1-20 3M]").unwrap()).is_empty());
    }
}
