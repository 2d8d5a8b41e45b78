//! Model of a store without threads or disk.
//!
//! Flushes, plans, compactions of pieces, installs, landings and withdrawals happen when the caller triggers them. To
//! *land* a piece is to install its output in its source level, because an earlier piece is not installed yet. The
//! model obeys the legality module, except for at most one deliberate mistake.

use crate::content::{Content, hull, key, keys, merge, sort};
use crate::dice::Dice;
use crate::reader::{Tables, within};
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::{DropGuard, Illegal, close_plan, legal, outside, spans, waits};
use drumlin_types::contract::{
    FileSpan, FileState, FileView, PieceId, PieceView, Plan, RunTag, RunView, Take, TreeView,
};
use drumlin_types::{KeyRange, RunId, Seq, TableId, Ticket};
use std::collections::BTreeMap;

pub(crate) const LEVELS: u8 = 4;

/// Deliberate mistake of the store.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Mistake {
    None,
    /// Pieces are installed in any order.
    NoWaits,
    /// Rule L2 is not checked: any file of the same level may stay behind.
    NoAgeTest,
    /// Tombstones are dropped without checking files that other plans have claimed.
    BlindDrop,
    /// A piece that waits for a withdrawn piece continues as if that piece were installed.
    NoRedirect,
}

/// Counts of events, to prove that a run covered the interesting cases.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) pieces: usize,
    pub(crate) waiting: usize,
    pub(crate) ahead: usize,
    pub(crate) landed: usize,
    pub(crate) redirected: usize,
    pub(crate) withdrawn: usize,
    pub(crate) dropped: usize,
    pub(crate) folded: usize,
}

pub(crate) struct Piece {
    view: PieceView,
    /// Compacted output, until it is installed.
    output: Option<Content>,
    /// Whether the output is already installed in the source level.
    has_landed: bool,
}

pub(crate) struct Store {
    pub(crate) tree: TreeView,
    pub(crate) tables: Tables,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) snapshots: Vec<Seq>,
    pub(crate) tally: Tally,
    mistake: Mistake,
    numbers: u64,
}

