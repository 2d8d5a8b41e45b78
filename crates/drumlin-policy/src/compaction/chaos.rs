//! Random legal plans and random write rate limits, for tests. In time this policy does everything that a policy may
//! do.
//!
//! It takes files at random, clips some of them to bounds that occur in the tree, and sends them to any level at or
//! below theirs. It names places and folds that may not be valid. Every plan moves something down or compacts files
//! that overlap, so a tree without writes comes to rest.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::size;
use super::rule::{Proposals, Rule, RuleScene, StallTriggers};
use crate::random::SplitMix;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, FileView, PaceScope, Place, Plan, PolicyError, Take, TreeView,
};
use drumlin_types::{Key, KeyRange};

const TRIES: usize = 8;

#[derive(Debug)]
struct Chaos;

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    arguments.none()?;
    Ok(Preset::boxed(Chaos, arguments.hard_stop))
}

impl Chaos {
    fn draw(dice: &mut SplitMix, tree: &TreeView, edges: &[Key]) -> Option<Plan> {
        let files: Vec<(u8, &FileView)> =
            tree.files().filter(|(_, _, f)| f.is_takeable()).map(|(level, _, f)| (level, f)).collect();
        let clip = if dice.one_in(3) { drawn_range(dice, edges) } else { KeyRange::all() };
        let mut chosen: Vec<(u8, Take)> = Vec::new();
        for _ in 0..1 + dice.below(3 + files.len() / 4) {
            let &(level, file) = files.get(dice.below(files.len()))?;
            let Some(range) = file.bounds.intersect(&clip) else { continue };
            let take = Take { table: file.table, range };
            if !chosen.iter().any(|(_, other)| other.table == take.table && other.range.overlaps(&take.range))
            {
                chosen.push((level, take));
            }
        }
        let deepest = chosen.iter().map(|(level, _)| *level).max()?;
        let out = deepest + dice.below(tree.levels.len() - usize::from(deepest)) as u8;
        if chosen.iter().all(|(level, _)| *level == out) {
            // An in-place plan takes only files that overlap the first one. So no output covers a gap, and the number
            // of runs over a key falls.
            let first = chosen.first()?.1.range.clone();
            chosen.retain(|(_, take)| take.range.overlaps(&first));
            if chosen.len() < 2 {
                return None;
            }
        }
        let take: Vec<Take> = chosen.into_iter().map(|(_, take)| take).collect();
        let mut plan = Plan::new(take, out, String::new());
        plan.priority = dice.below(100) as f64;
        let runs = &tree.levels[usize::from(out)].runs;
        if let Some(run) = runs.get(dice.below(2 * runs.len())) {
            plan.place = Place::Run(run.id);
        }
        if dice.one_in(2) {
            let is_taken = |f: &FileView| plan.take.iter().any(|take| take.table == f.table);
            let beside = runs.iter().flat_map(|run| &run.files).filter(|f| !is_taken(f));
            plan.may_fold = beside.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
        }
        Some(plan)
    }
}

fn drawn_range(dice: &mut SplitMix, edges: &[Key]) -> KeyRange {
    let mut edge = || edges.get(dice.below(edges.len() + 1)).cloned();
    let (start, end) = (edge().unwrap_or_else(Key::empty), edge());
    match end {
        Some(end) if end < start => KeyRange::new(end, Some(start)),
        end => KeyRange::new(start, end),
    }
}

impl Rule for Chaos {
    fn name(&self) -> String {
        "chaos".into()
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let mut dice = SplitMix::new(scene.seed);
        if dice.one_in(2) {
            return Box::new(core::iter::empty());
        }
        let edges = scene.tree.edges();
        let drawn = (0..TRIES).filter_map(move |_| Chaos::draw(&mut dice, scene.tree, &edges));
        let explained = drawn.map(move |mut plan| {
            let total = size(scene.tree.bytes());
            plan.reason =
                format!("drawn by seed {}: {} takes of a tree of {total}", scene.seed, plan.take.len());
            plan
        });
        Box::new(explained)
    }

    fn stall_triggers(&self, scene: &RuleScene<'_>) -> StallTriggers {
        // The marks are drawn around the present run count, with slack above it. A stop mark that chaos might never
        // lift would hang its writers.
        let mut dice = SplitMix::new(scene.seed ^ 0x7061_6365);
        let runs = scene.tree.runs();
        let slow = 1 + dice.below(runs + 16);
        let scope = if dice.one_in(2) { PaceScope::All } else { PaceScope::Level0 };
        StallTriggers { scope, slow: slow as f64, stop: (slow.max(runs) + 8 + dice.below(32)) as f64 }
    }
}
