//! Lookup statistics over time: old lookups decay, and the counts survive a restart.
//!
//! Reads count one lookup in sixteen at the file references that it reaches (`version::file`). A maintenance step
//! decays all counts to half within [`HALF_LIFE_PER_FILE`] lookups per live file, in sixteen epochs, so that they
//! describe the recent past. The end of an epoch also decides for which files lookups skip the filter
//! (`drumlin_policy::filter::skip`). The counts are advisory. A manifest snapshot holds them, and they are written at
//! close and once in each half-life, at most once in ten seconds. A crash loses the counts since then.

use crate::base::error::Result;
use crate::keyspace::KeyspaceState;
use crate::options::Adaptation;
use crate::store::{Store, saved_statistics};
use crate::version::{FileMeta, Tree};
use drumlin_env::sync::atomic::Ordering::Relaxed;
use drumlin_format::manifest::{Change, Edit, MAX_CHANGES};
use drumlin_policy::digits::between;
use drumlin_policy::filter::density::Buckets;
use drumlin_policy::filter::skip::skipped_until;
use drumlin_types::Key;
use drumlin_types::contract::LookupStats;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lookups per live file after which counts have decayed to half.
const HALF_LIFE_PER_FILE: u64 = 256;
/// Bounds of the half-life, in lookups.
const HALF_LIFE: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 26;
/// Epochs of a half-life.
const EPOCHS: u64 = 16;
/// Factor by which an epoch multiplies a count: the sixteenth root of one half.
const EPOCH_FACTOR: f64 = 0.957_603_280_698_573_6;
/// Shortest time between two saves in microseconds: a save holds the control lock while the manifest is synced.
const SAVE_PAUSE: u64 = 10_000_000;
/// Largest number of buckets of a keyspace in which the density of its lookups is counted. Equal bounds count once.
const BUCKETS: usize = 256;
/// Samples of keys for each bucket. With one, buckets of several runs would be unequal: one could have the keys of one
/// sample of each run.
const SAMPLES_PER_BUCKET: usize = 4;
/// Fewest keys between two samples of a run. The index of a table tells keys apart by blocks, which have about as many.
const LEAST_KEYS: f64 = 64.0;
/// Fewest samples in a table for which its index is read. In a table with fewer, samples are estimated from its bounds.
const LEAST_IN_TABLE: usize = 4;
/// Resolution of places that are estimated from the bounds of a table.
const PARTS: u64 = 1 << 20;
/// Bytes of a key between two buckets beyond what it shares with the one before.
const SPLIT_BYTES: usize = 16;
/// Bytes of all keys between buckets. With longer keys there are fewer buckets.
const MOST_SPLIT_BYTES: usize = 64 << 10;
/// Change of the number of keys after which the buckets are renewed, as a share.
const RENEWED_AT: f64 = 0.25;

impl Store {
    /// Ends the decay epoch if it is over. Returns whether it was.
    pub(crate) fn age_lookups(&self) -> Result<bool> {
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view()).collect();
        let files = || views.iter().flat_map(|view| view.tree.files());
        let half_life =
            (files().count() as u64 * HALF_LIFE_PER_FILE).clamp(*HALF_LIFE.start(), *HALF_LIFE.end());
        let (gets, began) = (self.lookups.total_gets(), self.lookup_epochs.began.load(Relaxed));
        if gets.saturating_sub(began) < half_life / EPOCHS {
            return Ok(false);
        }
        self.lookup_epochs.began.store(gets, Relaxed);
        files().for_each(|(_, _, file)| file.access.decay(EPOCH_FACTOR));
        let block_ns = self.costs.vain_block_ns();
        for (keyspace, view) in keyspaces.iter().zip(&views) {
            let is_frozen = keyspace.options.load().adaptation == Adaptation::Frozen;
            // Counts decay in a frozen keyspace too, so a filter that is skipped there is still judged.
            let judged = view.tree.files().map(|(_, _, file)| file);
            judged
                .filter(|file| !is_frozen || file.skips_filter())
                .for_each(|file| judge_filter(file, block_ns));
        }
        keyspaces.iter().for_each(|keyspace| keyspace.density.decay(EPOCH_FACTOR));
        let (epochs, now) = (self.lookup_epochs.count.fetch_add(1, Relaxed), self.files.now());
        let saved = self.lookup_epochs.saved.load(Relaxed);
        let is_due = epochs % EPOCHS == EPOCHS - 1 && (saved == 0 || now.saturating_sub(saved) >= SAVE_PAUSE);
        if is_due && !self.health.is_poisoned() && !self.health.lacks_space() {
            self.lookup_epochs.saved.store(now, Relaxed);
            self.save_lookups()?;
        }
        Ok(true)
    }

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
        let splits = splits(tree, |file, share| {
            let key = file.table.open(&self.files.tables).and_then(|table| {
                // The reference may be to a part of the table.
                let before = if file.is_narrowed() { table.rank_by_index(&file.bounds.start)? } else { 0 };
                let rank = before as f64 + share * file.counts.entries as f64;
                table.key_near(rank / (file.table_entries as f64).max(1.0))
            });
            // Without its index, samples are estimated from the bounds of the file.
            key.ok().flatten()
        });
        keyspace.density.renew(Buckets::new(splits), keys);
        true
    }

    /// Writes the counts of all files and keyspaces, and what was learned about values, to the manifest.
    pub(crate) fn save_lookups(&self) -> Result<()> {
        let mut control = self.control.lock();
        let mut changes = Vec::new();
        for keyspace in &control.keyspaces {
            changes.extend(saved_statistics(&keyspace.state, &self.lifetimes));
            let (keyspace, view) = (keyspace.state.id, keyspace.state.view());
            for (_, _, file) in view.tree.files() {
                let counts = file.lookups();
                let lookups = [counts.empty, counts.found, counts.dead].map(|count| count as f32);
                if lookups.iter().any(|count| *count > 0.0) {
                    let (table, start) = (file.id(), file.bounds.start.clone());
                    changes.push(Change::Lookups { keyspace, table, start, lookups });
                }
            }
        }
        for changes in changes.chunks(MAX_CHANGES) {
            self.append_edit(&mut control, Edit { changes: changes.to_vec() }, || {})?;
        }
        Ok(())
    }
}

