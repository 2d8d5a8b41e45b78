//! Disk space for whole tickets, and the way out when it is used up.
//!
//! A piece frees an input file only once no other piece needs a part of it. A ticket over wide files therefore writes
//! most of its output before it frees anything. If it began without the space for that, it could neither go on nor
//! give back what it wrote. So:
//!
//! 1. The *need* of a ticket is the most that its output takes on disk beyond what it has freed, with pieces in key
//!    order. A ticket begins only if its need fits beside what begun tickets still need. Pieces run in key order if the
//!    work under way does not fit all at once.
//! 2. While a piece lacks space, no piece starts early whose output would be held.
//! 3. If nothing runs and a piece still lacks space, held outputs that cannot land are discarded, and their pieces run
//!    again later. Without such outputs, the ticket gives way to a compaction of fewer of its runs that fits.

use super::Withdrawn;
use super::limits::with_margin;
use super::numbers::Numbers;
use super::scene::Scene;
use super::tickets::{Flight, Piece, PieceState, TicketState};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, PieceId, Place, Plan, RunTag, Take, TreeView};
use drumlin_types::{KeyRange, TableId, Ticket};

/// Number of smaller compactions that are tried in place of one that does not fit.
const MOST_TRIED: usize = 64;
/// Reason given for the pieces of a ticket that does not fit.
pub const NO_ROOM: &str = "no disk space for all of its pieces";

/// Result of [`Flight::give_way`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GaveWay {
    /// Pieces of the ticket that did not fit.
    pub ended: Withdrawn,
    /// Ticket that compacts fewer of its runs.
    pub ticket: Ticket,
}

/// Disk space while pieces are chosen.
pub(super) struct Left {
    /// Bytes that running pieces leave.
    pub(super) bytes: u64,
    /// Bytes that begun tickets also leave, or `None` if all ready pieces fit.
    unreserved: Option<u64>,
}

impl Left {
    /// Returns the bytes that `piece` lacks space for, if it may write `wanted` and does not fit.
    pub(super) fn lacks(
        &self,
        scene: &Scene<'_>,
        ticket: &TicketState,
        wanted: u64,
        folded: u64,
    ) -> Option<u64> {
        let (wanted, left) = match self.unreserved {
            Some(unreserved) if !ticket.has_begun() => {
                (wanted.max(need(scene.tree, ticket).saturating_add(with_margin(folded))), unreserved)
            }
            _ => (wanted, self.bytes),
        };
        (wanted > left).then_some(wanted)
    }

    /// Returns whether not all ready pieces fit.
    pub(super) fn is_tight(&self) -> bool {
        self.unreserved.is_some()
    }
}

/// Returns the most bytes that the unfinished pieces of `ticket` take beyond those that they free, in key order,
/// without what running pieces write.
fn need(tree: &TreeView, ticket: &TicketState) -> u64 {
    let rank = |p: &Piece| match p.state {
        PieceState::Held | PieceState::Landed => 0,
        PieceState::Running => 1,
        _ => 2,
    };
    let mut pieces: Vec<&Piece> = ticket.pieces.iter().filter(|p| p.is_unfinished()).collect();
    pieces.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.range.start.cmp(&b.range.start)));
    let freed = freed(tree, &pieces);
    let (mut taken, mut most, mut running) = (0i128, 0i128, 0i128);
    for (at, piece) in pieces.iter().enumerate() {
        let writes =
            if rank(piece) == 0 || piece.may_move { 0 } else { i128::from(with_margin(piece.bytes)) };
        if piece.state == PieceState::Running {
            running += writes;
        }
        taken += writes;
        most = most.max(taken);
        taken -= freed.get(&at).copied().map_or(0, i128::from);
    }
    u64::try_from(most - running).unwrap_or(0)
}

/// Returns the bytes of the files that are free to be removed after each of `pieces`: no other part of them is left.
fn freed(tree: &TreeView, pieces: &[&Piece]) -> BTreeMap<usize, u64> {
    let mut taken: BTreeMap<TableId, (usize, Vec<&KeyRange>)> = BTreeMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        // A move keeps the file.
        for span in piece.inputs.iter().filter(|_| !piece.may_move) {
            let entry = taken.entry(span.table).or_default();
            entry.0 = at;
            entry.1.push(&span.range);
        }
    }
    taken.values_mut().for_each(|(_, ranges)| ranges.sort_by(|a, b| a.start.cmp(&b.start)));
    let mut sums: BTreeMap<TableId, Option<u64>> = BTreeMap::new();
    for (_, _, file) in tree.files() {
        let Some((_, ranges)) = taken.get(&file.table) else { continue };
        let sum = sums.entry(file.table).or_insert(Some(0));
        *sum = sum.filter(|_| is_covered(&file.bounds, ranges)).map(|bytes| bytes + file.bytes);
    }
    let mut freed: BTreeMap<usize, u64> = BTreeMap::new();
    for (table, bytes) in sums {
        if let (Some(bytes), Some((at, _))) = (bytes, taken.get(&table)) {
            *freed.entry(*at).or_default() += bytes;
        }
    }
    freed
}

