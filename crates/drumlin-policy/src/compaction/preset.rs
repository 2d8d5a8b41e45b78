//! What every preset shares: rules that propose merges, and the pace.
//!
//! A rule proposes; [`Round`] disposes, and this module adds when writers are slowed.

use super::round::Round;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, FileView, LevelDesign, LimitView, Pace, PaceScope, Plan,
    PolicyInput, TreeView,
};

/// What a rule looks at.
pub(super) struct Scene<'a> {
    /// The tree after all plans under way and those decided just now.
    pub(super) tree: &'a TreeView,
    pub(super) limits: &'a LimitView,
    /// Fresh randomness.
    pub(super) seed: u64,
}

impl Scene<'_> {
    /// Bytes of a full flush, F in arce.md.
    pub(super) fn flush_bytes(&self) -> f64 {
        self.limits.memtable_bytes.max(1) as f64
    }

    /// The deepest level of the tree.
    pub(super) fn last_level(&self) -> u8 {
        (self.tree.levels.len() as u8).saturating_sub(1)
    }
}

/// Run counts between which writers are slowed.
pub(super) struct Marks {
    pub(super) scope: PaceScope,
    pub(super) slow: f64,
    pub(super) stop: f64,
}

/// Plans that are made as they are looked at: most often the first is taken.
pub(super) type Proposals<'s> = Box<dyn Iterator<Item = Plan> + 's>;

/// The rule of a preset.
pub(super) trait Rule: fmt::Debug + Send {
    /// Name and arguments, as the registry takes them.
    fn name(&self) -> String;

    /// Merges in order of preference. They need not be legal and may name what is not free.
    fn proposals<'s>(&'s self, scene: &'s Scene<'_>) -> Proposals<'s>;

    /// Levels whose extra runs are merged in place when nothing is proposed.
    fn tidied(&self, scene: &Scene<'_>) -> Option<RangeInclusive<u8>> {
        let _ = scene;
        None
    }

    /// Most plans under way with so many slots.
    fn most(&self, slots: usize) -> usize {
        2 * slots + 1
    }

    /// What it means each level to hold, level 0 first.
    fn design(&self, scene: &Scene<'_>) -> Vec<LevelDesign> {
        let _ = scene;
        Vec::new()
    }

    /// When to slow writers, and when to stop them.
    fn marks(&self, scene: &Scene<'_>) -> Marks;
}

/// A rule as a policy.
#[derive(Debug)]
pub(super) struct Preset<R> {
    pub(super) rule: R,
    pub(super) hard_stop: bool,
}

impl<R: Rule + 'static> Preset<R> {
    pub(super) fn boxed(rule: R, hard_stop: bool) -> Box<dyn CompactionPolicy> {
        Box::new(Preset { rule, hard_stop })
    }
}

impl<R: Rule> CompactionPolicy for Preset<R> {
    fn name(&self) -> String {
        let name = self.rule.name();
        match (self.hard_stop, name.contains(':')) {
            (false, _) => name,
            (true, true) => name + ",hard-stop",
            (true, false) => name + ":hard-stop",
        }
    }

    fn design(&self, tree: &TreeView, limits: &LimitView) -> Vec<LevelDesign> {
        self.rule.design(&Scene { tree, limits, seed: 0 })
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let limits = input.limits;
        let tree = input.tree.projected();
        let Marks { scope, slow, stop } = self.rule.marks(&Scene { tree: &tree, limits, seed: input.seed });
        let plans = Round::new(&self.rule, input, tree).plans();
        let under_way = input.tickets.iter().map(|ticket| &ticket.plan).chain(&plans);
        let drain = drain(under_way, input.tree, input.costs, limits);
        let pace = Pace { scope, slow, stop, passes: 2.0, drain, hard_stop: self.hard_stop, covered: None };
        Decision { plans, pace: Some(pace), ..Decision::default() }
    }
}

/// Bytes per second that the best of the plans drains: flushes' worth of runs removed over merge time.
fn drain<'a>(
    plans: impl Iterator<Item = &'a Plan>,
    tree: &TreeView,
    costs: &CostView,
    limits: &LimitView,
) -> f64 {
    if costs.merge_bytes_per_s.is_nan() || costs.merge_bytes_per_s <= 0.0 {
        return 0.0;
    }
    let mut files: Vec<(usize, &FileView)> = Vec::new();
    for (number, run) in tree.levels.iter().flat_map(|level| &level.runs).enumerate() {
        files.extend(run.files.iter().map(|file| (number, file)));
    }
    files.sort_by_key(|(_, file)| file.table);
    let rate = |plan: &Plan| {
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        // What a plan may fold counts as folded: at worst the runs become fewer sooner.
        for take in plan.take.iter().chain(&plan.may_fold) {
            let first = files.partition_point(|(_, file)| file.table < take.table);
            let of_table = files[first..].iter().take_while(|(_, file)| file.table == take.table);
            let meets = of_table.enumerate().filter(|(_, (_, file))| file.bounds.overlaps(&take.range));
            taken.extend(meets.map(|(at, _)| first + at));
        }
        let bytes: u64 = taken.iter().map(|at| files[*at].1.bytes).sum();
        let holding = taken.iter().filter(|at| files[**at].1.bytes > 0);
        let runs: BTreeSet<usize> = holding.map(|at| files[*at].0).collect();
        let removed = runs.len() as f64 - 1.0;
        let seconds = costs.merge_fixed_ns.max(0.0) / 1e9 + bytes as f64 / costs.merge_bytes_per_s;
        if removed > 0.0 && seconds > 0.0 { limits.memtable_bytes as f64 * removed / seconds } else { 0.0 }
    };
    plans.map(rate).fold(0.0, f64::max)
}

/// Bytes in reasons: whole units, three digits.
pub(super) struct Size(pub(super) f64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0, "B");
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, next);
        }
        let digits = if value < 10.0 && unit != "B" { 1 } else { 0 };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// `size` as a [`Size`].
pub(super) fn size(bytes: u64) -> Size {
    Size(bytes as f64)
}

/// "1 run", "3 runs".
pub(super) struct Counted(pub(super) usize, pub(super) &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// "3 runs, 96 MiB" for reasons.
pub(super) fn amount(runs: &[super::stack::Run<'_>]) -> String {
    format!("{}, {}", Counted(runs.len(), "run"), size(super::stack::bytes(runs)))
}

/// `base^exponent` for the small powers of size ratios.
pub(super) fn power(base: f64, exponent: u8) -> f64 {
    (0..exponent).fold(1.0, |product, _| product * base)
}
