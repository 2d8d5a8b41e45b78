//! Simulated tree: memtables are flushed, and plans are admitted, cut into pieces and installed piece by piece.
//!
//! Keys are 32-bit numbers in big-endian bytes. Outputs hold the sum of their inputs, spread evenly over their range,
//! and are cut at the file size. Inputs that share no keys are moved unchanged and count as no work.
//!
//! Invariants, asserted by [`World::check`] and by every admission: the tree keeps its shape, no bytes appear or
//! vanish, and a piece is installed only after those that it waits for.

use crate::neighbours;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use drumlin_policy::share::{folding, split};
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::{Illegal, check, legal, spans, waits};
use drumlin_types::contract::{
    CompactionPolicy, CostView, Decision, FileSpan, FileState, FileView, LimitView, LoadView, Outcome,
    PieceId, PieceView, Place, Plan, PlanResult, PolicyInput, RunTag, RunView, TicketView, TreeView,
};
use drumlin_types::{Key, KeyRange, LEVELS, RunId, Seq, TableId, Ticket};

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Bytes flushed.
    pub flushed: u64,
    /// Bytes read and written by compactions.
    pub merged: u64,
    /// Bytes that moved down without being rewritten.
    pub moved: u64,
    /// Number of admitted plans.
    pub plans: u64,
}

/// Admitted plan with unfinished pieces.
#[derive(Clone, Debug)]
struct Flight {
    view: TicketView,
    /// Own run for outputs that do not fit the wanted one.
    run: RunId,
    pieces: Vec<PieceView>,
}

/// Tree, plans in flight on it, and the input of a policy.
#[derive(Clone, Debug)]
pub struct World {
    /// Installed tree.
    tree: TreeView,
    flights: Vec<Flight>,
    /// Limits that the policy sees.
    pub limits: LimitView,
    /// Whether compactions wait for busy neighbours, as without the pipeline.
    pub without_pipeline: bool,
    /// Whether the policy's adaptation is frozen.
    pub frozen: bool,
    /// Totals since the start.
    pub totals: Totals,
    /// Load that the policy sees.
    pub load: LoadView,
    /// Costs that the policy sees.
    pub costs: CostView,
    /// Keys of sampled reads that the policy sees, sorted.
    pub wanted: Vec<Key>,
    /// Time of the next decision, in microseconds; each decision takes one.
    pub now: u64,
    seq: Seq,
    numbers: u64,
    /// Cached view while it is valid, since building it copies every file.
    seen: RefCell<Option<Rc<TreeView>>>,
}

/// Returns key `n` of the universe.
pub fn key(n: u32) -> Key {
    Key::new(&n.to_be_bytes())
}

/// Returns the number of a key that [`key`] made.
fn number(key: &Key) -> u32 {
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(key.iter()).for_each(|(to, from)| *to = *from);
    u32::from_be_bytes(bytes)
}

impl World {
    /// Returns an empty tree with all levels.
    pub fn new(limits: LimitView) -> World {
        World {
            tree: TreeView::empty(LEVELS),
            flights: Vec::new(),
            limits,
            without_pipeline: false,
            frozen: false,
            totals: Totals::default(),
            load: LoadView::default(),
            costs: CostView {
                compaction_bytes_per_s: 150e6,
                compaction_fixed_ns: 1e6,
                ..CostView::default()
            },
            wanted: Vec::new(),
            now: 0,
            seq: 0,
            numbers: 0,
            seen: RefCell::new(None),
        }
    }

    fn fresh_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Flushes a full memtable over the keys `from..to` as a run of level 0.
    pub fn flush(&mut self, policy: &mut dyn CompactionPolicy, from: u32, to: u32) {
        let bytes = self.limits.memtable_bytes;
        let tag = policy.flush_tag(bytes, &self.tree);
        let entries = (bytes >> 10).max(1);
        let table = TableId(self.fresh_number());
        let bounds = KeyRange::new(key(from), Some(key(to.max(from + 1))));
        let mut file = plain_file(table, bounds, self.seq + 1, self.seq + entries);
        self.seq += entries;
        (file.bytes, file.entries, file.keys) = (bytes, entries, entries);
        let id = RunId(self.fresh_number());
        let run = RunView { id, tag, files: Vec::from([file]) };
        // A new run changes nothing else of the view.
        if let Some(view) = self.seen.get_mut().as_mut().and_then(Rc::get_mut) {
            view.levels[0].runs.push(run.clone());
        } else {
            self.changed();
        }
        self.tree.levels[0].runs.push(run);
        self.totals.flushed += bytes;
        policy.observe(&Outcome::Flushed { bytes, entries });
    }