/// Returns whether `ranges`, sorted by start, leave no key of `bounds`.
fn is_covered(bounds: &KeyRange, ranges: &[&KeyRange]) -> bool {
    let mut start = &bounds.start;
    for range in ranges.iter().filter(|range| range.overlaps(bounds)) {
        if range.start > *start {
            return false;
        }
        match &range.end {
            Some(end) if end > start => start = end,
            Some(_) => {}
            None => return true,
        }
    }
    bounds.end.as_ref().is_some_and(|end| start >= end)
}

impl Flight {
    /// Returns the disk space for the next piece.
    pub(super) fn left(&self, scene: &Scene<'_>) -> Left {
        let bytes = scene.room.saturating_sub(self.writing());
        let fits = self.pending() <= bytes;
        let unreserved = (!fits).then(|| bytes.saturating_sub(self.begun_need(scene.tree)));
        Left { bytes, unreserved }
    }

    /// Returns the most bytes that ready pieces may write.
    fn pending(&self) -> u64 {
        let ready = self.unfinished().filter(|(_, p)| p.state == PieceState::Ready && !p.may_move);
        ready.map(|(_, p)| with_margin(p.bytes)).fold(0, u64::saturating_add)
    }

    /// Returns the bytes that begun tickets need beyond what running pieces write.
    fn begun_need(&self, tree: &TreeView) -> u64 {
        let begun = self.tickets.iter().filter(|t| t.has_begun() && !t.is_finished());
        begun.map(|ticket| need(tree, ticket)).fold(0, u64::saturating_add)
    }

    /// Returns the disk space in bytes that running pieces and the rest of their tickets may still take. The rest
    /// counts only if all ready pieces together may exceed `spare` bytes.
    pub fn reserved(&self, spare: u64, tree: impl FnOnce() -> TreeView) -> u64 {
        let writing = self.writing();
        match self.pending().saturating_add(writing) <= spare {
            true => writing,
            false => writing.saturating_add(self.begun_need(&tree())),
        }
    }

    /// Makes pieces run in key order if not all of them fit at once, so that each file is freed soon.
    pub(super) fn order_by_key(&mut self, left: &Left) {
        if left.is_tight() {
            self.tickets.iter_mut().flat_map(|t| &mut t.pieces).for_each(|piece| piece.priority = 0.0);
        }
    }

    /// Discards held outputs that may neither be installed nor land: their pieces run again later. Returns these
    /// pieces. For calls when no piece runs and one lacks disk space.
    pub fn discard_held(&mut self) -> Vec<PieceId> {
        let is_stuck = |p: &Piece| p.state == PieceState::Held && !self.is_clear(p) && !self.may_land(p);
        let stuck: Vec<PieceId> =
            self.unfinished().map(|(_, p)| p).filter(|p| is_stuck(p)).map(|p| p.id).collect();
        for id in &stuck {
            if let Some(piece) = self.piece_mut(*id) {
                // Files that it folded stay claimed, as after a failure.
                piece.state = PieceState::Ready;
                piece.may_move = false;
            }
        }
        stuck
    }

    /// Returns whether some output is held.
    pub fn holds(&self) -> bool {
        self.unfinished().any(|(_, piece)| piece.state == PieceState::Held)
    }

    /// Replaces the ready pieces of the ticket of `short` by a compaction of fewer of its runs that fits on the disk.
    /// Returns `None` and changes nothing if there is none. For calls when no piece runs and `short` lacks disk space.
    pub fn give_way(&mut self, scene: &Scene<'_>, short: PieceId, numbers: &mut Numbers) -> Option<GaveWay> {
        let old = self.ticket(short.ticket)?;
        let ready = old.pieces.iter().filter(|p| p.state == PieceState::Ready);
        let runs = runs(scene.tree, ready.flat_map(|p| &p.inputs));
        let plans = narrower(&runs, &old.plan, short.ticket);
        let mut rest = self.clone();
        let ended = rest.withdraw_ready(short.ticket, NO_ROOM);
        let done = rest.take_finished();
        for plan in plans {
            let (mut trial, mut next) = (rest.clone(), *numbers);
            let Ok(ticket) = trial.admit(scene, &plan, &mut next) else { continue };
            let left = trial.left(scene);
            let added = trial.ticket(ticket)?;
            let most = with_margin(added.pieces.iter().map(|p| p.bytes).max().unwrap_or(0));
            if left.lacks(scene, added, most, 0).is_some() || added.pieces.iter().all(|p| p.may_move) {
                continue;
            }
            trial.tickets.extend(done);
            trial.tickets.sort_by_key(|t| t.ticket);
            (*self, *numbers) = (trial, next);
            return Some(GaveWay { ended, ticket });
        }
        None
    }
}

