//! Tickets (scheduled compactions) under way, their pieces (subcompactions), and the claims of the pieces.
//!
//! A piece claims parts of tables by (table, key range); claims of different pieces are disjoint. A claim ends when
//! its piece is installed, since the part leaves the tree in the same edit, or when the piece is withdrawn.
//!
//! ```text
//!            start              finish            install
//!   Ready ----------> Running ----------> Held ------------> Installed
//!     ^  <-- retry -----'                  | land                ^
//!     '------------- discard --------------|                     |
//!                                          v          sink       |
//!                                        Landed -----------------'
//! ```
//!
//! Each unfinished state may end as Withdrawn; a landed piece is then Installed where it lies. A held piece has
//! finished, and its output waits for an earlier install. A landed piece has installed its output in place of its
//! inputs, in their own level. Later the output sinks to the output level by a manifest edit alone.

use super::limits::Settings;
use super::pick::is_full;
use super::weights::Weights;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, PieceId, PieceView, Plan, RunTag, TicketView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket};

/// State of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceState {
    /// Not running. It may start once its waits and its back-off are over, or before its waits are over if nothing
    /// else may start.
    Ready,
    /// An executor runs it.
    Running,
    /// Finished; its output waits to be installed.
    Held,
    /// Its output lies in the level of its inputs and is yet to sink.
    Landed,
    /// Its output is part of the tree.
    Installed,
    /// Withdrawn; its claims are free.
    Withdrawn,
}

/// One key sub-range of a ticket.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Id of the piece.
    pub id: PieceId,
    /// Key range of the piece.
    pub range: KeyRange,
    /// Inputs; for a landed piece, its landed output instead.
    pub inputs: Vec<FileSpan>,
    /// Output level: that of the plan, or that of the inputs once a piece that it waited for was withdrawn.
    pub out: u8,
    /// Earlier pieces that must be installed first.
    pub waits: Vec<PieceId>,
    /// State of the piece.
    pub state: PieceState,
    /// Estimated input bytes, including folded files.
    pub bytes: u64,
    /// Part of `bytes` that was taken from the output level when the piece started.
    pub folded: u64,
    /// Whether it started as a trivial move: the inputs change their level and run, and nothing is rewritten.
    pub is_move: bool,
    /// Whether it was divided from another piece that was about to start.
    pub is_part: bool,
    /// Whether its only input may be moved unchanged: a whole file without anything that compaction could drop.
    pub may_move: bool,
    /// Priority among the pieces of a ticket; larger goes first.
    pub priority: f64,
    /// Number of failed attempts so far.
    pub attempts: u32,
    /// Earliest time of the next start, in microseconds.
    pub not_before: u64,
    /// Time at which it finished, in microseconds.
    pub finished_at: u64,
}

impl Piece {
    /// Returns whether the piece still holds its claims.
    pub fn is_unfinished(&self) -> bool {
        !matches!(self.state, PieceState::Installed | PieceState::Withdrawn)
    }

    /// Returns the deepest level of its inputs, where its output can land.
    pub fn landing(&self) -> u8 {
        self.inputs.iter().map(|f| f.level).max().unwrap_or(self.out)
    }

    /// Returns the uppermost level of its inputs.
    pub fn source(&self) -> u8 {
        self.inputs.iter().map(|f| f.level).min().unwrap_or(self.out)
    }

    /// Returns the piece in the form that the wait rule uses.
    pub fn view(&self) -> PieceView {
        PieceView {
            id: self.id,
            range: self.range.clone(),
            inputs: self.inputs.clone(),
            out: self.out,
            waits: self.waits.clone(),
        }
    }

    /// Returns the smallest range that contains all its inputs.
    pub fn hull(&self) -> Option<KeyRange> {
        let hull = self.inputs.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b))?;
        hull.intersect(&self.range).or(Some(hull))
    }

    /// Returns its expected output as a span of level `level`.
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

/// State of a ticket, an admitted plan.
#[derive(Clone, Debug)]
pub struct TicketState {
    /// Number of the ticket.
    pub ticket: Ticket,
    /// Plan after closure.
    pub plan: Plan,
    /// Run that its output joins where it fits.
    pub wanted: Option<RunId>,
    /// Run of its own for outputs that do not fit there.
    pub own: RunId,
    /// Tag of its own run.
    pub tag: RunTag,
    /// Run, by level, of outputs that landed or stayed above the output level.
    pub above: BTreeMap<u8, RunId>,
    /// Pieces; those of admission by ascending key, then parts of divided ones.
    pub pieces: Vec<Piece>,
    /// Installed outputs.
    pub outputs: BTreeSet<TableId>,
    /// Bytes read by installed pieces.
    pub bytes_in: u64,
    /// Bytes written by installed pieces.
    pub bytes_out: u64,
    /// Entries dropped by installed pieces.
    pub dropped: u64,
    /// Reason why pieces were withdrawn, if any were.
    pub withdrawn: Option<String>,
}

