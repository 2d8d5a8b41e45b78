//! Lookup statistics over time: old lookups decay, and the counts survive a restart.
//!
//! Reads count one lookup in sixteen at the file references that it reaches (`version::file`). All counts decay, so
//! that they describe the recent past. Their half-life is [`HALF_LIFE_PER_FILE`] lookups per live file, in sixteen
//! epochs. A maintenance step ends at most one epoch, however many lookups there were. With readers alone, steps are 50
//! ms apart, so a half-life takes at least 0.8 s. The end of an epoch also decides for which files lookups skip the
//! filter (`drumlin_policy::filter::skip`). The counts are advisory. A manifest snapshot holds them, and they are
//! written at close and once in each half-life, at most once in ten seconds. A crash loses the counts since then.

use crate::base::error::Result;
use crate::options::Adaptation;
use crate::store::{Store, saved_statistics};
use crate::version::FileMeta;
use drumlin_env::sync::atomic::Ordering::Relaxed;
use drumlin_format::manifest::{Change, Edit, MAX_CHANGES};
use drumlin_policy::filter::skip::skipped_until;
use drumlin_types::contract::LookupStats;

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
            // Counts decay in a frozen keyspace too. So a filter that is skipped there is still judged, and may be used
            // again.
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
                if file.access.replaces_recorded(lookups) {
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

/// Decides by its recent lookups whether lookups skip the filter of `file`. `block_ns` is the time of a block that a
/// lookup searches in vain.
fn judge_filter(file: &FileMeta, block_ns: f64) {
    let LookupStats { empty, found, .. } = file.lookups();
    let until = match file.filter_bits > 0.0 {
        true => skipped_until(empty, found, f64::from(file.fp_rate), block_ns),
        false => None,
    };
    file.skip_filter(until);
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::api::keyspace::Keyspace;
    use drumlin_env::MemEnv;

    /// Returns a new keyspace with one flush of 2000 keys.
    fn flushed(db: &Db) -> Keyspace {
        let keys = db.keyspace_with("k", &[("filter_mode", "mnemosyne+")]).expect("a keyspace");
        (0..2000_u32).for_each(|n| _ = keys.put(n.to_be_bytes(), [7; 50]).expect("put"));
        db.flush().expect("flush");
        keys
    }

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

    /// Counts that were saved and have decayed to nothing since do not come back.
    #[test]
    fn lookups_of_long_ago_are_not_there_after_a_restart() {
        let mem = MemEnv::new(5);
        let open = || Db::builder("/s").env(mem.env()).open().expect("open");
        let db = open();
        let keys = flushed(&db);
        (0..20_000_u32).for_each(|n| _ = keys.get((n % 2000).to_be_bytes()).expect("get"));
        let found = |keys: &Keyspace| {
            keys.state.view().tree.files().map(|(_, _, file)| file.lookups().found).sum::<f64>()
        };
        keys.store.save_lookups().expect("saved");
        assert!(found(&keys) > 10_000.0);
        keys.state.view().tree.files().for_each(|(_, _, file)| file.access.decay(0.0));
        drop(keys);
        db.close().expect("close");
        let db = open();
        assert_eq!(found(&db.keyspace("k").expect("there")), 0.0);
    }

    /// Counts of files and of the keyspace are there after a restart, and after a second one without lookups.
    #[test]
    fn statistics_survive_restarts() {
        let mem = MemEnv::new(4);
        let open = || Db::builder("/s").env(mem.env()).open().expect("open");
        let db = open();
        let keys = flushed(&db);
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
}
