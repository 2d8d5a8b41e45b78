//! Asking the policy, admitting its plans, and choosing the next piece.
//!
//! A plan is admitted when, after closing it over the files that must come along, it is legal on the
//! projected tree. It then becomes a ticket whose pieces claim their inputs at once. A piece may start
//! when every earlier piece that it waits for is installed; among those, deadlines go first, then
//! tickets in order, then the pieces' own priority, then the lowest key.
//!
//! Everything here runs under the control lock and does no I/O.

use super::claims::{Flight, Piece, PieceState, TicketState};
use super::cut;
use super::view::tree_view;
use crate::event::DecisionLog;
use crate::keyspace::KeyspaceState;
use crate::stats::Sample;
use crate::version::ManifestWriter;
use drumlin_env::sync::Arc;
use drumlin_format::manifest::Change;
use drumlin_types::contract::legal::{self, Illegal};
use drumlin_types::contract::{
    CompactionPolicy, CostView, FileState, LimitView, Outcome, Pace, PieceId, Place, Plan, PlanResult,
    PolicyInput, RunTag, Take, TreeView,
};
use drumlin_types::{KeyRange, RunId, Seq, TableId, Ticket};
use std::collections::BTreeSet;

/// Unfinished tickets a keyspace may have.
const MAX_TICKETS: usize = 16;
/// First pause after a failed piece, doubling to the last one; microseconds.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;
/// Attempts at a piece before it is withdrawn.
const MAX_ATTEMPTS: u32 = 5;

/// The state behind the control lock: everything that changes versions.
pub(crate) struct Control {
    pub(crate) manifest: ManifestWriter,
    pub(crate) keyspaces: Vec<KeyspaceControl>,
    pub(crate) next_run: u64,
    pub(crate) next_ticket: u64,
    pub(crate) decisions: DecisionLog,
    /// Memtables that hold anything newer wait with their flush, for a checkpoint.
    pub(crate) flush_ceiling: Seq,
    /// Manifest changes that this version only keeps.
    pub(crate) carried: Vec<Change>,
    /// Number of the next compaction asked for by hand.
    pub(crate) next_manual: u64,
}

/// A compaction asked for by hand. It is planned when nothing else is under way.
#[derive(Debug)]
pub(crate) struct ManualCompaction {
    pub(crate) id: u64,
    pub(crate) range: KeyRange,
    pub(crate) ticket: Option<Ticket>,
}

/// One keyspace behind the control lock.
pub(crate) struct KeyspaceControl {
    pub(crate) state: Arc<KeyspaceState>,
    pub(crate) policy: Box<dyn CompactionPolicy>,
    pub(crate) flight: Flight,
    /// Something happened since the policy was asked last.
    pub(crate) due: bool,
    /// No plan before this monotonic time, after refusals and failures.
    pub(crate) rest_until: u64,
    pub(crate) failures: u32,
    /// Compactions asked for by hand; they go first.
    pub(crate) manual: Vec<ManualCompaction>,
    /// Tables that cannot be read; no plan may take them.
    pub(crate) damaged: BTreeSet<TableId>,
    pub(crate) pace: Option<Pace>,
    /// Largest sequence number that is in tables.
    pub(crate) flushed_seq: Seq,
    pub(crate) frozen: bool,
}

/// A piece that an executor may start.
#[derive(Clone)]
pub(crate) struct PieceStart {
    pub(crate) keyspace: Arc<KeyspaceState>,
    pub(crate) piece: Piece,
    pub(crate) out: u8,
    /// Whether the output level is the deepest that holds anything.
    pub(crate) bottom: bool,
    pub(crate) reason: String,
}

/// What the scheduler needs to know at the moment of asking.
pub(crate) struct Moment {
    pub(crate) now: u64,
    pub(crate) seed: u64,
    pub(crate) limits: LimitView,
    pub(crate) costs: CostView,
    pub(crate) piece_bytes: u64,
}

impl KeyspaceControl {
    pub(crate) fn new(
        state: Arc<KeyspaceState>,
        policy: Box<dyn CompactionPolicy>,
        flushed_seq: Seq,
    ) -> KeyspaceControl {
        KeyspaceControl {
            state,
            policy,
            flight: Flight::default(),
            due: true,
            rest_until: 0,
            failures: 0,
            manual: Vec::new(),
            damaged: BTreeSet::new(),
            pace: None,
            flushed_seq,
            frozen: false,
        }
    }

    /// The tree as the policy sees it. Damaged tables show as coming, so that nobody takes them and
    /// legality still counts them.
    pub(crate) fn view(&self) -> TreeView {
        let mut view = tree_view(&self.state.peek().tree, &self.flight);
        if !self.damaged.is_empty() {
            for file in view.levels.iter_mut().flat_map(|l| &mut l.runs).flat_map(|r| &mut r.files) {
                if self.damaged.contains(&file.table) {
                    file.state = FileState::Coming(Ticket(0));
                }
            }
        }
        view
    }

