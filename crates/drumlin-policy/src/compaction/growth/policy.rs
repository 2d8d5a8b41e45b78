//! The policy call: where the tree stands, whether a clear is due, and what is merged next.

use super::clear::Clear;
use super::collapse::ReadDebt;
use super::converge::{MergeInput, collapsed, plans as merges};
use super::curve::FIXED_ONE;
use super::explanation::{Explanation, ReadWeight, explain};
use super::family::Family;
use super::position::{newest_cycle, position, vertical};
use super::read_weight::read_cost;
use super::schedule::Schedule;
use super::space::Sizes;
use super::tag::{Cycle, encode};
use super::tuning::Tuning;
use crate::compaction::preset::drain;
use crate::compaction::rule::stop_above;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, Decision, Outcome, Pace, PaceScope, Plan, PolicyError, PolicyInput, RunTag, TreeView,
};

/// A clear is due when the runs of the cycle exceed this multiple of the bytes of a whole cycle, whatever the unit
/// count.
const CLEAR_AT: f64 = 1.25;
/// Bytes, in units, that H and V1 together must exceed, and that H must hold, before the space target makes a clear
/// due.
const SPACE_UNITS: (u64, u64) = (8, 4);
/// How late the clear of the previous cycle may be, as a share of the present cycle, before writers are slowed.
const MAY_BE_LATE: f64 = 0.25;
/// Relative increase of the compaction passes that writers leave room for, per cycle that the clear is later than
/// that.
const LATE_PASSES: f64 = 3.0;

/// A policy that grows by a schedule.
#[derive(Debug)]
pub(super) struct Growth {
    family: Family,
    /// The present cycle; `None` until the tree was seen.
    cycle: Option<Cycle>,
    schedule: Option<Schedule>,
    /// Whether the cycle was compared with the tree, which may be newer than a saved state.
    is_checked: bool,
    /// Units of all cycles before this one, for deadlines.
    earlier_units: u64,
    tuning: Tuning,
    debt: ReadDebt,
    /// Bytes of H when the present cycle began: what its clear moves.
    clear_bytes: u64,
    /// Whether the last call returned no plan while no compaction was unfinished. The next clear does not wait for
    /// old runs that are left then, such as those above a damaged table.
    is_stuck: bool,
    is_frozen: bool,
    explanation: Explanation,
}

impl Growth {
    pub(super) fn new(family: Family) -> Growth {
        Growth {
            family,
            cycle: None,
            schedule: None,
            is_checked: false,
            earlier_units: 0,
            tuning: Tuning::new(family),
            debt: ReadDebt::default(),
            clear_bytes: 0,
            is_stuck: false,
            is_frozen: false,
            explanation: Explanation::default(),
        }
    }

    /// Returns the cycle and the schedule that `tree`, a projected tree, is in. `flush` is the expected size of a
    /// flush, used if a cycle begins before any flush was seen.
    fn follow(&mut self, tree: &TreeView, flush: u64) -> (Cycle, Schedule) {
        if !core::mem::replace(&mut self.is_checked, true)
            && let Some(newest) = newest_cycle(tree)
            && self.cycle.is_none_or(|known| newest.number > known.number)
        {
            (self.cycle, self.schedule, self.tuning.curve) = (Some(newest), None, newest.curve);
        }
        // A cycle with a schedule of another policy counts as an older one.
        let is_ours = |cycle: &Cycle| self.family.allows(cycle.shape);
        match self.cycle.filter(is_ours) {
            Some(cycle) if position(tree, cycle.number).is_broken() => self.begin(tree, flush),
            Some(cycle) => self.with(cycle),
            None => self.begin(tree, flush),
        }
    }

    /// Restores what `save` returned; `None` if it is damaged.
    fn restored(&mut self, blob: &[u8]) -> Option<()> {
        let (cycle, rest) = Cycle::decode(blob)?;
        let (earlier_units, rest) = rest.split_first_chunk()?;
        let (clear_bytes, rest) = rest.split_first_chunk()?;
        let (&is_stuck, rest) = rest.split_first()?;
        let mut tuning = Tuning::new(self.family);
        let rest = tuning.restore(rest)?;
        let (debt, rest) = ReadDebt::restore(rest)?;
        if !rest.is_empty() || is_stuck > 1 {
            return None;
        }
        (self.cycle, self.schedule, self.tuning, self.debt) = (Some(cycle), None, tuning, debt);
        (self.earlier_units, self.is_stuck) = (u64::from_le_bytes(*earlier_units), is_stuck == 1);
        self.clear_bytes = u64::from_le_bytes(*clear_bytes);
        Some(())
    }

