//! The trait of the rules that propose compactions, and what a rule sees and returns.

use crate::pace::THROTTLE_FROM;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use drumlin_types::contract::{LevelDesign, LimitView, PaceScope, Plan, TreeView};

/// Input of a rule.
pub(super) struct RuleScene<'a> {
    /// Tree after all plans under way and those already made in this decision.
    pub(super) tree: &'a TreeView,
    pub(super) limits: &'a LimitView,
    /// Fresh random seed.
    #[cfg_attr(not(feature = "experiments"), expect(dead_code, reason = "only `chaos` draws"))]
    pub(super) seed: u64,
}

impl RuleScene<'_> {
    /// Returns the bytes of a full flush (F in the formulas of `arce`).
    pub(super) fn flush_bytes(&self) -> f64 {
        self.limits.memtable_bytes.max(1) as f64
    }

    /// Returns the number of the bottommost level that the tree may have, filled or not.
    pub(super) fn last_level(&self) -> u8 {
        (self.tree.levels.len() as u8).saturating_sub(1)
    }
}

/// Run counts at which writers are slowed and stopped. They are slowed above `slow`, more above three quarters of
/// `stop`, and wait from `stop` + 8 runs on, or from `stop` on with the argument `hard-stop` ([`Pace`] has the
/// function).
///
/// `slow` should be the most runs that the policy keeps in normal operation. `scope` says which runs count: choose
/// `All` if the policy may leave many runs in levels other than level 0.
///
/// [`Pace`]: drumlin_types::contract::Pace
pub(super) struct StallTriggers {
    pub(super) scope: PaceScope,
    pub(super) slow: f64,
    pub(super) stop: f64,
}

impl StallTriggers {
    /// Stops writers `margin` runs above `slow`, or later: writers are also slowed above three quarters of `stop`, and
    /// up to `slow` runs the policy may have nothing to compact.
    pub(super) fn above(scope: PaceScope, slow: f64, margin: f64) -> StallTriggers {
        StallTriggers { scope, slow, stop: stop_above(slow, margin) }
    }
}

/// Returns the number of runs, at least `margin` above `slow`, of which three quarters are at least `slow`.
pub(super) fn stop_above(slow: f64, margin: f64) -> f64 {
    (slow + margin).max(slow / THROTTLE_FROM)
}

/// Lazily built plans: most often only the first is used.
pub(super) type Proposals<'s> = Box<dyn Iterator<Item = Plan> + 's>;

/// Rule of a preset.
pub(super) trait Rule: fmt::Debug + Send {
    /// Returns the name and arguments in the form that the registry accepts.
    fn name(&self) -> String;

    /// Returns compactions in order of preference. They may be illegal and may name files that are not free.
    ///
    /// Each must make progress: reduce the number of runs, or move data to a deeper level. Once flushes stop, a rule
    /// must propose nothing after a finite number of compactions, on any tree, also on one that another policy built.
    fn proposals<'s>(&'s self, scene: &'s RuleScene<'_>) -> Proposals<'s>;

    /// Returns the levels that should have one run. When nothing is proposed, the runs beside the largest one are
    /// compacted into it. A tiered rule returns `None`.
    fn tidied(&self, scene: &RuleScene<'_>) -> Option<RangeInclusive<u8>> {
        let _ = scene;
        None
    }

    /// Returns the largest number of unfinished plans with `slots` compaction slots.
    fn most(&self, slots: usize) -> usize {
        2 * slots + 1
    }

    /// Returns the target shape of each level, level 0 first; see [`LevelDesign`]. Without one the scheduler assumes no
    /// bounds.
    fn design(&self, scene: &RuleScene<'_>) -> Vec<LevelDesign> {
        let _ = scene;
        Vec::new()
    }

    /// Returns the run counts at which writers are slowed and stopped.
    fn stall_triggers(&self, scene: &RuleScene<'_>) -> StallTriggers;
}

/// Returns `base^exponent`, for small powers of size ratios.
pub(super) fn power(base: f64, exponent: u8) -> f64 {
    (0..exponent).fold(1.0, |product, _| product * base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing may be due up to `slow` runs, so writers are not slowed there.
    #[test]
    fn writers_are_not_slowed_before_a_compaction_may_be_due() {
        for slow in 1..1000 {
            let slow = f64::from(slow);
            let stop = StallTriggers::above(PaceScope::Level0, slow, 4.0).stop;
            assert!(THROTTLE_FROM * stop >= slow - 1e-9 && stop >= slow + 4.0, "{slow} {stop}");
        }
        assert_eq!([8.0, 12.0, 100.0].map(|slow| stop_above(slow, 4.0)), [12.0, 16.0, 100.0 / 0.75]);
    }
}
