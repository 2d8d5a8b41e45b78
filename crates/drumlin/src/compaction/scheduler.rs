//! Asking the policy, admitting its plans, and choosing the next piece.
//!
//! A plan is admitted when, after closing it over the files that must come along, it is legal on the
//! projected tree. It then becomes a ticket whose pieces claim their inputs at once. A piece may start
//! when every earlier piece that it waits for is installed; among those, deadlines go first, then
//! tickets in order, then the pieces' own priority, then the lowest key.
//!
//! Everything here runs under the control lock and does no I/O.

use super::claims::{Flight, Piece, PieceState, TicketState};
use super::control::{Control, KeyspaceControl, Shortage};
use super::cut;
use super::{explain, fallback};
use crate::decisions::DecisionLog;
use crate::keyspace::KeyspaceState;
use crate::stats::Sample;
use drumlin_env::sync::Arc;
use drumlin_types::contract::legal::{self, Illegal};
use drumlin_types::contract::{
    CostView, FileState, LimitView, Outcome, PieceId, Place, Plan, PlanResult, PolicyInput, RunTag, TreeView,
};
use drumlin_types::{KeyRange, RunId, TableId, Ticket, bug};
use std::collections::BTreeSet;

/// Unfinished tickets a keyspace may have.
const MAX_TICKETS: usize = 16;
/// Pause before a merge that found no room is looked at again, microseconds.
const ROOM_RETRY: u64 = 1_000_000;

/// What decides between pieces, smallest first: deadline, ticket, the piece's own priority.
type Rank = (u64, u64, f64);

/// A piece that an executor may start.
#[derive(Clone)]
pub(crate) struct PieceStart {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) piece: Piece,
    pub(crate) out: u8,
    /// Whether the output level is the deepest that holds anything.
    pub(crate) bottom: bool,
}

/// What the scheduler needs to know at the moment of asking.
pub(crate) struct Moment {
    pub(crate) now: u64,
    pub(crate) seed: u64,
    pub(crate) limits: LimitView,
    pub(crate) costs: CostView,
    pub(crate) piece_bytes: u64,
    /// Bytes that merges may write, those that run included.
    pub(crate) room: u64,
}

/// Bytes that a merge of `bytes` may write: its input, and a little for blocks that come out less dense.
pub(crate) fn with_margin(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16)
}

impl Control {
    /// Asks every keyspace's policy that is due, admits its plans, and gives the piece to start next;
    /// otherwise the time at which one may become ready.
    pub(crate) fn next_piece(
        &mut self,
        moment: &Moment,
        sample: &dyn Fn(&KeyspaceState) -> Sample,
    ) -> Result<PieceStart, Option<u64>> {
        let mut timer: Option<u64> = None;
        for index in 0..self.keyspaces.len() {
            self.ask(index, moment, sample);
            if self.keyspaces[index].flight.tickets.iter().any(TicketState::is_finished) {
                let state = self.keyspaces[index].state.clone();
                self.end_tickets(&state, moment.now);
                self.ask(index, moment, sample);
            }
        }
        let left = self.room_left(moment.room);
        let mut best: Option<(usize, PieceId, Rank)> = None;
        let mut too_big: Option<(usize, PieceId, Rank)> = None;
        for (index, keyspace) in self.keyspaces.iter().enumerate() {
            for (ticket, piece) in keyspace.flight.unfinished() {
                let is_clear = keyspace.flight.is_clear(piece) || bug!("E2");
                if piece.state != PieceState::Ready || !is_clear {
                    continue;
                }
                if piece.not_before > moment.now {
                    timer = Some(timer.map_or(piece.not_before, |t| t.min(piece.not_before)));
                    continue;
                }
                let rank = (ticket.plan.deadline.unwrap_or(u64::MAX), piece.id.ticket.0, -piece.priority);
                let fits = piece.is_move || with_margin(piece.bytes) <= left;
                let first = if fits { &mut best } else { &mut too_big };
                let is_before = |other: &Rank| rank.partial_cmp(other) == Some(std::cmp::Ordering::Less);
                if first.as_ref().is_none_or(|(_, _, other)| is_before(other)) {
                    *first = Some((index, piece.id, rank));
                }
            }
            if keyspace.due && keyspace.rest_until > moment.now {
                timer = Some(timer.map_or(keyspace.rest_until, |t| t.min(keyspace.rest_until)));
            }
        }
        self.shortage = None;
        if let Some((index, id, _)) = too_big {
            let when = self.wait_for_room(index, id, left, best.is_none(), moment.now);
            timer = Some(timer.map_or(when, |t| t.min(when)));
        }
        let Some((index, id, _)) = best else { return Err(timer) };
        let keyspace = &mut self.keyspaces[index];
        let out = keyspace.flight.ticket(id.ticket).expect("just seen").plan.out;
        let piece = keyspace.flight.piece_mut(id).expect("just seen");
        piece.state = PieceState::Running;
        let piece = piece.clone();
        let tree = keyspace.state.peek().tree.clone();
        let bottom = !tree.files().any(|(level, _, _)| level > out);
        Ok(PieceStart { keyspace: keyspace.state.clone(), piece, out, bottom })
    }

