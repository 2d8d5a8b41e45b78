//! Small store without threads or disk, whose plans go through the scheduler's own code: admission, start, fold,
//! install, landing, failure and withdrawal, each at the caller's request. It obeys the scheduler, except for at most
//! one deliberate mistake.

use crate::content::{Content, hull, key, keys, merge, sort};
use crate::reader::{Tables, within};
use drumlin_policy::SplitMix;
use drumlin_policy::schedule::{
    Flight, FoldCosts, Numbers, Piece, PieceState, RunFit, Scene, Settings, Withdrawn, choose_run, project,
};
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::{DropGuard, outside};
use drumlin_types::contract::{
    FileSpan, FileState, FileView, LevelDesign, PieceId, Place, Plan, RunTag, RunView, Take, TreeView,
};
use drumlin_types::{KeyRange, RunId, TableId};
use std::collections::BTreeMap;

pub(crate) const LEVELS: u8 = 4;
/// Bytes that a version counts for, so that parts of files have bytes too.
const VERSION: u64 = 1000;

/// Deliberate mistake of the store.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Mistake {
    None,
    /// Pieces are installed in any order.
    NoWaits,
    /// Rule L2 lets every file of the same level stay behind.
    NoAgeTest,
    /// Tombstones are dropped without regard to files that other plans have claimed.
    BlindDrop,
    /// Pieces that wait for a withdrawn piece proceed as if it were done.
    NoRedirect,
    /// Pieces that wait for a divided piece wait only for its first part.
    FirstPart,
}

/// Counts of events, to prove that a test run covered them.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) reads: u64,
    pub(crate) pieces: u64,
    pub(crate) waiting: u64,
    pub(crate) ahead: u64,
    pub(crate) early: u64,
    pub(crate) moved: u64,
    pub(crate) landed: u64,
    pub(crate) redirected: u64,
    pub(crate) withdrawn: u64,
    pub(crate) retried: u64,
    pub(crate) dropped: u64,
    pub(crate) folded: u64,
    pub(crate) divided: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        for (mine, theirs) in self.figures_mut().into_iter().zip(other.figures()) {
            *mine += theirs.1;
        }
    }

    pub(crate) fn figures(&self) -> [(&'static str, u64); 14] {
        [
            ("events", self.events),
            ("reads", self.reads),
            ("pieces", self.pieces),
            ("waiting", self.waiting),
            ("ahead", self.ahead),
            ("early", self.early),
            ("moved", self.moved),
            ("landed", self.landed),
            ("redirected", self.redirected),
            ("withdrawn", self.withdrawn),
            ("retried", self.retried),
            ("dropped", self.dropped),
            ("folded", self.folded),
            ("divided", self.divided),
        ]
    }

    fn figures_mut(&mut self) -> [&mut u64; 14] {
        [
            &mut self.events,
            &mut self.reads,
            &mut self.pieces,
            &mut self.waiting,
            &mut self.ahead,
            &mut self.early,
            &mut self.moved,
            &mut self.landed,
            &mut self.redirected,
            &mut self.withdrawn,
            &mut self.retried,
            &mut self.dropped,
            &mut self.folded,
            &mut self.divided,
        ]
    }
}

pub(crate) struct Store {
    pub(crate) tree: TreeView,
    pub(crate) tables: Tables,
    pub(crate) flight: Flight,
    /// Outputs of started pieces.
    outputs: BTreeMap<PieceId, Content>,
    pub(crate) snapshots: Vec<u64>,
    pub(crate) tally: Tally,
    mistake: Mistake,
    numbers: Numbers,
    tables_made: u64,
    settings: Settings,
    design: Vec<LevelDesign>,
    /// Whether a move took only a part of a file reference, which no version edit can express.
    moved_part: bool,
}

