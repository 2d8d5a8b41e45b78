//! Plans under way: tickets, their pieces, and what the pieces claim.
//!
//! A piece claims parts of tables by (table, key range); claims of different pieces are disjoint. A claim ends when
//! its piece is installed (the part then leaves the tree in the same edit) or withdrawn.
//!
//! ```text
//!            start              finish            install
//!   Ready ----------> Running ----------> Held ------------> Installed
//!     ^  <-- retry -----'                  | land                ^
//!     |                                    v          sink       |
//!     '--- withdraw: Withdrawn           Landed -----------------'
//! ```
//!
//! A held piece is done but waits for an earlier one. A landed piece has put its output in the place of its inputs,
//! in their own level, and later sinks to its output level by an edit alone.

use super::limits::Settings;
use super::pick::is_full;
use super::weights::Weights;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, PieceId, PieceView, Plan, RunTag, TicketView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket};

/// Where a piece stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceState {
    /// May start.
    Ready,
    /// An executor has it.
    Running,
    /// Done; its output waits to be installed.
    Held,
    /// Its output lies in the level of its inputs, and is to sink.
    Landed,
    /// Its edit is part of the version.
    Installed,
    /// Given up; its claims are free.
    Withdrawn,
}

/// One key sub-range of a ticket.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its id.
    pub id: PieceId,
    /// Its keys.
    pub range: KeyRange,
    /// What it reads; a landed piece has its landed output here instead.
    pub inputs: Vec<FileSpan>,
    /// Where its output goes: the plan's level, or that of its inputs once a piece it waited for was given up.
    pub out: u8,
    /// Earlier pieces that must be installed first.
    pub waits: Vec<PieceId>,
    /// Where it stands.
    pub state: PieceState,
    /// Estimated input bytes, those folded included.
    pub bytes: u64,
    /// The part of `bytes` that was taken from the output level when it started.
    pub folded: u64,
    /// It started as a move: the inputs change their level and run, and nothing is rewritten.
    pub is_move: bool,
    /// It was divided from another one when that was to start.
    pub is_part: bool,
    /// Its one input may move as it is: it is whole, and holds nothing that a merge could drop.
    pub may_move: bool,
    /// Larger first among the pieces of a ticket.
    pub priority: f64,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Time before which it may not start again, microseconds.
    pub not_before: u64,
    /// When it was done, microseconds.
    pub finished_at: u64,
}

impl Piece {
    /// Whether it still holds its claims.
    pub fn is_unfinished(&self) -> bool {
        !matches!(self.state, PieceState::Installed | PieceState::Withdrawn)
    }

    /// The deepest level that it takes something from: where its output can land.
    pub fn landing(&self) -> u8 {
        self.inputs.iter().map(|f| f.level).max().unwrap_or(self.out)
    }

    /// The uppermost level that it takes something from.
    pub fn source(&self) -> u8 {
        self.inputs.iter().map(|f| f.level).min().unwrap_or(self.out)
    }

    /// As the wait rule takes it.
    pub fn view(&self) -> PieceView {
        PieceView {
            id: self.id,
            range: self.range.clone(),
            inputs: self.inputs.clone(),
            out: self.out,
            waits: self.waits.clone(),
        }
    }

    /// The smallest range that holds all that it reads.
    pub fn hull(&self) -> Option<KeyRange> {
        let hull = self.inputs.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b))?;
        hull.intersect(&self.range).or(Some(hull))
    }

    /// Its output to be, as a span of level `level`.
    pub(super) fn output(&self, level: u8) -> Option<FileSpan> {
        Some(FileSpan {
            level,
            table: TableId(u64::MAX),
            range: self.hull()?,
            min_seq: self.inputs.iter().map(|f| f.min_seq).min()?,
            max_seq: self.inputs.iter().map(|f| f.max_seq).max()?,
        })
    }
}

/// An admitted plan.
#[derive(Clone, Debug)]
pub struct TicketState {
    /// Its number.
    pub ticket: Ticket,
    /// The plan, closed.
    pub plan: Plan,
    /// The run that its output goes to where it fits.
    pub wanted: Option<RunId>,
    /// A run of its own for what does not fit there.
    pub own: RunId,
    /// Tag of the run of its own.
    pub tag: RunTag,
    /// By level, the run of what landed or stayed above the output level.
    pub above: BTreeMap<u8, RunId>,
    /// Its pieces, by rising key.
    pub pieces: Vec<Piece>,
    /// Installed outputs.
    pub outputs: BTreeSet<TableId>,
    /// Bytes read by installed pieces.
    pub bytes_in: u64,
    /// Bytes written by installed pieces.
    pub bytes_out: u64,
    /// Entries dropped by installed pieces.
    pub dropped: u64,
    /// Why pieces were withdrawn, if any were.
    pub cut_short: Option<String>,
}

impl TicketState {
    /// Whether no piece has anything left to do.
    pub fn is_finished(&self) -> bool {
        !self.pieces.iter().any(Piece::is_unfinished)
    }

    /// Whether a piece of it has started.
    pub fn has_begun(&self) -> bool {
        self.pieces.iter().any(|p| p.state != PieceState::Ready)
    }