    /// What is left of `room` beside the merges that run.
    fn room_left(&self, room: u64) -> u64 {
        let running = self.running().map(|piece| with_margin(piece.bytes)).sum();
        room.saturating_sub(running)
    }

    fn running(&self) -> impl Iterator<Item = &Piece> {
        let pieces = self.keyspaces.iter().flat_map(|k| k.flight.unfinished().map(|(_, piece)| piece));
        pieces.filter(|piece| piece.state == PieceState::Running && !piece.is_move)
    }

    /// Piece `id` does not fit into the `left` bytes: says so, once, and gives the time to look again.
    fn wait_for_room(&mut self, index: usize, id: PieceId, left: u64, none_fits: bool, now: u64) -> u64 {
        let keyspace = &self.keyspaces[index];
        let bytes = keyspace.flight.piece(id).map_or(0, |piece| piece.bytes);
        let shortage = Shortage { wanted: with_margin(bytes), left };
        if self.short_piece != Some(id) {
            self.short_piece = Some(id);
            let what = format!("{} waits for room: piece {}", id.ticket, id.index);
            self.decisions.note(now, &keyspace.state.name, what, shortage.to_string());
        }
        if none_fits && self.running().next().is_none() {
            self.shortage = Some(shortage);
        }
        now.saturating_add(ROOM_RETRY)
    }

    fn ask(&mut self, index: usize, moment: &Moment, sample: &dyn Fn(&KeyspaceState) -> Sample) {
        let Control { keyspaces, next_run, next_ticket, decisions, .. } = self;
        let keyspace = &mut keyspaces[index];
        let admission = &mut Admission { next_run, next_ticket, decisions, moment };
        if keyspace.flight.tickets.is_empty() && !keyspace.manual.is_empty() {
            let range = keyspace.manual[0].range.clone();
            let plan = keyspace.manual_plan(&range);
            match plan.map(|plan| admission.admit(keyspace, &plan)) {
                Some(Ok(ticket)) => keyspace.manual[0].ticket = Some(ticket),
                // Nothing to merge, or damage in the way: it is as done as it can be.
                _ => {
                    keyspace.manual.remove(0);
                }
            }
        }
        if !keyspace.due || keyspace.rest_until > moment.now || keyspace.flight.tickets.len() >= MAX_TICKETS {
            return;
        }
        keyspace.due = false;
        if !keyspace.manual.is_empty() {
            return;
        }
        let view = keyspace.view();
        let tickets = keyspace.flight.ticket_views();
        let sample = sample(&keyspace.state);
        let options = keyspace.state.options.load();
        let limits = LimitView {
            memtable_bytes: keyspace.state.memtable_bytes() as u64,
            file_bytes: options.file_bytes,
            max_runs: options.max_runs as u32,
            max_write_amp: options.max_write_amp,
            pin: options.arce_pin,
            ..moment.limits
        };
        let input = PolicyInput {
            tree: &view,
            tickets: &tickets,
            load: &sample.load,
            costs: &moment.costs,
            limits: &limits,
            wanted: &sample.wanted,
            wanted_seeks: &sample.wanted_seeks,
            now: moment.now,
            seed: moment.seed,
            frozen: keyspace.frozen,
        };
        let before = (keyspace.policy.name(), keyspace.policy.save());
        let decision = fallback::decide(keyspace, &input);
        let changes_pace = decision.pace.is_some() && decision.pace != keyspace.pace;
        if changes_pace || !decision.plans.is_empty() || !decision.park.is_empty() {
            explain::decided(admission.decisions, &keyspace.state.name, &before, &input, &decision);
        }
        if let Some(pace) = decision.pace {
            keyspace.pace = Some(pace);
            keyspace.runs_then = keyspace.state.peek().tree.runs();
        }
        if let Some(think) = decision.think {
            keyspace.think = Some(think);
            keyspace.searching = true;
        }
        for ticket in decision.park {
            park(&mut keyspace.flight, ticket);
            // What was given back may be merged otherwise.
            keyspace.due = true;
        }
        let planned = decision.plans.len();
        let mut admitted = 0;
        for plan in &decision.plans {
            admitted += usize::from(admission.admit(keyspace, plan).is_ok());
        }
        if admitted > 0 {
            // With these under way the policy may see more to do.
            keyspace.due = keyspace.flight.tickets.len() < MAX_TICKETS;
            keyspace.failures = 0;
        } else if planned > 0 && keyspace.flight.tickets.is_empty() {
            keyspace.rest(moment.now);
            keyspace.due = true;
        }
    }
}

