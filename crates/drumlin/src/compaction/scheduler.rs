//! The shell around the pure scheduler: calls policies, passes their plans and free slots to it, and accounts for disk
//! space.
//!
//! `drumlin_policy::schedule` decides what is admitted, how it is cut, which piece starts next, and which files of the
//! output level it folds. This file decides when each keyspace's policy is called and with which inputs, and which
//! keyspace a free slot serves first. [`admission`] turns decisions into tickets, and [`space`] says what happens when
//! a compaction finds no disk space.
//!
//! Everything here runs under the control lock and does no I/O.

mod admission;
mod space;
#[cfg(test)]
mod tests;
mod values;

use super::collection::Collection;
use super::control::{Control, KeyspaceControl, Shortage};
use super::{explain, fallback};
use crate::base::decisions::DecisionLog;
use crate::keyspace::KeyspaceState;
use crate::stats::Sample;
use crate::version::Tree;
pub(crate) use admission::SchedulerInputs;
use admission::{PlanAdmitter, SeenTree, settings};
use drumlin_env::sync::Arc;
use drumlin_policy::schedule::admit::without_pipeline;
use drumlin_policy::schedule::{Concurrency, FoldCosts, Scene, Settings, Weights, project};
use drumlin_policy::schedule::{Flight, Piece, TicketState};
use drumlin_types::contract::{Decision, LimitView, Pace, PolicyInput};
use drumlin_types::{TableId, Ticket, ValueFileId};
use space::Short;
use std::collections::BTreeSet;

/// A piece that an executor may start.
#[derive(Clone)]
pub(crate) struct PieceStart {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) piece: Piece,
    pub(crate) out: u8,
    /// Whether no deeper level holds files.
    pub(crate) bottom: bool,
    /// Share of the keyspace's keys that the whole compaction merges.
    pub(crate) merged: f64,
    /// Whether a caller asked for the compaction.
    pub(crate) is_manual: bool,
    /// Value files to collect, if the compaction was started for value files. Other compactions choose them for each
    /// piece.
    pub(crate) collected: Option<Arc<BTreeSet<ValueFileId>>>,
}

impl PieceStart {
    fn new(keyspace: Arc<KeyspaceState>, piece: Piece, flight: &Flight, values: &Collection) -> PieceStart {
        let collected = values.files_of(piece.id.ticket).cloned();
        let (out, tree) = (piece.out, keyspace.view().tree.clone());
        let bottom = !tree.files().any(|(level, _, _)| level > out);
        let merged = merged_share(flight, piece.id.ticket, &tree);
        PieceStart { keyspace, piece, out, bottom, merged, is_manual: false, collected }
    }
}

/// Returns the share of the keys of `tree` that compaction `ticket` merges or has merged.
fn merged_share(flight: &Flight, ticket: Ticket, tree: &Tree) -> f64 {
    let Some(ticket) = flight.ticket(ticket) else { return 0.0 };
    let inputs = ticket.pieces.iter().flat_map(|piece| &piece.inputs).map(|span| span.table);
    let tables: BTreeSet<TableId> = inputs.chain(ticket.outputs.iter().copied()).collect();
    let merged = tree.files().filter(|(_, _, file)| tables.contains(&file.id()));
    let keys: f64 = merged.map(|(_, _, file)| file.counts.keys as f64).sum();
    keys / tree.filters().keys.max(1.0)
}

impl Control {
    /// Calls every policy that is due, admits its plans, and returns the piece to start next. If there is none, returns
    /// the time at which one may become ready.
    pub(crate) fn next_piece(
        &mut self,
        inputs: &SchedulerInputs,
        sample: &dyn Fn(&KeyspaceState) -> Sample,
    ) -> Result<PieceStart, Option<u64>> {
        let mut wants_plans = false;
        let found = self.plan_and_start(inputs, sample, &mut wants_plans);
        // If a policy should propose other work, it is called again at once, but only once. The next call follows a
        // change.
        match found.is_err() && wants_plans {
            true => self.plan_and_start(inputs, sample, &mut wants_plans),
            false => found,
        }
    }

