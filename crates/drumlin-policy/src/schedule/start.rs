//! Choice of the next piece for a free slot.
//!
//! 1. A piece that is a trivial move goes before all others and takes no slot.
//! 2. Next come pieces with no open waits. Those with a deadline go first, then by level pair in the order of
//!    [`pick`], and within a pair by ticket, by the piece's own priority, and by key.
//! 3. If none of these may start, pieces with open waits follow, provided that they have two inputs or more. Their
//!    output is held, or lands.
//! 4. A piece of a plan that has not begun comes last if its output level is over its size and its depth has reached
//!    the cap. It does not start while a running piece takes files from that level or a lower one, because it would
//!    fold again what is about to move down. So the level drains first. The draining pieces are already running and
//!    finish without it, so no two plans wait for each other for ever.
//!
//! A piece that would fold much more than was expected is divided first (`schedule/divide.rs`).

use super::divide::Divided;
use super::fold::{Fold, FoldInputs};
use super::limits::{Concurrency, with_margin};
use super::pick::{self, Pair, PickKind, order};
use super::project;
use super::room::Left;
use super::scene::Scene;
use super::tickets::{Flight, Piece, PieceState, TicketState};
use super::weights::Weights;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use drumlin_types::bug;
use drumlin_types::contract::{FileSpan, PieceId, TreeView};

/// Piece that has started.
#[derive(Clone, Debug)]
pub struct StartedPiece {
    /// The piece with all its inputs.
    pub piece: Piece,
    /// Whether it started before the pieces that it waits for are installed.
    pub is_early: bool,
    /// Pieces that were divided before this one was found.
    pub divided: Vec<Divided>,
    /// Whether the tree with the plans under way changed: the piece is a move or folds files, or a piece was divided.
    pub changes_view: bool,
}

/// Reasons why no piece started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Idle {
    /// Time at which a piece may become ready, in microseconds.
    pub timer: Option<u64>,
    /// First piece that lacks disk space, and the bytes that it may write.
    pub short: Option<(PieceId, u64)>,
    /// Pieces that were divided nevertheless, which changed the tree with the plans under way.
    pub divided: Vec<Divided>,
    /// Whether the policy should be called for other plans: a slot is free, but no ready piece may start now.
    /// Reported once.
    pub wants_plans: bool,
}

impl Flight {
    /// Starts the next piece; with `moves_only`, none that would take a slot.
    pub fn start(&mut self, scene: &Scene<'_>, moves_only: bool) -> Result<StartedPiece, Idle> {
        if !self.has_ready() {
            return Err(self.rest());
        }
        let view = project::view(scene.tree, self);
        self.start_in(scene, &view, moves_only)
    }

    /// Returns the result of [`Flight::start`] when nothing is ready.
    pub fn rest(&mut self) -> Idle {
        self.starved = false;
        Idle::default()
    }

    /// Like [`Flight::start`], for callers that already have `view`, the tree with the plans under way. `view` stays
    /// valid unless the piece is a move or folds files.
    pub fn start_in(
        &mut self,
        scene: &Scene<'_>,
        view: &TreeView,
        moves_only: bool,
    ) -> Result<StartedPiece, Idle> {
        debug_assert_eq!(*view, project::view(scene.tree, self), "an old view");
        let mut idle = Idle::default();
        let weights = Weights::of(view, scene.design);
        let left = self.left(scene);
        self.order_by_key(&left);
        let mut found = self.find(scene, view, &weights, (moves_only, &left), &mut idle);
        let mut newer: Option<TreeView> = None;
        while let Some((id, folds, bytes, _)) = &found
            && *bytes > 0
            && let Some(divided) = self.divide(scene, newer.as_ref().unwrap_or(view), *id, (folds, *bytes))
        {
            idle.divided.push(divided);
            let view = newer.insert(project::view(scene.tree, self));
            let weights = Weights::of(view, scene.design);
            found = self.find(scene, view, &weights, (moves_only, &left), &mut idle);
        }
        // Additional plans would not help a piece that waits for disk space.
        let may_starve = scene.settings.mode == Concurrency::Pipelined
            && !moves_only
            && found.is_none()
            && idle.short.is_none();
        let starves = may_starve && self.has_clear(scene.now);
        idle.wants_plans = starves && !self.starved;
        self.starved = starves;
        let Some((id, folds, bytes, is_early)) = found else { return Err(idle) };
        let Some(piece) = self.piece_mut(id) else { return Err(idle) };
        piece.state = PieceState::Running;
        // A piece with folded files must be compacted, also at a second attempt.
        piece.may_move &= folds.is_empty();
        piece.is_move = piece.may_move && !is_early;
        piece.bytes += bytes;
        piece.folded = bytes;
        piece.inputs.extend(folds);
        let divided = idle.divided;
        let changes_view = !divided.is_empty() || piece.is_move || bytes > 0;
        Ok(StartedPiece { piece: piece.clone(), is_early, divided, changes_view })
    }

