//! The brute-force model: random trees, plans in flight, merges and installs at any moment, and after
//! every event every key read at every snapshot by the level rule, compared with the whole history.
//!
//! Seeded mistakes show that the comparison would notice: each must be caught in a fair share of trees.
//! `DRUMLIN_MODEL_TREES` sets how many trees are tried.

mod content;
mod dice;
mod store;

use content::{Act, Content, Version, value};
use dice::Dice;
use drumlin_types::Seq;
use drumlin_types::contract::legal::check;
use store::{LEVELS, Mistake, Store, Tally, drawn_range};

const EVENTS: usize = 70;

struct World {
    store: Store,
    dice: Dice,
    universe: u8,
    seq: Seq,
    /// Every version ever written, oldest first.
    history: Vec<Version>,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> World {
        let mut dice = Dice::new(seed);
        let universe = 2 + dice.below(4) as u8;
        World { store: Store::new(mistake), dice, universe, seq: 0, history: Vec::new() }
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

    fn event(&mut self) {
        let pieces = self.store.pieces.len();
        match self.dice.below(20) {
            0..5 => self.write(),
            5 if self.store.snapshots.len() < 3 => self.store.snapshots.push(self.seq),
            6 if !self.store.snapshots.is_empty() => {
                let at = self.dice.below(self.store.snapshots.len());
                self.store.snapshots.swap_remove(at);
            }
            7..13 => drop(self.store.admit(&mut self.dice, self.universe)),
            13 if pieces > 0 && self.dice.below(2) == 0 => self.store.withdraw(self.dice.below(pieces)),
            14..16 if pieces > 0 => {
                let at = self.dice.below(pieces);
                self.store.merge(at, &mut self.dice);
            }
            _ if pieces > 0 => {
                let at = self.dice.below(pieces);
                self.store.merge(at, &mut self.dice);
                let may_land = self.dice.below(2) == 0;
                self.store.install(at, may_land, &mut self.dice);
            }
            _ => {}
        }
    }

    /// Installs everything that is left; every piece must get its turn.
    fn drain(&mut self) -> Result<(), String> {
        while !self.store.pieces.is_empty() {
            let ready = (0..self.store.pieces.len()).find(|&at| {
                self.store.merge(at, &mut self.dice);
                self.store.install(at, false, &mut self.dice)
            });
            ready.ok_or("no piece can be installed")?;
            self.verify()?;
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), String> {
        check(&self.store.tree)?;
        check(&self.store.projected().projected())?;
        let snapshots = self.store.snapshots.iter().copied().chain([Seq::MAX]);
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

/// Runs one tree; the error says what was wrong first.
fn grow(seed: u64, mistake: Mistake, tally: &mut Tally) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    let result = (0..EVENTS).try_for_each(|event| {
        world.event();
        world.verify().map_err(|e| format!("seed {seed}, event {event}: {e}"))
    });
    let result = result.and_then(|()| world.drain().map_err(|e| format!("seed {seed}, drain: {e}")));
    let Tally { pieces, waiting, ahead, landed, retargeted, withdrawn, dropped, folded } = world.store.tally;
    tally.pieces += pieces;
    tally.waiting += waiting;
    tally.ahead += ahead;
    tally.landed += landed;
    tally.retargeted += retargeted;
    tally.withdrawn += withdrawn;
    tally.dropped += dropped;
    tally.folded += folded;
    result
}

fn trees(default: u64) -> u64 {
    std::env::var("DRUMLIN_MODEL_TREES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn every_read_is_right_after_every_event() {
    let mut tally = Tally::default();
    let trees = trees(1000);
    for seed in 0..trees {
        grow(seed, Mistake::None, &mut tally).unwrap_or_else(|e| panic!("{e}"));
    }
    println!("trees={trees} {tally:?}");
    // A run that met none of the interesting cases has shown nothing.
    let floor = trees as usize / 4;
    let Tally { pieces, waiting, ahead, landed, retargeted, withdrawn, dropped, folded } = tally;
    for (what, count) in [
        ("pieces", pieces / 8),
        ("waiting", waiting),
        ("ahead", ahead),
        ("landed", landed),
        ("retargeted", retargeted * 4),
        ("withdrawn", withdrawn),
        ("dropped", dropped),
        ("folded", folded),
    ] {
        assert!(count >= floor, "too few: {what}");
    }
}

/// Share of trees, in percent, in which a mistake shows.
fn caught(mistake: Mistake) -> u64 {
    let trees = 300;
    let wrong = (0..trees).filter(|&seed| grow(seed, mistake, &mut Tally::default()).is_err()).count() as u64;
    println!("{mistake:?}: caught in {} % of {trees} trees", 100 * wrong / trees);
    100 * wrong / trees
}

#[test]
fn installing_in_any_order_is_caught() {
    assert!(caught(Mistake::NoWaits) >= 10);
}

#[test]
fn forgetting_the_age_test_is_caught() {
    assert!(caught(Mistake::NoAgeTest) >= 10);
}

#[test]
fn dropping_blind_to_claimed_files_is_caught() {
    assert!(caught(Mistake::BlindDrop) >= 4);
}

#[test]
fn leaving_dependants_alone_is_caught() {
    assert!(caught(Mistake::NoRetarget) >= 4);
}