/// Decides by its recent lookups whether lookups skip the filter of `file`. `block_ns` is the time of an unneeded
/// block.
fn judge_filter(file: &FileMeta, block_ns: f64) {
    let LookupStats { empty, found, .. } = file.lookups();
    let until = match file.filter_bits > 0.0 {
        true => skipped_until(empty, found, f64::from(file.fp_rate), block_ns),
        false => None,
    };
    file.skip_filter(until);
}

/// Returns the keys that divide the keys of `tree` into buckets of about equally many keys. `key_near` returns a key
/// near a share of the entries of a file.
///
/// All runs count, not the largest alone: a run that a compaction reads or writes has holes, whose keys are in other
/// runs. Where indexes are read and entries are equally large, buckets of one run are equal, and with several a bucket
/// has at most the keys of one sample more for each run. Estimated samples can lie where a table has no keys.
fn splits(tree: &Tree, key_near: impl Fn(&FileMeta, f64) -> Option<Vec<u8>>) -> Vec<Key> {
    let key_of = |Sample { file, share, is_read }: Sample<'_>| {
        let key = if is_read { key_near(file, share) } else { None };
        key.unwrap_or_else(|| {
            let part = (share * PARTS as f64) as u64;
            between(&file.bounds, part, PARTS).unwrap_or_else(|| file.bounds.start.clone()).to_vec()
        })
    };
    // Runs are merged by their next samples, so that few keys are in memory.
    let mut runs: Vec<_> = samples(tree).into_iter().map(|run| run.into_iter().map(key_of)).collect();
    let next = |(run, samples): (usize, &mut _)| Iterator::next(samples).map(|key| Reverse((key, run)));
    let mut heads: BinaryHeap<_> = runs.iter_mut().enumerate().filter_map(next).collect();
    // The whole key of the last split, not what is kept of it: shortened keys have less in common.
    let mut last =
        tree.files().map(|(_, _, file)| &file.bounds.start).min().map_or_else(Vec::new, |key| key.to_vec());
    let (mut splits, mut seen) = (Vec::with_capacity(BUCKETS), 0);
    while let Some(Reverse((key, run))) = heads.pop() {
        heads.extend(next((run, &mut runs[run])));
        seen += 1;
        if seen % SAMPLES_PER_BUCKET != 0 {
            continue;
        }
        let shared = last.iter().zip(&key).take_while(|(a, b)| a == b).count();
        splits.push(Key::new(&key[..key.len().min(shared + SPLIT_BYTES)]));
        last = key;
    }
    let bytes: usize = splits.iter().map(|split| split.len()).sum();
    // Every `joined` buckets become one, so that all but the last stay equally large.
    let joined = bytes.div_ceil(MOST_SPLIT_BYTES).max(1);
    splits.into_iter().skip(joined - 1).step_by(joined).collect()
}

/// A place in a file.
struct Sample<'a> {
    file: &'a FileMeta,
    /// Share of the entries before it.
    share: f64,
    /// Whether the index of the file says which key is there.
    is_read: bool,
}