    fn with(&mut self, cycle: Cycle) -> (Cycle, Schedule) {
        let make = || Schedule::new(cycle.units, cycle.shape, &cycle.curve);
        let schedule = self.schedule.get_or_insert_with(make).clone();
        (cycle, schedule)
    }

    /// Begins the next cycle. The runs of all earlier ones are old from now on.
    fn begin(&mut self, tree: &TreeView, flush: u64) -> (Cycle, Schedule) {
        let previous = self.cycle;
        let number = previous.map_or(0, |cycle| cycle.number.wrapping_add(1));
        let units = previous.map_or(0, |cycle| u64::from(cycle.units));
        self.earlier_units = self.earlier_units.saturating_add(units);
        let cycle = match previous.filter(|cycle| self.is_frozen && self.family.allows(cycle.shape)) {
            Some(cycle) => self.tuning.frozen_cycle(tree, cycle, number),
            None => self.tuning.next_cycle(tree, previous, number, flush),
        };
        self.clear_bytes = position(tree, number).old_bytes;
        (self.cycle, self.schedule) = (Some(cycle), None);
        self.with(cycle)
    }

    /// Returns the cause of a clear, if one is due.
    fn due(&self, input: &PolicyInput<'_>, tree: &TreeView, cycle: &Cycle, sizes: &Sizes) -> Option<String> {
        let unit = cycle.unit_bytes();
        let position = position(tree, cycle.number);
        let (v1, v2) = vertical(tree);
        let of = |level: u8| tree.levels.get(usize::from(level)).map_or(0, |level| level.bytes());
        let (above, v2) = (position.current_bytes + of(v1), of(v2));
        if position.units >= cycle.units {
            return Some(format!("unit {} of {}", position.units, cycle.units));
        }
        if position.current.len() == 1 && self.collapses(input, tree.bytes()) {
            let seconds = self.debt.seconds();
            return Some(format!("readers spent {seconds:.1} s on the last run, as long as a clear takes"));
        }
        if unit == 0 {
            return None;
        }
        let held = position.current_bytes as f64 / unit as f64;
        if held > CLEAR_AT * f64::from(cycle.units) {
            return Some(format!("{held:.0} units of bytes, {} planned", cycle.units));
        }
        let most = (sizes.obsolete * v2 as f64).max((SPACE_UNITS.0 * unit) as f64);
        if sizes.obsolete.is_finite() && held >= SPACE_UNITS.1 as f64 && above as f64 > most {
            return Some(format!("{above} bytes above the last level, {most:.0} allowed"));
        }
        None
    }

    /// Returns whether a published schedule has made its merges, or its cycle is a quarter too long. Other schedules
    /// do not wait.
    fn has_merged(&self, projected: &TreeView, cycle: &Cycle, schedule: &Schedule) -> bool {
        let found = position(projected, cycle.number);
        let wanted = schedule.target(found.units).len();
        let of_cycle = || found.current.iter().filter(|run| run.units.lo <= cycle.units);
        let is_done = of_cycle().all(|run| run.run.idle) && of_cycle().count() <= wanted;
        !cycle.shape.is_published() || is_done || found.units > cycle.units + cycle.units / 4
    }

    /// Returns the largest number of runs that the schedule keeps at once.
    fn most_runs(&self) -> usize {
        let schedule = self.schedule.as_ref();
        schedule.map_or(0, |schedule| usize::from(schedule.planned_cost.runs))
    }

    /// Returns whether readers have paid for a merge of `bytes`.
    fn collapses(&self, input: &PolicyInput<'_>, bytes: u64) -> bool {
        let is_quiet = input.tickets.is_empty() && !input.frozen && self.family.keeps_v1();
        is_quiet && self.debt.pays(bytes, input.costs.compaction_bytes_per_s)
    }

    /// Begins the next cycle, which clears the present one.
    fn clear(&mut self, projected: &TreeView, input: &PolicyInput<'_>, why: &str) {
        let (cycle, _) = self.begin(projected, input.limits.memtable_bytes);
        self.explanation.clear = format!("cycle {} began: {why}", cycle.number);
    }

