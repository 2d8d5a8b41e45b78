//! Random schedules: flushes, plans, starts, finishes, installs, landings and failures at any moment. The tree, the
//! projected tree and the claims are checked after every event. If readers can see the event, every key is also read
//! at every snapshot by the level rule and compared with the whole history.

use crate::content::{Act, Content, Version, value};
use crate::reader::{read, verify_recency};
use crate::store::{Mistake, Store, Tally, drawn_range};
use drumlin_policy::SplitMix;
use drumlin_policy::schedule::{Piece, PieceState};
use drumlin_types::Seq;
use drumlin_types::contract::draw::Drawing;
use drumlin_types::contract::legal::check;
use drumlin_types::contract::{PieceId, TreeView};

/// Number of events of a schedule, before everything left is installed.
const EVENTS: usize = 110;
/// Number of steps in which everything must be drained.
const DRAIN: usize = 4000;

/// Event mix of a schedule, drawn for each: some delete much and compact little, others mostly make plans that wait,
/// and so on. A uniform mix would meet the rarer combinations less often.
struct Mix {
    /// Weights of the kinds of events: write, snapshot, release, plan, start, finish, install, fail, withdraw.
    weights: [usize; 9],
    /// Number of deletions among eight versions, and of range deletions among those.
    deletes: usize,
    ranges: usize,
    /// Upper bound on snapshots. Without snapshots, tombstones are dropped as soon as nothing older is left.
    snapshots: usize,
}

impl Mix {
    fn draw(dice: &mut SplitMix) -> Mix {
        let mut some = |least: usize, most: usize| least + dice.below(most - least + 1);
        Mix {
            weights: [
                some(1, 4),
                1,
                1,
                some(4, 12),
                some(3, 6),
                some(1, 3),
                some(2, 5),
                some(0, 2),
                some(0, 1),
            ],
            deletes: some(2, 6),
            ranges: some(0, 2),
            snapshots: some(0, 3),
        }
    }

    fn event(&self, dice: &mut SplitMix) -> usize {
        let mut left = dice.below(self.weights.iter().sum());
        for (kind, weight) in self.weights.iter().enumerate() {
            if left < *weight {
                return kind;
            }
            left -= weight;
        }
        0
    }
}

/// Effect of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    /// Plans under way changed, but nothing that a reader sees.
    Plans,
    Tree,
}

struct World {
    store: Store,
    dice: SplitMix,
    mix: Mix,
    universe: u8,
    seq: Seq,
    /// Every version of each key ever written, oldest first.
    history: Vec<Vec<Version>>,
    /// Last checked view: the tree with its plans under way, unchanged since.
    view: TreeView,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> World {
        let mut dice = SplitMix::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let universe = 2 + dice.below(6) as u8;
        let mix = Mix::draw(&mut dice);
        let store = Store::new(mistake, &mut dice);
        let (history, view) = (vec![Vec::new(); usize::from(universe)], store.view());
        World { store, dice, mix, universe, seq: 0, history, view }
    }

    fn write(&mut self) {
        let mut content = Content::new();
        for _ in 0..=self.dice.below(3) {
            self.seq += 1;
            let seq = self.seq;
            let key = self.dice.below(usize::from(self.universe)) as u8;
            let kind = self.dice.below(8);
            if kind < self.mix.ranges.min(self.mix.deletes) {
                let range = drawn_range(&mut self.dice, self.universe);
                let covered = (0..self.universe).filter(|k| range.contains(&[*k]));
                content.extend(covered.map(|key| Version { key, seq, act: Act::Delete }));
            } else {
                let act = match kind {
                    kind if kind < self.mix.deletes => Act::Delete,
                    6 => Act::Operand(vec![seq]),
                    _ => Act::Put(vec![seq]),
                };
                content.push(Version { key, seq, act });
            }
        }
        for version in &content {
            self.history[usize::from(version.key)].push(version.clone());
        }
        self.store.flush(content);
    }