    /// As a policy sees it.
    pub fn view(&self) -> TicketView {
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
#[derive(Clone, Default, Debug)]
pub struct Flight {
    /// The tickets.
    pub tickets: Vec<TicketState>,
    /// A slot was free, and none of the pieces that are ready may start.
    pub(super) starved: bool,
    /// What pieces may still write that were given up while an executor had them: it knows when it is done.
    pub(super) stray: BTreeMap<PieceId, u64>,
}

impl Flight {
    /// The ticket of that number.
    pub fn ticket(&self, ticket: Ticket) -> Option<&TicketState> {
        let at = self.tickets.binary_search_by_key(&ticket, |t| t.ticket).ok()?;
        self.tickets.get(at)
    }

    /// The ticket of that number, to be changed.
    pub fn ticket_mut(&mut self, ticket: Ticket) -> Option<&mut TicketState> {
        let at = self.tickets.binary_search_by_key(&ticket, |t| t.ticket).ok()?;
        self.tickets.get_mut(at)
    }

    /// The piece of that id.
    pub fn piece(&self, id: PieceId) -> Option<&Piece> {
        self.ticket(id.ticket)?.pieces.get(id.index as usize)
    }

    /// The piece of that id, to be changed.
    pub fn piece_mut(&mut self, id: PieceId) -> Option<&mut Piece> {
        self.ticket_mut(id.ticket)?.pieces.get_mut(id.index as usize)
    }

    /// Every unfinished piece, oldest ticket first.
    pub fn unfinished(&self) -> impl Iterator<Item = (&TicketState, &Piece)> {
        self.tickets.iter().flat_map(|t| t.pieces.iter().filter(|p| p.is_unfinished()).map(move |p| (t, p)))
    }

    /// Every unfinished piece, as the wait rule takes it.
    pub fn piece_views(&self) -> Vec<PieceView> {
        self.unfinished().map(|(_, piece)| piece.view()).collect()
    }

    /// Unfinished tickets as a policy sees them.
    pub fn ticket_views(&self) -> Vec<TicketView> {
        self.tickets.iter().map(TicketState::view).collect()
    }

    /// Whether the piece of that id has something left to do.
    pub fn is_open(&self, id: PieceId) -> bool {
        self.piece(id).is_some_and(Piece::is_unfinished)
    }

    /// Whether everything that `piece` waits for is done with.
    pub fn is_clear(&self, piece: &Piece) -> bool {
        !piece.waits.iter().any(|id| self.is_open(*id))
    }

    /// Whether a slot was free, and none of the pieces that are ready may start.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Whether so much is ready that more plans would only grow old: a policy need not be asked, unless something was
    /// flushed. One slot is fed by what level 0 has to give alone: else a long merge below would hold that up. A policy
    /// that sets deadlines makes its own order, and is asked. What waits for a full level does not count, nor what lies below
    /// a level that is over its size and gives nothing: there is something better to do. Nor is it fed where a slot is free
    /// and nothing of that may start. `weights` are asked for last.
    pub fn is_fed(&self, settings: &Settings, weights: impl FnOnce() -> Weights) -> bool {
        if self.starved {
            return false;
        }
        let is_ready = |p: &Piece| p.state == PieceState::Ready && self.is_clear(p);
        let is_first = |p: &Piece| !settings.gives_way() || p.source() == 0;
        let counts = |t: &TicketState, p: &Piece| t.plan.deadline.is_none() && is_ready(p) && is_first(p);
        let ready = || self.unfinished().filter(|(t, p)| counts(t, p));
        let most = settings.most_ready(false);
        if ready().take(most).count() < most {
            return false;
        }
        let weights = weights();
        let gives = |level: u8| self.unfinished().any(|(_, p)| p.source() == level && p.out > level);
        let levels = 1..weights.levels.len().saturating_sub(1) as u8;
        let swollen = levels.into_iter().find(|level| weights.fill(*level) > 1.0 && !gives(*level));
        let goes_on = |t: &TicketState, p: &Piece| {
            let (source, target) = (weights.fill(p.source()), weights.fill(p.out));
            t.has_begun() || !is_full(source, target, settings.back_pressure)
        };
        let is_next = |p: &Piece| swollen.is_none_or(|level| p.source() <= level);
        ready().filter(|(t, p)| is_next(p) && goes_on(t, p)).take(most).count() == most
    }

    /// The oldest unfinished ticket with a piece into `level`: no limit holds it up.
    pub fn oldest_into(&self, level: u8) -> Option<Ticket> {
        self.unfinished().find(|(_, p)| p.out == level).map(|(t, _)| t.ticket)
    }

    /// Notes why a ticket loses pieces; the first reason stays.
    pub(super) fn cut_short(&mut self, ticket: Ticket, why: &str) {
        if let Some(ticket) = self.ticket_mut(ticket) {
            ticket.cut_short.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Takes out the tickets that are finished.
    pub fn take_finished(&mut self) -> Vec<TicketState> {
        if !self.tickets.iter().any(TicketState::is_finished) {
            return Vec::new();
        }
        let (done, open) = core::mem::take(&mut self.tickets).into_iter().partition(TicketState::is_finished);
        self.tickets = open;
        done
    }
}