    /// Returns the number of runs of a cycle at which writers are slowed.
    fn slows_at(&self) -> usize {
        2 * self.most_runs() + 4
    }

    /// Returns why a clear is due early: the cycle has more runs than the schedule keeps, and no plan can merge them.
    /// A damaged table causes that. The clear begins a new cycle, whose runs can be merged again. If no run of the
    /// cycle itself is damaged, the clear waits until writers would be slowed.
    fn blocked(&self, projected: &TreeView) -> Option<String> {
        let position = position(projected, self.cycle?.number);
        let closed = position.current.iter().filter(|run| !run.units.is_open).count();
        let is_damaged = position.current.iter().any(|run| !run.run.idle);
        let is_blocked = closed >= self.slows_at() || is_damaged && closed > self.most_runs();
        is_blocked.then(|| format!("{closed} runs that no plan can merge"))
    }

    /// Returns the merges of the present cycle, the plans of its clear and, while nothing else is due, merges for
    /// readers.
    fn plans(&mut self, input: &PolicyInput<'_>, projected: &TreeView, sizes: &Sizes) -> Vec<Plan> {
        let Some(cycle) = self.cycle else { return Vec::new() };
        let (cycle, schedule) = self.with(cycle);
        let position = position(projected, cycle.number);
        let merge_input = MergeInput {
            projected,
            tree: input.tree,
            cycle: &cycle,
            schedule: &schedule,
            earlier_units: self.earlier_units,
        };
        let clear = Clear {
            projected,
            tickets: input.tickets,
            limits: input.limits,
            cycle: &cycle,
            kept: (sizes.kept * f64::from(cycle.units) * cycle.unit_bytes() as f64) as u64,
            is_tiered: self.tuning.is_v1_tiered,
            is_quiet: input.tickets.is_empty(),
            is_published: cycle.shape.is_published(),
            deadline: self.earlier_units.saturating_add(u64::from(cycle.units)),
        };
        let mut plans = merges(&merge_input, &position);
        plans.extend(clear.plans(&position));
        if plans.is_empty() && input.tickets.is_empty() {
            plans.extend(clear.merged_old(&position));
        }
        let v1 = projected.levels.get(usize::from(vertical(projected).0));
        let extra = position.current.len() + v1.map_or(0, |v1| v1.runs.len()).saturating_sub(1);
        let reads = if input.frozen { 0.0 } else { reads(input) };
        self.debt.add((extra, position.units), input.now, reads);
        if plans.is_empty() && position.old.is_empty() {
            plans.extend(match position.current.is_empty() {
                true if self.collapses(input, v1.map_or(0, |v1| v1.bytes())) => clear.merged_v1(),
                false if self.collapses(input, position.current_bytes) => collapsed(&merge_input, &position),
                _ => None,
            });
        }
        plans
    }

    /// Records the inputs of this decision for `explain`.
    fn explain_later(&mut self, input: &PolicyInput<'_>, projected: &TreeView, sizes: &Sizes) {
        let Some(cycle) = self.cycle else { return };
        let (cycle, schedule) = self.with(cycle);
        let position = position(projected, cycle.number);
        let read_weight = match (self.family.fixed_read_weight(), self.tuning.read_weight) {
            (Some(weight), _) => ReadWeight::Fixed(weight),
            (None, Some(weight)) => ReadWeight::Measured(weight),
            (None, None) => ReadWeight::Unknown,
        };
        self.explanation.decided(&cycle, &schedule, &position, (read_weight, reads(input)), sizes);
    }