/// Returns samples of each run of `tree`, in key order, with equally many keys between two of them.
fn samples(tree: &Tree) -> Vec<Vec<Sample<'_>>> {
    let keys = tree.filters().keys;
    let most = (keys / LEAST_KEYS).clamp(1.0, (BUCKETS * SAMPLES_PER_BUCKET) as f64).floor();
    let step = keys / most;
    // Keys of runs and files before this one. A run goes on from the one before, so that small runs count too.
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
    use drumlin_env::MemEnv;

    /// Half of the keys and all lookups are in the first tenth of the key space. The buckets follow the keys, and the
    /// counts the lookups, through flushes and compactions.
    #[test]
    fn lookups_are_counted_where_they_are_and_stay_with_their_keys() {
        let mem = MemEnv::new(3);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let sizes = [("memtable_bytes", "64KiB"), ("file_bytes", "16KiB")];
        let options = [sizes[0], sizes[1], ("compaction", "leveling:4"), ("filter_mode", "mnemosyne+")];
        let keys = db.keyspace_with("k", &options).expect("a keyspace");
        let key = |n: u32| if n.is_multiple_of(2) { n } else { n * 10 };
        let put = |n: u32| _ = keys.put(key(n).to_be_bytes(), [7; 50]).expect("put");
        (0..8000).for_each(put);
        db.flush().expect("flush");
        db.wait_idle().expect("idle");
        for n in (0..4000_u32).cycle().take(40_000) {
            keys.get(n.to_be_bytes()).expect("get");
        }
        db.wait_idle().expect("idle");
        while keys.store.renew_buckets() {}
        for n in (0..4000_u32).cycle().take(40_000) {
            keys.get(n.to_be_bytes()).expect("get");
        }
        let density = keys.state.density.density();
        assert!(density.buckets.count() > 20, "{} buckets", density.buckets.count());
        let first = density.buckets.of(&4000_u32.to_be_bytes());
        let (hot, cold) = density.lookups.split_at(first + 1);
        let (hot, cold) = (hot.iter().sum::<f64>(), cold.iter().sum::<f64>());
        assert!(hot > 50.0 * cold, "{hot} lookups in {first} buckets, {cold} in others");
        let counted = || {
            let tree = keys.state.view().tree.clone();
            tree.files().fold((0.0, 0.0), |(empty, found), (_, _, file)| {
                let lookups = file.lookups();
                (empty + lookups.empty, found + lookups.found)
            })
        };
        let before = counted();
        assert!(before.1 > 10_000.0, "{before:?}");
        // Rewrites every file. What was found is found in the new files. A flush adds at most the lookups that passed
        // memtables.
        (0..8000).filter(|n| n % 7 == 0).for_each(put);
        db.flush().expect("flush");
        keys.compact::<&[u8]>(..).expect("compact");
        let after = counted();
        assert!((after.1 / before.1 - 1.0).abs() < 0.02, "{before:?} {after:?}");
        assert!(after.0 <= before.0 + 40_000.0, "{before:?} {after:?}");
    }

    /// Counts of files and of the keyspace are there after a restart, and after a second one without lookups.
    #[test]
    fn statistics_survive_restarts() {
        let mem = MemEnv::new(4);
        let open = || Db::builder("/s").env(mem.env()).open().expect("open");
        let db = open();
        let keys = db.keyspace_with("k", &[("filter_mode", "mnemosyne+")]).expect("a keyspace");
        (0..2000_u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [7; 50]).expect("put"));
        db.flush().expect("flush");
        while keys.store.renew_buckets() {}
        for n in (0..300_u32).cycle().take(20_000) {
            keys.get(n.to_be_bytes()).expect("get");
        }
        let saved = keys.state.density.saved().expect("lookups were counted");
        assert!(saved.buckets.len() > 2 && saved.totals[0] > 15_000.0, "{saved:?}");
        drop(keys);
        db.close().expect("close");
        for _ in 0..2 {
            let db = open();
            let keys = db.keyspace("k").expect("there");
            assert_eq!(keys.state.density.saved().as_ref(), Some(&saved));
            drop(keys);
            db.close().expect("close");
        }
    }

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
        while keys.store.renew_buckets() {}
        let sizes = sizes(&keys, 40_000);
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
            while keys.store.renew_buckets() {}
            let sizes = sizes(&keys, KEYS);
            let most = sizes.iter().max().expect("a bucket");
            assert!(
                sizes.len() > 240 && *most < 2 * KEYS as usize / 256,
                "{file_bytes}: {most} of {sizes:?}"
            );
        }
    }

    /// Returns how many of the keys below `count` each bucket has.
    fn sizes(keys: &Keyspace, count: u32) -> Vec<usize> {
        let buckets = keys.state.density.density().buckets;
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