    /// Whether nothing is under way and nothing was asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flight.tickets.is_empty() && self.manual.is_empty() && !self.due
    }

    /// Whether the compaction asked for as `id` is not done yet.
    pub(crate) fn is_compacting(&self, id: u64) -> bool {
        self.manual.iter().any(|m| m.id == id)
    }

    /// Forgets compactions by hand whose tickets are done.
    fn end_manual(&mut self) {
        let flight = &self.flight;
        self.manual.retain(|m| m.ticket.is_none_or(|ticket| flight.ticket(ticket).is_some()));
    }

    /// The plan that merges everything of `range` into one run of the deepest level in use.
    fn manual_plan(&self, range: &KeyRange) -> Option<Plan> {
        let view = self.view();
        let overlapping = || view.files().filter(|(_, _, f)| f.bounds.overlaps(range) && f.is_takeable());
        let out = view.deepest()?.max(1);
        let take: Vec<Take> =
            overlapping().map(|(_, _, f)| Take { table: f.table, range: f.bounds.clone() }).collect();
        // Reasons are shown and logged: no user bytes in them.
        let mut plan = Plan::new(take, out, "a compaction asked for by hand".to_owned());
        if let Some(run) = view.levels[out as usize].runs.first() {
            plan.place = Place::Run(run.id);
        }
        (!plan.take.is_empty()).then_some(plan)
    }

    fn rest(&mut self, now: u64) {
        let pause = (RETRY_FIRST << self.failures.min(6)).min(RETRY_LAST);
        self.failures += 1;
        self.rest_until = now + pause;
    }
}

impl Control {
    pub(crate) fn keyspace(&mut self, state: &Arc<KeyspaceState>) -> Option<&mut KeyspaceControl> {
        self.keyspaces.iter_mut().find(|k| Arc::ptr_eq(&k.state, state))
    }

    pub(crate) fn fresh_run(&mut self) -> RunId {
        self.next_run += 1;
        RunId(self.next_run - 1)
    }

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
        }
        let mut best: Option<(usize, PieceId, (u64, u64, f64))> = None;
        for (index, keyspace) in self.keyspaces.iter().enumerate() {
            for (ticket, piece) in keyspace.flight.unfinished() {
                if piece.state != PieceState::Ready || !keyspace.flight.is_clear(piece) {
                    continue;
                }
                if piece.not_before > moment.now {
                    timer = Some(timer.map_or(piece.not_before, |t| t.min(piece.not_before)));
                    continue;
                }
                let rank = (ticket.plan.deadline.unwrap_or(u64::MAX), piece.id.ticket.0, -piece.priority);
                if best.as_ref().is_none_or(|(_, _, b)| rank.partial_cmp(b) == Some(std::cmp::Ordering::Less))
                {
                    best = Some((index, piece.id, rank));
                }
            }
            if keyspace.due && keyspace.rest_until > moment.now {
                timer = Some(timer.map_or(keyspace.rest_until, |t| t.min(keyspace.rest_until)));
            }
        }
        let Some((index, id, _)) = best else { return Err(timer) };
        let keyspace = &mut self.keyspaces[index];
        let out = keyspace.flight.ticket(id.ticket).map(|t| (t.plan.out, t.plan.reason.clone()));
        let piece = keyspace.flight.piece_mut(id).expect("just seen");
        piece.state = PieceState::Running;
        let (out, reason) = out.expect("just seen");
        let piece = piece.clone();
        let tree = keyspace.state.peek().tree.clone();
        let bottom = !tree.files().any(|(level, _, _)| level > out);
        Ok(PieceStart { keyspace: keyspace.state.clone(), piece, out, bottom, reason })
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
            ..moment.limits
        };
        let input = PolicyInput {
            tree: &view,
            tickets: &tickets,
            load: &sample.load,
            costs: &moment.costs,
            limits: &limits,
            wanted: &sample.wanted,
            now: moment.now,
            seed: moment.seed,
            frozen: keyspace.frozen,
        };
        let decision = keyspace.policy.decide(&input);
        if let Some(pace) = decision.pace {
            keyspace.pace = Some(pace);
        }
        for ticket in decision.park {
            park(&mut keyspace.flight, ticket);
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

    /// A piece failed. `retry` when it may succeed later; otherwise it is withdrawn and `damaged` tables
    /// are left alone from now on.
    pub(crate) fn failed(
        &mut self,
        state: &Arc<KeyspaceState>,
        id: PieceId,
        retry: bool,
        damaged: &[TableId],
        why: &str,
        now: u64,
    ) {
        let Some(keyspace) = self.keyspace(state) else { return };
        keyspace.damaged.extend(damaged);
        let Some(piece) = keyspace.flight.piece_mut(id) else { return };
        piece.attempts += 1;
        if retry && piece.attempts < MAX_ATTEMPTS {
            piece.state = PieceState::Ready;
            piece.not_before = now + (RETRY_FIRST << (piece.attempts - 1)).min(RETRY_LAST);
        } else {
            keyspace.flight.withdraw(id, why);
            keyspace.rest(now);
        }
        keyspace.due = true;
        self.end_tickets(state, now);
    }

    /// Tells the policy of finished tickets and forgets them.
    pub(crate) fn end_tickets(&mut self, state: &Arc<KeyspaceState>, now: u64) {
        let Some(index) = self.keyspaces.iter().position(|k| Arc::ptr_eq(&k.state, state)) else { return };
        for ticket in self.keyspaces[index].flight.take_finished() {
            let result = if ticket.cut_short.is_some() { PlanResult::Cut } else { PlanResult::Done };
            let outcome = Outcome::Plan {
                ticket: ticket.ticket,
                reason: ticket.plan.reason.clone(),
                result,
                why: ticket.cut_short.clone().unwrap_or_default(),
                bytes_in: ticket.bytes_in,
                bytes_out: ticket.bytes_out,
                dropped: ticket.dropped,
            };
            self.decisions.ended(now, &state.name, &ticket, result);
            self.keyspaces[index].policy.observe(&outcome);
            self.keyspaces[index].due = true;
        }
        self.keyspaces[index].end_manual();
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
        let projected = view.projected();
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
        self.decisions.admitted(self.moment.now, &keyspace.state.name, &state);
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
        self.decisions.refused(
            self.moment.now,
            &keyspace.state.name,
            plan,
            &format!("illegal: {}", illegal.rule()),
        );
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
