//! What a growth policy tells people: its cycle, its schedule and why, and the runs that it has and wants.

use super::position::Position;
use super::schedule::Schedule;
use super::shape::Shape;
use super::space::Sizes;
use super::tag::Cycle;
use crate::compaction::reason::{Counted, size};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// Text of the last decision.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Why the last clear began.
    pub(super) clear: String,
    text: String,
}

impl Told {
    /// Keeps what a decision was made of.
    pub(super) fn decided(
        &mut self,
        cycle: &Cycle,
        schedule: &Schedule,
        position: &Position<'_>,
        (rho, reads): (Option<f64>, f64),
        sizes: &Sizes,
    ) {
        let mut text = String::new();
        let cost = schedule.cost(&cycle.curve);
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
            "schedule {}: merges {:.2} units a unit and keeps {:.2} runs on average, at most {}",
            shape(cycle.shape),
            per_unit(cost.merged as f64 / super::curve::UNIT as f64),
            per_unit(cost.run_units as f64),
            cost.runs
        );
        if matches!(cycle.shape, Shape::Weighted(_)) {
            let _ = match rho {
                Some(rho) => {
                    writeln!(text, "rho measured now {rho:.3}: a run costs readers {reads:.0} ns a second")
                }
                None => writeln!(text, "rho not known yet: 1 is assumed"),
            };
            let _ = writeln!(text, "V1 keeps {:.2} cycles of bytes after a clear", sizes.kept);
        }
        let wanted = schedule.target(position.units);
        let slots = wanted.iter().map(|slot| format!("{}..{} until {}", slot.lo, slot.hi, slot.dies));
        let slots = slots.reduce(|all, slot| all + ", " + &slot).unwrap_or_else(|| "none".into());
        let _ = writeln!(text, "runs wanted, oldest first: {slots}");
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
            format!("weighted (k {k}: rho {:.3})", crate::real::power(2.0, f64::from(k) / 4.0))
        }
    }
}

/// Returns the explanation of the policy `name`.
pub(super) fn tell(name: &str, told: &Told, is_frozen: bool) -> String {
    let frozen = if is_frozen { " (frozen)" } else { "" };
    let mut text = format!("{name}{frozen}\n{}", told.text);
    if !told.clear.is_empty() {
        let _ = writeln!(text, "{}", told.clear);
    }
    text
}
