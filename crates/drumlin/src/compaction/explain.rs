//! Text of the decision log: scheduling decisions in words.

use crate::base::decisions::DecisionLog;
use drumlin_format::decisions::PolicyCall;
use drumlin_policy::schedule::{Divided, StartedPiece, Withdrawn};
use drumlin_policy::schedule::{Piece, TicketState};
use drumlin_types::contract::{Decision, PieceId, Plan, PlanResult, PolicyInput};
use std::collections::BTreeSet;

/// Largest number of files in a tree for which the inputs of a policy call are logged. A larger record would not fit.
const MAX_FILES: usize = 4096;

/// Returns `n` with its noun in singular or plural.
fn counted(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// Logs a policy call that changed something. `before` is the policy's name and its state before the call.
pub(super) fn decided(
    log: &mut DecisionLog,
    keyspace: &str,
    before: &(String, Vec<u8>),
    input: &PolicyInput<'_>,
    decision: &Decision,
) {
    let (policy, state) = before;
    let mut what = format!(
        "policy call: {}, {} withdrawn",
        counted(decision.plans.len(), "plan"),
        decision.withdraw.len()
    );
    if let Some(pace) = &decision.pace {
        what.push_str(&format!(", writes slowed at {} runs, stopped at {}", pace.slow, pace.stops_at()));
    }
    let fits = input.tree.files().count() <= MAX_FILES;
    let call = if fits { PolicyCall::encode(policy, state, input, decision) } else { Vec::new() };
    log.note_policy_call(input.now, keyspace, what, format!("policy {policy}"), call);
}

/// Logs that a plan was admitted and became a ticket.
pub(super) fn admitted(log: &mut DecisionLog, micros: u64, keyspace: &str, ticket: &TicketState) {
    log.admitted += 1;
    let bytes: u64 = ticket.pieces.iter().map(|p| p.bytes).sum();
    let moves = ticket.pieces.iter().filter(|p| p.may_move).count();
    let tables: BTreeSet<_> = ticket.plan.take.iter().map(|t| t.table).collect();
    // `drumlin bench` looks for the arrow.
    let what = format!(
        "{} {} -> L{} {}, {bytes} bytes, {}, {}{}",
        ticket.ticket,
        counted(tables.len(), "table"),
        ticket.plan.out,
        ticket.wanted.unwrap_or(ticket.own),
        counted(ticket.pieces.len(), "piece"),
        counted(moves, "trivial move"),
        waits(ticket),
    );
    log.note(micros, keyspace, what, ticket.plan.reason.clone());
}

/// Returns the list of earlier tickets that must be installed first.
fn waits(ticket: &TicketState) -> String {
    let earlier: BTreeSet<_> = ticket.pieces.iter().flat_map(|p| &p.waits).map(|id| id.ticket).collect();
    let names: Vec<String> = earlier.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(", waits for {}", names.join(" ")) }
}

/// Logs that pieces were divided, because with the files that they would fold they became too large.
pub(super) fn divided(log: &mut DecisionLog, micros: u64, keyspace: &str, divided: &[Divided]) {
    for Divided { id, parts, bytes } in divided {
        let what = format!("{} piece {} is divided into {parts} pieces", id.ticket, id.index);
        log.note(micros, keyspace, what, format!("{bytes} bytes with the files that it would fold"));
    }
}

/// Logs that a piece started, if it folds files of the output level or starts early.
pub(super) fn started(log: &mut DecisionLog, micros: u64, keyspace: &str, start: &StartedPiece) {
    let Piece { id, folded, inputs, out, .. } = &start.piece;
    if *folded > 0 {
        let runs = inputs.iter().filter(|f| f.level == *out).count();
        let files = counted(runs, "file");
        let what = format!("{} piece {} folds (adds to its inputs) {files} of L{out}", id.ticket, id.index);
        log.note(micros, keyspace, what, format!("{folded} bytes of the output level"));
    }
    if start.is_early {
        let what = format!("{} piece {} starts early", id.ticket, id.index);
        log.note(micros, keyspace, what, "no other piece could start".to_owned());
    }
}