impl Store {
    pub(crate) fn new(mistake: Mistake) -> Store {
        Store {
            tree: TreeView::empty(usize::from(LEVELS)),
            tables: BTreeMap::new(),
            pieces: Vec::new(),
            snapshots: Vec::new(),
            tally: Tally::default(),
            mistake,
            numbers: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn flush(&mut self, mut content: Content) {
        sort(&mut content);
        let bounds = hull(&content).expect("a flush is not empty");
        self.place(content, bounds, 0, None);
    }

    /// Adds a table to a level, either in a new run or in a random run that has a gap for it.
    fn place(&mut self, content: Content, bounds: KeyRange, level: u8, dice: Option<&mut Dice>) -> FileSpan {
        let table = TableId(self.number());
        let min = content.iter().map(|v| v.seq).min().expect("a table is not empty");
        let max = content.iter().map(|v| v.seq).max().expect("a table is not empty");
        self.tables.insert(table, content);
        self.put(plain_file(table, bounds, min, max), level, dice)
    }

    fn put(&mut self, file: FileView, level: u8, dice: Option<&mut Dice>) -> FileSpan {
        let FileView { table, min_seq, max_seq, .. } = file;
        let span = FileSpan { level, table, range: file.bounds.clone(), min_seq, max_seq };
        let id = RunId(self.number());
        let runs = &mut self.tree.levels[usize::from(level)].runs;
        let fitting = runs.iter_mut().find(|run| run.has_gap_for(&file.bounds));
        match fitting.filter(|_| dice.is_some_and(|dice| dice.below(2) == 0)) {
            Some(run) => {
                let at = run.files.partition_point(|f| f.bounds.start < file.bounds.start);
                run.files.insert(at, file);
            }
            None => runs.push(RunView { id, tag: RunTag::default(), files: vec![file] }),
        }
        span
    }

    /// Returns the tree after all unfinished pieces.
    pub(crate) fn projected(&self) -> TreeView {
        let mut tree = self.tree.clone();
        self.pieces.iter().for_each(|piece| cut_out(&mut tree, &piece.view.inputs));
        for (at, Piece { view, .. }) in self.pieces.iter().enumerate() {
            let min = view.inputs.iter().map(|f| f.min_seq).min().expect("a piece has inputs");
            let max = view.inputs.iter().map(|f| f.max_seq).max().expect("a piece has inputs");
            let number = 1_000_000 + at as u64;
            let mut file = plain_file(TableId(number), span_hull(&view.inputs), min, max);
            file.state = FileState::Coming(view.id.ticket);
            let run = RunView { id: RunId(number), tag: RunTag::default(), files: vec![file] };
            tree.levels[usize::from(view.out)].runs.push(run);
        }
        tree
    }

    /// Draws a random plan, closes it and admits it in one or two pieces. Returns whether a plan was admitted.
    pub(crate) fn admit(&mut self, dice: &mut Dice, universe: u8) -> bool {
        let tree = self.projected();
        let free: Vec<(u8, &FileView)> =
            tree.files().filter(|(_, _, f)| f.is_takeable()).map(|(l, _, f)| (l, f)).collect();
        if free.is_empty() {
            return false;
        }
        let range = if dice.below(3) == 0 { drawn_range(dice, universe) } else { KeyRange::all() };
        let mut take: Vec<Take> = Vec::new();
        let mut deepest = 0;
        for _ in 0..=dice.below(3) {
            let (level, file) = free[dice.below(free.len())];
            let Some(part) = file.bounds.intersect(&range) else { continue };
            if !take.iter().any(|t| t.table == file.table && t.range.overlaps(&part)) {
                take.push(Take { table: file.table, range: part });
                deepest = deepest.max(level);
            }
        }
        let out = deepest + dice.below(usize::from(LEVELS - deepest)) as u8;
        let drawn = Plan::new(take, out, String::new());
        let closed = match close_plan(&tree, &drawn) {
            Ok(closed) => closed,
            Err(Illegal::NotNewer(_)) if self.mistake == Mistake::NoAgeTest => drawn.clone(),
            Err(_) => return false,
        };
        let plan = match legal(&tree, &drawn) {
            Err(Illegal::NotNewer(_)) if self.mistake == Mistake::NoAgeTest => drawn,
            _ => closed,
        };
        self.cut(&spans(&tree, &plan.take), out, dice, universe);
        true
    }

    fn cut(&mut self, inputs: &[FileSpan], out: u8, dice: &mut Dice, universe: u8) {
        let ticket = Ticket(self.number());
        let middle = 1 + dice.below(usize::from(universe)) as u8;
        let ranges = [keys(0, middle), KeyRange::new(key(middle), None)];
        let earlier: Vec<PieceView> = self.pieces.iter().map(|piece| piece.view.clone()).collect();
        let ranges = if dice.below(2) == 0 { ranges.to_vec() } else { vec![KeyRange::all()] };
        for (index, range) in ranges.into_iter().enumerate() {
            let clip = |f: &FileSpan| Some(FileSpan { range: f.range.intersect(&range)?, ..f.clone() });
            let inputs: Vec<FileSpan> = inputs.iter().filter_map(clip).collect();
            if inputs.is_empty() {
                continue;
            }
            let id = PieceId { ticket, index: index as u32 };
            let waits = waits(&inputs, out, &earlier);
            self.tally.pieces += 1;
            self.tally.waiting += usize::from(!waits.is_empty());
            let view = PieceView { id, range, inputs, out, waits };
            self.pieces.push(Piece { view, output: None, has_landed: false });
        }
    }

    /// Compacts a piece that has no output yet. May add free files of its output level to the inputs.
    pub(crate) fn merge(&mut self, at: usize, dice: &mut Dice) {
        if self.pieces[at].output.is_some() {
            return;
        }
        if dice.below(3) == 0 {
            let (hull, out) = (span_hull(&self.pieces[at].view.inputs), self.pieces[at].view.out);
            for (level, _, file) in self.projected().files().filter(|(_, _, f)| f.is_takeable()) {
                let part = file.bounds.intersect(&hull);
                if let Some(range) = part.filter(|_| level == out) {
                    let FileView { table, min_seq, max_seq, .. } = *file;
                    self.pieces[at].view.inputs.push(FileSpan { level, table, range, min_seq, max_seq });
                }
            }
        }
        let view = &self.pieces[at].view;
        let mut around = outside(&self.tree, &view.inputs, &view.range);
        if self.mistake == Mistake::BlindDrop {
            let is_claimed = |f: &FileSpan| {
                let others = self.pieces.iter().filter(|other| other.view.id != view.id);
                others.flat_map(|p| &p.view.inputs).any(|g| g.table == f.table && g.range.overlaps(&f.range))
            };
            around.retain(|f| !is_claimed(f));
        }
        let guard = DropGuard::new(&around, &view.range);
        let mut content: Content = view
            .inputs
            .iter()
            .flat_map(|span| within(&self.tables, span.table, &span.range))
            .cloned()
            .collect();
        sort(&mut content);
        let merged = merge(&content, &self.snapshots, &guard);
        self.tally.dropped += usize::from(merged.is_empty());
        self.tally.folded += usize::from(merged.len() < content.len());
        self.pieces[at].output = Some(merged);
    }

    /// Installs a compacted piece whose waits are over. Otherwise lands it in its source level if `may_land`. Returns
    /// whether anything changed.
    pub(crate) fn install(&mut self, at: usize, may_land: bool, dice: &mut Dice) -> bool {
        let view = self.pieces[at].view.clone();
        let Some(output) = self.pieces[at].output.clone() else { return false };
        let is_open = |id: &PieceId| self.pieces.iter().any(|piece| piece.view.id == *id);
        if view.waits.iter().any(is_open) && self.mistake != Mistake::NoWaits {
            return may_land && self.land(at, view, output, dice);
        }
        self.tally.ahead += usize::from(self.pieces.iter().any(|p| p.view.id.ticket < view.id.ticket));
        let sinks = self.pieces.remove(at).has_landed;
        let file = sinks
            .then(|| self.tree.files().find(|(_, _, f)| f.table == view.inputs[0].table).unwrap().2.clone());
        cut_out(&mut self.tree, &view.inputs);
        match file {
            Some(file) => drop(self.put(file, view.out, Some(dice))),
            None => drop(self.add_output(output, &view.inputs, view.out, dice)),
        }
        true
    }

    fn land(&mut self, at: usize, view: PieceView, output: Content, dice: &mut Dice) -> bool {
        let source = view.inputs[0].level;
        if self.pieces[at].has_landed || view.inputs.iter().any(|f| f.level != source) {
            return false;
        }
        self.tally.landed += 1;
        cut_out(&mut self.tree, &view.inputs);
        match self.add_output(output, &view.inputs, source, dice) {
            Some(span) => {
                self.pieces[at].view.inputs = vec![span];
                self.pieces[at].has_landed = true;
            }
            None => drop(self.pieces.remove(at)),
        }
        true
    }

    fn add_output(
        &mut self,
        output: Content,
        inputs: &[FileSpan],
        level: u8,
        dice: &mut Dice,
    ) -> Option<FileSpan> {
        let tight = hull(&output)?;
        let bounds = if dice.below(2) == 0 { tight } else { span_hull(inputs) };
        Some(self.place(output, bounds, level, Some(dice)))
    }

    /// Withdraws a piece. A piece that waits for it keeps its output in its source level, or is withdrawn too.
    pub(crate) fn withdraw(&mut self, at: usize) {
        let gone = self.pieces.remove(at).view.id;
        self.tally.withdrawn += 1;
        if self.mistake == Mistake::NoRedirect {
            return;
        }
        while let Some(next) = self.pieces.iter().position(|p| p.view.waits.contains(&gone)) {
            let Piece { view, has_landed, .. } = &mut self.pieces[next];
            let source = view.inputs[0].level;
            let is_movable = view.inputs.iter().all(|f| f.level == source) && view.out != source;
            if *has_landed || !is_movable {
                self.withdraw(next);
                continue;
            }
            let id = view.id;
            view.out = source;
            view.waits.clear();
            self.tally.redirected += 1;
            self.forget(id);
        }
    }

    /// Withdraws, or keeps in their source levels, the pieces that wait for a piece whose output stays above.
    fn forget(&mut self, id: PieceId) {
        while let Some(next) = self.pieces.iter().position(|p| p.view.waits.contains(&id)) {
            self.withdraw(next);
        }
    }
}

pub(crate) fn drawn_range(dice: &mut Dice, universe: u8) -> KeyRange {
    let from = dice.below(usize::from(universe)) as u8;
    keys(from, from + 1 + dice.below(usize::from(universe - from)) as u8)
}

fn span_hull(spans: &[FileSpan]) -> KeyRange {
    spans.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b)).expect("a piece has inputs")
}

/// Removes the spans from the tree. The rest of a file keeps its narrowed bounds.
fn cut_out(tree: &mut TreeView, inputs: &[FileSpan]) {
    for level in &mut tree.levels {
        for run in &mut level.runs {
            for input in inputs {
                let rest = |file: &FileView| {
                    if file.table != input.table {
                        return vec![file.clone()];
                    }
                    let (before, after) = file.bounds.subtract(&input.range);
                    before
                        .into_iter()
                        .chain(after)
                        .map(|bounds| FileView { bounds, ..file.clone() })
                        .collect()
                };
                run.files = run.files.iter().flat_map(rest).collect();
            }
        }
        level.runs.retain(|run| !run.files.is_empty());
    }
}