    /// Returns the write rate limit. Writers are slowed to what compactions can absorb in two cases: the present
    /// cycle has more than twice as many runs as the schedule keeps (see `slows_at`), or the clear of the previous
    /// cycle is a quarter of the present cycle behind. Old runs do not count, because clears remove them.
    fn pace(&self, input: &PolicyInput<'_>, plans: &[Plan], sizes: &Sizes) -> Pace {
        let under_way = || input.tickets.iter().map(|ticket| &ticket.plan).chain(plans);
        let drain = drain(under_way(), input.tree, input.costs, input.limits);
        let mut slow = self.slows_at() as f64;
        let mut pace = Pace { drain, ..Pace::free(PaceScope::All, stop_above(slow, 8.0)) };
        if let (Some(cycle), Some(schedule)) = (self.cycle, &self.schedule) {
            let live = input.tree.live();
            let position = position(&live, cycle.number);
            let covered = position.current.len() as f64;
            let units = f64::from(cycle.units);
            let merged = schedule.planned_cost.merged as f64 / FIXED_ONE as f64 / units;
            (pace.passes, pace.covered) = ((merged + sizes.writes).clamp(1.0, 64.0), Some(covered));
            // If the saved state was lost, the bytes at the start of the clear are unknown.
            let all = (self.clear_bytes as f64).max(units * cycle.unit_bytes().max(1) as f64);
            let late =
                f64::from(position.units) / units - (1.0 - position.old_bytes as f64 / all) - MAY_BE_LATE;
            let is_clearing = under_way().any(|plan| plan.out >= vertical(input.tree).0);
            if late > 0.0 && position.old_bytes > 0 && is_clearing {
                slow = slow.min((covered - 1.0).max(0.0));
                pace.passes *= 1.0 + LATE_PASSES * late.min(2.0);
            }
        }
        Pace { slow, ..pace }
    }
}

/// Returns the nanoseconds per second that one run of H costs readers.
fn reads(input: &PolicyInput<'_>) -> f64 {
    read_cost(input.load, input.costs, input.tree.false_positive_rate())
}

impl CompactionPolicy for Growth {
    fn name(&self) -> String {
        self.family.name()
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.is_frozen = input.frozen;
        if !input.frozen {
            self.tuning.measure(input);
        }
        let projected = input.tree.projected();
        let (cycle, schedule) = self.follow(&projected, input.limits.memtable_bytes);
        let sizes = self.tuning.sizes(&projected, cycle.unit_bytes(), Some(cycle.units));
        // A clear waits for the previous one. A published clear also waits for its merges.
        if (position(input.tree, cycle.number).old.is_empty() || self.is_stuck && input.tickets.is_empty())
            && self.has_merged(&projected, &cycle, &schedule)
            && let Some(why) = self.due(input, &projected, &cycle, &sizes)
        {
            self.clear(&projected, input, &why);
        }
        let mut plans = self.plans(input, &projected, &sizes);
        let blocked =
            if plans.is_empty() && input.tickets.is_empty() { self.blocked(&projected) } else { None };
        if let Some(why) = blocked {
            self.clear(&projected, input, &why);
            plans = self.plans(input, &projected, &sizes);
        }
        self.is_stuck = plans.is_empty() && input.tickets.is_empty();
        let most = 2 * input.limits.slots.max(1) as usize + 1 + projected.levels.len();
        plans.truncate(most.saturating_sub(input.tickets.len()));
        let pace = self.pace(input, &plans, &sizes);
        self.explain_later(input, &projected, &sizes);
        Decision { plans, pace: Some(pace), ..Decision::default() }
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Outcome::Flushed { bytes, .. } = outcome
            && !self.is_frozen
        {
            self.tuning.note_flush(*bytes);
        }
    }

    fn freeze(&mut self, frozen: bool) {
        self.is_frozen = frozen;
    }

    fn flush_tag(&mut self, bytes: u64, tree: &TreeView) -> RunTag {
        let tree = tree.projected();
        let (cycle, _) = self.follow(&tree, bytes);
        encode(&cycle, &position(&tree, cycle.number).next(bytes, cycle.unit_bytes()))
    }

    fn explain(&self) -> String {
        explain(&self.name(), &self.explanation, self.is_frozen)
    }

    /// Saves everything that decisions depend on, so that recorded decisions can be replayed. After a crash, the tags
    /// of the runs are enough to continue.
    fn save(&self) -> Vec<u8> {
        let Some(cycle) = &self.cycle else { return Vec::new() };
        let mut bytes = cycle.encode();
        bytes.extend(self.earlier_units.to_le_bytes());
        bytes.extend(self.clear_bytes.to_le_bytes());
        bytes.push(u8::from(self.is_stuck));
        self.tuning.save(&mut bytes);
        self.debt.save(&mut bytes);
        bytes
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let restored = self.restored(blob);
        restored.ok_or_else(|| {
            PolicyError(format!("{}: the saved state of {} bytes is damaged", self.name(), blob.len()))
        })
    }
}
