//! Random schedules: flushes, plans, starts, finishes, installs, landings, failures at any moment, and after every event
//! every key read at every snapshot by the level rule, compared with the whole history.

use crate::content::{Act, Content, Version, value};
use crate::store::{LEVELS, Mistake, Store, Tally, drawn_range};
use drumlin_policy::SplitMix;
use drumlin_policy::schedule::{Piece, PieceState};
use drumlin_types::Seq;
use drumlin_types::contract::PieceId;
use drumlin_types::contract::legal::check;

/// Events of a schedule, before all that is left is installed.
const EVENTS: usize = 70;
/// Steps in which everything must be drained.
const DRAIN: usize = 4000;

struct World {
    store: Store,
    dice: SplitMix,
    universe: u8,
    seq: Seq,
    /// Every version ever written, oldest first.
    history: Vec<Version>,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> World {
        let mut dice = SplitMix::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let universe = 2 + dice.below(4) as u8;
        World { store: Store::new(mistake, &mut dice), dice, universe, seq: 0, history: Vec::new() }
    }

    fn write(&mut self) {
        let mut content = Content::new();
        for _ in 0..=self.dice.below(3) {
            self.seq += 1;
            let seq = self.seq;
            let key = self.dice.below(usize::from(self.universe)) as u8;
            match self.dice.below(8) {
                0 | 1 => content.push(Version { key, seq, act: Act::Delete }),
                2 => {
                    let range = drawn_range(&mut self.dice, self.universe);
                    let covered = (0..self.universe).filter(|k| range.contains(&[*k]));
                    content.extend(covered.map(|key| Version { key, seq, act: Act::Delete }));
                }
                3 | 4 => content.push(Version { key, seq, act: Act::Operand(vec![seq]) }),
                _ => content.push(Version { key, seq, act: Act::Put(vec![seq]) }),
            }
        }
        self.history.extend(content.iter().cloned());
        self.store.flush(content);
    }

    /// One of the pieces that are as `is` says.
    fn draw(&mut self, is: impl Fn(&Piece) -> bool) -> Option<PieceId> {
        let pieces = self.store.pieces(is);
        (!pieces.is_empty()).then(|| pieces[self.dice.below(pieces.len())])
    }

    fn event(&mut self) {
        match self.dice.below(24) {
            0..5 => self.write(),
            5 if self.store.snapshots.len() < 3 => self.store.snapshots.push(self.seq),
            6 if !self.store.snapshots.is_empty() => {
                let at = self.dice.below(self.store.snapshots.len());
                self.store.snapshots.swap_remove(at);
            }
            7..12 => drop(self.store.propose(&mut self.dice, self.universe)),
            12..16 => {
                // Now and then as many as there are: then some start that still wait.
                let most = if self.dice.one_in(3) { 8 } else { 1 };
                let moves_only = self.dice.one_in(8);
                (0..most).all(|_| self.store.start(moves_only, &mut self.dice));
            }
            16 | 17 => {
                if let Some(id) = self.draw(|p| p.state == PieceState::Running) {
                    self.store.finish(id);
                }
            }
            18..22 => {
                let is_done = |p: &Piece| matches!(p.state, PieceState::Held | PieceState::Landed);
                if let Some(id) = self.draw(is_done) {
                    self.store.install(id, &mut self.dice);
                }
            }
            22 => {
                if let Some(id) = self.draw(|p| p.state == PieceState::Running) {
                    let retry = !self.dice.one_in(3);
                    self.store.fail(id, retry);
                }
            }
            _ if self.dice.one_in(3) => {
                if let Some(id) = self.draw(|p| p.state != PieceState::Installed) {
                    match self.dice.one_in(2) {
                        true => self.store.fail(id, false),
                        false => self.store.park(id),
                    }
                }
            }
            _ => {}
        }
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
            self.verify()?;
            if !changed {
                let left = self.store.pieces(|_| true);
                return Err(format!("{} pieces are left and none can go on", left.len()));
            }
        }
        Err("no end".to_owned())
    }

    fn verify(&mut self) -> Result<(), String> {
        check(&self.store.tree).map_err(|e| format!("tree: {e}"))?;
        let view = self.store.view();
        check(&view).map_err(|e| format!("view: {e}; {}", drumlin_types::contract::draw::Drawing(&view)))?;
        check(&view.projected()).map_err(|e| format!("projected: {e}"))?;
        self.store.check_claims()?;
        let snapshots: Vec<Seq> = self.store.snapshots.iter().copied().chain([Seq::MAX]).collect();
        self.store.tally.events += 1;
        self.store.tally.reads += snapshots.len() as u64 * u64::from(self.universe);
        for snapshot in snapshots {
            for key in 0..self.universe {
                let seen = |v: &&Version| v.key == key && v.seq <= snapshot;
                let expected = value(self.history.iter().rev().filter(seen));
                let actual = self.read(key, snapshot);
                if actual != expected {
                    return Err(format!("key {key} at {snapshot}: read {actual:?}, should be {expected:?}"));
                }
            }
        }
        (0..self.universe).try_for_each(|key| self.verify_recency(key))
    }

    /// Reads by the level rule: within a level by falling largest sequence number, stopping early.
    fn read(&self, key: u8, snapshot: Seq) -> Option<Vec<Seq>> {
        let mut found: Vec<&Version> = Vec::new();
        for level in &self.store.tree.levels {
            let mut files: Vec<_> = level.runs.iter().filter_map(|run| run.file_for(&[key])).collect();
            files.sort_by_key(|file| std::cmp::Reverse(file.max_seq));
            let mut here: Vec<&Version> = Vec::new();
            let mut base: Option<Seq> = None;
            for file in files {
                if base.is_some_and(|seq| seq > file.max_seq) {
                    break;
                }
                for version in self.store.within(file.table, &file.bounds) {
                    if version.key == key && version.seq <= snapshot {
                        here.push(version);
                        if !matches!(version.act, Act::Operand(_)) {
                            base = base.max(Some(version.seq));
                        }
                    }
                }
            }
            here.sort_by_key(|version| std::cmp::Reverse(version.seq));
            found.extend(here);
            if base.is_some() {
                break;
            }
        }
        value(found)
    }

    /// Invariant R: every version above is newer than every version below.
    fn verify_recency(&self, key: u8) -> Result<(), String> {
        let mut above = Seq::MAX;
        for level in 0..LEVELS {
            let files = self.store.tree.levels[usize::from(level)].files();
            let versions = files.flat_map(|f| self.store.within(f.table, &f.bounds)).filter(|v| v.key == key);
            let seqs: Vec<Seq> = versions.map(|v| v.seq).collect();
            if let Some(&newest) = seqs.iter().max().filter(|&&newest| newest >= above) {
                return Err(format!("R: key {key}: #{newest} in level {level} lies below #{above}"));
            }
            above = seqs.into_iter().min().unwrap_or(above).min(above);
        }
        Ok(())
    }
}

/// Runs one schedule; the error says what was wrong first.
pub(crate) fn schedule(seed: u64, mistake: Mistake, tally: &mut Tally) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    let result = (0..EVENTS).try_for_each(|event| {
        world.event();
        world.verify().map_err(|e| format!("seed {seed}, event {event}: {e}"))
    });
    let result = result.and_then(|()| world.drain().map_err(|e| format!("seed {seed}, drain: {e}")));
    tally.add(&world.store.tally);
    result
}
