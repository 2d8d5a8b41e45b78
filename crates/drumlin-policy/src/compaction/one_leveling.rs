//! 1-leveling, as in RocksDB: level 0 holds flushed runs, and each deeper level is one run of files. The level that
//! is fullest for its size gives one file at a time to the next level. It gives the file whose overlap there is
//! smallest relative to its own size.
//!
//! The score of level 0 is the larger of runs/4 and bytes/C_1; the score of level i is bytes/C_i. Levels with a score
//! of 1 or more are due, the highest score first. Target sizes grow by a factor of 10, or of T where that is given,
//! from C_1 = 256 MiB. With `static`, C_1 is ten flushes. With `dynamic`, the target of the last level is its present
//! size, and the targets above it are divided down until C_1 is reached. The level where that happens is the base,
//! into which level 0 is compacted. Levels above the base are emptied.
//!
//! A plan may fold the files that it overlaps in the next level, that is, include them as inputs. The scheduler
//! decides whether it does, so busy files there hold nothing up. Extra runs, from plans that did not wait or from
//! another policy, are compacted in place when no level is over its size.

use super::arguments::Arguments;
use super::preset::Preset;
use super::reason::{Counted, Size, size};
use super::rule::{Proposals, Rule, RuleScene, StallTriggers, power};
use super::stack::{largest_run, overlapping};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use drumlin_types::contract::{
    CompactionPolicy, FileView, LevelDesign, LevelView, PaceScope, Place, Plan, PolicyError, RunView, Take,
};
use drumlin_types::{Key, KeyRange};

const BASE_BYTES: f64 = (256u64 << 20) as f64;
const GROWTH: usize = 10;
const LEVEL0_RUNS: f64 = 4.0;
/// Number of candidate files per level that are tried when the best one cannot be closed.
const TRIED: usize = 4;

#[derive(Clone, Copy, PartialEq, Debug)]
enum LevelSizes {
    Plain,
    Static,
    Dynamic,
}

#[derive(Debug)]
struct OneLeveling {
    sizes: LevelSizes,
    /// Size factor from one level to the next.
    growth: f64,
}

pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let (sizes, growth) = match arguments.text {
        "" => (LevelSizes::Plain, GROWTH),
        "static" => (LevelSizes::Static, GROWTH),
        "dynamic" => (LevelSizes::Dynamic, GROWTH),
        text if text.starts_with(|c: char| c.is_ascii_digit()) => {
            (LevelSizes::Plain, arguments.number("T", GROWTH, 2..=100)?)
        }
        _ => return Err(arguments.error("must be static, dynamic or T")),
    };
    Ok(Preset::boxed(OneLeveling { sizes, growth: growth as f64 }, arguments.hard_stop))
}

/// File that may be compacted into the next level.
struct MoveCandidate<'a> {
    file: &'a FileView,
    /// Overlapping bytes in the next level per byte of the file.
    ratio: f64,
}