fn park(flight: &mut Flight, ticket: Ticket) {
    let ready: Vec<PieceId> = match flight.ticket(ticket) {
        Some(t) => t.pieces.iter().filter(|p| p.state == PieceState::Ready).map(|p| p.id).collect(),
        None => return,
    };
    for id in ready {
        flight.withdraw(id, "parked by the policy");
    }
}

struct Admission<'a> {
    next_run: &'a mut u64,
    next_ticket: &'a mut u64,
    decisions: &'a mut DecisionLog,
    moment: &'a Moment,
}

impl Admission<'_> {
    /// Turns `plan` into a ticket, or says why not.
    fn admit(&mut self, keyspace: &mut KeyspaceControl, plan: &Plan) -> Result<Ticket, Illegal> {
        let view = keyspace.view();
        let projected = if bug!("E1") { view.live() } else { view.projected() };
        let closed = self.close(&projected, plan);
        let checked = closed.and_then(|plan| legal::legal(&projected, &plan).map(|()| plan));
        let plan = match checked {
            Ok(plan) => plan,
            Err(illegal) => {
                self.refuse(keyspace, plan, &illegal);
                return Err(illegal);
            }
        };
        let spans = legal::spans(&projected, &plan.take);
        let ticket = Ticket(*self.next_ticket);
        *self.next_ticket += 1;
        let (run, tag, breaks) = self.destination(&view, &projected, &plan, &spans);
        let tree = keyspace.state.peek().tree.clone();
        let earlier = keyspace.flight.piece_views();
        // Small files mean small pieces: a piece is not to hold more than a few of them back.
        let target = self.moment.piece_bytes.min(keyspace.state.options.load().file_bytes.saturating_mul(4));
        let pieces = cut::cut(&tree, &spans, plan.out, target, breaks)
            .into_iter()
            .enumerate()
            .map(|(index, cut)| Piece {
                id: PieceId { ticket, index: index as u32 },
                waits: waits(&cut, &plan, &leaving_run(&view, plan.out, run), &earlier),
                priority: priority(&plan, &cut.range, cut.bytes),
                range: cut.range,
                inputs: cut.inputs,
                state: PieceState::Ready,
                bytes: cut.bytes,
                is_move: cut.is_move,
                attempts: 0,
                not_before: 0,
            })
            .collect();
        let state = TicketState {
            ticket,
            plan,
            run,
            tag,
            pieces,
            outputs: BTreeSet::new(),
            bytes_in: 0,
            bytes_out: 0,
            dropped: 0,
            cut_short: None,
        };
        explain::admitted(self.decisions, self.moment.now, &keyspace.state.name, &state);
        keyspace.flight.tickets.push(state);
        Ok(ticket)
    }

    /// Adds the foldable files that are free, and the files that must come along.
    fn close(&self, projected: &TreeView, plan: &Plan) -> Result<Plan, Illegal> {
        let mut plan = plan.clone();
        for fold in std::mem::take(&mut plan.may_fold) {
            let is_free = projected.files().any(|(_, _, f)| f.table == fold.table && f.is_takeable());
            if is_free {
                plan.take.push(fold);
            }
        }
        legal::close_plan(projected, &plan)
    }

    fn refuse(&mut self, keyspace: &mut KeyspaceControl, plan: &Plan, illegal: &Illegal) {
        // The rule alone: the whole text would show user keys.
        let why = format!("illegal: {}", illegal.rule());
        explain::refused(self.decisions, self.moment.now, &keyspace.state.name, plan, &why);
        keyspace.policy.observe(&Outcome::Plan {
            ticket: Ticket(0),
            reason: plan.reason.clone(),
            result: PlanResult::Refused,
            why: illegal.to_string(),
            bytes_in: 0,
            bytes_out: 0,
            dropped: 0,
        });
    }

    /// The run that takes the outputs, and the keys at which they must be cut to fit into it.
    fn destination(
        &mut self,
        view: &TreeView,
        projected: &TreeView,
        plan: &Plan,
        spans: &[drumlin_types::contract::FileSpan],
    ) -> (RunId, RunTag, Vec<drumlin_types::Key>) {
        if let Place::Run(id) = plan.place {
            let run = projected.levels[plan.out as usize].runs.iter().find(|r| r.id == id);
            if let Some(run) = run {
                let is_input = |f: &drumlin_types::contract::FileView| {
                    spans.iter().any(|s| s.table == f.table && s.range.covers(&f.bounds))
                };
                let stays: Vec<_> = run.files.iter().filter(|f| !is_input(f)).collect();
                let fits = !stays.iter().any(|f| spans.iter().any(|s| s.range.overlaps(&f.bounds)));
                if fits {
                    // A file that is leaving the run may still be there when the outputs come.
                    let there = view.levels[plan.out as usize].runs.iter().find(|r| r.id == id);
                    let there = there.into_iter().flat_map(|r| &r.files).filter(|f| !is_input(f));
                    let breaks = there.map(|f| f.bounds.start.clone()).collect();
                    return (id, run.tag.clone(), breaks);
                }
            }
        }
        let id = RunId(*self.next_run);
        *self.next_run += 1;
        (id, plan.tag.clone(), Vec::new())
    }
}