    /// Returns whether some piece has not started yet.
    pub fn has_ready(&self) -> bool {
        self.unfinished().any(|(_, piece)| piece.state == PieceState::Ready)
    }

    /// Returns whether some piece is ready, waits for no other piece, and has no retry back-off pending.
    fn has_clear(&self, now: u64) -> bool {
        let is_due = |p: &Piece| p.state == PieceState::Ready && p.not_before <= now;
        self.unfinished().any(|(_, piece)| is_due(piece) && self.is_clear(piece))
    }

    fn find(
        &self,
        scene: &Scene<'_>,
        view: &TreeView,
        weights: &Weights,
        (moves_only, left): (bool, &Left),
        idle: &mut Idle,
    ) -> Option<Startable> {
        let fold = FoldInputs { view, weights, flight: self, settings: scene.settings, costs: &scene.costs };
        let mut clear: Vec<StartCandidate<'_>> = Vec::new();
        let mut waiting: Vec<StartCandidate<'_>> = Vec::new();
        for (ticket, piece) in self.unfinished().filter(|(_, piece)| piece.state == PieceState::Ready) {
            if piece.not_before > scene.now {
                idle.timer = Some(idle.timer.map_or(piece.not_before, |t| t.min(piece.not_before)));
                continue;
            }
            let is_clear = self.is_clear(piece) || bug!("install-out-of-order");
            if is_clear
                && piece.may_move
                && let Fold::Take(folds, 0) = fold.choose(ticket, piece, false)
                && folds.is_empty()
                && !fold.is_last_resort(ticket, piece)
            {
                return Some((piece.id, folds, 0, false));
            }
            match is_clear {
                _ if moves_only => {}
                true => clear.push(StartCandidate { ticket, piece }),
                // A piece with open waits may be compacted ahead if it has several inputs to combine.
                false if piece.inputs.len() > 1 && scene.settings.mode == Concurrency::Pipelined => {
                    waiting.push(StartCandidate { ticket, piece });
                }
                false => {}
            }
        }
        let ranked = [(clear, false), (waiting, true)].into_iter().flat_map(|(all, is_early)| {
            self.ranked(all, weights, scene).into_iter().map(move |candidate| (candidate, is_early))
        });
        self.first(scene, &fold, ranked, left, idle)
    }

    /// Returns the first of `candidates` that may start now, each with whether it would start early.
    fn first<'a>(
        &self,
        scene: &Scene<'_>,
        fold: &FoldInputs<'_>,
        candidates: impl Iterator<Item = (StartCandidate<'a>, bool)>,
        left: &Left,
        idle: &mut Idle,
    ) -> Option<Startable> {
        let is_draining = |p: &Piece, level: u8| {
            p.state == PieceState::Running && p.out > p.source() && p.source() >= level
        };
        let drains = |level: u8| self.unfinished().any(|(_, p)| is_draining(p, level));
        let mut last = None;
        for (StartCandidate { ticket, piece }, is_early) in candidates {
            // A held output would take space that an earlier piece lacks.
            if is_early && idle.short.is_some() && !self.may_land(piece) {
                continue;
            }
            let Fold::Take(folds, bytes) = fold.choose(ticket, piece, is_early) else { continue };
            if let Some(wanted) = left.lacks(scene, ticket, with_margin(piece.bytes + bytes), bytes) {
                idle.short.get_or_insert((piece.id, wanted));
                continue;
            }
            if fold.is_last_resort(ticket, piece) {
                if last.is_none() && !drains(piece.out) {
                    last = Some((piece.id, folds, bytes, is_early));
                }
                continue;
            }
            return Some((piece.id, folds, bytes, is_early));
        }
        last
    }