    /// Makes a table unavailable, as a damaged one is: no plan may take it.
    pub fn damage(&mut self, table: TableId) {
        self.changed();
        let files =
            self.tree.levels.iter_mut().flat_map(|level| &mut level.runs).flat_map(|run| &mut run.files);
        files.filter(|file| file.table == table).for_each(|file| file.state = FileState::Unavailable);
    }

    /// Returns the tree with the effects of plans in flight, as a policy sees it.
    pub fn view(&self) -> Rc<TreeView> {
        self.seen.borrow_mut().get_or_insert_with(|| Rc::new(self.make_view())).clone()
    }

    /// Invalidates the cached view.
    fn changed(&mut self) {
        *self.seen.get_mut() = None;
    }

    fn make_view(&self) -> TreeView {
        let mut leaving: BTreeMap<TableId, Vec<(KeyRange, Ticket)>> = BTreeMap::new();
        for Flight { view, pieces, .. } in &self.flights {
            for input in pieces.iter().flat_map(|piece| &piece.inputs) {
                leaving.entry(input.table).or_default().push((input.range.clone(), view.ticket));
            }
        }
        let mut tree = self.tree.clone();
        for run in tree.levels.iter_mut().flat_map(|level| &mut level.runs) {
            if run.files.iter().any(|file| leaving.contains_key(&file.table)) {
                for at in (0..run.files.len()).rev() {
                    if leaving.contains_key(&run.files[at].table) {
                        let parts = parted(run.files[at].clone(), &leaving);
                        run.files.splice(at..=at, parts);
                    }
                }
            }
        }
        let files = self.files_of(self.flights.iter().flat_map(|flight| &flight.pieces));
        for Flight { view, run, pieces } in &self.flights {
            for (at, piece) in pieces.iter().enumerate() {
                // Tables that do not exist yet get placeholder numbers.
                let table = TableId((1 << 62) + (view.ticket.0 << 20) + at as u64);
                let mut file = expected(&files, piece, table);
                file.state = FileState::Coming(view.ticket);
                // Another ticket's output may lie in the gap that this one was to fill.
                let files = core::slice::from_ref(&file);
                let home = if fits(&tree, piece.out, *run, files) { *run } else { RunId(table.0) };
                put(&mut tree, piece.out, home, &view.plan.tag, file);
            }
        }
        tree
    }