    /// Does one round of `next_piece`. Sets `wants_plans` if a policy should propose other work.
    fn plan_and_start(
        &mut self,
        inputs: &SchedulerInputs,
        sample: &dyn Fn(&KeyspaceState) -> Sample,
        wants_plans: &mut bool,
    ) -> Result<PieceStart, Option<u64>> {
        let (mut timer, slots) = (None, inputs.limits.slots as usize);
        for index in 0..self.keyspaces.len() {
            self.call_policy_timed(index, inputs, sample);
            if self.keyspaces[index].flight.tickets.iter().any(TicketState::is_finished) {
                let state = self.keyspaces[index].state.clone();
                self.end_tickets(&state, inputs.now);
                self.call_policy_timed(index, inputs, sample);
            }
        }
        self.free_full_disk(inputs);
        let mut short: Vec<Short> = Vec::new();
        for index in self.most_pressing_first() {
            let space_left = self.space_left(index, inputs.room);
            let keyspace = &mut self.keyspaces[index];
            let rest = Some(keyspace.next_policy_call(slots)).filter(|at| keyspace.due && *at > inputs.now);
            let rest = [rest, keyspace.collection.resumes_at()].into_iter().flatten().min();
            if keyspace.flight.tickets.is_empty() {
                timer = [timer, rest].into_iter().flatten().min();
                continue;
            }
            let settings = settings(inputs, &keyspace.state);
            let tree = keyspace.installed();
            let KeyspaceControl { design, fold_costs: costs, flight, collection, .. } = keyspace;
            let scene = Scene {
                tree: &tree,
                design,
                settings: &settings,
                costs: *costs,
                room: space_left,
                now: inputs.now,
            };
            match flight.start(&scene, false) {
                Ok(start) => {
                    self.shortage = None;
                    let state = keyspace.state.clone();
                    explain::divided(&mut self.decisions, inputs.now, &state.name(), &start.divided);
                    explain::started(&mut self.decisions, inputs.now, &state.name(), &start);
                    let ticket = start.piece.id.ticket;
                    let started = PieceStart::new(state, start.piece, flight, collection);
                    return Ok(PieceStart { is_manual: keyspace.begun_manual(ticket).is_some(), ..started });
                }
                Err(idle) => {
                    let landing = flight.next_landing(&scene);
                    let name = &keyspace.state.name();
                    explain::divided(&mut self.decisions, inputs.now, name, &idle.divided);
                    if idle.wants_plans {
                        keyspace.call_policy_soon();
                        *wants_plans = true;
                    }
                    let times = [timer, idle.timer, rest, landing.map(|at| at.max(inputs.now + 1))];
                    timer = times.into_iter().flatten().min();
                    if let Some((id, wanted)) = idle.short {
                        short.push(Short { index, id, shortage: Shortage { wanted, left: space_left } });
                    }
                }
            }
        }
        self.shortage = None;
        if !short.is_empty() {
            let when = self.wait_for_room(&short, inputs);
            timer = Some(timer.map_or(when, |t| t.min(when)));
        }
        Err(timer)
    }