impl TicketState {
    /// Returns whether no piece has anything left to do.
    pub fn is_finished(&self) -> bool {
        !self.pieces.iter().any(Piece::is_unfinished)
    }

    /// Returns whether any of its pieces has started.
    pub fn has_begun(&self) -> bool {
        self.pieces.iter().any(|p| p.state != PieceState::Ready)
    }

    /// Returns the ticket in the form that policies see.
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
    /// Tickets by ascending number.
    pub tickets: Vec<TicketState>,
    /// Whether a slot was free and no ready piece could start.
    pub(super) starved: bool,
    /// Bytes that pieces withdrawn while running may still write. An entry is removed when its executor finishes.
    pub(super) stray: BTreeMap<PieceId, u64>,
}

impl Flight {
    /// Returns the ticket with that number.
    pub fn ticket(&self, ticket: Ticket) -> Option<&TicketState> {
        let at = self.tickets.binary_search_by_key(&ticket, |t| t.ticket).ok()?;
        self.tickets.get(at)
    }

    /// Returns the ticket with that number, mutably.
    pub fn ticket_mut(&mut self, ticket: Ticket) -> Option<&mut TicketState> {
        let at = self.tickets.binary_search_by_key(&ticket, |t| t.ticket).ok()?;
        self.tickets.get_mut(at)
    }

    /// Returns the piece with that id.
    pub fn piece(&self, id: PieceId) -> Option<&Piece> {
        self.ticket(id.ticket)?.pieces.get(id.index as usize)
    }

    /// Returns the piece with that id, mutably.
    pub fn piece_mut(&mut self, id: PieceId) -> Option<&mut Piece> {
        self.ticket_mut(id.ticket)?.pieces.get_mut(id.index as usize)
    }

    /// Returns every unfinished piece, oldest ticket first.
    pub fn unfinished(&self) -> impl Iterator<Item = (&TicketState, &Piece)> {
        self.tickets.iter().flat_map(|t| t.pieces.iter().filter(|p| p.is_unfinished()).map(move |p| (t, p)))
    }

    /// Returns every unfinished piece in the form that the wait rule uses.
    pub fn piece_views(&self) -> Vec<PieceView> {
        self.unfinished().map(|(_, piece)| piece.view()).collect()
    }

    /// Returns the unfinished tickets in the form that policies see.
    pub fn ticket_views(&self) -> Vec<TicketView> {
        self.tickets.iter().map(TicketState::view).collect()
    }

    /// Returns whether the piece with that id is unfinished.
    pub fn is_open(&self, id: PieceId) -> bool {
        self.piece(id).is_some_and(Piece::is_unfinished)
    }

    /// Returns whether all pieces that `piece` waits for are installed or withdrawn.
    pub fn is_clear(&self, piece: &Piece) -> bool {
        !piece.waits.iter().any(|id| self.is_open(*id))
    }

    /// Returns whether a slot was free and no ready piece could start.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Returns whether so much work is ready that further plans would only become outdated. The policy need not be
    /// called then, unless something was flushed.
    ///
    /// A single slot counts only the work of level 0, which a long compaction below would otherwise delay. Tickets
    /// with a deadline do not count: their policy makes its own order and is called. Pieces that wait for a full
    /// output level do not count. Neither do pieces below a level that is over its size and gives nothing, because
    /// that level needs a plan first. The result is also `false` when a slot is free and no ready piece may start.
    /// `weights` is evaluated only if the other conditions do not decide.
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

    /// Returns the oldest unfinished ticket with a piece into `level`; no limit delays it.
    pub fn oldest_into(&self, level: u8) -> Option<Ticket> {
        self.unfinished().find(|(_, p)| p.out == level).map(|(t, _)| t.ticket)
    }

    /// Records why a ticket loses pieces; the first reason stays.
    pub(super) fn note_withdrawn(&mut self, ticket: Ticket, why: &str) {
        if let Some(ticket) = self.ticket_mut(ticket) {
            ticket.withdrawn.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Removes and returns the finished tickets.
    pub fn take_finished(&mut self) -> Vec<TicketState> {
        if !self.tickets.iter().any(TicketState::is_finished) {
            return Vec::new();
        }
        let (done, open) = core::mem::take(&mut self.tickets).into_iter().partition(TicketState::is_finished);
        self.tickets = open;
        done
    }
}
