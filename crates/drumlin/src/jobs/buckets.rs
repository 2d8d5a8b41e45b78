//! Buckets of keys, in which the lookups of a keyspace are counted (`stats/density.rs`).
//!
//! The bounds between buckets, called splits, are quantiles of samples of all runs of a tree. Samples come from the
//! indexes of tables, and from the bounds of tables that have few. Buckets are advisory: where they have unequal
//! numbers of keys, tables get too many or too few filter bits.
//!
//! Invariant: however wrong samples are, splits are in key order, lie within the bounds of the files and take at most
//! [`MOST_SPLIT_BYTES`].

use crate::keyspace::KeyspaceState;
use crate::store::Store;
use crate::version::{FileMeta, Tree};
use drumlin_policy::digits::between;
use drumlin_policy::filter::density::Buckets;
use drumlin_types::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum number of buckets in which the lookups of a keyspace are counted.
const BUCKETS: usize = 256;
/// Key samples for each bucket. With a single one, the buckets of several runs would be unequal: a bucket could hold
/// the keys between two samples of every run.
const SAMPLES_PER_BUCKET: usize = 4;
/// Minimum number of keys between two samples of a run. A block holds about as many keys, and an index does not tell
/// the keys of one block apart.
const LEAST_KEYS: f64 = 64.0;
/// Number of samples in a table at which its index is read. In a table with fewer, samples are estimated from its
/// bounds.
const LEAST_IN_TABLE: usize = 4;
/// Number of equal parts of a table's bounds that an estimated sample can fall between.
const PARTS: u64 = 1 << 20;
/// Maximum number of bytes of a split after the prefix that it shares with the previous one.
const SPLIT_BYTES: usize = 16;
/// Maximum number of bytes of all splits of a keyspace. With longer splits there are fewer buckets.
const MOST_SPLIT_BYTES: usize = 64 << 10;
/// Relative change of the number of keys after which the buckets are renewed.
const RENEWED_AT: f64 = 0.25;

impl Store {
    /// Renews the buckets of the first keyspace whose number of keys has changed by more than a quarter since they were
    /// made. Returns whether there was one. Keyspaces whose tables have equal filters need none.
    pub(crate) fn renew_buckets(&self) -> bool {
        self.keyspaces().iter().any(|keyspace| keyspace.filters_differ() && self.renew_buckets_of(keyspace))
    }

    fn renew_buckets_of(&self, keyspace: &KeyspaceState) -> bool {
        let view = keyspace.view();
        if !keyspace.density.checks(view.number()) {
            return false;
        }
        let tree = &view.tree;
        let keys = tree.filters().keys as u64;
        let then = keyspace.density.keys();
        if keys.abs_diff(then) as f64 <= RENEWED_AT * then as f64 {
            return false;
        }
        keyspace.density.renew(self.buckets_of(tree), keys);
        true
    }

    /// Returns buckets of about equally many keys of `tree`.
    fn buckets_of(&self, tree: &Tree) -> Buckets {
        let splits = splits(tree, |file, share| {
            let key = file.table.open(&self.files.tables).and_then(|table| {
                // The reference may cover only a part of the table.
                let before = if file.is_narrowed() { table.rank_by_index(&file.bounds.start)? } else { 0 };
                let rank = before as f64 + share * file.counts.entries as f64;
                table.key_near(rank / (file.table_entries as f64).max(1.0))
            });
            // If the index cannot be read, samples are estimated from the bounds of the file.
            key.ok().flatten()
        });
        Buckets::new(splits)
    }
}

