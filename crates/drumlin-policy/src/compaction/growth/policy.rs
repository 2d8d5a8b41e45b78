//! The policy call: where the tree stands, whether a clear is due, and what is merged next.

use super::clear::Clear;
use super::collapse::ReadDebt;
use super::converge::{Scene, collapsed, plans as merges};
use super::curve::{DOUBLINGS, SizeCurve};
use super::explain::{Told, tell};
use super::family::Family;
use super::position::{CycleRun, newest_cycle, position, vertical};
use super::published;
use super::rho::{choose, nearest, read_cost, rho};
use super::schedule::Schedule;
use super::shape::Shape;
use super::space::{Sizes, steady};
use super::tag::{Cycle, encode};
use crate::compaction::preset::drain;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CompactionPolicy, Decision, Outcome, Pace, PaceScope, Plan, PolicyError, PolicyInput, RunTag, TreeView,
};

/// Number of flushes whose mean is the size of a unit.
const FLUSHES: usize = 16;
/// Bytes of H, in those of a whole cycle, from which a clear is due whatever the units say.
const FULL: f64 = 1.25;
/// Units of H and V1, and units of H alone, from which a clear for the sake of space is due.
const SPACE_UNITS: (u64, u64) = (8, 4);
/// V1 gets a new run for each clear while rho is below the first number, and one run from the second on.
const TIERED_BELOW: (f64, f64) = (0.95, 1.05);

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
    before: u64,
    /// Size curve as measured. The schedule keeps the one that it was made with.
    curve: SizeCurve,
    /// Bytes of the last flushes, oldest first.
    flushes: Vec<u64>,
    rho: Option<f64>,
    /// Operations as the published tuning sees them.
    mix: Option<published::Mix>,
    debt: ReadDebt,
    /// Whether old runs are left that no plan may take, such as those below a damaged table. The next cycle then begins
    /// nevertheless, so that its merges go on.
    is_stuck: bool,
    is_tiered: bool,
    is_frozen: bool,
    told: Told,
}

impl Growth {
    pub(super) fn new(family: Family) -> Growth {
        Growth {
            family,
            cycle: None,
            schedule: None,
            is_checked: false,
            before: 0,
            curve: SizeCurve::default(),
            flushes: Vec::new(),
            rho: None,
            mix: None,
            debt: ReadDebt::default(),
            is_stuck: false,
            is_tiered: false,
            is_frozen: false,
            told: Told::default(),
        }
    }

    /// Returns the cycle and the schedule that `tree`, a projected tree, is in. `flush` is the expected size of a
    /// flush, for a cycle that begins before any was seen.
    fn follow(&mut self, tree: &TreeView, flush: u64) -> (Cycle, Schedule) {
        if !core::mem::replace(&mut self.is_checked, true)
            && let Some(newest) = newest_cycle(tree)
            && self.cycle.is_none_or(|known| newest.number > known.number)
        {
            (self.cycle, self.schedule, self.curve) = (Some(newest), None, newest.curve);
        }
        // A tag of another policy's schedule is one of an older cycle.
        let is_ours = |cycle: &Cycle| self.family.allows(cycle.shape);
        match self.cycle.filter(is_ours) {
            Some(cycle) if position(tree, cycle.number).is_broken() => self.begin(tree, flush),
            Some(cycle) => self.with(cycle),
            None => self.begin(tree, flush),
        }
    }

    fn with(&mut self, cycle: Cycle) -> (Cycle, Schedule) {
        let make = || Schedule::new(cycle.units, cycle.shape, &cycle.curve);
        let schedule = self.schedule.get_or_insert_with(make).clone();
        (cycle, schedule)
    }

    /// Begins the next cycle. The runs of all earlier ones are old from now on.
    fn begin(&mut self, tree: &TreeView, flush: u64) -> (Cycle, Schedule) {
        let before = self.cycle;
        let number = before.map_or(0, |cycle| cycle.number.wrapping_add(1));
        self.before += before.map_or(0, |cycle| u64::from(cycle.units));
        let cycle = match before.filter(|cycle| self.is_frozen && self.family.allows(cycle.shape)) {
            Some(cycle) => Cycle { number, ..cycle },
            None => self.retune(tree, before, number, flush),
        };
        (self.cycle, self.schedule) = (Some(cycle), None);
        self.with(cycle)
    }