/// The files that plans under way take out of `run`, and that are still in it.
fn leaving_run(view: &TreeView, level: u8, run: RunId) -> Vec<(TableId, KeyRange)> {
    let runs = view.levels[level as usize].runs.iter().filter(|r| r.id == run);
    let leaving = runs.flat_map(|r| &r.files).filter(|f| matches!(f.state, FileState::Leaving(_)));
    leaving.map(|f| (f.table, f.bounds.clone())).collect()
}

/// What a piece waits for: what the wait rule says, and the pieces that make room for it in its run.
fn waits(
    cut: &cut::Cut,
    plan: &Plan,
    leaving: &[(TableId, KeyRange)],
    earlier: &[drumlin_types::contract::PieceView],
) -> Vec<PieceId> {
    let mut waits = legal::waits(&cut.inputs, plan.out, earlier);
    let in_the_way = |span: &drumlin_types::contract::FileSpan| {
        span.range.overlaps(&cut.range)
            && leaving.iter().any(|(table, range)| *table == span.table && range.overlaps(&span.range))
    };
    let makers = earlier.iter().filter(|piece| piece.inputs.iter().any(in_the_way));
    waits.extend(makers.map(|piece| piece.id));
    waits.sort_unstable();
    waits.dedup();
    waits
}

fn priority(plan: &Plan, range: &drumlin_types::KeyRange, bytes: u64) -> f64 {
    let value: f64 =
        plan.piece_priority.iter().filter(|(r, _)| r.overlaps(range)).map(|(_, value)| value).sum();
    if plan.piece_priority.is_empty() { 0.0 } else { value / bytes.max(1) as f64 }
}
