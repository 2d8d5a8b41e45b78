//! Plans under way in one keyspace: tickets, their pieces, and what the pieces claim.
//!
//! A piece claims parts of tables by (table, key range). Claims of different pieces are disjoint. A claim
//! ends when its piece is installed (the part then leaves the tree in the same edit) or withdrawn.

use drumlin_types::contract::{FileSpan, PieceId, PieceView, Plan, RunTag, TicketView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket};
use std::collections::BTreeSet;

/// Where a piece stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceState {
    /// May start once its waits are installed.
    Ready,
    /// An executor has it.
    Running,
    /// Its edit is part of the version.
    Installed,
    /// Given up; its claims are free.
    Withdrawn,
}

/// One key sub-range of a ticket.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) id: PieceId,
    pub(crate) range: KeyRange,
    pub(crate) inputs: Vec<FileSpan>,
    pub(crate) waits: Vec<PieceId>,
    pub(crate) state: PieceState,
    /// Estimated input bytes.
    pub(crate) bytes: u64,
    /// The inputs only change their level or run.
    pub(crate) is_move: bool,
    /// Larger first among the pieces of a ticket.
    pub(crate) priority: f64,
    /// Failed attempts so far, and when the next may start.
    pub(crate) attempts: u32,
    pub(crate) not_before: u64,
}

impl Piece {
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.state, PieceState::Ready | PieceState::Running)
    }
}

/// An admitted plan.
#[derive(Clone, Debug)]
pub(crate) struct TicketState {
    pub(crate) ticket: Ticket,
    pub(crate) plan: Plan,
    /// Run that takes the outputs.
    pub(crate) run: RunId,
    pub(crate) tag: RunTag,
    pub(crate) pieces: Vec<Piece>,
    /// Installed outputs.
    pub(crate) outputs: BTreeSet<TableId>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) dropped: u64,
    /// Why pieces were withdrawn, if any were.
    pub(crate) cut_short: Option<String>,
}

impl TicketState {
    pub(crate) fn is_finished(&self) -> bool {
        !self.pieces.iter().any(Piece::is_unfinished)
    }

    fn view(&self) -> TicketView {
        let done = self.pieces.iter().filter(|p| p.state == PieceState::Installed);
        TicketView {
            ticket: self.ticket,
            plan: self.plan.clone(),
            pieces: self.pieces.len() as u32,
            pieces_done: done.clone().count() as u32,
            bytes: self.pieces.iter().map(|p| p.bytes).sum(),
            bytes_done: done.map(|p| p.bytes).sum(),
        }
    }
}

/// All unfinished tickets of a keyspace, oldest first.
#[derive(Default, Debug)]
pub(crate) struct Flight {
    pub(crate) tickets: Vec<TicketState>,
}

impl Flight {
    pub(crate) fn ticket(&self, ticket: Ticket) -> Option<&TicketState> {
        self.tickets.iter().find(|t| t.ticket == ticket)
    }

    pub(crate) fn ticket_mut(&mut self, ticket: Ticket) -> Option<&mut TicketState> {
        self.tickets.iter_mut().find(|t| t.ticket == ticket)
    }

    pub(crate) fn piece(&self, id: PieceId) -> Option<&Piece> {
        self.ticket(id.ticket)?.pieces.get(id.index as usize)
    }

    pub(crate) fn piece_mut(&mut self, id: PieceId) -> Option<&mut Piece> {
        self.ticket_mut(id.ticket)?.pieces.get_mut(id.index as usize)
    }

    /// Every unfinished piece.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (&TicketState, &Piece)> {
        self.tickets.iter().flat_map(|t| t.pieces.iter().filter(|p| p.is_unfinished()).map(move |p| (t, p)))
    }

    /// Every unfinished piece, as the wait rule takes it.
    pub(crate) fn piece_views(&self) -> Vec<PieceView> {
        self.unfinished()
            .map(|(ticket, piece)| PieceView {
                id: piece.id,
                range: piece.range.clone(),
                inputs: piece.inputs.clone(),
                out: ticket.plan.out,
                waits: piece.waits.clone(),
            })
            .collect()
    }

    pub(crate) fn ticket_views(&self) -> Vec<TicketView> {
        self.tickets.iter().map(TicketState::view).collect()
    }

    /// Whether everything that `piece` waits for is done with.
    pub(crate) fn is_clear(&self, piece: &Piece) -> bool {
        piece.waits.iter().all(|id| match self.piece(*id) {
            Some(other) => !other.is_unfinished(),
            None => true,
        })
    }

    /// Withdraws `id` and, as they were judged on its being done, every ready piece that waits for it.
    /// Pieces that already run keep their own fate: they never start before their waits are installed.
    pub(crate) fn withdraw(&mut self, id: PieceId, why: &str) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if let Some(ticket) = self.ticket_mut(id.ticket) {
                ticket.cut_short.get_or_insert_with(|| why.to_owned());
                ticket.pieces[id.index as usize].state = PieceState::Withdrawn;
            }
            let waiting = self.unfinished().filter(|(_, p)| p.waits.contains(&id)).map(|(_, p)| p.id);
            open.extend(waiting);
        }
    }

    /// Takes out the tickets that are finished.
    pub(crate) fn take_finished(&mut self) -> Vec<TicketState> {
        let (done, open) = std::mem::take(&mut self.tickets).into_iter().partition(TicketState::is_finished);
        self.tickets = open;
        done
    }
}