    /// Returns the files that the inputs of `pieces` name.
    fn files_of<'a>(&self, pieces: impl Iterator<Item = &'a PieceView>) -> BTreeMap<TableId, Vec<&FileView>> {
        let mut files: BTreeMap<TableId, Vec<&FileView>> = BTreeMap::new();
        for input in pieces.flat_map(|piece| &piece.inputs) {
            files.entry(input.table).or_default();
        }
        if !files.is_empty() {
            for (_, _, file) in self.tree.files() {
                if let Some(of_table) = files.get_mut(&file.table) {
                    of_table.push(file);
                }
            }
        }
        files
    }

    /// Calls the policy once and returns its decision.
    pub fn decide(&mut self, policy: &mut dyn CompactionPolicy, seed: u64) -> Decision {
        let mut tree = self.view();
        if self.without_pipeline && !self.flights.is_empty() {
            let design = policy.design(&tree, &self.limits);
            tree = neighbours::marked(tree, &design);
        }
        let tickets: Vec<TicketView> = self.flights.iter().map(|flight| flight.view.clone()).collect();
        self.now += 1;
        policy.decide(&PolicyInput {
            tree: &tree,
            tickets: &tickets,
            load: &self.load,
            costs: &self.costs,
            limits: &self.limits,
            wanted: &self.wanted,
            wanted_seeks: &self.wanted,
            now: self.now,
            seed,
            frozen: self.frozen,
        })
    }

    /// Admits a plan, cut at even key distances into at most `pieces` pieces.
    pub fn admit(&mut self, plan: &Plan, pieces: u32) -> Result<Ticket, Illegal> {
        // The legality check ignores leaving files, as if the view were projected.
        let tree = self.view();
        let plan = &folding(&tree.projected(), plan);
        legal(&tree, plan)?;
        let inputs = spans(&tree, &plan.take);
        let ticket = Ticket(self.fresh_number());
        let run = RunId(self.fresh_number());
        let earlier: Vec<PieceView> = self.flights.iter().flat_map(|f| f.pieces.iter().cloned()).collect();
        let mut cut = Vec::new();
        for range in even_cuts(&inputs, pieces) {
            let clip = |f: &FileSpan| Some(FileSpan { range: f.range.intersect(&range)?, ..f.clone() });
            let inputs: Vec<FileSpan> = inputs.iter().filter_map(clip).collect();
            if !inputs.is_empty() {
                let id = PieceId { ticket, index: cut.len() as u32 };
                let waits = waits(&inputs, plan.out, &earlier);
                cut.push(PieceView { id, range, inputs, out: plan.out, waits });
            }
        }
        let bytes = {
            let files = self.files_of(cut.iter());
            cut.iter().map(|piece| expected(&files, piece, TableId(0)).bytes).sum()
        };
        let view = TicketView {
            ticket,
            plan: plan.clone(),
            pieces: cut.len() as u32,
            pieces_done: 0,
            bytes,
            bytes_done: 0,
        };
        self.flights.push(Flight { view, run, pieces: cut });
        self.changed();
        self.totals.plans += 1;
        Ok(ticket)
    }

    /// Returns the pieces without open waits, oldest ticket first.
    pub fn ready(&self) -> Vec<PieceId> {
        let pieces = || self.flights.iter().flat_map(|flight| &flight.pieces);
        let is_open = |id: &PieceId| pieces().any(|piece| piece.id == *id);
        pieces().filter(|piece| !piece.waits.iter().any(is_open)).map(|piece| piece.id).collect()
    }

    /// Returns the ready piece that an engine would start next: by deadline, then by oldest ticket. Pieces for which
    /// `but` returns true are left out.
    pub fn next_ready(&self, but: impl Fn(PieceId) -> bool) -> Option<PieceId> {
        let deadline = |id: &PieceId| {
            let flight = self.flights.iter().find(|flight| flight.view.ticket == id.ticket);
            (flight.and_then(|flight| flight.view.plan.deadline).unwrap_or(u64::MAX), *id)
        };
        self.ready().into_iter().filter(|id| !but(*id)).min_by_key(deadline)
    }

    /// Returns the bytes that a piece rewrites, which is zero when its inputs share no keys.
    pub fn rewrites(&self, id: PieceId) -> u64 {
        let pieces = self.flights.iter().flat_map(|flight| &flight.pieces);
        let Some(piece) = pieces.into_iter().find(|piece| piece.id == id) else { return 0 };
        let pairs = piece.inputs.iter().enumerate();
        let meets = |(at, input): (usize, &FileSpan)| {
            piece.inputs[at + 1..].iter().any(|other| other.range.overlaps(&input.range))
        };
        if pairs.into_iter().any(meets) {
            expected(&self.files_of(core::iter::once(piece)), piece, TableId(0)).bytes
        } else {
            0
        }
    }

    /// Withdraws the pieces of a ticket that are not in `running`, and the pieces of others that wait for them.
    pub fn withdraw(&mut self, ticket: Ticket, running: &[PieceId], policy: &mut dyn CompactionPolicy) {
        let ids = |flights: &[Flight], of: &dyn Fn(&PieceView) -> bool| -> Vec<PieceId> {
            let pieces = flights.iter().flat_map(|flight| &flight.pieces);
            pieces.filter(|piece| !running.contains(&piece.id) && of(piece)).map(|piece| piece.id).collect()
        };
        let mut gone = ids(&self.flights, &|piece| piece.id.ticket == ticket);
        loop {
            let more = ids(&self.flights, &|piece| {
                !gone.contains(&piece.id) && piece.waits.iter().any(|id| gone.contains(id))
            });
            if more.is_empty() {
                break;
            }
            gone.extend(more);
        }
        self.changed();
        for flight in &mut self.flights {
            flight.pieces.retain(|piece| !gone.contains(&piece.id));
        }
        while let Some(at) = self.flights.iter().position(|flight| flight.pieces.is_empty()) {
            self.finish(at, policy);
        }
    }

    /// Returns the number of plans under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Returns whether `ticket` has pieces that are not installed yet.
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.flights.iter().any(|flight| flight.view.ticket == ticket)
    }

    /// Returns the installed tree.
    pub fn tree(&self) -> &TreeView {
        &self.tree
    }

    /// Installs one piece. The policy is notified when it was the last piece of its plan.
    pub fn install(&mut self, id: PieceId, policy: &mut dyn CompactionPolicy) {
        let Some(at) = self.flights.iter().position(|flight| flight.view.ticket == id.ticket) else { return };
        let Some(piece) = self.flights[at].pieces.iter().position(|piece| piece.id == id) else { return };
        self.changed();
        let piece = self.flights[at].pieces.remove(piece);
        let parts = piece.inputs.iter().flat_map(|input| take_out(&mut self.tree, input)).collect();
        let outputs = self.outputs(&piece, parts);
        let Flight { view, run, .. } = &mut self.flights[at];
        view.pieces_done += 1;
        view.bytes_done += outputs.iter().map(|f| f.bytes).sum::<u64>();
        let wanted = match view.plan.place {
            Place::Run(wanted) => Some(wanted).filter(|&w| has_room(&self.tree, piece.out, w, &outputs)),
            Place::NewRun => None,
        };
        let own = Some(*run).filter(|&own| fits(&self.tree, piece.out, own, &outputs));
        let tag = view.plan.tag.clone();
        let home = wanted.or(own).unwrap_or_else(|| {
            self.numbers += 1;
            RunId(self.numbers)
        });
        for mut file in outputs {
            file.state = FileState::Settling(id.ticket);
            put(&mut self.tree, piece.out, home, &tag, file);
        }
        if self.flights[at].pieces.is_empty() {
            self.finish(at, policy);
        }
    }

    /// Returns the output files of a piece: its inputs unchanged when they share no keys, otherwise compacted ones.
    fn outputs(&mut self, piece: &PieceView, mut parts: Vec<FileView>) -> Vec<FileView> {
        parts.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
        let bytes: u64 = parts.iter().map(|f| f.bytes).sum();
        if parts.windows(2).all(|pair| !pair[0].bounds.overlaps(&pair[1].bounds)) {
            self.totals.moved += bytes;
            return parts;
        }
        self.totals.merged += bytes;
        let mut rest = merged(&parts, TableId(0));
        let span = FileSpan {
            level: piece.out,
            table: rest.table,
            range: rest.bounds.clone(),
            min_seq: rest.min_seq,
            max_seq: rest.max_seq,
        };
        let count = bytes.div_ceil(self.limits.file_bytes.max(1)).clamp(1, 4096) as u32;
        let mut outputs: Vec<FileView> = Vec::new();
        for range in even_cuts(&[span], count) {
            let (mut rests, part) = split(&rest, &range);
            let Some(mut part) = part else { continue };
            part.table = TableId(self.fresh_number());
            outputs.push(part);
            match rests.pop() {
                Some(next) => rest = next,
                None => break,
            }
        }
        // The last file gets the bytes that rounding would lose.
        let written: u64 = outputs.iter().map(|f| f.bytes).sum();
        if let Some(last) = outputs.last_mut() {
            last.bytes += bytes.saturating_sub(written);
        }
        outputs
    }

    fn finish(&mut self, at: usize, policy: &mut dyn CompactionPolicy) {
        self.changed();
        let view = self.flights.remove(at).view;
        for file in self.tree.levels.iter_mut().flat_map(|l| &mut l.runs).flat_map(|run| &mut run.files) {
            if file.state == FileState::Settling(view.ticket) {
                file.state = FileState::Free;
            }
        }
        policy.observe(&Outcome::Plan {
            ticket: view.ticket,
            reason: view.plan.reason,
            result: PlanResult::Done,
            why: String::new(),
            bytes_in: view.bytes,
            bytes_out: view.bytes_done,
            dropped: 0,
        });
    }

    /// Calls the policy and installs its plans at once, until it returns no more. Fails when a plan is illegal or
    /// more than `most` decisions are made.
    pub fn settle(&mut self, policy: &mut dyn CompactionPolicy, most: usize) -> Result<(), String> {
        for round in 0..most {
            let plans = self.decide(policy, round as u64).plans;
            if plans.is_empty() {
                return Ok(());
            }
            for plan in plans {
                self.admit(&plan, 1).map_err(|e| e.to_string())?;
            }
            while let Some(&id) = self.ready().first() {
                self.install(id, policy);
            }
        }
        Err(alloc::format!("no end after {most} decisions"))
    }

    /// Checks the shape of the tree, and that every flushed byte is still there.
    pub fn check(&self) -> Result<(), String> {
        check(&self.tree)?;
        check(&self.view().projected())?;
        match self.tree.bytes() == self.totals.flushed {
            true => Ok(()),
            false => Err(alloc::format!(
                "{} bytes flushed, {} in the tree",
                self.totals.flushed,
                self.tree.bytes()
            )),
        }
    }
}

