//! The tree with the states of its files: what a policy sees, and what legality is judged on.
//!
//! A file that is claimed in part appears as several disjoint parts. Outputs that are still to come
//! appear as estimated files, with table numbers counted down from the top so that they clash with none.

use super::claims::{Flight, Piece, TicketState};
use crate::version::{FileMeta, Tree};
use drumlin_types::contract::{FileState, FileView, LevelView, LookupStats, RunView, TreeView};
use drumlin_types::{KeyRange, TableId, Ticket};

/// The picture of `tree` with the plans of `flight` under way.
pub(crate) fn tree_view(tree: &Tree, flight: &Flight) -> TreeView {
    let mut view = TreeView {
        levels: tree
            .levels
            .iter()
            .map(|level| LevelView {
                runs: level
                    .runs
                    .iter()
                    .map(|run| RunView {
                        id: run.id,
                        tag: run.tag.clone(),
                        files: run.files.iter().flat_map(|file| parts(file, flight)).collect(),
                    })
                    .collect(),
            })
            .collect(),
    };
    for (index, (ticket, piece)) in flight.unfinished().enumerate() {
        let table = TableId(u64::MAX - index as u64);
        if let Some(coming) = coming_file(ticket, piece, table) {
            place(&mut view, ticket, coming);
        }
    }
    view
}

/// The parts of a file: claimed ones are leaving, the others settling or free.
fn parts(file: &FileMeta, flight: &Flight) -> Vec<FileView> {
    let settling = flight.tickets.iter().find(|t| t.outputs.contains(&file.id())).map(|t| t.ticket);
    let idle = settling.map_or(FileState::Free, FileState::Settling);
    let mut claims: Vec<(KeyRange, Ticket)> = flight
        .unfinished()
        .flat_map(|(ticket, piece)| piece.inputs.iter().map(move |span| (span, ticket.ticket)))
        .filter(|(span, _)| span.table == file.id())
        .filter_map(|(span, ticket)| Some((span.range.intersect(&file.bounds)?, ticket)))
        .collect();
    if claims.is_empty() || drumlin_types::bug!("B23") {
        return vec![file.view(file.bounds.clone(), file.counts, idle)];
    }
    claims.sort_by(|a, b| a.0.start.cmp(&b.0.start));
    let mut ranges: Vec<(KeyRange, FileState)> = Vec::new();
    let mut rest = Some(file.bounds.clone());
    for (claim, ticket) in claims {
        let Some(whole) = rest.take() else { break };
        let (before, after) = whole.subtract(&claim);
        ranges.extend(before.map(|range| (range, idle)));
        match ranges.last_mut() {
            Some((last, FileState::Leaving(same)))
                if *same == ticket && last.end.as_ref() == Some(&claim.start) =>
            {
                *last = last.hull(&claim);
            }
            _ => ranges.push((claim, FileState::Leaving(ticket))),
        }
        rest = after;
    }
    ranges.extend(rest.map(|range| (range, idle)));
    let share = file.counts.entries / ranges.len() as u64;
    let counts = if ranges.len() == 1 { file.counts } else { file.counts.part(share) };
    ranges.into_iter().map(|(range, state)| file.view(range, counts, state)).collect()
}

fn coming_file(ticket: &TicketState, piece: &Piece, table: TableId) -> Option<FileView> {
    let hull = piece.inputs.iter().map(|span| span.range.clone()).reduce(|a, b| a.hull(&b))?;
    Some(FileView {
        table,
        bounds: hull.intersect(&piece.range)?,
        bytes: piece.bytes,
        entries: 0,
        keys: 0,
        tombstones: 0,
        range_tombstones: 0,
        min_seq: piece.inputs.iter().map(|s| s.min_seq).min()?,
        max_seq: piece.inputs.iter().map(|s| s.max_seq).max()?,
        filter_bits: 0.0,
        fp_rate: 0.0,
        lookups: LookupStats::default(),
        state: FileState::Coming(ticket.ticket),
    })
}

fn place(view: &mut TreeView, ticket: &TicketState, coming: FileView) {
    let Some(level) = view.levels.get_mut(ticket.plan.out as usize) else { return };
    let at = level.runs.iter().position(|run| run.id == ticket.run);
    let run = match at {
        Some(at) => &mut level.runs[at],
        None => {
            level.runs.push(RunView { id: ticket.run, tag: ticket.tag.clone(), files: Vec::new() });
            level.runs.last_mut().expect("just pushed")
        }
    };
    let at = run.files.partition_point(|f| f.bounds.start <= coming.bounds.start);
    run.files.insert(at, coming);
}
