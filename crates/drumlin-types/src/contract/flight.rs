//! Plans under way. A ticket is an admitted plan; its pieces are key sub-ranges that claim, wait, run
//! and install on their own (downforce.md 2 and 3).

use super::plan::Plan;
use crate::{KeyRange, Seq, TableId, Ticket};
use alloc::vec::Vec;

/// One key sub-range of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PieceId {
    /// The ticket.
    pub ticket: Ticket,
    /// Position in the ticket's cut, from the lowest key.
    pub index: u32,
}

/// Part of a file at a level, with its table's sequence range: an input of a piece.
#[derive(Clone, PartialEq, Debug)]
pub struct FileSpan {
    /// Level where it lies.
    pub level: u8,
    /// The table.
    pub table: TableId,
    /// The keys of it that are meant.
    pub range: KeyRange,
    /// Smallest sequence number of the table.
    pub min_seq: Seq,
    /// Largest sequence number of the table.
    pub max_seq: Seq,
}

/// An unfinished piece.
#[derive(Clone, PartialEq, Debug)]
pub struct PieceView {
    /// Its id.
    pub id: PieceId,
    /// Its key range.
    pub range: KeyRange,
    /// What it reads; a landed piece has its landed output here instead.
    pub inputs: Vec<FileSpan>,
    /// Output level.
    pub out: u8,
    /// Earlier pieces that must be installed first.
    pub waits: Vec<PieceId>,
}

/// An unfinished ticket as a policy sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct TicketView {
    /// The ticket.
    pub ticket: Ticket,
    /// The plan as admitted.
    pub plan: Plan,
    /// Pieces in all.
    pub pieces: u32,
    /// Pieces installed.
    pub pieces_done: u32,
    /// Input bytes in all.
    pub bytes: u64,
    /// Input bytes of installed pieces.
    pub bytes_done: u64,
}