/// Returns ranges that cut the hull of the inputs into `pieces` ranges of even width, or fewer when the hull is
/// narrow.
pub(super) fn even_cuts(inputs: &[FileSpan], pieces: u32) -> Vec<KeyRange> {
    let Some(hull) = inputs.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b)) else {
        return Vec::new();
    };
    let start = number(&hull.start);
    let end = hull.end.as_ref().map_or(u32::MAX, number);
    let width = u64::from(end.saturating_sub(start));
    let pieces = u64::from(pieces).min(width).max(1);
    let mut edges: Vec<Key> = (1..pieces).map(|i| key(start + (width * i / pieces) as u32)).collect();
    edges.insert(0, hull.start.clone());
    let ends = edges[1..].iter().cloned().map(Some).chain([hull.end.clone()]);
    edges.iter().cloned().zip(ends).map(|(start, end)| KeyRange::new(start, end)).collect()
}

/// Returns the expected output of a piece as one file.
fn expected(files: &BTreeMap<TableId, Vec<&FileView>>, piece: &PieceView, table: TableId) -> FileView {
    let parts = piece.inputs.iter().flat_map(|input| {
        let files = files.get(&input.table).into_iter().flatten();
        files.filter_map(|f| split(f, &input.range).1)
    });
    let parts: Vec<FileView> = parts.collect();
    merged(&parts, table)
}