    /// Returns the keyspaces in the order in which they get free slots. Keyspaces whose writers are slowed come first,
    /// the closest to a stop before the others. The rest follow by their fullest level.
    fn most_pressing_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keyspaces.len()).collect();
        if order.len() > 1 {
            let weight = |index: &usize| {
                let keyspace = &self.keyspaces[*index];
                let fill = match keyspace.flight.tickets.is_empty() {
                    true => 0.0,
                    false => Weights::of(&keyspace.view(), &keyspace.design).fullest(),
                };
                (keyspace.pressure(), fill)
            };
            let weights: Vec<(f64, f64)> = order.iter().map(weight).collect();
            order.sort_by(|a, b| {
                let (a, b) = (weights[*a], weights[*b]);
                b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
            });
        }
        order
    }

    /// Returns the part of `room` that compactions in other keyspaces do not need.
    fn space_left(&self, index: usize, room: u64) -> u64 {
        let others = self.keyspaces.iter().enumerate().filter(|(other, _)| *other != index);
        room.saturating_sub(others.map(|(_, keyspace)| keyspace.reserved(room)).sum())
    }

    /// Returns the disk space in bytes that running pieces may still take.
    pub(crate) fn writing(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.flight.writing()).sum()
    }

    /// Returns the disk space in bytes that compactions under way may still take, if they may exceed `spare` bytes.
    pub(crate) fn reserved(&self, spare: u64) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.reserved(spare)).sum()
    }

    fn call_policy_timed(
        &mut self,
        index: usize,
        inputs: &SchedulerInputs,
        sample: &dyn Fn(&KeyspaceState) -> Sample,
    ) {
        if let Some(PolicyCallStart { cpu, began, is_idle }) = self.call_policy(index, inputs, sample) {
            let cpu = inputs.clock.thread_cpu_nanos().saturating_sub(cpu);
            self.policy_calls.note(cpu, inputs.clock.monotonic_nanos().saturating_sub(began));
            if is_idle && self.idle_waiters == 0 {
                let backing_off =
                    self.keyspaces.iter().filter(|keyspace| keyspace.is_backing_off(inputs.now)).count();
                self.keyspaces[index].back_off_idle(cpu, backing_off + 1, inputs.now);
            }
        }
    }

    /// Calls the policy if it is due, and admits its plans. Returns when the call began, if there was one.
    fn call_policy(
        &mut self,
        index: usize,
        inputs: &SchedulerInputs,
        sample: &dyn Fn(&KeyspaceState) -> Sample,
    ) -> Option<PolicyCallStart> {
        // Policies use this number only under a disk budget.
        let reserved = if inputs.limits.disk_budget == u64::MAX { 0 } else { self.writing() };
        let Control { keyspaces, numbers, decisions, needs_wake_up, manual_ended, .. } = self;
        let keyspace = &mut keyspaces[index];
        keyspace.resume_collection(inputs.now);
        let admitter = &mut PlanAdmitter { numbers, decisions, inputs };
        *manual_ended |= admitter.begin_manual(keyspace);
        admitter.begin_collection(keyspace);
        let settings = settings(inputs, &keyspace.state);
        if !take_due(keyspace, &settings, inputs) {
            return None;
        }
        let (cpu, began) = (inputs.clock.thread_cpu_nanos(), inputs.clock.monotonic_nanos());
        let tree = keyspace.installed();
        let view = project::view(&tree, &keyspace.flight);
        let false_positives = tree.false_positive_rate();
        let mut seen = SeenTree { tree, projected: project::after(&view), view };
        let tickets = keyspace.flight.ticket_views();
        let sample = sample(&keyspace.state);
        let limits = limits(keyspace, &settings, inputs, reserved);
        keyspace.design = keyspace.policy.design(&seen.projected, &limits);
        keyspace.fold_costs =
            FoldCosts::measured(&sample.load, &sample.lately, &inputs.costs, false_positives);
        if settings.mode != Concurrency::Pipelined {
            seen.view = without_pipeline(seen.view, &keyspace.flight);
        }
        let input = PolicyInput {
            tree: &seen.view,
            tickets: &tickets,
            load: &sample.load,
            costs: &inputs.costs,
            limits: &limits,
            wanted: &sample.wanted,
            wanted_seeks: &sample.wanted_seeks,
            now: inputs.now,
            seed: inputs.seed,
            frozen: keyspace.is_frozen(),
        };
        let decision = decide_and_log(keyspace, admitter.decisions, &input);
        // The view of the policy is reused for its first plan, unless it was reduced or is out of date.
        let is_whole = settings.mode == Concurrency::Pipelined && decision.withdraw.is_empty();
        let is_idle = admitter.apply(keyspace, decision, is_whole.then_some(seen), needs_wake_up);
        Some(PolicyCallStart { cpu, began, is_idle })
    }
}

