//! Unfinished compactions.
//!
//! A *ticket* is a scheduled compaction: a plan that the scheduler has admitted. Its *pieces* are subcompactions: key
//! sub-ranges that claim files, wait, run and install independently.

use super::plan::Plan;
use crate::{KeyRange, Seq, TableId, Ticket};
use alloc::vec::Vec;

/// Id of a piece: a ticket and the position within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PieceId {
    /// The ticket.
    pub ticket: Ticket,
    /// Number of the piece within the ticket, from 0. Pieces are numbered in key order when the ticket is cut. The
    /// later parts of a divided piece get further numbers.
    pub index: u32,
}

/// A key range of a file in a level, with the sequence range of its table. It serves as an input of a piece.
#[derive(Clone, PartialEq, Debug)]
pub struct FileSpan {
    /// Level of the file.
    pub level: u8,
    /// Number of the table.
    pub table: TableId,
    /// Key range within the file.
    pub range: KeyRange,
    /// Smallest sequence number of the table.
    pub min_seq: Seq,
    /// Largest sequence number of the table.
    pub max_seq: Seq,
}

/// An unfinished piece.
#[derive(Clone, PartialEq, Debug)]
pub struct PieceView {
    /// Id of the piece.
    pub id: PieceId,
    /// Key range of the piece.
    pub range: KeyRange,
    /// Inputs. For a landed piece, one whose output was installed in its source level, this is the landed output.
    pub inputs: Vec<FileSpan>,
    /// Output level.
    pub out: u8,
    /// Pieces of earlier tickets that must be installed before this one.
    pub waits: Vec<PieceId>,
}

/// An unfinished ticket, as a policy sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct TicketView {
    /// Number of the ticket.
    pub ticket: Ticket,
    /// The plan as admitted.
    pub plan: Plan,
    /// Total number of pieces.
    pub pieces: u32,
    /// Number of installed pieces.
    pub pieces_done: u32,
    /// Total input bytes.
    pub bytes: u64,
    /// Input bytes of the installed pieces.
    pub bytes_done: u64,
}
