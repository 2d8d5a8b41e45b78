//! What becomes of pieces that are done, that fail, or that are given up (downforce.md 3.6, 3.9).
//!
//! A piece that is done is installed once what it waits for is installed. Meanwhile it is held; nobody sleeps for it.
//! It *lands* where waiting is no use: its output takes the place of its inputs in their own level, which is legal as
//! soon as nothing that it waits for lies between them there, and it sinks later by an edit alone.
//!
//! A piece that is given up frees its inputs. Pieces that wait for it were legal only because it would be out of their
//! way: each is *re-targeted* to the level of its own deepest input where it may go without that, else given up too;
//! and so on for those that wait for it.

use super::Scene;
use super::limits::Mode;
use super::start::with_margin;
use super::tickets::{Flight, Piece, PieceState, TicketState};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use drumlin_types::contract::legal::waits;
use drumlin_types::contract::{FileSpan, PieceId, PieceView};
use drumlin_types::{TableId, Ticket, bug};

/// First pause after a failed piece, doubling to the last one; microseconds.
const RETRY_FIRST: u64 = 1_000_000;
const RETRY_LAST: u64 = 60_000_000;
/// Attempts at a piece before it is given up.
const MAX_ATTEMPTS: u32 = 5;

/// An edit that may be made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Install {
    /// The output of a held piece goes to its level.
    Output(PieceId),
    /// The output of a held piece takes the place of its inputs, in the deepest level of them.
    Land(PieceId, u8),
    /// The landed output goes to its level.
    Sink(PieceId),
}

/// What a withdrawal ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Withdrawn {
    /// Pieces given up; what was merged for them is of no use.
    pub gone: Vec<PieceId>,
    /// Pieces that now stay in the level of their inputs.
    pub staying: Vec<PieceId>,
}

impl Flight {
    /// The executor of a piece is done. `false` when the piece was given up meanwhile: its output is to be removed.
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

    /// The next edit that may be made; after it was, [`Flight::installed`] or [`Flight::landed`] is told. `is_short`
    /// when the disk needs the space of inputs.
    pub fn next_install(&self, scene: &Scene<'_>, is_short: bool) -> Option<Install> {
        if scene.settings.mode != Mode::Pipelined {
            return self.next_whole();
        }
        for (_, piece) in self.unfinished() {
            match piece.state {
                PieceState::Held if self.is_clear(piece) || bug!("E2") => {
                    return Some(Install::Output(piece.id));
                }
                PieceState::Landed if self.is_clear(piece) => return Some(Install::Sink(piece.id)),
                PieceState::Held => {
                    let is_late = scene.now.saturating_sub(piece.finished_at) >= scene.settings.hold;
                    if (is_late || is_short || self.waits_for_failed(piece)) && self.may_land(piece) {
                        return Some(Install::Land(piece.id, piece.landing()));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// When a held piece becomes late, microseconds. Without the pipeline none does.
    pub fn next_landing(&self, scene: &Scene<'_>) -> Option<u64> {
        if scene.settings.mode != Mode::Pipelined {
            return None;
        }
        let held = self.unfinished().filter(|(_, p)| p.state == PieceState::Held && self.may_land(p));
        held.map(|(_, p)| p.finished_at + scene.settings.hold).min()
    }

    /// Without the pipeline a plan installs as a whole.
    fn next_whole(&self) -> Option<Install> {
        let is_done = |p: &Piece| !p.is_unfinished() || (p.state == PieceState::Held && self.is_clear(p));
        let ticket = self.tickets.iter().find(|t| !t.is_finished() && t.pieces.iter().all(is_done))?;
        let piece = ticket.pieces.iter().find(|p| p.state == PieceState::Held)?;
        Some(Install::Output(piece.id))
    }

    fn waits_for_failed(&self, piece: &Piece) -> bool {
        piece.waits.iter().any(|id| self.piece(*id).is_some_and(|p| p.is_unfinished() && p.attempts > 0))
    }

    /// Whether the output of `piece` may lie in the deepest level of its inputs, above its own: nothing that it waits
    /// for lies between them there.
    pub fn may_land(&self, piece: &Piece) -> bool {
        let level = piece.landing();
        level < piece.out && waits(&piece.inputs, level, &self.open_waits(piece)).is_empty()
    }

    fn open_waits(&self, piece: &Piece) -> Vec<PieceView> {
        let earlier = piece.waits.iter().filter_map(|id| self.piece(*id));
        earlier.filter(|p| p.is_unfinished()).map(Piece::view).collect()
    }

    /// The edit of a piece is made: `outputs` are its tables.
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

    /// A piece has landed: its output lies where `outputs` say. A piece without output is done.
    pub fn landed(&mut self, id: PieceId, outputs: Vec<FileSpan>, bytes_out: u64, dropped: u64) {
        let Some(ticket) = self.ticket_mut(id.ticket) else { return };
        let Some(piece) = ticket.pieces.get_mut(id.index as usize) else { return };
        piece.state = if outputs.is_empty() { PieceState::Installed } else { PieceState::Landed };
        piece.inputs = outputs;
        ticket.count(id, bytes_out, dropped);
    }

    /// A piece failed: it is tried again later, or given up with what depends on it.
    pub fn failed(&mut self, id: PieceId, retry: bool, why: &str, now: u64) -> Withdrawn {
        self.stray.remove(&id);
        let Some(piece) = self.piece_mut(id) else { return Withdrawn::default() };
        if !piece.is_unfinished() {
            return Withdrawn::default();
        }
        piece.attempts += 1;
        if !retry || piece.attempts >= MAX_ATTEMPTS {
            let ended = self.withdraw(id, why);
            // Its own executor is done.
            self.stray.remove(&id);
            return ended;
        }
        // What it folded stays claimed: it is as good to fold later.
        piece.state = PieceState::Ready;
        piece.not_before = now + (RETRY_FIRST << (piece.attempts - 1)).min(RETRY_LAST);
        Withdrawn::default()
    }

    /// Gives up the pieces of `ticket` that have not started.
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

    /// Gives `id` up, and re-targets or gives up what waits for it.
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
                // A piece that stays already stays, unless what it waits for now keeps it from there too.
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
        self.cut_short(id.ticket, why);
        let Some(piece) = self.piece_mut(id) else { return };
        let goes_on = piece.state == PieceState::Running && !piece.is_move;
        let writes = with_margin(piece.bytes);
        piece.state = PieceState::Withdrawn;
        ended.gone.push(id);
        if goes_on {
            self.stray.insert(id, writes);
        }
    }

    /// Lets a piece end in the level of its inputs, if it may. A landed one is there.
    fn stay(&mut self, id: PieceId, staying: &BTreeSet<PieceId>, why: &str, ended: &mut Withdrawn) -> bool {
        let Some(piece) = self.piece(id) else { return false };
        let level = piece.landing();
        if piece.state == PieceState::Landed {
            self.cut_short(id.ticket, why);
            if let Some(piece) = self.piece_mut(id) {
                piece.out = level;
                piece.state = PieceState::Installed;
                ended.staying.push(id);
            }
            return true;
        }
        // At its own output level it needs what it waits for to be gone; so does one that moves.
        let may = (level < piece.out || staying.contains(&id))
            && !(piece.state == PieceState::Ready && piece.may_move)
            && self.is_free_at_staying(piece, level, staying);
        if !may {
            return false;
        }
        let waits = waits(&piece.inputs, level, &self.open_waits(piece));
        self.cut_short(id.ticket, why);
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

    /// Whether neither what was given up nor what stays above keeps `piece` from `level`.
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