/// Index over the bounds of a level's files. It yields the overlap of a range without visiting each file.
struct Below<'a> {
    /// Start keys in order, each with the bytes of all files that start no later.
    starts: Vec<(&'a Key, u64)>,
    /// End keys in order, each with the bytes of all files that end no later.
    ends: Vec<(&'a Key, u64)>,
}

impl OneLeveling {
    fn first_size(&self, scene: &RuleScene<'_>) -> f64 {
        if self.sizes == LevelSizes::Static { 10.0 * scene.flush_bytes() } else { BASE_BYTES }
    }

    /// Returns the level that level 0 is compacted into.
    fn base(&self, scene: &RuleScene<'_>) -> u8 {
        if self.sizes != LevelSizes::Dynamic {
            return 1.min(scene.last_level());
        }
        let mut base = scene.last_level();
        let mut target = scene.tree.levels.last().map_or(0, |level| level.bytes()) as f64;
        while target > BASE_BYTES && base > 1 {
            target /= self.growth;
            base -= 1;
        }
        base
    }

    /// Returns the target size of level `level` >= 1. With `dynamic`, the last level's target is its present size.
    fn target(&self, scene: &RuleScene<'_>, base: u8, level: u8) -> f64 {
        if self.sizes != LevelSizes::Dynamic {
            return self.first_size(scene) * power(self.growth, level - 1);
        }
        let last = scene.tree.levels.last().map_or(0, |l| l.bytes()) as f64;
        if level < base { 0.0 } else { (last / power(self.growth, scene.last_level() - level)).max(1.0) }
    }

    fn score(&self, scene: &RuleScene<'_>, base: u8, level: u8) -> f64 {
        let view = &scene.tree.levels[usize::from(level)];
        let bytes = view.bytes() as f64;
        if level == 0 {
            (view.runs.len() as f64 / LEVEL0_RUNS).max(bytes / self.first_size(scene))
        } else {
            bytes / self.target(scene, base, level)
        }
    }

    /// Returns the plan that compacts all idle runs of level 0 with the files that they overlap in the base.
    fn flushed(&self, scene: &RuleScene<'_>, base: u8, score: f64) -> Option<Plan> {
        let idle: Vec<&RunView> = scene.tree.levels[0].runs.iter().filter(|run| run.is_takeable()).collect();
        let hull = idle.iter().filter_map(|run| run.hull()).reduce(|a, b| a.hull(&b))?;
        let others = overlap(scene, base, &hull);
        let reason = format!(
            "level 0 scores {score:.2}: its {}, {}, and {}, {}, of level {base}",
            Counted(idle.len(), "idle run"),
            size(idle.iter().map(|run| run.bytes()).sum()),
            Counted(others.len(), "file"),
            size(others.iter().map(|f| f.bytes).sum())
        );
        let files = idle.iter().flat_map(|run| &run.files);
        Some(leveled(scene, files, others.into_iter(), base, score, reason))
    }

    /// Returns plans for the few files of `level` with the least overlap for their size, best first.
    fn oversized<'s>(
        &'s self,
        scene: &'s RuleScene<'_>,
        level: u8,
        score: f64,
        target: f64,
    ) -> Proposals<'s> {
        let out = level + 1;
        let filled = scene.tree.levels[usize::from(level)].bytes();
        let below = Below::of(&scene.tree.levels[usize::from(out)]);
        let free = scene.tree.levels[usize::from(level)].files().filter(|file| file.is_takeable());
        let candidates = best(free.map(|file| MoveCandidate::new(file, below.overlap(&file.bounds))));
        let plan = move |c: MoveCandidate<'_>| {
            let others = overlap(scene, out, &c.file.bounds);
            let reason = format!(
                "level {level} scores {score:.2}, {} of {}: file {} of {} overlaps {}, {:.2} times its size",
                size(filled),
                Size(target),
                c.file.table,
                size(c.file.bytes),
                Counted(others.len(), "file"),
                c.ratio
            );
            leveled(scene, core::iter::once(c.file), others.into_iter(), out, score, reason)
        };
        Box::new(candidates.into_iter().map(plan))
    }
}

