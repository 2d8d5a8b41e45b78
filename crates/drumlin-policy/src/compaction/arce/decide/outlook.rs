//! Requests for a search: whether one is due, how far it looks ahead, and the state that its rollouts begin with.

use crate::compaction::arce::decide::policy::Arce;
use crate::compaction::arce::decide::search::Search;
use crate::compaction::arce::decide::tickets::{may_withdraw, removed_by};
use crate::compaction::arce::measure::drift::{Trigger, TriggerInputs};
use crate::compaction::arce::measure::guard::RewriteBudget;
use crate::compaction::arce::measure::model::{CostModel, Met, Stall};
use crate::compaction::arce::score::scene::ScoreScene;
use crate::compaction::arce::simulate::rollout::{Limits, RolloutStart, StartJob};
use crate::schedule::PieceBytes;
use alloc::boxed::Box;
use alloc::vec::Vec;
use drumlin_types::contract::{FileState, SearchTask};

/// Least and largest number of flush intervals that a search looks ahead, before the cut to the usual length of
/// phases.
const HORIZON: (f64, f64) = (400.0, 4096.0);
/// Least number of flush intervals after that cut.
const LEAST_HORIZON: f64 = 64.0;
/// Age of a phase in flush intervals up to which a change of their size makes a search urgent: the change may still
/// belong to the new mix.
const YOUNG_INTERVALS: f64 = 8.0;

impl Arce {
    /// Returns the figures that the triggers compare with those of the last search.
    fn inputs(&self, scene: &ScoreScene<'_>) -> TriggerInputs {
        let model = &scene.model;
        let busy = !scene.input.tickets.is_empty();
        TriggerInputs {
            now: scene.input.now,
            operations: self.estimate.operations,
            mix: self.estimate.mix,
            bytes: scene.line.bytes,
            flushes: scene.line.bytes / model.flush_bytes,
            costs: [model.speed, model.point.per_run, model.seek.per_run, model.clients],
            runs: scene.line.runs,
            cost: model.operation(scene.line.cost, 0.0, busy) + scene.waited(),
            interval_ops: model.interval_ops,
            horizon: self.horizon(scene),
        }
    }

    /// Returns a search if one is due.
    pub(crate) fn search(
        &mut self,
        scene: &ScoreScene<'_>,
        ticked: bool,
        budget: &RewriteBudget,
    ) -> Option<Box<dyn SearchTask>> {
        let input = scene.input;
        let options = (input.limits.max_runs, input.limits.pin);
        if self.options.replace(options).is_some_and(|before| before != options) {
            self.drift.forget();
        }
        if !ticked || input.frozen || self.pin.or(input.limits.pin).is_some() {
            return None;
        }
        let inputs = self.inputs(scene);
        let (fast, operations) = (self.estimate.fast, self.estimate.last_tick);
        let trigger = match self.searching {
            None => self.drift.tick(&inputs, fast, operations)?,
            // A search for a mix that has passed may wait long for CPU time, so a new mix replaces it.
            Some(_) => self.drift.tick_mix(&inputs, fast, operations)?,
        };
        if trigger == Trigger::Mix {
            // Earlier operations belong to another phase.
            let (mix, operations) = self.drift.drifted();
            self.estimate.begin_phase(mix, operations);
        }
        // A drift in progress keeps counting, but from the mix that this search uses.
        self.drift.searched(TriggerInputs { mix: self.estimate.mix, ..inputs });
        self.searching = Some(trigger);
        let one = Met { runs: 1.0, cost: 1.0 };
        let whole_tree = scene.model.compaction_intervals(scene.line.bytes, one, Stall::NEVER);
        let search = Search::new(self.start(scene, *budget), scene.tuple, whole_tree, self.switches.rho);
        // The size of flush intervals under a new mix is known only after some of them have passed.
        let is_new = self.drift.lasted(self.estimate.operations) < YOUNG_INTERVALS * scene.model.interval_ops;
        let is_urgent = trigger == Trigger::Mix
            || trigger == Trigger::IntervalOps && is_new && !self.drift.phases.is_empty();
        Some(Box::new(search.urgent(is_urgent)))
    }