impl Store {
    pub(crate) fn new(mistake: Mistake, dice: &mut SplitMix) -> Store {
        let pieces = VERSION * (1 + dice.below(12) as u64);
        let settings = Settings {
            // With few slots, little is admitted ahead.
            slots: 2 + dice.below(14) as u32,
            piece: (pieces, pieces),
            depth_cap: Some(1 + dice.below(3) as u32),
            fold_every: Some(1 + dice.below(2) as u32),
            ..Settings::default()
        };
        let design = |level: u8| match (level, dice.below(4)) {
            (0, _) | (_, 0 | 1) => LevelDesign::FREE,
            (_, 2) => LevelDesign { bytes: 3.0 * VERSION as f64, runs: 1.0 },
            _ => LevelDesign { bytes: f64::INFINITY, runs: 2.0 },
        };
        Store {
            tree: TreeView::empty(usize::from(LEVELS)),
            tables: BTreeMap::new(),
            flight: Flight::default(),
            outputs: BTreeMap::new(),
            snapshots: Vec::new(),
            tally: Tally::default(),
            mistake,
            numbers: Numbers { next_run: 1, next_ticket: 1 },
            tables_made: 0,
            settings,
            design: (0..LEVELS).map(design).collect(),
            moved_part: false,
        }
    }

