//! Tests of [`super`]: merges of drawn tables, and a replay of lookups before and after a merge.

use super::*;
use crate::SplitMix;
use crate::filter::density::Buckets;
use std::boxed::Box;

fn key(number: usize) -> Key {
    Key::new(&(number as u32).to_be_bytes())
}

fn range(start: usize, end: usize) -> KeyRange {
    KeyRange::new(key(start), Some(key(end)))
}

fn number(key: &[u8]) -> usize {
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u32::from_be_bytes(bytes) as usize
}

type Rank = Box<dyn Fn(Option<&[u8]>) -> f64>;

/// A table over the keys `held`, which are sorted.
struct Table {
    held: Vec<usize>,
    level: u8,
    max_seq: Seq,
    lookups: LookupStats,
    rank: Rank,
}

impl Table {
    fn new(held: Vec<usize>, level: u8, max_seq: Seq, empty: f64, found: f64) -> Table {
        let keys = held.clone();
        let rank = Box::new(move |key: Option<&[u8]>| {
            keys.partition_point(|held| key.is_none_or(|key| *held < number(key))) as f64
        });
        Table { held, level, max_seq, lookups: LookupStats { empty, found, dead: 0.0 }, rank }
    }

    fn bounds(&self) -> KeyRange {
        range(self.held[0], self.held.last().unwrap() + 1)
    }

    fn part(&self, range: KeyRange) -> InputPart<'_> {
        InputPart { range, level: self.level, max_seq: self.max_seq, rank: &self.rank }
    }
}

/// Merges whole tables.
fn merged(tables: &[&Table], outputs: &[KeyRange], density: &Density) -> Vec<LookupStats> {
    let parts: Vec<InputPart<'_>> = tables.iter().map(|table| table.part(table.bounds())).collect();
    let lookups: Vec<LookupStats> = tables.iter().map(|table| table.lookups).collect();
    taken(&parts, outputs, density).iter().map(|taken| total(taken, &lookups, 0.0, 0.0)).collect()
}

fn assert_counts(found: &LookupStats, empty: f64, answered: f64) {
    assert!((found.empty - empty).abs() < 1e-6 && (found.found - answered).abs() < 1e-6, "{found:?}");
}

#[test]
fn an_upper_table_over_two_lower_ones() {
    // 400 of the upper table's entries are inside the first lower table, 200 between, 400 inside the second.
    let upper = Table::new((0..1000).collect(), 0, 9, 600.0, 200.0);
    let first = Table::new((0..500).map(|n| n * 4 / 5).collect(), 1, 5, 220.0, 60.0);
    let second = Table::new((0..500).map(|n| 600 + n * 4 / 5).collect(), 1, 4, 260.0, 40.0);
    let outputs = [range(0, 500), range(500, 1000)];
    let [left, right] = merged(&[&upper, &first, &second], &outputs, &Density::default())[..] else {
        panic!("two outputs")
    };
    assert_counts(&left, 280.0, 160.0);
    assert_counts(&right, 320.0, 140.0);
}

#[test]
fn what_is_found_is_conserved_whatever_is_merged() {
    let mut random = SplitMix::new(3);
    for _ in 0..200 {
        let mut tables = Vec::new();
        for level in 0..1 + random.below(3) {
            let mut from = random.below(300);
            while from < 1000 {
                let to = from + 2 + random.below(400);
                let held: Vec<usize> = (from..to).filter(|n| *n == from || !random.one_in(3)).collect();
                let counts = (random.below(1000) as f64, random.below(1000) as f64);
                tables.push(Table::new(held, level as u8, 100 - level as u64, counts.0, counts.1));
                from = to + random.below(100);
            }
        }
        let density = density_of(&mut random);
        let inputs: Vec<&Table> = tables.iter().collect();
        let mut cuts: Vec<usize> = (0..random.below(6)).map(|_| 1 + random.below(1200)).collect();
        cuts.extend([0, 2000]);
        cuts.sort_unstable();
        cuts.dedup();
        let outputs: Vec<KeyRange> = cuts.windows(2).map(|cut| range(cut[0], cut[1])).collect();
        let taken = merged(&inputs, &outputs, &density);
        let sum = |of: fn(&LookupStats) -> f64| taken.iter().map(of).sum::<f64>();
        let before: f64 = tables.iter().map(|table| table.lookups.found).sum();
        assert!(
            (sum(|l| l.found) - before).abs() < 1e-6 * (1.0 + before),
            "{} of {before}",
            sum(|l| l.found)
        );
        let most: f64 = tables.iter().map(|table| table.lookups.empty).sum();
        assert!(sum(|l| l.empty) <= most * (1.0 + 1e-9));
        assert!(taken.iter().all(|l| l.empty >= 0.0 && l.found >= 0.0 && l.dead >= 0.0));
    }
}

