//! Tree with the effects of plans under way: the view of policies and of legality checks.
//!
//! A partly claimed file appears as several disjoint parts. Outputs that are still to come appear as estimated files
//! with placeholder table numbers. They appear in the run that the ticket wants if they fit beside the files that
//! stay there, otherwise in the ticket's own run. So the files of a run are disjoint in every view.

use super::tickets::{Flight, Piece, PieceState, TicketState};
use crate::share::{narrowed, split};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use drumlin_types::contract::{
    FileSpan, FileState, FileView, LevelView, LookupStats, RunTag, RunView, TreeView,
};
use drumlin_types::{Key, KeyRange, RunId, TableId, Ticket};

/// First placeholder number of tables that do not exist yet.
const COMING: u64 = 1 << 62;
/// First placeholder number of runs for outputs that stay above the output level of their ticket.
const ABOVE: u64 = 1 << 61;

/// Returns the view of the installed `tree` with the plans of `flight` under way. Files of `tree` that are marked as
/// coming stay marked: no plan may take them.
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
    let mut outputs = Outputs::new();
    for ticket in &flight.tickets {
        for piece in ticket.pieces.iter().filter(|piece| piece.is_unfinished()) {
            if let Some(file) = coming(ticket, piece) {
                place(&mut view, &mut outputs, ticket, piece, file);
            }
        }
    }
    for ((level, run), growing) in outputs {
        let files = &mut view.levels[level].runs[run].files;
        *files = growing.joined(core::mem::take(files));
    }
    view
}

/// Returns the tree after everything under way in `view`; plans are judged on it.
pub fn after(view: &TreeView) -> TreeView {
    view.projected()
}

/// Returns `run` with claimed parts marked as leaving, and outputs of unfinished tickets as settling.
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

/// Splits `file` by `claims`, which are sorted by key, and marks the claimed parts as leaving.
fn parted(file: FileView, claims: &[(KeyRange, Ticket)], parts: &mut Vec<FileView>) {
    let mut rest = Some(file);
    for (range, ticket) in claims {
        let Some(file) = rest.take() else { return };
        if !file.bounds.overlaps(range) || drumlin_types::bug!("claims-not-projected") {
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

/// Returns the expected output of `piece` as one file.
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

/// Run that expected outputs are added to. Outputs are collected separately until all are placed, since a run may
/// have thousands of files.
#[derive(Default)]
struct RunBuilder {
    /// For each file of the run, the index of the last file up to it that is not leaving.
    staying: Vec<Option<usize>>,
    /// Expected outputs by first key.
    coming: BTreeMap<Key, FileView>,
}

impl RunBuilder {
    fn of(run: &RunView) -> RunBuilder {
        let mut last = None;
        let staying = |(at, file): (usize, &FileView)| {
            if !matches!(file.state, FileState::Leaving(_)) {
                last = Some(at);
            }
            last
        };
        RunBuilder { staying: run.files.iter().enumerate().map(staying).collect(), coming: BTreeMap::new() }
    }

    /// Returns whether `file` overlaps no file that stays in `run` and no output added to it. Each of these sets is
    /// disjoint, so it suffices to check the last file of each that begins before `file` ends.
    fn fits(&self, run: &RunView, file: &FileView) -> bool {
        let before = run.files.partition_point(|f| file.bounds.is_before_end(&f.bounds.start));
        let stays = before.checked_sub(1).and_then(|at| self.staying.get(at).copied().flatten());
        let end = file.bounds.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let comes = self.coming.range::<Key, _>((Bound::Unbounded, end)).next_back().map(|(_, f)| f);
        let last = stays.and_then(|at| run.files.get(at));
        !last.into_iter().chain(comes).any(|f| f.bounds.is_before_end(&file.bounds.start))
    }

    /// Returns the files of `run` together with the added outputs.
    fn joined(self, run: Vec<FileView>) -> Vec<FileView> {
        let mut files = Vec::with_capacity(run.len() + self.coming.len());
        let mut run = run.into_iter().peekable();
        for (start, file) in self.coming {
            while let Some(before) = run.next_if(|f| f.bounds.start <= start) {
                files.push(before);
            }
            files.push(file);
        }
        files.extend(run);
        files
    }
}

/// Expected outputs by level and index of their run.
type Outputs = BTreeMap<(usize, usize), RunBuilder>;

fn place(view: &mut TreeView, outputs: &mut Outputs, ticket: &TicketState, piece: &Piece, file: FileView) {
    let out = usize::from(piece.out);
    let Some(level) = view.levels.get_mut(out) else { return };
    let is_own = piece.out == ticket.plan.out;
    let wanted = ticket.wanted.filter(|_| is_own);
    // Outputs that stay above the output level need a run id that no other level uses.
    let above = || RunId(ABOVE + (ticket.ticket.0 << 8) + u64::from(piece.out));
    let own = if is_own { ticket.own } else { ticket.above.get(&piece.out).copied().unwrap_or_else(above) };
    for home in [wanted, Some(own), Some(RunId(file.table.0))].into_iter().flatten() {
        let at = level.runs.iter().position(|run| run.id == home).unwrap_or_else(|| {
            let tag = if is_own { ticket.tag.clone() } else { RunTag::default() };
            level.runs.push(RunView { id: home, tag, files: Vec::new() });
            level.runs.len() - 1
        });
        let growing = outputs.entry((out, at)).or_insert_with(|| RunBuilder::of(&level.runs[at]));
        if growing.fits(&level.runs[at], &file) {
            growing.coming.insert(file.bounds.start.clone(), file);
            return;
        }
    }
}

/// Returns whether `file`, which lies in level `level` of a view, exists once the pieces that have started are done.
pub fn counts(file: &FileView, level: u8, flight: &Flight) -> bool {
    let has_started = |piece: &Piece| matches!(piece.state, PieceState::Running | PieceState::Held);
    match file.state {
        FileState::Free | FileState::Settling(_) | FileState::Unavailable => true,
        FileState::Leaving(ticket) => {
            let pieces = flight.ticket(ticket).map_or(&[][..], |t| &t.pieces);
            let takes = |s: &FileSpan| s.table == file.table && s.range.overlaps(&file.bounds);
            !pieces.iter().any(|p| has_started(p) && p.inputs.iter().any(takes))
        }
        FileState::Coming(ticket) => {
            let pieces = flight.ticket(ticket).map_or(&[][..], |t| &t.pieces);
            let index = (file.table.0 & 0xf_ffff) as usize;
            pieces.get(index).is_some_and(|p| has_started(p) && p.out == level)
        }
    }
}

/// Returns the part of `file` that lies in `range`, with counts in proportion.
pub fn part(file: &FileView, range: &KeyRange) -> Option<FileView> {
    let bounds = file.bounds.intersect(range)?;
    Some(if bounds == file.bounds { file.clone() } else { narrowed(file, bounds) })
}