    fn scene<T>(
        &mut self,
        tree: &TreeView,
        run: impl FnOnce(&mut Flight, &Scene<'_>, &mut Numbers) -> T,
    ) -> T {
        let costs = FoldCosts { inflow: 1.0, rests: true, rewrite: 1.0, fixed: 0.0, extra_run: 1.0 };
        let scene = Scene {
            tree,
            design: &self.design,
            settings: &self.settings,
            costs,
            room: u64::MAX,
            now: u64::MAX / 2,
        };
        run(&mut self.flight, &scene, &mut self.numbers)
    }

    // --- Files

    pub(crate) fn flush(&mut self, mut content: Content) {
        sort(&mut content);
        let bounds = hull(&content).expect("a flush is not empty");
        let file = self.file(content, bounds);
        let run = self.numbers.run();
        self.tree.levels[0].runs.push(RunView { id: run, tag: RunTag::default(), files: vec![file] });
    }

    fn file(&mut self, content: Content, bounds: KeyRange) -> FileView {
        self.tables_made += 1;
        let table = TableId(self.tables_made);
        let min = content.iter().map(|v| v.seq).min().expect("a table is not empty");
        let max = content.iter().map(|v| v.seq).max().expect("a table is not empty");
        let mut file = plain_file(table, bounds, min, max);
        file.bytes = content.len() as u64 * VERSION;
        file.entries = content.len() as u64;
        let deletes = content.iter().filter(|v| v.act == crate::content::Act::Delete).count();
        file.tombstones = deletes as u64;
        self.tables.insert(table, content);
        file
    }

    /// Adds files to a level: in the run that the scheduler chooses, in any run with a suitable gap, or in a new one.
    fn put(&mut self, piece: &Piece, level: u8, files: Vec<FileView>, dice: &mut SplitMix) {
        let fits = |run: &RunView| files.iter().all(|f| run.has_gap_for(&f.bounds));
        let runs: Vec<RunFit> = self.tree.levels[usize::from(level)]
            .runs
            .iter()
            .map(|run| RunFit { run: run.id, max_seq: run.max_seq(), is_plain: true, fits: fits(run) })
            .collect();
        let ticket = self.flight.ticket_mut(piece.id.ticket);
        let said = ticket.map(|ticket| choose_run(ticket, level, &runs, &mut self.numbers).0);
        let any = runs.iter().find(|room| room.fits && dice.one_in(2)).map(|room| room.run);
        let run = if dice.one_in(3) { any } else { said };
        let run = run.unwrap_or_else(|| self.numbers.run());
        let runs = &mut self.tree.levels[usize::from(level)].runs;
        let at = match runs.iter().position(|r| r.id == run) {
            Some(at) => at,
            None => {
                runs.push(RunView { id: run, tag: RunTag::default(), files: Vec::new() });
                runs.len() - 1
            }
        };
        for file in files {
            let place = runs[at].files.partition_point(|f| f.bounds.start < file.bounds.start);
            runs[at].files.insert(place, file);
        }
        runs.retain(|run| !run.files.is_empty());
    }

    // --- Plans

    pub(crate) fn view(&self) -> TreeView {
        project::view(&self.tree, &self.flight)
    }

    /// Draws a plan on `view`, the present view, and proposes it. Returns whether it was admitted.
    pub(crate) fn propose(&mut self, view: &TreeView, dice: &mut SplitMix, universe: u8) -> bool {
        let projected = view.projected();
        let free: Vec<(u8, RunId, &FileView)> =
            projected.files().filter(|(_, _, f)| f.is_takeable()).map(|(l, r, f)| (l, r.id, f)).collect();
        if free.is_empty() {
            return false;
        }
        let range = if dice.one_in(3) { drawn_range(dice, universe) } else { KeyRange::all() };
        let mut take: Vec<Take> = Vec::new();
        let mut deepest = 0;
        for _ in 0..=dice.below(3) {
            let (level, _, file) = free[dice.below(free.len())];
            let Some(part) = file.bounds.intersect(&range) else { continue };
            if !take.iter().any(|t| t.table == file.table && t.range.overlaps(&part)) {
                take.push(Take { table: file.table, range: part });
                deepest = deepest.max(level);
            }
        }
        let far = deepest + dice.below(usize::from(LEVELS - deepest)) as u8;
        let out = if dice.one_in(2) { far } else { (deepest + 1).min(LEVELS - 1) };
        let mut plan = Plan::new(take, out, String::new());
        plan.priority = dice.below(3) as f64 - 1.0;
        let beside: Vec<_> = free.iter().filter(|(level, ..)| *level == out).collect();
        if !dice.one_in(4) {
            let is_taken = |table| plan.take.iter().any(|t| t.table == table);
            plan.may_fold = beside
                .iter()
                .filter(|(_, _, f)| !is_taken(f.table))
                .map(|(_, _, f)| Take { table: f.table, range: f.bounds.clone() })
                .collect();
        }
        if let Some((_, run, _)) = beside.first().filter(|_| dice.one_in(2)) {
            plan.place = Place::Run(*run);
        }
        self.admit(&plan)
    }

    fn admit(&mut self, plan: &Plan) -> bool {
        let mut tree = self.tree.clone();
        if self.mistake == Mistake::NoAgeTest {
            // Files that are not taken appear newer than all others.
            for (_, file) in tree.levels.iter_mut().enumerate().flat_map(|(l, level)| {
                level.runs.iter_mut().flat_map(move |run| run.files.iter_mut().map(move |f| (l, f)))
            }) {
                if !plan.take.iter().any(|take| take.table == file.table) {
                    file.min_seq = u64::MAX / 2;
                }
                file.max_seq = file.max_seq.max(file.min_seq);
            }
        }
        let admitted = self.scene(&tree, |flight, scene, numbers| flight.admit(scene, plan, numbers));
        let Ok(ticket) = admitted else { return false };
        let pieces = &self.flight.ticket(ticket).expect("just admitted").pieces;
        self.tally.pieces += pieces.len() as u64;
        if self.mistake == Mistake::NoWaits {
            let ticket = self.flight.ticket_mut(ticket).expect("just admitted");
            ticket.pieces.iter_mut().for_each(|p| p.waits.clear());
            return true;
        }
        self.tally.waiting += pieces.iter().filter(|p| !p.waits.is_empty()).count() as u64;
        true
    }

    /// Starts the piece that the scheduler chooses; with `moves_only`, only a trivial move.
    pub(crate) fn start(&mut self, moves_only: bool, dice: &mut SplitMix) -> bool {
        let tree = self.tree.clone();
        // The intended piece size is smaller now than at the cut, so that pieces with folds are divided.
        let piece = std::mem::replace(&mut self.settings.piece, (VERSION / 4, VERSION / 4));
        let start = self.scene(&tree, |flight, scene, _| flight.start(scene, moves_only));
        self.settings.piece = piece;
        let Ok(start) = start else { return false };
        self.tally.early += u64::from(start.is_early);
        self.tally.folded += u64::from(start.piece.folded > 0);
        self.tally.divided += u64::from(start.piece.is_part && start.piece.folded > 0);
        if self.mistake == Mistake::FirstPart {
            let ticket = self.flight.ticket(start.piece.id.ticket).expect("just started");
            let parts = ticket.pieces.iter().filter(|p| p.is_part).skip(1);
            let added: Vec<PieceId> = parts.map(|p| p.id).collect();
            for piece in self.flight.tickets.iter_mut().flat_map(|t| &mut t.pieces) {
                piece.waits.retain(|id| !added.contains(id));
            }
        }
        if start.piece.is_move {
            self.tally.moved += 1;
            self.relocate(&start.piece, dice);
        } else {
            self.merge(&start.piece);
        }
        true
    }

    /// Moves a piece's inputs to its output level unchanged.
    fn relocate(&mut self, piece: &Piece, dice: &mut SplitMix) {
        let is_part = |(_, _, f): (u8, &RunView, &FileView)| {
            let takes = |s: &FileSpan| s.table == f.table && s.range.overlaps(&f.bounds);
            piece.inputs.iter().any(|s| takes(s) && !s.range.covers(&f.bounds))
        };
        self.moved_part |= self.tree.files().any(is_part);
        let files = cut_out(&mut self.tree, &piece.inputs);
        let tables: Vec<TableId> = files.iter().map(|f| f.table).collect();
        self.put(piece, piece.out, files, dice);
        self.flight.installed(piece.id, &tables, 0, 0);
        self.flight.take_finished();
    }

    fn merge(&mut self, piece: &Piece) {
        let mut around = outside(&self.tree, &piece.inputs, &piece.range);
        if self.mistake == Mistake::BlindDrop {
            let is_claimed = |f: &FileSpan| {
                let others = self.flight.unfinished().filter(|(_, p)| p.id != piece.id);
                others.flat_map(|(_, p)| &p.inputs).any(|g| g.table == f.table && g.range.overlaps(&f.range))
            };
            around.retain(|f| !is_claimed(f));
        }
        let guard = DropGuard::new(&around, &piece.range);
        let mut content: Content = piece
            .inputs
            .iter()
            .flat_map(|span| within(&self.tables, span.table, &span.range))
            .cloned()
            .collect();
        sort(&mut content);
        let merged = merge(&content, &self.snapshots, &guard);
        self.tally.dropped += u64::from(merged.is_empty());
        self.outputs.insert(piece.id, merged);
    }

    pub(crate) fn pieces(&self, is: impl Fn(&Piece) -> bool) -> Vec<PieceId> {
        self.flight.unfinished().filter(|(_, p)| is(p)).map(|(_, p)| p.id).collect()
    }

    pub(crate) fn finish(&mut self, id: PieceId) {
        if !self.flight.finished(id, 0) {
            self.outputs.remove(&id);
        }
    }

    /// Installs or lands a piece where that is allowed, and returns whether anything changed.
    pub(crate) fn install(&mut self, id: PieceId, dice: &mut SplitMix) -> bool {
        let Some(piece) = self.flight.piece(id).cloned() else { return false };
        let is_clear = self.flight.is_clear(&piece);
        match piece.state {
            PieceState::Held if is_clear => {
                let older = self.flight.unfinished().any(|(t, _)| t.ticket < id.ticket);
                self.tally.ahead += u64::from(older);
                cut_out(&mut self.tree, &piece.inputs);
                let files = self.output(&piece, dice);
                let tables: Vec<TableId> = files.iter().map(|f| f.table).collect();
                self.put(&piece, piece.out, files, dice);
                self.flight.installed(id, &tables, 1, 0);
            }
            PieceState::Held if self.flight.may_land(&piece) => {
                self.tally.landed += 1;
                cut_out(&mut self.tree, &piece.inputs);
                let files = self.output(&piece, dice);
                let level = piece.landing();
                let span = |f: &FileView| FileSpan {
                    level,
                    table: f.table,
                    range: f.bounds.clone(),
                    min_seq: f.min_seq,
                    max_seq: f.max_seq,
                };
                let spans = files.iter().map(span).collect();
                self.put(&piece, level, files, dice);
                self.flight.landed(id, spans, 1, 0);
            }
            PieceState::Landed if is_clear => self.relocate(&piece, dice),
            _ => return false,
        }
        self.flight.take_finished();
        true
    }

    fn output(&mut self, piece: &Piece, dice: &mut SplitMix) -> Vec<FileView> {
        let content = self.outputs.remove(&piece.id).expect("a held piece has its output");
        let Some(tight) = hull(&content) else { return Vec::new() };
        let wide = piece.hull().filter(|wide| wide.covers(&tight) && dice.one_in(2));
        vec![self.file(content, wide.unwrap_or(tight))]
    }

    // --- Failure

    pub(crate) fn fail(&mut self, id: PieceId, retry: bool) {
        if self.mistake == Mistake::NoRedirect {
            if let Some(piece) = self.flight.piece_mut(id) {
                piece.state = PieceState::Withdrawn;
            }
            self.outputs.remove(&id);
            self.flight.take_finished();
            return;
        }
        self.outputs.remove(&id);
        self.tally.retried += u64::from(retry);
        let ended = self.flight.failed(id, retry, "a test", 0);
        self.ended(&ended);
    }

    pub(crate) fn withdraw(&mut self, id: PieceId) {
        if self.mistake == Mistake::NoRedirect {
            return;
        }
        let ended = self.flight.withdraw_ready(id.ticket, "a test");
        self.ended(&ended);
    }

    fn ended(&mut self, ended: &Withdrawn) {
        self.tally.withdrawn += ended.gone.len() as u64;
        self.tally.redirected += ended.staying.len() as u64;
        for id in &ended.gone {
            self.outputs.remove(id);
        }
        self.flight.take_finished();
    }

    /// Checks that no file is claimed twice, and that claimed files exist.
    pub(crate) fn check_claims(&self, view: &TreeView) -> Result<(), String> {
        if self.moved_part {
            return Err("a move takes a part of a file".to_owned());
        }
        let spans: Vec<&FileSpan> = self.flight.unfinished().flat_map(|(_, p)| &p.inputs).collect();
        for (at, span) in spans.iter().enumerate() {
            let clash = |other: &&FileSpan| other.table == span.table && other.range.overlaps(&span.range);
            if spans[at + 1..].iter().any(clash) {
                return Err(format!("{:?} is claimed twice", span.table));
            }
            let is_there = self.tree.levels[usize::from(span.level)].files().any(|f| f.table == span.table);
            if !is_there {
                return Err(format!("{:?} is claimed and not in level {}", span.table, span.level));
            }
        }
        match view.files().find(|(_, _, f)| f.state == FileState::Free && f.bounds.is_empty()) {
            Some((level, ..)) => Err(format!("an empty file in level {level}")),
            None => Ok(()),
        }
    }
}

pub(crate) fn drawn_range(dice: &mut SplitMix, universe: u8) -> KeyRange {
    let from = dice.below(usize::from(universe)) as u8;
    let to = from + 1 + dice.below(usize::from(universe - from)) as u8;
    if dice.one_in(2) { keys(from, to) } else { KeyRange::new(key(from), None) }
}

/// Removes the spans from the tree and returns the removed files. Remainders of a file keep their narrower bounds.
fn cut_out(tree: &mut TreeView, inputs: &[FileSpan]) -> Vec<FileView> {
    let mut taken = Vec::new();
    for level in &mut tree.levels {
        for run in &mut level.runs {
            for input in inputs {
                let files = std::mem::take(&mut run.files);
                for file in files {
                    if file.table != input.table {
                        run.files.push(file);
                        continue;
                    }
                    let (before, after) = file.bounds.subtract(&input.range);
                    let parts = before.into_iter().chain(after);
                    run.files.extend(parts.map(|bounds| FileView { bounds, ..file.clone() }));
                    let part = file.bounds.intersect(&input.range);
                    taken.extend(part.map(|bounds| FileView { bounds, ..file.clone() }));
                }
            }
        }
        level.runs.retain(|run| !run.files.is_empty());
    }
    taken
}