    /// Returns the flush intervals that a search looks ahead: more for larger trees, cut to the expected length of
    /// the phase.
    pub(crate) fn horizon(&self, scene: &ScoreScene<'_>) -> f64 {
        if !self.switches.horizon {
            return HORIZON.0;
        }
        let model = &scene.model;
        let intervals = (scene.line.bytes / (4.0 * model.flush_bytes)).clamp(HORIZON.0, HORIZON.1);
        let usual = self
            .drift
            .expected(self.estimate.operations)
            .map_or(intervals, |operations| operations / model.interval_ops);
        intervals.min(usual).max(LEAST_HORIZON)
    }

    /// Returns the state that rollouts begin with: the present tree, load and running compactions.
    fn start(&self, scene: &ScoreScene<'_>, budget: RewriteBudget) -> RolloutStart {
        let model = CostModel { shares: self.estimate.mix, ..scene.model };
        let mut line = scene.line.parts.clone();
        line.iter_mut().for_each(|part| part.idle = true);
        let mut jobs = Vec::new();
        for ticket in scene.input.tickets {
            let of_ticket = |state: FileState| {
                state == FileState::Coming(ticket.ticket) || state == FileState::Settling(ticket.ticket)
            };
            let Some(at) = scene.line.links.iter().position(|link| link.files().any(|f| of_ticket(f.state)))
            else {
                continue;
            };
            let left = 1.0 - ticket.bytes_done as f64 / ticket.bytes.max(1) as f64;
            let removed = removed_by(ticket).unwrap_or(1.0) * left;
            let relief = scene.relief_of(ticket.ticket, removed);
            line[at].weight += removed;
            line[at].cost += relief;
            let may_withdraw = self.switches.withdraw && may_withdraw(ticket);
            let bytes = ticket.bytes as f64 * left;
            // Outputs of several tickets may join one run. They are simulated as one compaction.
            match jobs.iter_mut().find(|job: &&mut StartJob| job.from == at) {
                Some(job) => {
                    (job.bytes, job.removed, job.relief) =
                        (job.bytes + bytes, job.removed + removed, job.relief + relief);
                    job.may_withdraw &= may_withdraw;
                }
                None => jobs.push(StartJob { from: at, to: at + 1, bytes, removed, relief, may_withdraw }),
            }
        }
        RolloutStart {
            model: CostModel::new(model),
            scale: scene.scale,
            flushed: line.first().map_or(scene.scale.full, |part| part.cover),
            line,
            jobs,
            limits: Limits {
                max_runs: scene.max_runs,
                pieces: PieceBytes::of_files(scene.input.limits.file_bytes),
                interleave: self.switches.between,
                short_first: self.switches.first,
                even: self.switches.even,
                fixed_delay: None,
            },
            budget,
            horizon: self.horizon(scene),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::arce::decide::switches::Switches;
    use crate::compaction::arce::decide::switches::tests::{input, world};
    use drumlin_sim::World;
    use drumlin_types::contract::TicketView;

    fn off(name: &str) -> Switches {
        let mut switches = Switches::ALL;
        assert!(name.is_empty() || switches.off(name));
        switches
    }

    /// Applies `see` to the snapshot of `world` with these unfinished tickets.
    fn seen<T>(
        switches: Switches,
        world: &World,
        tickets: &[TicketView],
        see: impl FnOnce(&mut Arce, &ScoreScene<'_>) -> T,
    ) -> T {
        let (mut arce, tree) = (Arce::new(None, switches), world.view());
        let input = input(world, &tree, tickets);
        let (scene, _) = arce.look(&input);
        see(&mut arce, &scene)
    }

    /// With flushes of 2 MiB: a quarter of the tree's flushes, at least 400 and at most 4096, unless phases are
    /// shorter.
    #[test]
    fn searches_look_as_far_as_the_tree_is_large_and_phases_are_long() {
        let horizon = |gib: u64, switch: &str, phases: &[f64], lasted: f64| {
            seen(off(switch), &world(&[gib << 10]), &[], |arce, scene| {
                let intervals = |number: &f64| number * scene.model.interval_ops;
                arce.drift.phases = phases.iter().map(intervals).collect();
                arce.estimate.operations = intervals(&lasted);
                let found = arce.horizon(scene);
                assert_eq!(arce.inputs(scene).horizon, found);
                assert_eq!(arce.start(scene, RewriteBudget::new(0.0, 20.0)).horizon, found);
                crate::real::round(found * 1e6) / 1e6
            })
        };
        assert_eq!([1, 8, 100].map(|gib| horizon(gib, "", &[], 0.0)), [400.0, 1024.0, 4096.0]);
        assert_eq!([1, 8, 100].map(|gib| horizon(gib, "no-horizon", &[100.0], 0.0)), [400.0; 3]);
        assert_eq!(horizon(8, "", &[50.0, 800.0], 0.0), 200.0, "the geometric mean");
        assert_eq!(horizon(8, "", &[50.0, 800.0], 300.0), 300.0, "the phase lasts longer");
        assert_eq!(horizon(8, "", &[5000.0], 0.0), 1024.0, "phases only cut it");
        assert_eq!(horizon(8, "", &[10.0], 0.0), 64.0);
    }

    /// A part that is switched off is off in rollouts too.
    #[test]
    fn searches_begin_with_the_switches_of_life() {
        let mut world = world(&[2, 2, 20, 400]);
        let mut policy = Arce::new(None, off("no-first"));
        let plan = world.decide(&mut policy, 0).plans.pop().expect("a merge");
        let ticket = world.admit(&plan, 4).unwrap();
        let tickets = [TicketView { ticket, plan, pieces: 4, pieces_done: 0, bytes: 100, bytes_done: 0 }];
        let limits = |name: &str| {
            seen(off(name), &world, &tickets, |arce, scene| {
                let start = arce.start(scene, RewriteBudget::new(0.0, 20.0));
                let Limits { interleave, short_first, even, .. } = start.limits;
                [interleave, short_first, even, start.jobs[0].may_withdraw]
            })
        };
        assert_eq!(limits(""), [true; 4]);
        for (at, name) in ["no-between", "no-first", "no-even", "no-park"].into_iter().enumerate() {
            let mut expected = [true; 4];
            expected[at] = false;
            assert_eq!(limits(name), expected, "{name}");
        }
    }

    /// Outputs of two compactions join one run: the rollout simulates both as one.
    #[test]
    fn compactions_into_one_run_are_one_job() {
        let mut world = world(&[2, 2, 20, 400]);
        let mut policy = Arce::new(None, off("no-first"));
        let plan = world.decide(&mut policy, 0).plans.pop().expect("a merge");
        let ticket = world.admit(&plan, 4).unwrap();
        let view = |ticket, bytes, removed| {
            let plan = drumlin_types::contract::Plan { priority: removed, ..plan.clone() };
            TicketView { ticket, plan, pieces: 4, pieces_done: 0, bytes, bytes_done: 0 }
        };
        let jobs = |tickets: &[TicketView], tree: &drumlin_types::contract::TreeView| {
            let input = input(&world, tree, tickets);
            let mut arce = Arce::new(None, Switches::ALL);
            let (scene, _) = arce.look(&input);
            arce.start(&scene, RewriteBudget::new(0.0, 20.0)).jobs
        };
        let mut tree = drumlin_types::contract::TreeView::clone(&world.view());
        let one = jobs(&[view(ticket, 1000, 1.0)], &tree);
        assert_eq!((one.len(), one[0].bytes, one[0].removed), (1, 1000.0, 1.0));
        // A second ticket has an output in the same run.
        let other = drumlin_types::Ticket(ticket.0 + 1);
        let files = tree.levels.iter_mut().flat_map(|level| &mut level.runs).flat_map(|run| &mut run.files);
        let output = files.filter(|file| file.state == FileState::Coming(ticket)).last().expect("an output");
        output.state = FileState::Coming(other);
        let both = jobs(&[view(ticket, 1000, 1.0), view(other, 500, 2.0)], &tree);
        assert_eq!(both.len(), 1, "{both:?}");
        assert_eq!((both[0].bytes, both[0].removed), (1500.0, 3.0));
    }

    /// Triggers compare the compaction speed, the cost of a run per lookup and per seek, and the number of clients.
    #[test]
    fn a_picture_holds_what_was_measured() {
        let costs = seen(off(""), &world(&[2, 2]), &[], |arce, scene| arce.inputs(scene).costs);
        assert_eq!(costs, [0.15, 120.001, 12_000.0, 1.0]);
    }
}
