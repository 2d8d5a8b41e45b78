//! Admission: turns plans into tickets, that is, scheduled compactions.
//!
//! 1. The plan is closed over the files that must come along, and checked on the projected tree.
//! 2. It gets the next ticket number and claims the files that it takes. Files that it may fold (include as inputs
//!    from the output level) are not claimed: other plans may use them until a piece starts.
//! 3. It is cut into pieces (subcompactions), and the waits of each piece are computed once and for all. They refer
//!    only to earlier tickets.
//!
//! A plan that names files that do not exist yet is refused. Policies are called again whenever something is
//! installed, so nothing is queued for later. Without the pipeline, a plan also claims the files that it may fold,
//! and a plan beside a busy neighbour is refused.

use super::cut::{self, Cut, PieceFile};
use super::fold::FoldInputs;
use super::limits::Concurrency;
use super::numbers::Numbers;
use super::overlaps::Overlaps;
use super::scene::Scene;
use super::tickets::{Flight, Piece, PieceState, TicketState};
use super::weights::Weights;
use super::{pick, project, tidy};
use crate::share::share;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use drumlin_types::contract::legal::{self, Illegal};
use drumlin_types::contract::{
    FileSpan, FileState, FileView, Outcome, PieceId, Place, Plan, PlanResult, Take, TreeView,
};
use drumlin_types::{Key, KeyRange, LEVELS, RunId, TableId, Ticket};

/// Reason why a plan was not admitted.
#[derive(Clone, PartialEq, Debug)]
pub enum Refusal {
    /// The plan is illegal on the projected tree.
    Illegal(Illegal),
    /// Enough work is scheduled already; the policy may propose the plan again.
    Enough,
    /// Without the pipeline: neighbouring files or levels are busy.
    Busy,
}

impl Refusal {
    /// Returns the reason as one word, for counters.
    pub fn rule(&self) -> &'static str {
        match self {
            Refusal::Illegal(illegal) => illegal.rule(),
            Refusal::Enough => "enough",
            Refusal::Busy => "busy",
        }
    }

    /// Returns the outcome that the policy gets for `plan`. The plan has no ticket, so its number is 0. The text may
    /// contain keys of users: do not log it.
    pub fn outcome(&self, plan: &Plan) -> Outcome {
        Outcome::Plan {
            ticket: Ticket(0),
            reason: plan.reason.clone(),
            result: match self {
                Refusal::Illegal(_) => PlanResult::Refused,
                Refusal::Enough | Refusal::Busy => PlanResult::Deferred,
            },
            why: self.to_string(),
            bytes_in: 0,
            bytes_out: 0,
            dropped: 0,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Illegal(illegal) => illegal.fmt(f),
            Refusal::Enough => f.write_str("enough work is scheduled already"),
            Refusal::Busy => f.write_str("a neighbouring file or level is busy"),
        }
    }
}

impl From<Illegal> for Refusal {
    fn from(illegal: Illegal) -> Refusal {
        Refusal::Illegal(illegal)
    }
}

impl Flight {
    /// Admits `plan` as a ticket, or returns the reason for refusing it.
    pub fn admit(
        &mut self,
        scene: &Scene<'_>,
        plan: &Plan,
        numbers: &mut Numbers,
    ) -> Result<Ticket, Refusal> {
        self.check_ticket_limit(scene, plan)?;
        let view = project::view(scene.tree, self);
        let projected = project::after(&view);
        self.admit_in(scene, (&view, &projected), plan, numbers)
    }

    /// Like [`Flight::admit`], for callers that already have the tree with the plans under way and the projected
    /// tree.
    pub fn admit_in(
        &mut self,
        scene: &Scene<'_>,
        (view, projected): (&TreeView, &TreeView),
        plan: &Plan,
        numbers: &mut Numbers,
    ) -> Result<Ticket, Refusal> {
        self.check_ticket_limit(scene, plan)?;
        debug_assert_eq!(*view, project::view(scene.tree, self), "an old view");
        let plan = self.closed(scene, view, projected, plan)?;
        let spans = legal::spans(projected, &plan.take);
        if plan.priority < 0.0 && !tidy::pays(self, scene, projected, &spans) {
            return Err(Refusal::Enough);
        }
        let ticket = numbers.ticket();
        let own = numbers.run();
        let wanted = self.wanted(scene, &plan);
        let tag = self.tag(projected, &plan, wanted);
        let earlier = self.piece_views();
        let pieces = self.cut(scene, view, projected, &plan, &spans).into_iter().enumerate();
        let piece = |(index, cut): (usize, Cut)| Piece {
            id: PieceId { ticket, index: index as u32 },
            waits: legal::waits(&cut.inputs, plan.out, &earlier),
            priority: priority(&plan, &cut.range, cut.bytes),
            range: cut.range,
            inputs: cut.inputs,
            out: plan.out,
            state: PieceState::Ready,
            bytes: cut.bytes,
            folded: 0,
            is_move: false,
            is_part: false,
            may_move: cut.may_move,
            attempts: 0,
            not_before: 0,
            finished_at: 0,
        };
        let pieces = pieces.map(piece).collect();
        self.tickets.push(TicketState {
            ticket,
            wanted,
            own,
            tag,
            above: BTreeMap::new(),
            pieces,
            plan,
            outputs: BTreeSet::new(),
            bytes_in: 0,
            bytes_out: 0,
            dropped: 0,
            withdrawn: None,
        });
        Ok(ticket)
    }