    /// Performs a random event, if it is possible.
    fn event(&mut self) -> Change {
        match self.mix.event(&mut self.dice) {
            0 => self.write(),
            1 if self.store.snapshots.len() < self.mix.snapshots => self.store.snapshots.push(self.seq),
            2 if !self.store.snapshots.is_empty() => {
                let at = self.dice.below(self.store.snapshots.len());
                self.store.snapshots.swap_remove(at);
            }
            3 if self.store.propose(&self.view, &mut self.dice, self.universe) => return Change::Plans,
            4 => {
                // Sometimes starts all pieces that can start, including some that still wait for others.
                let most = if self.dice.one_in(3) { 8 } else { 1 };
                let moves_only = self.dice.one_in(8);
                let moved = self.store.tally.moved;
                let started = (0..most).take_while(|_| self.store.start(moves_only, &mut self.dice)).count();
                return match started {
                    0 => Change::Nothing,
                    _ if self.store.tally.moved > moved => Change::Tree,
                    _ => Change::Plans,
                };
            }
            5 => {
                let is_running = |p: &Piece| p.state == PieceState::Running;
                return self.with(is_running, |store, id, _| store.finish(id)).min(Change::Plans);
            }
            6 => {
                let is_done = |p: &Piece| matches!(p.state, PieceState::Held | PieceState::Landed);
                return self.with(is_done, |store, id, dice| {
                    store.install(id, dice);
                });
            }
            7 => {
                let is_running = |p: &Piece| p.state == PieceState::Running;
                return self
                    .with(is_running, |store, id, dice| store.fail(id, !dice.one_in(3)))
                    .min(Change::Plans);
            }
            8 => {
                let is_there = |p: &Piece| p.state != PieceState::Installed;
                return self.with(is_there, |store, id, dice| match dice.one_in(2) {
                    true => store.fail(id, false),
                    false => store.withdraw(id),
                });
            }
            _ => return Change::Nothing,
        }
        Change::Tree
    }

    /// Applies `act` to a random piece for which `is` returns true.
    fn with(
        &mut self,
        is: impl Fn(&Piece) -> bool,
        act: impl FnOnce(&mut Store, PieceId, &mut SplitMix),
    ) -> Change {
        let pieces = self.store.pieces(is);
        if pieces.is_empty() {
            return Change::Nothing;
        }
        let id = pieces[self.dice.below(pieces.len())];
        act(&mut self.store, id, &mut self.dice);
        Change::Tree
    }

    /// Installs everything that is left; every piece must get its turn.
    fn drain(&mut self) -> Result<(), String> {
        for _ in 0..DRAIN {
            if self.store.flight.tickets.is_empty() {
                return Ok(());
            }
            let mut changed = false;
            for id in self.store.pieces(|p| p.state == PieceState::Running) {
                self.store.finish(id);
                changed = true;
            }
            for id in self.store.pieces(|p| matches!(p.state, PieceState::Held | PieceState::Landed)) {
                changed |= self.store.install(id, &mut self.dice);
            }
            changed |= self.store.start(false, &mut self.dice);
            self.verify(Change::Tree)?;
            if !changed {
                let left = self.store.pieces(|_| true);
                return Err(format!("{} pieces are left and none can proceed", left.len()));
            }
        }
        Err("the schedule did not drain".to_owned())
    }

    fn verify(&mut self, change: Change) -> Result<(), String> {
        if change == Change::Nothing {
            return Ok(());
        }
        self.store.tally.events += 1;
        let view = self.store.view();
        check(&view).map_err(|e| format!("view: {e}; {}", Drawing(&view)))?;
        check(&view.projected()).map_err(|e| format!("projected: {e}"))?;
        self.store.check_claims(&view)?;
        self.view = view;
        // Readers do not see plans.
        if change == Change::Tree { self.verify_reads() } else { Ok(()) }
    }

    fn verify_reads(&mut self) -> Result<(), String> {
        check(&self.store.tree).map_err(|e| format!("tree: {e}"))?;
        let snapshots: Vec<Seq> = self.store.snapshots.iter().copied().chain([Seq::MAX]).collect();
        self.store.tally.reads += snapshots.len() as u64 * u64::from(self.universe);
        for snapshot in snapshots {
            for key in 0..self.universe {
                let versions = self.history[usize::from(key)].iter().rev();
                let expected = value(versions.filter(|v| v.seq <= snapshot));
                let actual = read(&self.store.tree, &self.store.tables, key, snapshot);
                if actual != expected {
                    return Err(format!("key {key} at {snapshot}: read {actual:?}, should be {expected:?}"));
                }
            }
        }
        (0..self.universe).try_for_each(|key| verify_recency(&self.store.tree, &self.store.tables, key))
    }
}

/// Runs one schedule; the error describes the first failure.
pub(crate) fn schedule(seed: u64, mistake: Mistake, tally: &mut Tally) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    let result = (0..EVENTS).try_for_each(|event| {
        let change = world.event();
        world.verify(change).map_err(|e| format!("seed {seed}, event {event}: {e}"))
    });
    let result = result.and_then(|()| world.drain().map_err(|e| format!("seed {seed}, drain: {e}")));
    tally.add(&world.store.tally);
    result
}
