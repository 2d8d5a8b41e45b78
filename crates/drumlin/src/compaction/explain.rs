//! Decisions in words, for the decision log.

use super::claims::{Piece, TicketState};
use crate::decisions::DecisionLog;
use drumlin_format::decisions::Question;
use drumlin_policy::schedule::{Divided, Start, Withdrawn};
use drumlin_types::contract::{Decision, PieceId, Plan, PlanResult, PolicyInput};
use std::collections::BTreeSet;

/// Files of a tree beyond which a question is not logged: it would not fit.
const MAX_FILES: usize = 4096;

/// A policy was asked and had something to say. `before` is its name and its state when it was asked.
pub(super) fn decided(
    log: &mut DecisionLog,
    keyspace: &str,
    before: &(String, Vec<u8>),
    input: &PolicyInput<'_>,
    decision: &Decision,
) {
    let (policy, state) = before;
    let mut what = format!("asked: {} plans, {} parked", decision.plans.len(), decision.park.len());
    if let Some(pace) = &decision.pace {
        what.push_str(&format!(", slow at {} runs, stop at {}", pace.slow, pace.stop));
    }
    let fits = input.tree.files().count() <= MAX_FILES;
    let question = if fits { Question::encode(policy, state, input, decision) } else { Vec::new() };
    log.note_question(input.now, keyspace, what, format!("policy {policy}"), question);
}

/// A plan became a ticket.
pub(super) fn admitted(log: &mut DecisionLog, micros: u64, keyspace: &str, ticket: &TicketState) {
    log.admitted += 1;
    let bytes: u64 = ticket.pieces.iter().map(|p| p.bytes).sum();
    let moves = ticket.pieces.iter().filter(|p| p.may_move).count();
    let tables: BTreeSet<_> = ticket.plan.take.iter().map(|t| t.table).collect();
    let what = format!(
        "{} {} tables -> L{} {}, {bytes} bytes, {} pieces, {moves} moves{}",
        ticket.ticket,
        tables.len(),
        ticket.plan.out,
        ticket.wanted.unwrap_or(ticket.own),
        ticket.pieces.len(),
        waits(ticket),
    );
    log.note(micros, keyspace, what, ticket.plan.reason.clone());
}

/// The earlier tickets that it must let go first.
fn waits(ticket: &TicketState) -> String {
    let earlier: BTreeSet<_> = ticket.pieces.iter().flat_map(|p| &p.waits).map(|id| id.ticket).collect();
    let names: Vec<String> = earlier.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(", waits {}", names.join(" ")) }
}

/// Pieces were divided, as they would have folded more than was foreseen.
pub(super) fn divided(log: &mut DecisionLog, micros: u64, keyspace: &str, divided: &[Divided]) {
    for Divided { id, parts, bytes } in divided {
        let what = format!("{} piece {} is divided into {parts}", id.ticket, id.index);
        log.note(micros, keyspace, what, format!("with what it is to fold it has {bytes} bytes"));
    }
}

/// A piece started: said only where that is not plain.
pub(super) fn started(log: &mut DecisionLog, micros: u64, keyspace: &str, start: &Start) {
    let Piece { id, folded, inputs, out, .. } = &start.piece;
    if *folded > 0 {
        let runs = inputs.iter().filter(|f| f.level == *out).count();
        let what = format!("{} piece {} folds {runs} files of L{out}", id.ticket, id.index);
        log.note(micros, keyspace, what, format!("{folded} bytes of the output level"));
    }
    if start.is_early {
        let what = format!("{} piece {} is merged ahead", id.ticket, id.index);
        log.note(micros, keyspace, what, "nothing else was to be done".to_owned());
    }
}

/// What a held piece merged took the place of its inputs, in their level: it waits in vain, or for long.
pub(super) fn landed(log: &mut DecisionLog, micros: u64, keyspace: &str, piece: &Piece, level: u8) {
    let what = format!("{} piece {} lands in L{level}", piece.id.ticket, piece.id.index);
    let earlier: Vec<String> = piece.waits.iter().map(name).collect();
    log.note(micros, keyspace, what, format!("waits for {}", earlier.join(", ")));
}

/// A piece that had landed went on to its level.
pub(super) fn sunk(log: &mut DecisionLog, micros: u64, keyspace: &str, piece: &Piece) {
    let what = format!("{} piece {} sinks to L{}", piece.id.ticket, piece.id.index, piece.out);
    log.note(micros, keyspace, what, "nothing is in its way any more".to_owned());
}

/// Pieces were given up, and what waited for them goes with them or stays in the level of its inputs.
pub(super) fn withdrawn(log: &mut DecisionLog, micros: u64, keyspace: &str, ended: &Withdrawn, why: &str) {
    let names = |ids: &[PieceId]| ids.iter().map(name).collect::<Vec<_>>().join(", ");
    if !ended.gone.is_empty() {
        let what = format!("{} pieces given up: {}", ended.gone.len(), names(&ended.gone));
        log.note(micros, keyspace, what, why.to_owned());
    }
    if !ended.staying.is_empty() {
        let what = format!("{} pieces re-targeted: {}", ended.staying.len(), names(&ended.staying));
        log.note(micros, keyspace, what, "what they waited for was given up".to_owned());
    }
}

/// A piece's name: its ticket and its number there.
fn name(id: &PieceId) -> String {
    format!("{}/{}", id.ticket, id.index)
}

/// A plan was not admitted.
pub(super) fn refused(log: &mut DecisionLog, micros: u64, keyspace: &str, plan: &Plan, why: &str) {
    log.refused += 1;
    let what = format!("refused: {} takes -> L{}: {why}", plan.take.len(), plan.out);
    log.note(micros, keyspace, what, plan.reason.clone());
}

/// A ticket ended.
pub(super) fn ended(
    log: &mut DecisionLog,
    micros: u64,
    keyspace: &str,
    ticket: &TicketState,
    result: PlanResult,
) {
    let how = match result {
        PlanResult::Done => "done",
        PlanResult::Cut => "cut short",
        PlanResult::Refused => "refused",
    };
    let what = format!(
        "{} {how}: {} bytes in, {} out, {} entries dropped",
        ticket.ticket, ticket.bytes_in, ticket.bytes_out, ticket.dropped
    );
    log.note(micros, keyspace, what, ticket.cut_short.clone().unwrap_or_default());
}