/// Returns whether the policy of `keyspace` is to be called now, and marks the call as made.
fn take_due(keyspace: &mut KeyspaceControl, settings: &Settings, inputs: &SchedulerInputs) -> bool {
    let is_full = keyspace.flight.tickets.len() >= settings.most_tickets();
    if !keyspace.due || is_full || keyspace.next_policy_call(settings.slots as usize) > inputs.now {
        return false;
    }
    let weights = || Weights::of(&keyspace.view(), &keyspace.design);
    if !keyspace.flushed_since_call && keyspace.flight.is_fed(settings, weights) {
        return false;
    }
    // An urgent compaction for value files goes first: it starts as soon as nothing is in flight.
    if keyspace.collection.is_waiting() {
        return false;
    }
    (keyspace.due, keyspace.flushed_since_call) = (false, false);
    // A manual compaction waits until nothing runs. While one waits, the policy is not called.
    keyspace.waiting_manual().is_none()
}

/// Returns the limits that the policy of `keyspace` is given.
fn limits(
    keyspace: &KeyspaceControl,
    settings: &Settings,
    inputs: &SchedulerInputs,
    reserved: u64,
) -> LimitView {
    let options = keyspace.state.options.load();
    let enough = if keyspace.flight.is_starved() { enough(keyspace, settings, inputs) } else { 0 };
    LimitView {
        memtable_bytes: keyspace.state.memtable_limit() as u64,
        file_bytes: inputs.file_bytes.min(options.file_bytes),
        max_runs: options.max_runs as u32,
        max_write_amp: options.max_write_amp,
        disk_used: inputs.limits.disk_used.saturating_add(reserved),
        pin: options.pin(),
        enough,
        ..inputs.limits
    }
}

/// Calls the policy, and logs a decision that changes something.
fn decide_and_log(
    keyspace: &mut KeyspaceControl,
    decisions: &mut DecisionLog,
    input: &PolicyInput<'_>,
) -> Decision {
    let before = (keyspace.policy.name(), keyspace.policy.save());
    let decision = fallback::decide(keyspace, input);
    let changes_pace = decision.pace.as_ref().is_some_and(|pace| sets_another(pace, keyspace.pace.as_ref()));
    if changes_pace || !decision.plans.is_empty() || !decision.withdraw.is_empty() {
        explain::decided(decisions, &keyspace.state.name(), &before, input, &decision);
    }
    decision
}

/// Start of a policy call.
struct PolicyCallStart {
    /// CPU time that its thread had used before, in nanoseconds.
    cpu: u64,
    /// Start time in nanoseconds.
    began: u64,
    /// Whether it changed nothing except the write rate limit.
    is_idle: bool,
}

/// Returns the levels that have enough ready compactions.
fn enough(keyspace: &KeyspaceControl, settings: &Settings, inputs: &SchedulerInputs) -> u8 {
    let tree = keyspace.installed();
    let (design, costs) = (&keyspace.design, keyspace.fold_costs);
    let scene = Scene { tree: &tree, design, settings, costs, room: inputs.room, now: inputs.now };
    keyspace.flight.enough(&scene)
}

/// Returns whether `pace` has other bounds than the previous limit. The number of runs and the speed change every time
/// and do not count.
fn sets_another(pace: &Pace, before: Option<&Pace>) -> bool {
    let bounds = |pace: &Pace| (pace.scope, pace.slow, pace.stop, pace.passes, pace.hard_stop);
    before.is_none_or(|before| bounds(before) != bounds(pace))
}