    /// Returns the bytes that started pieces may still write, including pieces that were withdrawn while running.
    pub fn writing(&self) -> u64 {
        let running = self.unfinished().filter(|(_, p)| p.state == PieceState::Running && !p.is_move);
        running.map(|(_, piece)| with_margin(piece.bytes)).chain(self.stray.values().copied()).sum()
    }

    /// Returns the candidates in the order in which they are tried.
    fn ranked<'a>(
        &self,
        mut candidates: Vec<StartCandidate<'a>>,
        weights: &Weights,
        scene: &Scene<'_>,
    ) -> Vec<StartCandidate<'a>> {
        let kind = |ticket: &TicketState, piece: &Piece| PickKind {
            source: piece.source(),
            out: piece.out,
            is_tidying: is_tidying(ticket),
            has_begun: ticket.has_begun(),
        };
        let mut pairs: BTreeMap<PickKind, Pair> = BTreeMap::new();
        for (ticket, piece) in self.unfinished() {
            let kind = kind(ticket, piece);
            let PickKind { source, out, has_begun, .. } = kind;
            let pair = pairs.entry(kind).or_insert(Pair {
                kind,
                weight: 0.0,
                running: 0,
                source_fill: weights.fill(source),
                // Work that has begun goes on: a half-installed ticket would block its own outputs from being taken.
                target_fill: if source == out || has_begun { 0.0 } else { weights.fill(out) },
            });
            if matches!(piece.state, PieceState::Ready | PieceState::Running) {
                pair.weight += piece.bytes as f64 * weights.fill(source);
            }
            pair.running += u32::from(piece.state == PieceState::Running);
        }
        let pressure = scene.settings.back_pressure;
        let ordered = order(pairs.into_values().collect(), pressure);
        let mut places: BTreeMap<PickKind, usize> = BTreeMap::new();
        for (at, pair) in ordered.iter().enumerate() {
            // Begun and new work share a place where back-pressure holds neither back; then the ticket decides.
            let before = ordered[..at].iter().position(|p| pick::compare(p, pair, pressure).is_eq());
            places.insert(pair.kind, before.unwrap_or(at));
        }
        let place =
            |c: &StartCandidate<'_>| places.get(&kind(c.ticket, c.piece)).copied().unwrap_or(usize::MAX);
        candidates.sort_by(|a, b| {
            let deadline = |c: &StartCandidate<'_>| c.ticket.plan.deadline.unwrap_or(u64::MAX);
            let first = deadline(a).cmp(&deadline(b)).then_with(|| place(a).cmp(&place(b)));
            first.then_with(|| compare(a, b))
        });
        candidates
    }
}

/// Piece to start, the files that it folds and their bytes, and whether it starts early.
type Startable = (PieceId, Vec<FileSpan>, u64, bool);

struct StartCandidate<'a> {
    ticket: &'a TicketState,
    piece: &'a Piece,
}

/// Compares candidates of one level pair: by ticket, then by the piece's own priority, then by id.
fn compare(a: &StartCandidate<'_>, b: &StartCandidate<'_>) -> Ordering {
    let ticket = a.piece.id.ticket.cmp(&b.piece.id.ticket);
    ticket.then(b.piece.priority.total_cmp(&a.piece.priority)).then(a.piece.id.cmp(&b.piece.id))
}

/// Returns whether a ticket compacts runs within one level to make reads cheaper, not because a level is over its
/// size.
pub(super) fn is_tidying(ticket: &TicketState) -> bool {
    ticket.plan.priority < 0.0
}