fn density_of(random: &mut SplitMix) -> Density {
    let splits = (0..random.below(20)).map(|_| key(1 + random.below(1500))).collect();
    let mut density = Density::new(Buckets::new(splits));
    density.lookups.iter_mut().for_each(|lookups| *lookups = random.below(1000) as f64);
    density
}

#[test]
fn parts_of_a_table_have_all_of_its_lookups() {
    let mut random = SplitMix::new(4);
    for _ in 0..100 {
        let density = density_of(&mut random);
        let (from, to) = (random.below(500), 500 + random.below(500));
        let parts = [(range(0, from), from), (range(from, to), to - from), (range(to, 1000), 1000 - to)];
        let by_size = shares(parts.iter().map(|(range, entries)| (range, *entries as u64)), &density);
        assert!((by_size.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{by_size:?}");
    }
    let even = Density::default();
    assert_eq!(shares([(&range(0, 5), 30), (&range(5, 9), 10)], &even), [0.75, 0.25]);
    assert_eq!(shares([(&range(0, 5), 0)], &even), [0.0]);
    let mut skewed = Density::new(Buckets::new(std::vec![key(5)]));
    skewed.lookups[1] = 9.0;
    assert_eq!(shares([(&range(0, 5), 30), (&range(5, 9), 10)], &skewed), [3.0 / 13.0, 10.0 / 13.0]);
}

#[test]
fn two_merges_one_after_the_other_are_their_product() {
    let upper = Table::new((0..1000).collect(), 0, 9, 600.0, 200.0);
    let middle = Table::new((0..1000).filter(|n| n % 2 == 0).collect(), 1, 5, 500.0, 100.0);
    let lower = Table::new((0..1000).filter(|n| n % 3 == 0).collect(), 2, 3, 450.0, 50.0);
    let outputs = [range(0, 400), range(400, 1000)];
    let density = Density::default();
    let at_once = merged(&[&upper, &middle, &lower], &outputs, &density);
    let first = merged(&[&upper, &middle], &[range(0, 1000)], &density);
    let between = Table::new((0..1000).collect(), 1, 9, first[0].empty, first[0].found);
    let then = merged(&[&between, &lower], &outputs, &density);
    for (once, twice) in at_once.iter().zip(&then) {
        assert!((once.empty - twice.empty).abs() < 1.0 && (once.found - twice.found).abs() < 1.0);
    }
}

#[test]
fn dropped_tombstones_and_runs_between_make_lookups_vain() {
    let mut table = Table::new((0..100).collect(), 1, 5, 50.0, 40.0);
    table.lookups.dead = 30.0;
    let outputs = [range(0, 25), range(25, 100)];
    let parts = [table.part(table.bounds())];
    let taken = taken(&parts, &outputs, &Density::default());
    let lookups = [table.lookups];
    let (left, right) = (total(&taken[0], &lookups, 10.0, 0.5), total(&taken[1], &lookups, 10.0, 0.5));
    assert_counts(&left, 12.5 + 10.0 + 3.75, 10.0 - 3.75);
    assert_counts(&right, 37.5 + 10.0 + 11.25, 30.0 - 11.25);
    assert!((left.dead - 3.75).abs() < 1e-9);
    assert!(super::taken(&parts, &[], &Density::default()).is_empty());
}

#[test]
fn a_part_gives_only_what_it_has() {
    let table = Table::new((0..100).collect(), 1, 5, 50.0, 40.0);
    let parts = [table.part(range(20, 40)), table.part(range(60, 80))];
    let taken = taken(&parts, &[range(20, 30), range(30, 80)], &Density::default());
    let lookups = [LookupStats { empty: 10.0, found: 8.0, dead: 0.0 }; 2];
    assert_counts(&total(&taken[0], &lookups, 0.0, 0.0), 5.0, 4.0);
    assert_counts(&total(&taken[1], &lookups, 0.0, 0.0), 15.0, 12.0);
}

/// Lookups are drawn from a skewed density and replayed on the tables before a merge. The counts that the outputs take
/// over are compared with a replay on the tables after it.
#[test]
fn what_is_taken_over_is_what_a_replay_counts() {
    let mut random = SplitMix::new(6);
    let keys = 20_000;
    let held = |random: &mut SplitMix, one_in: usize| -> Vec<usize> {
        (0..keys).filter(|n| *n == 0 || *n == keys - 1 || random.one_in(one_in)).collect()
    };
    let mut upper = Table::new(held(&mut random, 8), 0, 9, 0.0, 0.0);
    let mut lower = Table::new(held(&mut random, 2), 1, 5, 0.0, 0.0);
    let splits: Vec<Key> = (1..256).map(|n| key(n * keys / 256)).collect();
    let mut density = Density::new(Buckets::new(splits));
    // The sum of three uniform numbers is nearly normal around the middle.
    let lookups: Vec<usize> =
        (0..200_000).map(|_| (random.below(keys) + random.below(keys) + random.below(keys)) / 3).collect();
    for &lookup in &lookups {
        density.lookups[density.buckets.of(&key(lookup))] += 1.0;
        let is_in = |table: &Table| table.held.binary_search(&lookup).is_ok();
        if is_in(&upper) {
            upper.lookups.found += 1.0;
            continue;
        }
        upper.lookups.empty += 1.0;
        match is_in(&lower) {
            true => lower.lookups.found += 1.0,
            false => lower.lookups.empty += 1.0,
        }
    }
    let outputs: Vec<KeyRange> = (0..10).map(|n| range(n * keys / 10, (n + 1) * keys / 10)).collect();
    let taken = merged(&[&upper, &lower], &outputs, &density);
    let mut truth = std::vec![LookupStats::default(); outputs.len()];
    for &lookup in &lookups {
        let output = &mut truth[lookup * 10 / keys];
        let is_in = |table: &Table| table.held.binary_search(&lookup).is_ok();
        match is_in(&upper) || is_in(&lower) {
            true => output.found += 1.0,
            false => output.empty += 1.0,
        }
    }
    // Which keys a table holds is drawn, so its entries in an output differ by chance from their mean.
    let often = taken.iter().zip(&truth).filter(|(_, expected)| expected.empty > 5000.0);
    assert!(often.clone().count() >= 6);
    for (found, expected) in often {
        assert!((found.empty / expected.empty - 1.0).abs() < 0.15, "{found:?}, expected {expected:?}");
        assert!((found.found / expected.found - 1.0).abs() < 0.15, "{found:?}, expected {expected:?}");
    }
    let lengths = |of: &dyn Fn(&LookupStats, &LookupStats) -> f64| {
        taken.iter().zip(&truth).map(|(a, b)| of(a, b)).sum::<f64>()
    };
    let cosine = lengths(&|a, b| a.empty * b.empty)
        / (lengths(&|a, _| a.empty * a.empty) * lengths(&|_, b| b.empty * b.empty)).sqrt();
    assert!(cosine > 0.999, "{cosine}");
}

#[test]
fn thousands_of_parts_keep_all_that_was_found() {
    let tables: Vec<Table> =
        (0..3000).map(|n| Table::new((n % 50..1000).step_by(50).collect(), 0, n as u64, 1.0, 2.0)).collect();
    let inputs: Vec<&Table> = tables.iter().collect();
    let outputs: Vec<KeyRange> = (0..20).map(|n| range(n * 50, n * 50 + 50)).collect();
    let taken = merged(&inputs, &outputs, &Density::default());
    let found: f64 = taken.iter().map(|lookups| lookups.found).sum();
    let empty: f64 = taken.iter().map(|lookups| lookups.empty).sum();
    assert!((found - 6000.0).abs() < 1e-6 && (0.0..=1.1).contains(&empty), "{found} {empty}");
}

#[test]
fn a_flush_gets_the_lookups_that_memtables_passed_on() {
    let mut density = Density::new(Buckets::new(std::vec![key(500)]));
    density.lookups = std::vec![299.0, 99.0];
    let started = flushed(1000.0, &[range(0, 500), range(500, 700)], &density);
    assert_counts(&started[0], 750.0, 0.0);
    assert_counts(&started[1], 250.0, 0.0);
    assert_counts(&flushed(f64::NAN, &[range(0, 5)], &density)[0], 0.0, 0.0);
    assert!(flushed(5.0, &[], &density).is_empty());
}