    fn closed(
        &self,
        scene: &Scene<'_>,
        view: &TreeView,
        projected: &TreeView,
        plan: &Plan,
    ) -> Result<Plan, Refusal> {
        let mut plan = plan.clone();
        if scene.settings.mode != Concurrency::Pipelined {
            let folds = core::mem::take(&mut plan.may_fold);
            self.check_neighbours(view, &plan, !folds.is_empty())?;
            plan.take.extend(beside(projected, &plan, &folds)?);
        }
        Ok(legal::close_plan(projected, &plan)?)
    }

    /// Applies the rules of engines without a pipeline.
    fn check_neighbours(&self, view: &TreeView, plan: &Plan, may_fold: bool) -> Result<(), Refusal> {
        let inputs = legal::spans(view, &plan.take);
        let Some(source) = inputs.iter().map(|f| f.level).min() else { return Ok(()) };
        let touches = |level: u8| {
            self.unfinished().any(|(_, p)| p.out == level || p.inputs.iter().any(|f| f.level == level))
        };
        let from = |level: u8| self.unfinished().filter(move |(_, p)| p.source() == level && p.out > level);
        let is_blocked = if !may_fold {
            from(source).next().is_some()
        } else if source == 0 {
            from(0).next().is_some() || touches(plan.out)
        } else {
            let is_busy = |f: &FileView| !f.is_takeable();
            let met = Overlaps::of(inputs.iter().map(|i| &i.range));
            let meets = |f: &FileView| met.any(&f.bounds);
            let near = usize::from(source)..=usize::from(plan.out);
            from(0).any(|(_, p)| p.out == source || p.out == plan.out)
                || view.levels[near].iter().flat_map(|l| l.files()).any(|f| is_busy(f) && meets(f))
        };
        if is_blocked { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// Checks whether one more ticket for the plan's level pair may be under way. Plans with a deadline are exempt:
    /// their policy makes its own order, for instance with a short compaction in the middle of a long one.
    fn check_ticket_limit(&self, scene: &Scene<'_>, plan: &Plan) -> Result<(), Refusal> {
        if self.tickets.len() >= scene.settings.most_tickets() {
            return Err(Refusal::Enough);
        }
        if plan.deadline.is_some() {
            return Ok(());
        }
        let is_taken = |table: TableId| plan.take.iter().any(|take| take.table == table);
        let mut files = scene.tree.files().filter(|(_, _, f)| is_taken(f.table));
        let source = files.next().map_or(plan.out, |(level, _, _)| level);
        let weights = self.weights_of_one_slot(scene);
        if self.has_enough(scene, weights.as_ref(), source, plan.out) { Err(Refusal::Enough) } else { Ok(()) }
    }

    /// Returns the levels with enough ready work, as a bit mask for the policy. The mask is non-empty only when a
    /// slot is free and no ready piece may start, so that the policy proposes other work then. It is empty otherwise,
    /// because a compaction that is planned later covers more data at once.
    pub fn enough(&self, scene: &Scene<'_>) -> u8 {
        if self.starved { self.levels_of_enough(scene) } else { 0 }
    }

    /// Returns the levels from which no plan without a deadline would be admitted to a lower level, as a bit mask.
    pub(super) fn levels_of_enough(&self, scene: &Scene<'_>) -> u8 {
        let weights = self.weights_of_one_slot(scene);
        let goes_from = |p: &Piece, source: u8| p.source() == source && p.out > source;
        let has_enough = |source: &u8| {
            let pieces = self.unfinished().filter(|(_, p)| goes_from(p, *source));
            let mut outs: BTreeSet<u8> = pieces.map(|(_, p)| p.out).collect();
            outs.insert(source + 1);
            outs.into_iter().any(|out| self.has_enough(scene, weights.as_ref(), *source, out))
        };
        (0..LEVELS as u8 - 1).filter(has_enough).map(|source| 1 << source).sum()
    }

    fn weights_of_one_slot(&self, scene: &Scene<'_>) -> Option<Weights> {
        scene.settings.gives_way().then(|| Weights::of(scene.tree, scene.design))
    }

    fn has_enough(&self, scene: &Scene<'_>, weights: Option<&Weights>, source: u8, out: u8) -> bool {
        let is_ready = |p: &Piece| p.state == PieceState::Ready && self.is_clear(p);
        if let Some(weights) = weights {
            let goes_on = |p: &Piece| {
                !pick::is_full(weights.fill(p.source()), weights.fill(p.out), scene.settings.back_pressure)
            };
            let is_due = |p: &Piece| is_ready(p) && p.not_before <= scene.now;
            if self.unfinished().any(|(_, p)| is_due(p) && p.source() <= source && goes_on(p)) {
                return true;
            }
        }
        let is_same = |p: &Piece| p.out == out && p.source() == source;
        let ready = self.unfinished().filter(|(_, p)| is_ready(p) && is_same(p));
        let is_running = |p: &Piece| p.state == PieceState::Running && !p.is_move;
        let running = self.unfinished().filter(|(_, p)| is_running(p)).count();
        let most = scene.settings.most_ready(running >= scene.settings.slots as usize);
        ready.take(most).count() == most
    }

    /// Returns the run that the plan names, if it exists or a ticket produces it. Views and policies also use numbers
    /// of runs that do not exist yet.
    fn wanted(&self, scene: &Scene<'_>, plan: &Plan) -> Option<RunId> {
        let Place::Run(run) = plan.place else { return None };
        let is_there = scene.tree.levels.get(usize::from(plan.out))?.runs.iter().any(|r| r.id == run);
        let comes = |t: &TicketState| t.plan.out == plan.out && (t.own == run || t.wanted == Some(run));
        (is_there || self.tickets.iter().any(comes)).then_some(run)
    }

    /// Returns the tag of the run that the output joins, or else the plan's own tag.
    fn tag(
        &self,
        projected: &TreeView,
        plan: &Plan,
        wanted: Option<RunId>,
    ) -> drumlin_types::contract::RunTag {
        let runs = projected.levels.get(usize::from(plan.out)).map_or(&[][..], |level| &level.runs);
        let joined = runs.iter().find(|run| Some(run.id) == wanted);
        joined.map_or_else(|| plan.tag.clone(), |run| run.tag.clone())
    }

    fn cut(
        &self,
        scene: &Scene<'_>,
        view: &TreeView,
        projected: &TreeView,
        plan: &Plan,
        spans: &[FileSpan],
    ) -> Vec<Cut> {
        let parts = |spans: &[FileSpan]| {
            cut::parts(projected, spans, |file, level| may_move(projected, file, level, plan.out))
        };
        let mut inputs = parts(spans);
        // The view shows a partly claimed file as several files. Only a whole file reference may be moved.
        let moving = inputs.iter().filter(|part| part.may_move).map(|part| part.span.table);
        let moving: BTreeSet<TableId> = moving.collect();
        let whole: BTreeMap<(u8, TableId, &Key), &KeyRange> = scene
            .tree
            .files()
            .filter(|(_, _, f)| moving.contains(&f.table))
            .map(|(level, _, f)| ((level, f.table, &f.bounds.start), &f.bounds))
            .collect();
        let is_whole = |span: &FileSpan| {
            whole
                .get(&(span.level, span.table, &span.range.start))
                .is_some_and(|bounds| **bounds == span.range)
        };
        inputs.iter_mut().for_each(|part| part.may_move &= is_whole(&part.span));
        let Some(hull) = spans.iter().map(|s| s.range.clone()).reduce(|a, b| a.hull(&b)) else {
            return Vec::new();
        };
        let weights = Weights::of(view, scene.design);
        let fold = FoldInputs {
            view,
            weights: &weights,
            flight: self,
            settings: scene.settings,
            costs: &scene.costs,
        };
        let taken: u64 = inputs.iter().map(|part| part.file.bytes).sum();
        let mut folds = Vec::new();
        if !plan.may_fold.is_empty() && fold.expects(plan.out, &hull, taken) {
            folds = parts(&legal::spans(projected, &plan.may_fold));
            let met = Overlaps::of(inputs.iter().map(|input| &input.span.range));
            folds.retain(|fold| met.any(&fold.span.range));
        }
        let total = taken + folds.iter().map(|part| part.file.bytes).sum::<u64>();
        let (least, most) = scene.settings.piece;
        let pieces = match scene.settings.mode {
            Concurrency::Unsplit => 1,
            _ => cut::piece_count(total, scene.settings.slots, least.min(most), most),
        };
        let edges = self.unfinished().flat_map(|(_, p)| [Some(p.range.start.clone()), p.range.end.clone()]);
        let edges = edges.flatten().collect::<BTreeSet<Key>>().into_iter().collect();
        let mut cuts = cut::cut(&inputs, &folds, pieces, edges, gaps(projected, plan, &inputs, &hull));
        if scene.settings.mode != Concurrency::Pipelined {
            cuts.iter_mut().for_each(|cut| cut.may_move &= cut.inputs.iter().all(|f| f.level < plan.out));
        }
        cuts
    }
}

/// Returns the files of the output level that `plan` must take along without the pipeline: all that it overlaps, all
/// of them free.
fn beside(projected: &TreeView, plan: &Plan, folds: &[Take]) -> Result<Vec<Take>, Refusal> {
    let mut taken: BTreeMap<TableId, Vec<&KeyRange>> = BTreeMap::new();
    for take in &plan.take {
        taken.entry(take.table).or_default().push(&take.range);
    }
    let is_taken = |span: &FileSpan| {
        taken.get(&span.table).is_some_and(|ranges| ranges.iter().any(|range| range.overlaps(&span.range)))
    };
    let mut along = Vec::new();
    let mut needed: BTreeMap<TableId, Vec<KeyRange>> = BTreeMap::new();
    for span in legal::spans(projected, folds).into_iter().filter(|span| !is_taken(span)) {
        needed.entry(span.table).or_default().push(span.range.clone());
        along.push(Take { table: span.table, range: span.range });
    }
    let is_needed = |f: &FileView| {
        needed.get(&f.table).is_some_and(|ranges| ranges.iter().any(|range| range.overlaps(&f.bounds)))
    };
    if projected.files().all(|(_, _, f)| f.is_takeable() || !is_needed(f)) {
        Ok(along)
    } else {
        Err(Refusal::Busy)
    }
}

/// Returns the keys at which a piece must end so that its output fits into the run that it joins. Files that no input
/// overlaps stay there.
fn gaps(projected: &TreeView, plan: &Plan, inputs: &[PieceFile], hull: &KeyRange) -> Vec<Key> {
    let runs = projected.levels.get(usize::from(plan.out)).into_iter().flat_map(|level| &level.runs);
    let joined = runs.filter(|run| plan.place == Place::Run(run.id)).flat_map(|run| &run.files);
    let met = Overlaps::of(inputs.iter().map(|input| &input.span.range));
    let lies_free = |f: &&FileView| f.bounds.overlaps(hull) && !met.any(&f.bounds);
    joined.filter(lies_free).map(|f| f.bounds.start.clone()).collect()
}

/// Returns whether a whole file may change its level by a trivial move. It must move down, and hold no tombstone that
/// would end up with nothing older below it.
fn may_move(tree: &TreeView, file: &FileView, level: u8, out: u8) -> bool {
    let has_tombstones = file.tombstones > 0 || file.range_tombstones > 0;
    let deeper = || tree.levels.iter().skip(usize::from(out) + 1).flat_map(|level| &level.runs);
    let below = || deeper().flat_map(|run| &run.files).any(|f| f.bounds.overlaps(&file.bounds));
    level < out && (!has_tombstones || below())
}

pub(super) fn priority(plan: &Plan, range: &KeyRange, bytes: u64) -> f64 {
    // A piece gains the part of a value that its keys have of the value's range.
    let value: f64 = plan.piece_priority.iter().map(|(of, value)| value * share(of, range)).sum();
    value / bytes.max(1) as f64
}

/// Returns the view for a policy without the pipeline. It marks files that a plan could not start from, because a
/// neighbour is busy, as unavailable, so that the policy proposes others.
pub fn without_pipeline(mut view: TreeView, flight: &Flight) -> TreeView {
    let busy: Vec<Vec<KeyRange>> = view
        .levels
        .iter()
        .map(|level| {
            let is_busy = |f: &&FileView| !f.is_takeable();
            level.files().filter(is_busy).map(|f| f.bounds.clone()).collect()
        })
        .collect();
    for at in 0..view.levels.len() {
        let level = at as u8;
        let pieces = || flight.unfinished();
        let whole = pieces()
            .any(|(_, p)| p.source() == 0 && (p.source() == level || p.out == level || p.out == level + 1))
            || (at == 0 && busy.get(1).is_some_and(|b| !b.is_empty()))
            || pieces().any(|(_, p)| {
                p.source() == level && p.inputs.iter().all(|f| f.level == level) && p.out > level
            });
        let below: &[KeyRange] = busy.get(at + 1).map_or(&[], |b| b);
        for file in view.levels[at].runs.iter_mut().flat_map(|run| &mut run.files) {
            if file.is_takeable() && (whole || below.iter().any(|range| range.overlaps(&file.bounds))) {
                file.state = FileState::Unavailable;
            }
        }
    }
    view
}