/// Returns the keys that divide the keys of `tree` into buckets of about equally many keys. `key_near` returns a key
/// near a share of the entries of a file.
///
/// All runs count, not only the largest: a run that a compaction reads or writes has holes, whose keys are in other
/// runs. If all samples come from indexes and entries are equally large, the buckets of a single run are equal. With
/// several runs, a bucket has at most one sample interval of keys more for each run. Estimated samples can lie where a
/// table has no keys.
fn splits(tree: &Tree, key_near: impl Fn(&FileMeta, f64) -> Option<Vec<u8>>) -> Vec<Key> {
    let key_of = |Sample { file, share, is_read }: Sample<'_>| {
        let bounds = &file.bounds;
        match if is_read { key_near(file, share) } else { None } {
            // `key_near` may miss a reference to a small part of a table.
            Some(key) if key[..] < *bounds.start => bounds.start.to_vec(),
            Some(key) => bounds.end.as_ref().filter(|end| key[..] > ***end).map_or(key, |end| end.to_vec()),
            None => {
                let part = ((share * PARTS as f64) as u64).min(PARTS - 1);
                between(bounds, part, PARTS).map_or_else(|| bounds.start.to_vec(), |key| key.to_vec())
            }
        }
    };
    // Runs are merged by their next samples, so that few keys are in memory.
    let mut runs: Vec<_> = samples(tree).into_iter().map(|run| run.into_iter().map(key_of)).collect();
    let next = |(run, samples): (usize, &mut _)| Iterator::next(samples).map(|key| Reverse((key, run)));
    let mut heads: BinaryHeap<_> = runs.iter_mut().enumerate().filter_map(next).collect();
    // The last split as a whole key, not as the shortened key that is kept: shortened keys share a shorter prefix.
    let mut last =
        tree.files().map(|(_, _, file)| &file.bounds.start).min().map_or_else(Vec::new, |key| key.to_vec());
    let (mut splits, mut seen) = (Vec::with_capacity(BUCKETS), 0);
    while let Some(Reverse((key, run))) = heads.pop() {
        if let Some(Reverse((following, _))) = next((run, &mut runs[run])) {
            // Samples can be out of order if some of a file are read from its index and others are estimated.
            heads.push(Reverse((if following < key { key.clone() } else { following }, run)));
        }
        seen += 1;
        if seen % SAMPLES_PER_BUCKET != 0 {
            continue;
        }
        let shared = last.iter().zip(&key).take_while(|(a, b)| a == b).count();
        splits.push(Key::new(&key[..key.len().min(shared + SPLIT_BYTES)]));
        last = key;
    }
    // Every `joined` buckets become one, so that all but the last stay equally large.
    let bytes =
        |joined| splits.iter().skip(joined - 1).step_by(joined).map(|split| split.len()).sum::<usize>();
    let joined =
        (1..=splits.len()).find(|joined| bytes(*joined) <= MOST_SPLIT_BYTES).unwrap_or(splits.len() + 1);
    splits.into_iter().skip(joined - 1).step_by(joined).collect()
}

/// A place in a file.
struct Sample<'a> {
    file: &'a FileMeta,
    /// Share of the entries before it.
    share: f64,
    /// Whether its key is read from the index of the file.
    is_read: bool,
}