    /// Returns the next cycle, with the sizes and the schedule that the store and its load ask for now.
    fn retune(&mut self, tree: &TreeView, before: Option<Cycle>, number: u32, flush: u64) -> Cycle {
        let unit_kib =
            self.unit_kib().or(before.map(|cycle| cycle.unit_kib)).unwrap_or_else(|| in_kib(flush));
        let unit = u64::from(unit_kib) << 10;
        if let Some(cycle) = before {
            self.learn(tree, &cycle);
        }
        let bottom = tree.levels.last().map_or(0, |level| level.bytes());
        let units_below = if unit == 0 { 0.0 } else { bottom as f64 / unit as f64 };
        let sizes = self.family.sizes(units_below, before.map(|cycle| cycle.units));
        let kept = before.filter(|cycle| self.family.allows(cycle.shape));
        let units = match kept.filter(|cycle| !cycle.shape.is_published()) {
            Some(cycle) => steady(cycle.units, sizes.units),
            None => sizes.units,
        };
        let (shape, curve) = match kept.map(|cycle| (cycle.shape, cycle.curve)) {
            Some((shape, _)) if shape.is_published() => {
                let delta = published::delta(self.curve.hot_share());
                (self.mix.map_or(shape, |mix| published::tuned(units, &mix, delta)), self.curve)
            }
            Some((Shape::Weighted(k), curve)) => {
                let measured = (self.rho.map(nearest), self.curve);
                let (k, curve) = choose(units, (k, curve), measured);
                (Shape::Weighted(k), curve)
            }
            _ => (self.family.shape(), self.curve),
        };
        if let Some(rho) = self.rho {
            let (below, above) = TIERED_BELOW;
            self.is_tiered = matches!(self.family, Family::Vertiorizon { .. })
                && (rho < below || self.is_tiered && rho < above);
        }
        Cycle { number, units, shape, curve, unit_kib }
    }

    /// Learns the size curve from the runs of the cycle that ends.
    fn learn(&mut self, tree: &TreeView, cycle: &Cycle) {
        let unit = cycle.unit_bytes();
        if unit == 0 || !self.family.is_tuned() {
            return;
        }
        let position = position(tree, cycle.number);
        let whole = position.current.iter().filter(|run| run.run.idle && !run.units.is_open);
        let size = |run: &CycleRun<'_>| (run.units.hi - run.units.lo + 1, run.run.bytes as f64 / unit as f64);
        self.curve.learn(&whole.map(size).collect::<Vec<_>>());
    }

    /// Returns the size of a unit: the mean of the last flushes that were at least half as large as the largest.
    fn unit_kib(&self) -> Option<u32> {
        let largest = self.flushes.iter().copied().max()?;
        let full: Vec<u64> = self.flushes.iter().copied().filter(|bytes| *bytes >= largest / 2).collect();
        Some(in_kib(full.iter().sum::<u64>() / full.len() as u64))
    }

    /// Returns the cause of a clear, if one is due.
    fn due(&self, input: &PolicyInput<'_>, tree: &TreeView, cycle: &Cycle, sizes: &Sizes) -> Option<String> {
        let unit = cycle.unit_bytes();
        let position = position(tree, cycle.number);
        let (middle, bottom) = vertical(tree);
        let of = |level: u8| tree.levels.get(usize::from(level)).map_or(0, |level| level.bytes());
        let (above, bottom) = (position.current_bytes + of(middle), of(bottom));
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
        if held > FULL * f64::from(cycle.units) {
            return Some(format!("{held:.0} units of bytes, {} planned", cycle.units));
        }
        let most = (sizes.obsolete * bottom as f64).max((SPACE_UNITS.0 * unit) as f64);
        if sizes.obsolete.is_finite() && held >= SPACE_UNITS.1 as f64 && above as f64 > most {
            return Some(format!("{above} bytes above the last level, {most:.0} allowed"));
        }
        None
    }

    /// Returns whether the runs of a published schedule are those that it wants, or the cycle is a quarter too long.
    fn has_merged(&self, projected: &TreeView, cycle: &Cycle, schedule: &Schedule) -> bool {
        let found = position(projected, cycle.number);
        let wanted = schedule.target(found.units).len();
        let is_done = found.current.iter().all(|run| run.run.idle) && found.current.len() <= wanted;
        !cycle.shape.is_published() || is_done || found.units > cycle.units + cycle.units / 4
    }

    /// Returns whether readers have paid for a merge of `bytes`.
    fn collapses(&self, input: &PolicyInput<'_>, bytes: u64) -> bool {
        let is_quiet =
            input.tickets.is_empty() && !input.frozen && matches!(self.family, Family::Vertiorizon { .. });
        is_quiet && self.debt.pays(bytes, input.costs.compaction_bytes_per_s)
    }

    fn pace(&self, input: &PolicyInput<'_>, schedule: &Schedule, plans: &[Plan]) -> Pace {
        let under_way = input.tickets.iter().map(|ticket| &ticket.plan).chain(plans);
        let drain = drain(under_way, input.tree, input.costs, input.limits);
        // The runs of a whole cycle may wait for their clear while the next cycle stacks its own above them.
        let runs = schedule.cost(&SizeCurve::default()).runs;
        let (middle, bottom) = vertical(input.tree);
        let below = [middle, bottom].map(|level| input.tree.levels.get(usize::from(level)));
        let below: usize = below.iter().flatten().map(|level| level.runs.len()).sum();
        let slow = f64::from(2 * runs + 4) + below as f64;
        let stop = slow + 8.0;
        Pace { scope: PaceScope::All, slow, stop, passes: 2.0, drain, hard_stop: false, covered: None }
    }
}

