//! Explanations for people: the cycle, the schedule and the read weight behind it, and the runs wanted.

use super::position::Position;
use super::schedule::Schedule;
use super::shape::Shape;
use super::space::Sizes;
use super::tag::Cycle;
use crate::compaction::reason::{Counted, size};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// The read weight, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadWeight {
    /// An argument of the policy.
    Fixed(f64),
    Measured(f64),
    Unknown,
}

/// Text of the last decision.
#[derive(Debug, Default)]
pub(super) struct Explanation {
    /// Why the last clear began.
    pub(super) clear: String,
    text: String,
}

impl Explanation {
    /// Builds the text from the inputs of a decision.
    pub(super) fn decided(
        &mut self,
        cycle: &Cycle,
        schedule: &Schedule,
        position: &Position<'_>,
        (read_weight, reads): (ReadWeight, f64),
        sizes: &Sizes,
    ) {
        let mut text = String::new();
        let cost = schedule.planned_cost;
        let per_unit = |sum: f64| sum / f64::from(cycle.units);
        let _ = writeln!(
            text,
            "cycle {}: unit {} of {}, {} a unit; {} in H, {} of older cycles",
            cycle.number,
            position.units,
            cycle.units,
            size(cycle.unit_bytes()),
            Counted(position.current.len(), "run"),
            Counted(position.old.len(), "run"),
        );
        let _ = writeln!(
            text,
            "schedule {}: merges write {:.2} units per flushed unit; {:.2} runs on average, at most {}",
            shape(cycle.shape),
            per_unit(cost.merged as f64 / super::curve::FIXED_ONE as f64),
            per_unit(cost.run_units as f64),
            cost.runs
        );
        if matches!(cycle.shape, Shape::Weighted(_)) {
            let _ = match read_weight {
                ReadWeight::Fixed(weight) => writeln!(
                    text,
                    "read weight fixed at {weight:.3}; a run costs readers {reads:.0} ns a second now"
                ),
                ReadWeight::Measured(weight) => writeln!(
                    text,
                    "read weight measured now {weight:.3}: a run costs readers {reads:.0} ns a second"
                ),
                ReadWeight::Unknown => writeln!(text, "read weight not measured yet: the schedule stays"),
            };
            let _ = writeln!(text, "V1 may keep {:.2} times the bytes of a cycle after a clear", sizes.kept);
        }
        let wanted = schedule.target(position.units);
        let slots = wanted.iter().map(|planned_run| {
            format!("{}-{}, merged at {}", planned_run.lo, planned_run.hi, planned_run.dies)
        });
        let slots =
            slots.reduce(|all, planned_run| all + "; " + &planned_run).unwrap_or_else(|| "none".into());
        let _ = writeln!(text, "units of the runs wanted, oldest first: {slots}");
        self.text = text;
    }
}

fn shape(shape: Shape) -> String {
    match shape {
        Shape::Leveling(bound) => format!("leveling (at most {})", Counted(bound.into(), "run")),
        Shape::Tiering(bound) => format!("tiering (each unit written at most {bound} times)"),
        Shape::PublishedLeveling { levels, delta } => {
            format!("Algorithm 1 of the paper ({levels} levels, delta {delta})")
        }
        Shape::PublishedTiering(levels) => format!("Algorithm 2 of the paper ({levels} levels)"),
        Shape::Weighted(k) => {
            format!("weighted (read weight {:.3})", crate::real::power(2.0, f64::from(k) / 4.0))
        }
    }
}

/// Returns the explanation of the policy `name`.
pub(super) fn explain(name: &str, explanation: &Explanation, is_frozen: bool) -> String {
    let frozen = if is_frozen { " (frozen)" } else { "" };
    let mut text = format!("{name}{frozen}\n{}", explanation.text);
    if !explanation.clear.is_empty() {
        let _ = writeln!(text, "{}", explanation.clear);
    }
    text
}