/// Returns samples of each run of `tree`, in key order, with equally many keys between two of them.
fn samples(tree: &Tree) -> Vec<Vec<Sample<'_>>> {
    let keys = tree.filters().keys;
    let most = (keys / LEAST_KEYS).clamp(1.0, (BUCKETS * SAMPLES_PER_BUCKET) as f64).floor();
    let step = keys / most;
    // `before` counts the keys of all runs and files before this one. Sampling continues from run to run, so that small
    // runs count too.
    let (mut before, mut taken) = (0.0, 0.0);
    let mut runs = Vec::new();
    for run in tree.levels.iter().flat_map(|level| &level.runs) {
        let mut samples: Vec<Sample<'_>> = Vec::new();
        for file in &run.files {
            let keys = file.counts.keys as f64;
            let first = samples.len();
            while keys > 0.0 && (taken + 1.0) * step <= before + keys && taken + 1.0 < most {
                taken += 1.0;
                samples.push(Sample { file, share: (taken * step - before) / keys, is_read: true });
            }
            if samples.len() - first < LEAST_IN_TABLE {
                samples[first..].iter_mut().for_each(|sample| sample.is_read = false);
            }
            before += keys;
        }
        runs.push(samples);
    }
    runs
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::api::keyspace::Keyspace;
    use crate::version::FileMeta;
    use drumlin_env::MemEnv;
    use drumlin_policy::digits::between;
    use drumlin_policy::filter::density::Buckets;
    use drumlin_types::{Key, KeyRange};

    /// The largest run has a hole, as while a compaction writes it. Another run has the keys there. Made from the
    /// largest run alone, one bucket would have all of them.
    #[test]
    fn buckets_are_equally_large_though_the_largest_run_has_a_hole() {
        let db = Db::builder("/s").env(MemEnv::new(6).env()).open().expect("open");
        let options = [("filter_mode", "mnemosyne+"), ("compaction", "tiering:8"), ("file_bytes", "128KiB")];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        let put = |n: u32| _ = keys.put(n.to_be_bytes(), [7; 50]).expect("put");
        (0..40_000).filter(|n| !(20_000..30_000).contains(n)).for_each(put);
        db.flush().expect("flush");
        (20_000..30_000).for_each(put);
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        assert_eq!(keys.state.view().tree.runs(), 2);
        let sizes = sizes(&buckets(&keys), 40_000);
        assert!(sizes.len() > 150 && sizes.iter().all(|size| *size < 400), "{sizes:?}");
    }

    /// Keys in random order, so that each of twelve runs has keys everywhere. Tables of the first cases have too few
    /// samples for their indexes to be read.
    #[test]
    fn buckets_of_many_runs_are_about_equally_large() {
        const KEYS: u32 = 400_000;
        for file_bytes in ["16KiB", "64KiB", "256KiB", "1MiB"] {
            let db = Db::builder("/s").env(MemEnv::new(7).env()).open().expect("open");
            let options =
                [("filter_mode", "mnemosyne+"), ("compaction", "tiering:16"), ("file_bytes", file_bytes)];
            let keys = db.keyspace_with("k", &options).expect("a keyspace");
            for run in 0..12 {
                let number = |n: u32| (u64::from(n) * 7919 % u64::from(KEYS)) as u32;
                (run..KEYS).step_by(12).map(number).for_each(|n| {
                    keys.put(n.to_be_bytes(), [7; 50]).expect("put");
                });
                db.flush().expect("flush");
            }
            db.wait_idle().expect("idle");
            assert_eq!(keys.state.view().tree.runs(), 12);
            let sizes = sizes(&buckets(&keys), KEYS);
            let most = sizes.iter().max().expect("a bucket");
            assert!(
                sizes.len() > 240 && *most < 2 * KEYS as usize / 256,
                "{file_bytes}: {most} of {sizes:?}"
            );
        }
    }

    /// Wherever an index places samples, splits are in order and within the bounds of the files. Without indexes they
    /// are estimated.
    #[test]
    fn misplaced_samples_stay_within_their_files() {
        const KEYS: u32 = 40_000;
        let db = Db::builder("/s").env(MemEnv::new(8).env()).open().expect("open");
        let options = [("filter_mode", "mnemosyne+"), ("compaction", "tiering:8"), ("file_bytes", "64KiB")];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        for half in [0..KEYS / 2, KEYS / 2..KEYS] {
            half.for_each(|n| _ = keys.put((n + 10).to_be_bytes(), [7; 50]).expect("put"));
            db.flush().expect("flush");
        }
        db.wait_idle().expect("idle");
        let view = keys.state.view();
        let within =
            KeyRange::new(Key::new(&10_u32.to_be_bytes()), Some(Key::new(&(KEYS + 10).to_be_bytes())));
        type KeyNear = fn(&FileMeta, f64) -> Option<Vec<u8>>;
        let places: [KeyNear; 5] = [
            |_, _| None,
            |_, _| Some(vec![]),
            |_, _| Some(vec![255; 9]),
            // Backwards, and for every second file only.
            |file, share| {
                between(&file.bounds, ((1.0 - share) * 1000.0) as u64, 1000).map(|key| key.to_vec())
            },
            |file, share| (file.id().0 % 2 == 0 && share < 0.5).then(|| vec![255; 9]),
        ];
        for (number, place) in places.into_iter().enumerate() {
            let splits = super::splits(&view.tree, place);
            assert!(splits.len() > 150 && splits.is_sorted(), "{number}: {splits:?}");
            assert!(splits.iter().all(|split| within.contains(split)), "{number}: {splits:?}");
        }
        let sizes = sizes(&Buckets::new(super::splits(&view.tree, places[0])), KEYS + 10);
        assert!(sizes.iter().all(|size| *size < 300), "{sizes:?}");
    }

    /// Where short and long bounds alternate, the kept ones fit too.
    #[test]
    fn bounds_of_different_lengths_take_little_memory() {
        let db = Db::builder("/s").env(MemEnv::new(9).env()).open().expect("open");
        let keys = db.keyspace_with("k", &[("filter_mode", "mnemosyne+")]).expect("a keyspace");
        (0..65_536_u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [7; 50]).expect("put"));
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        for length in [1000, 1 << 17] {
            let calls = std::cell::Cell::new(0_u32);
            let splits = super::splits(&keys.state.view().tree, |_, _| {
                // Eight samples have a long prefix in common, so every second split is long.
                let (group, number) = (calls.get() / 8, calls.get() % 8);
                calls.set(calls.get() + 1);
                Some([&group.to_be_bytes(), &vec![7; length][..], &[number as u8]].concat())
            });
            let bytes: usize = splits.iter().map(|split| split.len()).sum();
            assert!(bytes <= super::MOST_SPLIT_BYTES, "{bytes} bytes of {} splits", splits.len());
            assert!(splits.len() > if length == 1000 { 80 } else { 0 });
        }
    }

    /// Returns buckets of the tree as it is.
    fn buckets(keys: &Keyspace) -> Buckets {
        keys.store.buckets_of(&keys.state.view().tree)
    }

    /// Returns how many of the keys below `count` each bucket has.
    fn sizes(buckets: &Buckets, count: u32) -> Vec<usize> {
        let mut sizes = vec![0; buckets.count()];
        (0..count).for_each(|n| sizes[buckets.of(&n.to_be_bytes())] += 1);
        sizes
    }

    /// With long keys there are fewer buckets, which are equally large.
    #[test]
    fn bounds_of_buckets_take_little_memory() {
        let db = Db::builder("/s").env(MemEnv::new(5).env()).open().expect("open");
        let keys = db.keyspace_with("k", &[("filter_mode", "mnemosyne+")]).expect("a keyspace");
        // Keys that differ in their last bytes, so that bounds are long.
        let key = |n: u32| [&[7; 2000][..], &n.to_be_bytes()].concat();
        (0..40_960).for_each(|n| _ = keys.put(key(n), "value").expect("put"));
        db.flush().expect("flush");
        while keys.store.renew_buckets() {}
        let buckets = keys.state.density.density().buckets;
        let bytes: usize = buckets.splits().iter().map(|split| split.len()).sum();
        assert!(
            bytes <= super::MOST_SPLIT_BYTES && buckets.count() >= 28,
            "{bytes} bytes, {} buckets",
            buckets.count()
        );
        let mut sizes = vec![0; buckets.count()];
        (0..40_960).for_each(|n| sizes[buckets.of(&key(n))] += 1);
        let (last, others) = sizes.split_last().expect("a bucket");
        let (least, most) = (others.iter().min().expect("some"), others.iter().max().expect("some"));
        assert!(*most <= least + 40 && *last <= most + 40, "{sizes:?}");
    }
}