/// One run of a ticket's inputs.
struct PlannedRun<'a> {
    level: u8,
    max_seq: u64,
    spans: Vec<&'a FileSpan>,
    bytes: u64,
}

/// Returns the runs that `spans` belong to, newest first.
fn runs<'a>(tree: &TreeView, spans: impl Iterator<Item = &'a FileSpan>) -> Vec<PlannedRun<'a>> {
    let mut of: BTreeMap<TableId, Vec<&FileSpan>> = BTreeMap::new();
    spans.for_each(|span| of.entry(span.table).or_default().push(span));
    let mut runs = Vec::new();
    for (level, run) in tree.levels.iter().enumerate().flat_map(|(at, l)| l.runs.iter().map(move |r| (at, r)))
    {
        let mut found = PlannedRun { level: level as u8, max_seq: 0, spans: Vec::new(), bytes: 0 };
        for file in &run.files {
            let spans = of.get(&file.table).into_iter().flatten();
            let mine = spans.filter(|s| usize::from(s.level) == level && s.range.overlaps(&file.bounds));
            let before = found.spans.len();
            found.spans.extend(mine);
            if found.spans.len() > before {
                found.bytes += file.bytes;
                found.max_seq = found.max_seq.max(file.max_seq);
            }
        }
        if !found.spans.is_empty() {
            runs.push(found);
        }
    }
    runs.sort_by(|a, b| b.max_seq.cmp(&a.max_seq).then(a.level.cmp(&b.level)));
    runs
}

/// Returns plans over runs that follow one another in age, the largest first. If there are more than [`MOST_TRIED`],
/// they are spread evenly over all sizes, down to the smallest.
fn narrower(runs: &[PlannedRun<'_>], old: &Plan, ticket: Ticket) -> Vec<Plan> {
    let mut windows: Vec<(u64, usize, usize)> = Vec::new();
    for from in 0..runs.len() {
        let lengths = core::iter::successors(Some(2), |n| Some(2 * n));
        for to in lengths.map(|n| from + n).take_while(|to| *to <= runs.len()) {
            windows.push((runs[from..to].iter().map(|run| run.bytes).sum(), from, to));
        }
    }
    windows.sort_unstable();
    let tried = windows.len().min(MOST_TRIED);
    // Both ends of the sorted list are among them.
    let spread = |n: usize| windows[n * (windows.len() - 1) / (tried - 1).max(1)];
    let windows: Vec<(u64, usize, usize)> = (0..tried).map(spread).collect();
    let plan = |(_, from, to): (u64, usize, usize)| {
        let inputs = &runs[from..to];
        let take = inputs.iter().flat_map(|run| &run.spans);
        let take = take.map(|s| Take { table: s.table, range: s.range.clone() }).collect();
        let deepest = inputs.iter().map(|run| run.level).max().unwrap_or(old.out);
        let is_last = to == runs.len();
        let reason =
            format!("{} of {} runs of {ticket}, which does not fit on the disk", to - from, runs.len());
        let mut plan = Plan::new(joined(take), if is_last { old.out } else { deepest }, reason);
        if is_last {
            (plan.place, plan.tag) = (old.place, old.tag.clone());
        } else {
            (plan.place, plan.tag) = (Place::NewRun, RunTag::default());
        }
        // Not limited by the work that is ready already.
        plan.deadline = Some(old.deadline.unwrap_or(u64::MAX));
        plan.priority = (to - from - 1) as f64;
        plan
    };
    windows.into_iter().rev().map(plan).collect()
}

/// Joins parts of one file that follow one another.
fn joined(mut take: Vec<Take>) -> Vec<Take> {
    take.sort_by(|a, b| a.table.cmp(&b.table).then_with(|| a.range.start.cmp(&b.range.start)));
    let mut all: Vec<Take> = Vec::new();
    for next in take {
        match all.last_mut() {
            Some(last) if last.table == next.table && last.range.end.as_ref() == Some(&next.range.start) => {
                last.range.end = next.range.end;
            }
            _ => all.push(next),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn compactions_of_all_sizes_are_tried() {
        let span = FileSpan { level: 0, table: TableId(1), range: KeyRange::all(), min_seq: 1, max_seq: 2 };
        let run =
            |at: u64| PlannedRun { level: 0, max_seq: 1000 - at, spans: Vec::from([&span]), bytes: 1 << 20 };
        let runs: Vec<PlannedRun<'_>> = (0..200).map(run).collect();
        let plans = narrower(&runs, &Plan::new(Vec::new(), 1, String::new()), Ticket(1));
        assert!((MOST_TRIED / 2..=MOST_TRIED).contains(&plans.len()), "{}", plans.len());
        // The priority is the number of runs less one.
        assert!(plans.windows(2).all(|pair| pair[0].priority >= pair[1].priority), "the largest first");
        assert!(plans[0].priority >= 63.0, "{}", plans[0].priority);
        assert_eq!(plans.last().map(|plan| plan.priority), Some(1.0), "down to pairs");
    }
}
