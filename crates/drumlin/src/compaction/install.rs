//! Installing: one durable edit per piece, and what it does to the tree.
//!
//! The inputs' parts in the piece's key range leave the tree; what is left of a file on either side
//! stays, as references with narrower bounds and exact entry counts. The outputs join the ticket's run.
//! Nothing is visible before the edit is durable, and nothing is deleted before that either (O1).

use super::claims::{Piece, PieceState};
use super::control::Control;
use super::executor::MergeResult;
use crate::error::{Error, ErrorKind, Result};
use crate::keyspace::KeyspaceState;
use crate::store::{Store, TreeStep};
use crate::version::{FileMeta, KeyspaceEdit, Tree};
use drumlin_env::sync::Arc;
use drumlin_types::contract::{FileSpan, PieceId};
use drumlin_types::{Key, KeyRange, RunId, TableId};
use std::collections::BTreeSet;

/// Exact entries of one input reference inside a piece's range, taken when the piece began.
#[derive(Clone, Debug)]
pub(crate) struct InputCount {
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) entries: u64,
}

/// Counts the entries of `spans` exactly. Whole references are known; parts cost up to two block reads.
pub(crate) fn count_inputs(store: &Store, tree: &Tree, spans: &[FileSpan]) -> Result<Vec<InputCount>> {
    let mut counts = Vec::new();
    for span in spans {
        for (_, _, file) in tree.refs(span.table) {
            let Some(range) = file.bounds.intersect(&span.range) else { continue };
            let entries =
                if range == file.bounds { file.counts.entries } else { count(store, file, &range)? };
            counts.push(InputCount { table: span.table, range, entries });
        }
    }
    Ok(counts)
}

/// Entries of the table of `file` in `range`, exact.
fn count(store: &Store, file: &FileMeta, range: &KeyRange) -> Result<u64> {
    let table = file.table.open(&store.tables)?;
    let before = table.rank(&range.start)?;
    let until = match &range.end {
        Some(end) => table.rank(end)?,
        None => file.table_entries,
    };
    Ok(until.saturating_sub(before))
}

/// Removes the inputs of `piece` from `tree`, leaving the parts outside its range.
fn remove_inputs(
    store: &Store,
    tree: &Tree,
    piece: &Piece,
    counts: &[InputCount],
    edit: &mut KeyspaceEdit,
) -> Result<()> {
    let tables: BTreeSet<TableId> = piece.inputs.iter().map(|span| span.table).collect();
    for (level, run, file) in tree.files().filter(|(_, _, file)| tables.contains(&file.id())) {
        // A piece may take several parts of one reference.
        let spans = piece.inputs.iter().filter(|span| span.table == file.id());
        let taken: Vec<KeyRange> = spans.filter_map(|span| file.bounds.intersect(&span.range)).collect();
        if taken.is_empty() {
            continue;
        }
        edit.remove.push((file.id(), file.bounds.start.clone()));
        let (mut left, mut rest) = (vec![file.bounds.clone()], file.counts.entries);
        for inside in &taken {
            let entries = counted(counts, file, inside)?;
            rest = rest.checked_sub(entries).ok_or_else(|| {
                Error::new(ErrorKind::Bug, format!("{entries} entries taken of {rest} in {}", file.id()))
            })?;
            left = left
                .iter()
                .map(|range| range.subtract(inside))
                .flat_map(|(a, b)| a.into_iter().chain(b))
                .collect();
        }
        while let Some(mut range) = left.pop() {
            if drumlin_types::bug!("E4") && taken.iter().any(|t| t.end.as_ref() == Some(&range.start)) {
                range.start = Key::successor(&range.start);
            }
            let entries = if left.is_empty() { rest } else { count(store, file, &range)? };
            rest = rest.saturating_sub(entries);
            keep_part(file, range, entries, level, run.id, edit);
        }
    }
    Ok(())
}

/// The entries of `file` in `range`, counted when the piece began.
fn counted(counts: &[InputCount], file: &FileMeta, range: &KeyRange) -> Result<u64> {
    let found = counts.iter().find(|c| c.table == file.id() && c.range == *range);
    found
        .map(|c| c.entries)
        .ok_or_else(|| Error::new(ErrorKind::Bug, format!("a part of {} was never counted", file.id())))
}

/// Keeps a part of a file, unless nothing is in it.
fn keep_part(file: &FileMeta, range: KeyRange, entries: u64, level: u8, run: RunId, edit: &mut KeyspaceEdit) {
    if entries > 0 || file.counts.range_tombstones > 0 {
        edit.add.push((level, run, Arc::new(file.narrowed(range, entries))));
    }
}