impl<'a> MoveCandidate<'a> {
    fn new(file: &'a FileView, overlap: u64) -> MoveCandidate<'a> {
        MoveCandidate { file, ratio: overlap as f64 / file.bytes.max(1) as f64 }
    }
}

impl<'a> Below<'a> {
    fn of(level: &'a LevelView) -> Below<'a> {
        let files = || level.files().filter(|f| !f.bounds.is_empty());
        let starts = files().map(|f| (&f.bounds.start, f.bytes)).collect();
        let ends = files().filter_map(|f| Some((f.bounds.end.as_ref()?, f.bytes))).collect();
        Below { starts: summed(starts), ends: summed(ends) }
    }

    /// Returns the bytes of the files that share keys with `range`, which is not empty.
    fn overlap(&self, range: &KeyRange) -> u64 {
        let begun = self.starts.partition_point(|(start, _)| range.is_before_end(start));
        let over = self.ends.partition_point(|(end, _)| **end <= range.start);
        let sum = |keys: &[(&Key, u64)]| keys.last().map_or(0, |(_, sum)| *sum);
        sum(&self.starts[..begun]) - sum(&self.ends[..over])
    }
}

/// Sorts `keys` and replaces their numbers by running sums. The input is concatenated from runs that are already
/// sorted.
fn summed(mut keys: Vec<(&Key, u64)>) -> Vec<(&Key, u64)> {
    keys.sort_by(|a, b| a.0.cmp(b.0));
    let mut sum = 0;
    for (_, bytes) in &mut keys {
        sum += *bytes;
        *bytes = sum;
    }
    keys
}

fn best<'a>(candidates: impl Iterator<Item = MoveCandidate<'a>>) -> Vec<MoveCandidate<'a>> {
    let mut candidates: Vec<MoveCandidate<'a>> = candidates.collect();
    candidates.sort_by(|a, b| {
        a.ratio.total_cmp(&b.ratio).then_with(|| a.file.bounds.start.cmp(&b.file.bounds.start))
    });
    candidates.truncate(TRIED);
    candidates
}

/// Returns the files of `level` in `range`, in whatever state they are.
fn overlap<'a>(scene: &RuleScene<'a>, level: u8, range: &KeyRange) -> Vec<&'a FileView> {
    let runs = &scene.tree.levels[usize::from(level)].runs;
    runs.iter().flat_map(|run| overlapping(run, range)).collect()
}

fn leveled<'a>(
    scene: &RuleScene<'_>,
    files: impl Iterator<Item = &'a FileView>,
    beside: impl Iterator<Item = &'a FileView>,
    out: u8,
    priority: f64,
    reason: String,
) -> Plan {
    let take = |f: &FileView| Take { table: f.table, range: f.bounds.clone() };
    let mut plan = Plan::new(files.map(take).collect(), out, reason);
    plan.may_fold = beside.map(take).collect();
    plan.place = largest_run(scene.tree, out).map_or(Place::NewRun, Place::Run);
    plan.priority = priority;
    plan
}

impl Rule for OneLeveling {
    fn name(&self) -> String {
        match self.sizes {
            LevelSizes::Plain if self.growth != GROWTH as f64 => format!("1-leveling:{}", self.growth),
            LevelSizes::Plain => "1-leveling".into(),
            LevelSizes::Static => "1-leveling:static".into(),
            LevelSizes::Dynamic => "1-leveling:dynamic".into(),
        }
    }

    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s> {
        let (base, last) = (self.base(scene), scene.last_level());
        let scores = (0..last).map(|level| (self.score(scene, base, level), level));
        let mut due: Vec<(f64, u8)> = scores.filter(|(score, _)| *score >= 1.0).collect();
        due.sort_by(|a, b| b.0.total_cmp(&a.0));
        Box::new(due.into_iter().flat_map(move |(score, level)| match level {
            0 => Box::new(self.flushed(scene, base, score).into_iter()),
            _ => self.oversized(scene, level, score, self.target(scene, base, level)),
        }))
    }

    fn tidied(&self, scene: &RuleScene<'_>) -> Option<RangeInclusive<u8>> {
        Some(1..=scene.last_level())
    }

    fn design(&self, scene: &RuleScene<'_>) -> Vec<LevelDesign> {
        let (base, last) = (self.base(scene), scene.last_level());
        let level = |level| match level {
            0 => LevelDesign { bytes: f64::INFINITY, runs: LEVEL0_RUNS },
            // The last level's target is its present size.
            _ if self.sizes == LevelSizes::Dynamic && level == last => {
                LevelDesign { bytes: f64::INFINITY, runs: 1.0 }
            }
            _ => LevelDesign { bytes: self.target(scene, base, level).max(1.0), runs: 1.0 },
        };
        (0..=last).map(level).collect()
    }

    fn stall_triggers(&self, _: &RuleScene<'_>) -> StallTriggers {
        StallTriggers { scope: PaceScope::Level0, slow: 20.0, stop: 36.0 }
    }
}