/// Returns the operations of a load, unless there are none.
fn mix(input: &PolicyInput<'_>) -> Option<published::Mix> {
    let load = input.load;
    let all = load.writes + load.gets + load.seeks;
    (all.is_finite() && all > 0.0 && load.entry_bytes > 0.0).then(|| published::Mix {
        writes: load.writes / all,
        gets: load.gets / all,
        seeks: load.seeks / all,
        false_positives: input.tree.false_positive_rate(),
        page_entries: (4096.0 / load.entry_bytes).max(1.0),
    })
}

fn in_kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}

impl CompactionPolicy for Growth {
    fn name(&self) -> String {
        self.family.name()
    }

    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.is_frozen = input.frozen;
        if !input.frozen {
            self.rho = rho(input.load, input.costs, input.tree.false_positive_rate()).or(self.rho);
            self.mix = mix(input).or(self.mix);
        }
        let projected = input.tree.projected();
        let (mut cycle, mut schedule) = self.follow(&projected, input.limits.memtable_bytes);
        let bottom = projected.levels.last().map_or(0, |level| level.bytes());
        let unit = cycle.unit_bytes();
        let units_below = if unit == 0 { 0.0 } else { bottom as f64 / unit as f64 };
        let sizes = self.family.sizes(units_below, Some(cycle.units));
        // A clear waits for the one before, and the published one for the last merge.
        if (position(input.tree, cycle.number).old.is_empty() || self.is_stuck && input.tickets.is_empty())
            && self.has_merged(&projected, &cycle, &schedule)
            && let Some(why) = self.due(input, &projected, &cycle, &sizes)
        {
            (cycle, schedule) = self.begin(&projected, input.limits.memtable_bytes);
            self.told.clear = format!("cycle {} began: {why}", cycle.number);
        }
        let position = position(&projected, cycle.number);
        let scene = Scene {
            projected: &projected,
            tree: input.tree,
            cycle: &cycle,
            schedule: &schedule,
            before: self.before,
        };
        let mut plans = merges(&scene, &position);
        let clear = Clear {
            projected: &projected,
            tickets: input.tickets,
            limits: input.limits,
            cycle: &cycle,
            kept: (sizes.kept * f64::from(cycle.units) * cycle.unit_bytes() as f64) as u64,
            is_tiered: self.is_tiered,
            is_published: cycle.shape.is_published(),
            deadline: self.before + u64::from(cycle.units),
        };
        plans.extend(clear.plans(&position));
        let reads = read_cost(input.load, input.costs, input.tree.false_positive_rate());
        self.debt.add((position.current.len(), position.units), input.now, reads);
        if plans.is_empty() && self.collapses(input, position.current_bytes) {
            plans.extend(collapsed(&scene, &position));
        }
        self.is_stuck = plans.is_empty() && input.tickets.is_empty() && !position.old.is_empty();
        let most = 2 * input.limits.slots.max(1) as usize + 1 + projected.levels.len();
        plans.truncate(most.saturating_sub(input.tickets.len()));
        let pace = self.pace(input, &schedule, &plans);
        self.told.decided(&cycle, &schedule, &position, (self.rho, reads), &sizes);
        Decision { plans, pace: Some(pace), ..Decision::default() }
    }

    fn observe(&mut self, outcome: &Outcome) {
        if let Outcome::Flushed { bytes, .. } = outcome
            && !self.is_frozen
        {
            if self.flushes.len() == FLUSHES {
                self.flushes.remove(0);
            }
            self.flushes.push(*bytes);
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
        tell(&self.name(), &self.told, self.is_frozen)
    }

    /// Saves the cycle and the measured size curve. Only the latter is needed: the tree has the cycle in its tags.
    fn save(&self) -> Vec<u8> {
        let Some(cycle) = &self.cycle else { return Vec::new() };
        let mut bytes = cycle.encode();
        bytes.extend(self.curve.0);
        bytes
    }

    fn restore(&mut self, blob: &[u8]) -> Result<(), PolicyError> {
        let error =
            || PolicyError(format!("{}: the saved state of {} bytes is damaged", self.name(), blob.len()));
        let (cycle, rest) = Cycle::decode(blob).ok_or_else(error)?;
        let curve: [u8; DOUBLINGS] = rest.try_into().map_err(|_| error())?;
        (self.cycle, self.schedule, self.curve) = (Some(cycle), None, SizeCurve(curve));
        Ok(())
    }
}
