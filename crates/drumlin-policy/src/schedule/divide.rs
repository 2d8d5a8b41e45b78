//! Division of a ready piece that is about to fold more than was expected.
//!
//! A ticket is cut into pieces at admission, from its inputs and the expected folds. By the time a piece starts, its
//! output level may be so deep that all overlapping files are folded. Then one piece would rewrite a whole level
//! alone while everything behind it waits. So the piece is divided into as many parts as it would have been cut into,
//! and the fold decision is made again for each part.
//!
//! The parts together hold the claims of the piece and wait for the same pieces. Pieces that waited for it wait for
//! all parts.

use super::cut;
use super::scene::Scene;
use super::tickets::{Flight, Piece, TicketState};
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, PieceId, TreeView};

/// A piece is divided when its bytes reach this multiple of the intended piece size.
const TIMES: f64 = 2.0;

/// Record of a piece that was divided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Divided {
    /// Id of the piece; the first part keeps it.
    pub id: PieceId,
    /// Number of parts.
    pub parts: u32,
    /// Bytes that the undivided piece would have read.
    pub bytes: u64,
}

/// Returns the intended size of a piece of `ticket` when the ready `piece` folds `folded` bytes and the others fold
/// in the same proportion.
fn meant(scene: &Scene<'_>, ticket: &TicketState, piece: &Piece, folded: u64) -> u64 {
    let grown = (piece.bytes + folded) as f64 / piece.bytes.max(1) as f64;
    let all: u64 = ticket.pieces.iter().map(|p| p.bytes - p.folded).sum();
    let (least, most) = scene.settings.piece;
    cut::piece_bytes((all as f64 * grown) as u64, scene.settings.slots, least.min(most), most)
}

impl Flight {
    /// Divides the ready piece `id` if it is too large with the `folds` of `bytes` bytes. Returns `None` when it
    /// stays as it is.
    pub(super) fn divide(
        &mut self,
        scene: &Scene<'_>,
        view: &TreeView,
        id: PieceId,
        (folds, bytes): (&[FileSpan], u64),
    ) -> Option<Divided> {
        let ticket = self.ticket(id.ticket)?;
        let piece = ticket.pieces.get(id.index as usize)?;
        let meant = meant(scene, ticket, piece, bytes);
        let total = piece.bytes + bytes;
        // A piece is divided at most once, because estimates for narrow ranges are poor. A piece that failed before
        // already has folded files among its inputs.
        if piece.is_part || piece.attempts > 0 || piece.folded > 0 || (total as f64) < TIMES * meant as f64 {
            return None;
        }
        let parts = |spans: &[FileSpan]| cut::parts(view, spans, |_, _| false);
        let (inputs, folds) = (parts(&piece.inputs), parts(folds));
        let cuts = cut::cut(&inputs, &folds, total.div_ceil(meant), Vec::new(), Vec::new());
        if cuts.len() < 2 {
            return None;
        }
        let first = ticket.pieces.len() as u32;
        let part = |(at, cut): (usize, cut::Cut)| Piece {
            id: PieceId { index: if at == 0 { id.index } else { first + at as u32 - 1 }, ..id },
            priority: super::admit::priority(&ticket.plan, &cut.range, cut.bytes),
            range: cut.range,
            inputs: cut.inputs,
            bytes: cut.bytes,
            may_move: false,
            is_part: true,
            ..piece.clone()
        };
        let parts: Vec<Piece> = cuts.into_iter().enumerate().map(part).collect();
        let added: Vec<PieceId> = parts[1..].iter().map(|p| p.id).collect();
        for piece in self.tickets.iter_mut().flat_map(|t| &mut t.pieces).filter(|p| p.waits.contains(&id)) {
            piece.waits.extend(&added);
        }
        let divided = Divided { id, parts: parts.len() as u32, bytes: total };
        let ticket = self.ticket_mut(id.ticket)?;
        let mut parts = parts.into_iter();
        if let (Some(piece), Some(part)) = (ticket.pieces.get_mut(id.index as usize), parts.next()) {
            *piece = part;
        }
        ticket.pieces.extend(parts);
        Some(divided)
    }
}
