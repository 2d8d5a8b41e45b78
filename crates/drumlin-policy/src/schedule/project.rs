//! The tree with what plans under way do to it: what a policy sees, and what legality is judged on.
//!
//! A file that is claimed in part appears as several disjoint parts. Outputs that are still to come appear as
//! estimated files, with table numbers of their own. They stand in the run that the ticket wants where they fit
//! beside what stays there, else in a run of the ticket's own: so the files of a run are disjoint in every view.

use super::tickets::{Flight, Piece, TicketState};
use crate::share::{narrowed, split};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use drumlin_types::contract::{FileState, FileView, LevelView, LookupStats, RunTag, RunView, TreeView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket};

/// Numbers of tables that are not there yet begin here.
const COMING: u64 = 1 << 62;

/// The picture of `tree`, the installed one, with the plans of `flight` under way. Files of `tree` that are marked
/// as coming stay so: nobody may take them.
pub fn view(tree: &TreeView, flight: &Flight) -> TreeView {
    let mut claims: BTreeMap<TableId, Vec<(KeyRange, Ticket)>> = BTreeMap::new();
    for (ticket, piece) in flight.unfinished() {
        for span in &piece.inputs {
            claims.entry(span.table).or_default().push((span.range.clone(), ticket.ticket));
        }
    }
    claims.values_mut().for_each(|ranges| ranges.sort_by(|a, b| a.0.start.cmp(&b.0.start)));
    let settling: BTreeMap<TableId, Ticket> =
        flight.tickets.iter().flat_map(|t| t.outputs.iter().map(|table| (*table, t.ticket))).collect();
    let level = |level: &LevelView| LevelView {
        runs: level.runs.iter().map(|run| run_with(run, &claims, &settling)).collect(),
    };
    let mut view = TreeView { levels: tree.levels.iter().map(level).collect() };
    for ticket in &flight.tickets {
        for piece in ticket.pieces.iter().filter(|piece| piece.is_unfinished()) {
            if let Some(file) = coming(ticket, piece) {
                place(&mut view, ticket, piece, file);
            }
        }
    }
    view
}

/// `run` with claimed parts as leaving, and with outputs of unfinished tickets as settling.
fn run_with(
    run: &RunView,
    claims: &BTreeMap<TableId, Vec<(KeyRange, Ticket)>>,
    settling: &BTreeMap<TableId, Ticket>,
) -> RunView {
    let mut files = Vec::with_capacity(run.files.len() + 2);
    for file in &run.files {
        let mut file = file.clone();
        if let Some(ticket) = settling.get(&file.table).filter(|_| file.state == FileState::Free) {
            file.state = FileState::Settling(*ticket);
        }
        match claims.get(&file.table) {
            Some(ranges) => parted(file, ranges, &mut files),
            None => files.push(file),
        }
    }
    RunView { id: run.id, tag: run.tag.clone(), files }
}

/// The parts of `file`, those in `claims`, which are sorted by key, marked as leaving.
fn parted(file: FileView, claims: &[(KeyRange, Ticket)], parts: &mut Vec<FileView>) {
    let mut rest = Some(file);
    for (range, ticket) in claims {
        let Some(file) = rest.take() else { return };
        if !file.bounds.overlaps(range) || drumlin_types::bug!("B23") {
            rest = Some(file);
            continue;
        }
        if range.covers(&file.bounds) {
            parts.push(FileView { state: FileState::Leaving(*ticket), ..file });
            return;
        }
        let (rests, taken) = split(&file, range);
        for side in rests {
            if side.bounds.start < range.start { parts.push(side) } else { rest = Some(side) }
        }
        parts.extend(taken.map(|f| FileView { state: FileState::Leaving(*ticket), ..f }));
    }
    parts.extend(rest);
}

/// The output that `piece` will have, as one file.
fn coming(ticket: &TicketState, piece: &Piece) -> Option<FileView> {
    let output = piece.output(piece.out)?;
    Some(FileView {
        table: TableId(COMING + (ticket.ticket.0 << 20) + u64::from(piece.id.index)),
        bounds: output.range,
        bytes: piece.bytes,
        entries: 0,
        keys: 0,
        tombstones: 0,
        range_tombstones: 0,
        min_seq: output.min_seq,
        max_seq: output.max_seq,
        filter_bits: 0.0,
        fp_rate: 0.0,
        lookups: LookupStats::default(),
        state: FileState::Coming(ticket.ticket),
    })
}

fn place(view: &mut TreeView, ticket: &TicketState, piece: &Piece, file: FileView) {
    let Some(level) = view.levels.get_mut(usize::from(piece.out)) else { return };
    let is_own = piece.out == ticket.plan.out;
    let wanted = ticket.wanted.filter(|_| is_own);
    // A piece that stays above needs a run that no other level has.
    let own = if is_own { ticket.own } else { RunId(file.table.0) };
    // What is not leaving is disjoint and sorted, so the last that begins before the file ends decides.
    let fits = |run: &RunView| {
        let before = run.files.partition_point(|f| file.bounds.is_before_end(&f.bounds.start));
        let last = run.files[..before].iter().rev().find(|f| !matches!(f.state, FileState::Leaving(_)));
        last.is_none_or(|f| !f.bounds.is_before_end(&file.bounds.start))
    };
    let homes = [wanted, Some(own), Some(RunId(file.table.0))];
    for home in homes.into_iter().flatten() {
        match level.runs.iter_mut().find(|run| run.id == home) {
            Some(run) if !fits(run) => {}
            Some(run) => {
                let at = run.files.partition_point(|f| f.bounds.start <= file.bounds.start);
                run.files.insert(at, file);
                return;
            }
            None => {
                let tag = if is_own { ticket.tag.clone() } else { RunTag::default() };
                level.runs.push(RunView { id: home, tag, files: Vec::from([file]) });
                return;
            }
        }
    }
}

/// The part of `file` that lies in `range`, with counts in proportion.
pub(crate) fn part(file: &FileView, range: &KeyRange) -> Option<FileView> {
    let bounds = file.bounds.intersect(range)?;
    Some(if bounds == file.bounds { file.clone() } else { narrowed(file, bounds) })
}