/// Splits `file` by the ranges that plans take, and marks those parts as leaving.
fn parted(file: FileView, leaving: &BTreeMap<TableId, Vec<(KeyRange, Ticket)>>) -> Vec<FileView> {
    let mut parts = Vec::from([file]);
    for (range, ticket) in leaving.get(&parts[0].table).into_iter().flatten() {
        let mut next = Vec::new();
        for part in parts {
            let (rests, taken) = split(&part, range);
            next.extend(rests);
            next.extend(taken.map(|f| FileView { state: FileState::Leaving(*ticket), ..f }));
        }
        parts = next;
    }
    parts.sort_by(|a, b| a.bounds.start.cmp(&b.bounds.start));
    parts
}

/// Removes a span from the tree and returns the removed files.
pub(super) fn take_out(tree: &mut TreeView, input: &FileSpan) -> Vec<FileView> {
    let mut taken = Vec::new();
    for level in &mut tree.levels {
        let mut is_empty = false;
        for run in &mut level.runs {
            for at in (0..run.files.len()).rev() {
                if run.files[at].table == input.table {
                    let (rests, inside) = split(&run.files[at], &input.range);
                    run.files.splice(at..=at, rests);
                    taken.extend(inside);
                }
            }
            is_empty |= run.files.is_empty();
        }
        if is_empty {
            level.runs.retain(|run| !run.files.is_empty());
        }
    }
    taken
}

/// Combines all parts into one file over their hull.
pub(super) fn merged(parts: &[FileView], table: TableId) -> FileView {
    let hull = parts.iter().map(|f| f.bounds.clone()).reduce(|a, b| a.hull(&b));
    let min = parts.iter().map(|f| f.min_seq).min().unwrap_or_default();
    let max = parts.iter().map(|f| f.max_seq).max().unwrap_or_default();
    let mut file = plain_file(table, hull.unwrap_or(KeyRange::all()), min, max);
    file.bytes = parts.iter().map(|f| f.bytes).sum();
    file.entries = parts.iter().map(|f| f.entries).sum();
    file.keys = parts.iter().map(|f| f.keys).sum();
    file
}

/// Returns whether the files fit into the run, or the run does not exist yet.
fn fits(tree: &TreeView, level: u8, run: RunId, files: &[FileView]) -> bool {
    let exists = tree.levels[usize::from(level)].runs.iter().any(|other| other.id == run);
    !exists || has_room(tree, level, run, files)
}

fn has_room(tree: &TreeView, level: u8, run: RunId, files: &[FileView]) -> bool {
    let home = tree.levels[usize::from(level)].runs.iter().find(|r| r.id == run);
    home.is_some_and(|home| files.iter().all(|f| home.has_gap_for(&f.bounds)))
}

pub(super) fn put(tree: &mut TreeView, level: u8, run: RunId, tag: &RunTag, file: FileView) {
    let runs = &mut tree.levels[usize::from(level)].runs;
    match runs.iter_mut().find(|r| r.id == run) {
        Some(home) => {
            let at = home.files.partition_point(|f| f.bounds.start < file.bounds.start);
            home.files.insert(at, file);
        }
        None => runs.push(RunView { id: run, tag: tag.clone(), files: Vec::from([file]) }),
    }
}