/// Logs that the output of a held piece was installed in the level of its inputs, because its own install is blocked or
/// delayed for long.
pub(crate) fn landed(log: &mut DecisionLog, micros: u64, keyspace: &str, piece: &Piece, level: u8) {
    let what = format!(
        "{} piece {}: output installed in L{level}, the level of its inputs",
        piece.id.ticket, piece.id.index
    );
    let earlier: Vec<String> = piece.waits.iter().map(name).collect();
    log.note(micros, keyspace, what, format!("waits for {}", earlier.join(", ")));
}

/// Logs that an output that had been installed in the level of its inputs was moved to its output level.
pub(crate) fn sunk(log: &mut DecisionLog, micros: u64, keyspace: &str, piece: &Piece) {
    let what = format!("{} piece {}: output moved on to L{}", piece.id.ticket, piece.id.index, piece.out);
    log.note(micros, keyspace, what, "no earlier piece blocks it any more".to_owned());
}

/// Logs that pieces were withdrawn. Pieces that waited for them are withdrawn too, or redirected to the level of their
/// inputs.
pub(super) fn withdrawn(log: &mut DecisionLog, micros: u64, keyspace: &str, ended: &Withdrawn, why: &str) {
    let names = |ids: &[PieceId]| ids.iter().map(name).collect::<Vec<_>>().join(", ");
    if !ended.gone.is_empty() {
        let what = format!("{} withdrawn: {}", counted(ended.gone.len(), "piece"), names(&ended.gone));
        log.note(micros, keyspace, what, why.to_owned());
    }
    if !ended.staying.is_empty() {
        let what = format!(
            "{} redirected to the level of their inputs: {}",
            counted(ended.staying.len(), "piece"),
            names(&ended.staying)
        );
        log.note(micros, keyspace, what, "the pieces that they waited for were withdrawn".to_owned());
    }
}

/// Logs that held outputs were discarded, because earlier pieces lack the disk space that they take.
pub(super) fn discarded(log: &mut DecisionLog, micros: u64, keyspace: &str, pieces: &[PieceId]) {
    if !pieces.is_empty() {
        let names = pieces.iter().map(name).collect::<Vec<_>>().join(", ");
        let what = format!("{} discarded: {names}", counted(pieces.len(), "held output"));
        log.note(micros, keyspace, what, "earlier pieces lack the disk space that they take".to_owned());
    }
}

/// Returns a piece's name: its ticket and its number there.
fn name(id: &PieceId) -> String {
    format!("{}/{}", id.ticket, id.index)
}

/// Logs that a plan was refused.
pub(super) fn refused(log: &mut DecisionLog, micros: u64, keyspace: &str, plan: &Plan, why: &str) {
    log.refused += 1;
    let what = format!("plan refused: {} -> L{}: {why}", counted(plan.take.len(), "input"), plan.out);
    log.note(micros, keyspace, what, plan.reason.clone());
}

/// Logs that a ticket ended.
pub(super) fn ended(
    log: &mut DecisionLog,
    micros: u64,
    keyspace: &str,
    ticket: &TicketState,
    result: PlanResult,
) {
    let how = match result {
        PlanResult::Done => "done",
        // `drumlin bench` looks for these words in the log.
        PlanResult::Withdrawn => "cut short",
        PlanResult::Refused => "refused",
        PlanResult::Deferred => "deferred",
    };
    let what = if result == PlanResult::Done && ticket.pieces.iter().all(|piece| piece.may_move) {
        format!("{} {how}: trivial move", ticket.ticket)
    } else {
        format!(
            "{} {how}: read {} bytes, wrote {} bytes, dropped {} entries",
            ticket.ticket, ticket.bytes_in, ticket.bytes_out, ticket.dropped
        )
    };
    log.note(micros, keyspace, what, ticket.withdrawn.clone().unwrap_or_default());
}