/// The run that takes files with these `bounds`: `wanted`, unless files lie there that an earlier plan has
/// not taken away yet; then a run of their own.
fn room<'a>(
    control: &mut Control,
    tree: &Tree,
    edit: &KeyspaceEdit,
    out: u8,
    wanted: RunId,
    mut bounds: impl Iterator<Item = &'a KeyRange>,
) -> RunId {
    let run = tree.levels[out as usize].runs.iter().find(|run| run.id == wanted);
    let Some(run) = run else { return wanted };
    let goes =
        |f: &Arc<FileMeta>| edit.remove.iter().any(|(t, start)| *t == f.id() && *start == f.bounds.start);
    let stays: Vec<&Arc<FileMeta>> = run.files.iter().filter(|f| !goes(f)).collect();
    match bounds.any(|b| stays.iter().any(|f| f.bounds.overlaps(b))) {
        true => control.fresh_run(),
        false => wanted,
    }
}

impl Store {
    /// Installs the outputs of a finished piece.
    pub(crate) fn install_merge(
        &self,
        keyspace: &Arc<KeyspaceState>,
        id: PieceId,
        counts: &[InputCount],
        mut result: MergeResult,
    ) -> Result<()> {
        let mut control = self.control.lock();
        self.check_poison()?;
        let tree = keyspace.view().tree.clone();
        let Some(entry) = control.keyspace(keyspace) else { return Ok(()) };
        let Some(ticket) = entry.flight.ticket(id.ticket) else { return Ok(()) };
        let piece = &ticket.pieces[id.index as usize];
        let mut edit = KeyspaceEdit::default();
        remove_inputs(self, &tree, piece, counts, &mut edit)?;
        let (out, run, tag) = (ticket.plan.out, ticket.run, ticket.tag.clone());
        let run = room(&mut control, &tree, &edit, out, run, result.files().iter().map(|f| &f.bounds));
        edit.runs.push((out, run, tag));
        for file in result.files() {
            edit.add.push((out, run, file.clone()));
        }
        let step = TreeStep { tree: &tree, edit: &edit, flushed: &[], more: &[] };
        let next = self.commit_edit(&mut control, keyspace, &step, || result.outputs.installed())?;
        keyspace.install(next, &[]);
        let bytes_out: u64 = result.files().iter().map(|f| f.table.len).sum();
        let entry = control.keyspace(keyspace).expect("seen under the same lock");
        let ticket = entry.flight.ticket_mut(id.ticket).expect("seen under the same lock");
        ticket.outputs.extend(result.files().iter().map(|f| f.id()));
        ticket.bytes_in += ticket.pieces[id.index as usize].bytes;
        ticket.bytes_out += bytes_out;
        ticket.dropped += result.counts.dropped();
        ticket.pieces[id.index as usize].state = PieceState::Installed;
        entry.due = true;
        self.disk_full.store(false, drumlin_env::sync::atomic::Ordering::Release);
        self.metrics.merged(&result.counts, bytes_out);
        control.end_tickets(keyspace, self.now());
        self.refresh_pace(&control);
        Ok(())
    }

    /// Installs a move: the inputs change level and run, and nothing is read or written but the edit.
    pub(crate) fn install_move(&self, keyspace: &Arc<KeyspaceState>, id: PieceId) -> Result<()> {
        let mut control = self.control.lock();
        self.check_poison()?;
        let tree = keyspace.view().tree.clone();
        let Some(entry) = control.keyspace(keyspace) else { return Ok(()) };
        let Some(ticket) = entry.flight.ticket(id.ticket) else { return Ok(()) };
        let piece = &ticket.pieces[id.index as usize];
        let mut edit = KeyspaceEdit::default();
        let (out, run, tag) = (ticket.plan.out, ticket.run, ticket.tag.clone());
        let mut moved: Vec<Arc<FileMeta>> = Vec::new();
        for span in &piece.inputs {
            for (_, _, file) in tree.refs(span.table).filter(|(_, _, f)| f.bounds.overlaps(&span.range)) {
                if !span.range.covers(&file.bounds) {
                    return Err(Error::new(ErrorKind::Bug, format!("a move takes a part of {file:?}")));
                }
                edit.remove.push((span.table, file.bounds.start.clone()));
                moved.push(file.clone());
            }
        }
        let run = room(&mut control, &tree, &edit, out, run, moved.iter().map(|f| &f.bounds));
        edit.runs.push((out, run, tag));
        edit.add.extend(moved.into_iter().map(|file| (out, run, file)));
        let step = TreeStep { tree: &tree, edit: &edit, flushed: &[], more: &[] };
        let next = self.commit_edit(&mut control, keyspace, &step, || {})?;
        keyspace.install(next, &[]);
        let entry = control.keyspace(keyspace).expect("seen under the same lock");
        let ticket = entry.flight.ticket_mut(id.ticket).expect("seen under the same lock");
        ticket.outputs.extend(edit.add.iter().map(|(_, _, f)| f.id()));
        ticket.pieces[id.index as usize].state = PieceState::Installed;
        entry.due = true;
        self.metrics.moved();
        control.end_tickets(keyspace, self.now());
        self.refresh_pace(&control);
        Ok(())
    }
}
