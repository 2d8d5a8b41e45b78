//! The wait rule for pieces (subcompactions).
//!
//! A piece waits for an earlier unfinished piece exactly when it would be illegal with that piece's inputs still in
//! place. Waits are fixed at admission and point only to earlier tickets, so they cannot form a cycle.

use crate::contract::flight::{FileSpan, PieceId, PieceView};
use alloc::vec::Vec;

/// Returns the pieces among `earlier` that must be installed before a piece that moves `inputs` to level `out`.
///
/// `earlier` holds the unfinished pieces of earlier tickets. A landed piece counts with its landed output as its input.
pub fn waits(inputs: &[FileSpan], out: u8, earlier: &[PieceView]) -> Vec<PieceId> {
    let mut waits: Vec<PieceId> = earlier
        .iter()
        .filter(|piece| piece.inputs.iter().any(|lying| inputs.iter().any(|f| blocks(lying, f, out))))
        .map(|piece| piece.id)
        .collect();
    waits.sort_unstable();
    waits.dedup();
    waits
}

/// Returns whether `moving` must not move to level `out` while `lying` is in place.
fn blocks(lying: &FileSpan, moving: &FileSpan, out: u8) -> bool {
    let is_between = moving.level < lying.level && lying.level < out;
    let is_beside = lying.level == moving.level && moving.level < out && lying.min_seq <= moving.max_seq;
    (is_between || is_beside) && lying.range.overlaps(&moving.range)
}
