//! Pieces that finish, fail or are withdrawn.
//!
//! A finished piece is installed once the pieces that it waits for are installed. Until then its output is *held*; no
//! thread blocks for it. When waiting longer is no use, the piece *lands*: its output replaces its inputs in their
//! own level. That is legal as soon as nothing that it waits for lies between them there. Later the output *sinks* to
//! its output level by a manifest edit alone.
//!
//! A withdrawn piece frees its inputs. Pieces that wait for it were legal only because its inputs would be out of
//! their way. Each of them is *redirected* to the level of its own deepest input, if it may stay there without the
//! withdrawn piece. Otherwise it is withdrawn too. The same then applies to the pieces that wait for it.

use super::limits::{Concurrency, Settings, with_margin};
use super::scene::Scene;
use super::tickets::{Flight, Piece, PieceState, TicketState};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use drumlin_types::contract::legal::waits;
use drumlin_types::contract::{FileSpan, PieceId, PieceView};
use drumlin_types::{TableId, Ticket, bug};

/// Initial and largest retry back-off after a failed piece, in microseconds. The back-off doubles with each failure.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;
/// Number of attempts after which a failing piece is withdrawn.
const MAX_ATTEMPTS: u32 = 5;

/// Manifest edit that may be made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Install {
    /// Installs the output of a held piece in its output level.
    Output(PieceId),
    /// Installs the output of a held piece in place of its inputs, in the deepest level of them.
    Land(PieceId, u8),
    /// Moves the landed output to its output level.
    Sink(PieceId),
}

/// Pieces that a withdrawal affected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Withdrawn {
    /// Withdrawn pieces; their output is useless.
    pub gone: Vec<PieceId>,
    /// Pieces that were redirected to the level of their inputs.
    pub staying: Vec<PieceId>,
}

impl Flight {
    /// Records that the executor of a piece is done. Returns `false` when the piece was withdrawn meanwhile and its
    /// output must be removed.
    pub fn finished(&mut self, id: PieceId, now: u64) -> bool {
        self.stray.remove(&id);
        match self.piece_mut(id) {
            Some(piece) if piece.state == PieceState::Running => {
                piece.state = PieceState::Held;
                piece.finished_at = now;
                true
            }
            _ => false,
        }
    }

