//! Brute-force model of legality.
//!
//! The model grows random trees with unfinished plans, and compacts and installs pieces at random moments. After every
//! event it reads every key at every snapshot by the level rule, and compares the result with the full history.
//!
//! Seeded mistakes prove that the comparison detects errors: each must be caught in a minimum share of trees.
//! `DRUMLIN_MODEL_TREES` sets the number of trees.

mod content;
mod dice;
mod reader;
mod store;

use content::{Act, Content, Version, value};
use dice::Dice;
use drumlin_types::Seq;
use drumlin_types::contract::legal::check;
use reader::{read, verify_recency};
use store::{Mistake, Store, Tally, drawn_range};

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

    /// Installs all remaining pieces. Fails if some piece can never be installed.
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
                let actual = read(&self.store.tree, &self.store.tables, key, snapshot);
                if actual != expected {
                    return Err(format!("key {key} at {snapshot}: read {actual:?}, should be {expected:?}"));
                }
            }
        }
        (0..self.universe).try_for_each(|key| verify_recency(&self.store.tree, &self.store.tables, key))
    }
}

/// Grows one tree. The error describes the first fault.
fn grow(seed: u64, mistake: Mistake, tally: &mut Tally) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    let result = (0..EVENTS).try_for_each(|event| {
        world.event();
        world.verify().map_err(|e| format!("seed {seed}, event {event}: {e}"))
    });
    let result = result.and_then(|()| world.drain().map_err(|e| format!("seed {seed}, drain: {e}")));
    let Tally { pieces, waiting, ahead, landed, redirected, withdrawn, dropped, folded } = world.store.tally;
    tally.pieces += pieces;
    tally.waiting += waiting;
    tally.ahead += ahead;
    tally.landed += landed;
    tally.redirected += redirected;
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
    // A run that met none of the interesting cases proves nothing.
    let floor = trees as usize / 4;
    let Tally { pieces, waiting, ahead, landed, redirected, withdrawn, dropped, folded } = tally;
    for (what, count) in [
        ("pieces", pieces / 8),
        ("waiting", waiting),
        ("ahead", ahead),
        ("landed", landed),
        ("redirected", redirected * 4),
        ("withdrawn", withdrawn),
        ("dropped", dropped),
        ("folded", folded),
    ] {
        assert!(count >= floor, "too few: {what}");
    }
}

/// Returns the percentage of trees in which `mistake` is detected.
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
    assert!(caught(Mistake::NoRedirect) >= 4);
}