    /// Returns the next manifest edit that may be made at the time `now`, in microseconds. The caller reports it
    /// afterwards with [`Flight::installed`] or [`Flight::landed`]. `is_short` means that the disk needs the space of
    /// the inputs.
    pub fn next_install(&self, settings: &Settings, now: u64, is_short: bool) -> Option<Install> {
        if settings.mode != Concurrency::Pipelined {
            return self.next_whole();
        }
        for (_, piece) in self.unfinished() {
            match piece.state {
                PieceState::Held if self.is_clear(piece) || bug!("install-out-of-order") => {
                    return Some(Install::Output(piece.id));
                }
                PieceState::Landed if self.is_clear(piece) => return Some(Install::Sink(piece.id)),
                PieceState::Held => {
                    let is_late = now.saturating_sub(piece.finished_at) >= settings.hold;
                    if (is_late || is_short || self.waits_for_failed(piece)) && self.may_land(piece) {
                        return Some(Install::Land(piece.id, piece.landing()));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the time at which a held piece may land because of its age, in microseconds. Returns `None` without
    /// the pipeline.
    pub fn next_landing(&self, scene: &Scene<'_>) -> Option<u64> {
        if scene.settings.mode != Concurrency::Pipelined {
            return None;
        }
        let held = self.unfinished().filter(|(_, p)| p.state == PieceState::Held && self.may_land(p));
        held.map(|(_, p)| p.finished_at + scene.settings.hold).min()
    }

    /// Returns the next edit without the pipeline, where a plan is installed as a whole.
    fn next_whole(&self) -> Option<Install> {
        let is_done = |p: &Piece| !p.is_unfinished() || (p.state == PieceState::Held && self.is_clear(p));
        let ticket = self.tickets.iter().find(|t| !t.is_finished() && t.pieces.iter().all(is_done))?;
        let piece = ticket.pieces.iter().find(|p| p.state == PieceState::Held)?;
        Some(Install::Output(piece.id))
    }

    fn waits_for_failed(&self, piece: &Piece) -> bool {
        piece.waits.iter().any(|id| self.piece(*id).is_some_and(|p| p.is_unfinished() && p.attempts > 0))
    }

    /// Returns whether the output of `piece` may lie in the deepest level of its inputs, above its output level.
    /// Nothing that it waits for may lie between them there.
    pub fn may_land(&self, piece: &Piece) -> bool {
        let level = piece.landing();
        level < piece.out && waits(&piece.inputs, level, &self.open_waits(piece)).is_empty()
    }

    fn open_waits(&self, piece: &Piece) -> Vec<PieceView> {
        let earlier = piece.waits.iter().filter_map(|id| self.piece(*id));
        earlier.filter(|p| p.is_unfinished()).map(Piece::view).collect()
    }

    /// Records that the edit of a piece is made; `outputs` are its tables.
    pub fn installed(&mut self, id: PieceId, outputs: &[TableId], bytes_out: u64, dropped: u64) {
        let Some(ticket) = self.ticket_mut(id.ticket) else { return };
        let out = ticket.plan.out;
        let Some(piece) = ticket.pieces.get_mut(id.index as usize) else { return };
        piece.state = PieceState::Installed;
        if piece.out == out {
            ticket.outputs.extend(outputs);
        }
        ticket.count(id, bytes_out, dropped);
    }

    /// Records that a piece has landed, with its output at `outputs`. A piece without output is complete.
    pub fn landed(&mut self, id: PieceId, outputs: Vec<FileSpan>, bytes_out: u64, dropped: u64) {
        let Some(ticket) = self.ticket_mut(id.ticket) else { return };
        let Some(piece) = ticket.pieces.get_mut(id.index as usize) else { return };
        piece.state = if outputs.is_empty() { PieceState::Installed } else { PieceState::Landed };
        piece.inputs = outputs;
        ticket.count(id, bytes_out, dropped);
    }

    /// Records a failed piece: it is retried later, or withdrawn together with the pieces that depend on it.
    pub fn failed(&mut self, id: PieceId, retry: bool, why: &str, now: u64) -> Withdrawn {
        self.stray.remove(&id);
        let Some(piece) = self.piece_mut(id) else { return Withdrawn::default() };
        if !piece.is_unfinished() {
            return Withdrawn::default();
        }
        piece.attempts += 1;
        if !retry || piece.attempts >= MAX_ATTEMPTS {
            let ended = self.withdraw(id, why);
            // The executor of the failed piece is done, so it no longer counts as stray.
            self.stray.remove(&id);
            return ended;
        }
        // Files that it folded stay claimed: folding them at the next attempt is just as good.
        piece.state = PieceState::Ready;
        piece.not_before = now + (RETRY_FIRST << (piece.attempts - 1)).min(RETRY_LAST);
        Withdrawn::default()
    }

    /// Ends the retry back-offs of failed pieces.
    pub fn retry_now(&mut self) {
        for piece in self.tickets.iter_mut().flat_map(|ticket| &mut ticket.pieces) {
            piece.not_before = 0;
        }
    }

    /// Withdraws the pieces of `ticket` that have not started.
    pub fn withdraw_ready(&mut self, ticket: Ticket, why: &str) -> Withdrawn {
        let pieces = self.ticket(ticket).map_or(&[][..], |t| &t.pieces);
        let ready: Vec<PieceId> =
            pieces.iter().filter(|p| p.state == PieceState::Ready).map(|p| p.id).collect();
        let mut all = Withdrawn::default();
        for id in ready {
            if self.is_open(id) {
                let more = self.withdraw(id, why);
                all.gone.extend(more.gone);
                all.staying.extend(more.staying);
            }
        }
        all
    }

    /// Withdraws `id`, and redirects or withdraws the pieces that wait for it.
    pub fn withdraw(&mut self, id: PieceId, why: &str) -> Withdrawn {
        let mut ended = Withdrawn::default();
        let mut staying: BTreeSet<PieceId> = BTreeSet::new();
        let mut open = Vec::from([id]);
        self.give_up(id, why, &mut ended);
        while let Some(cause) = open.pop() {
            let waiting: Vec<PieceId> =
                self.unfinished().filter(|(_, p)| p.waits.contains(&cause)).map(|(_, p)| p.id).collect();
            for next in waiting {
                if !self.is_open(next) {
                    continue;
                }
                // A piece that was redirected stays so, unless a piece that it waits for now blocks that level too.
                let was_staying = staying.contains(&next);
                if self.stay(next, &staying, why, &mut ended) {
                    staying.insert(next);
                    if !was_staying {
                        open.push(next);
                    }
                } else {
                    staying.remove(&next);
                    self.give_up(next, why, &mut ended);
                    open.push(next);
                }
            }
        }
        ended.staying.retain(|id| !ended.gone.contains(id));
        ended
    }

    fn give_up(&mut self, id: PieceId, why: &str, ended: &mut Withdrawn) {
        self.note_withdrawn(id.ticket, why);
        let Some(piece) = self.piece_mut(id) else { return };
        let goes_on = piece.state == PieceState::Running && !piece.is_move;
        let writes = with_margin(piece.bytes);
        piece.state = PieceState::Withdrawn;
        ended.gone.push(id);
        if goes_on {
            self.stray.insert(id, writes);
        }
    }

    /// Redirects a piece to the level of its inputs, if that is legal. A landed piece is already there.
    fn stay(&mut self, id: PieceId, staying: &BTreeSet<PieceId>, why: &str, ended: &mut Withdrawn) -> bool {
        let Some(piece) = self.piece(id) else { return false };
        let level = piece.landing();
        if piece.state == PieceState::Landed {
            self.note_withdrawn(id.ticket, why);
            if let Some(piece) = self.piece_mut(id) {
                piece.out = level;
                piece.state = PieceState::Installed;
                ended.staying.push(id);
            }
            return true;
        }
        // In its own output level, or as a trivial move, a piece needs the pieces that it waits for to be gone.
        let may = (level < piece.out || staying.contains(&id))
            && !(piece.state == PieceState::Ready && piece.may_move)
            && self.is_free_at_staying(piece, level, staying);
        if !may {
            return false;
        }
        let waits = waits(&piece.inputs, level, &self.open_waits(piece));
        self.note_withdrawn(id.ticket, why);
        if let Some(piece) = self.piece_mut(id) {
            piece.out = level;
            piece.may_move = false;
            piece.waits = waits;
            if !ended.staying.contains(&id) {
                ended.staying.push(id);
            }
        }
        true
    }

    /// Returns whether neither withdrawn pieces nor redirected ones above keep `piece` from `level`.
    fn is_free_at_staying(&self, piece: &Piece, level: u8, staying: &BTreeSet<PieceId>) -> bool {
        let mut fixed: Vec<PieceView> = Vec::new();
        for other in piece.waits.iter().filter_map(|id| self.piece(*id)) {
            let mut view = other.view();
            if staying.contains(&other.id) {
                view.inputs = other.output(other.out).into_iter().collect();
                fixed.push(view);
            } else if other.state == PieceState::Withdrawn {
                fixed.push(view);
            }
        }
        waits(&piece.inputs, level, &fixed).is_empty()
    }
}

impl TicketState {
    fn count(&mut self, id: PieceId, bytes_out: u64, dropped: u64) {
        self.bytes_in += if bytes_out > 0 || dropped > 0 {
            self.pieces.get(id.index as usize).map_or(0, |p| p.bytes)
        } else {
            0
        };
        self.bytes_out += bytes_out;
        self.dropped += dropped;
    }
}
