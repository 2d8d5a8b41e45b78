//! Density of point lookups over the keys of a keyspace: sampled lookups, counted by bucket of keys.
//!
//! Keyspaces whose tables all get equal filters count nothing. Reading threads count without a lock. The counts decay
//! with those of the files (`jobs/lookups.rs`). Maintenance renews the buckets from samples of all runs when the number
//! of keys has changed by more than a quarter (`jobs/buckets.rs`), so that each bucket holds about as many keys as any
//! other. Lookups that are counted during a renewal may be missing from the buckets, but never from the totals. The
//! manifest keeps the decayed counts, like those of files. They are advisory: a crash loses the most recent.

use crate::base::cache_padded::CachePadded;
use arc_swap::ArcSwap;
use drumlin_env::sync::plain::Arc;
use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_format::limits::MAX_LEN;
use drumlin_format::manifest::KeyspaceLookups;
use drumlin_policy::filter::density::{Buckets, Density};

/// Buckets with a counter each.
#[derive(Debug)]
struct BucketCounters {
    buckets: Buckets,
    lookups: Vec<AtomicU64>,
    /// Keys of the keyspace when the buckets were made.
    keys: u64,
}

impl BucketCounters {
    fn new(density: Density, keys: u64) -> BucketCounters {
        let lookups = density.lookups.iter().map(|count| AtomicU64::new(*count as u64)).collect();
        BucketCounters { buckets: density.buckets, lookups, keys }
    }

    fn density(&self) -> Density {
        let lookups = self.lookups.iter().map(|count| count.load(Relaxed) as f64).collect();
        Density { buckets: self.buckets.clone(), lookups }
    }
}

/// Recent point lookups of one keyspace.
#[derive(Debug)]
pub(crate) struct LookupDensity {
    counters: ArcSwap<BucketCounters>,
    totals: CachePadded<KeyspaceTotals>,
    /// Number of the view, plus one, against whose tree the buckets were checked last.
    checked: AtomicU64,
}

/// Counts of a keyspace, apart from what all lookups read.
#[derive(Debug, Default)]
struct KeyspaceTotals {
    lookups: AtomicU64,
    /// Lookups that no memtable answered.
    passed: AtomicU64,
    /// Lookups since the open, not decayed.
    all: AtomicU64,
}

impl Default for LookupDensity {
    fn default() -> LookupDensity {
        LookupDensity {
            counters: ArcSwap::from_pointee(BucketCounters::new(Density::default(), 0)),
            totals: CachePadded::default(),
            checked: AtomicU64::new(0),
        }
    }
}

impl LookupDensity {
    /// Counts a sampled lookup of `key`, which stands for `each` lookups. `passed` tells that no memtable answered it.
    pub(crate) fn count(&self, key: &[u8], each: u64, passed: bool) {
        let counters = self.counters.load();
        counters.lookups[counters.buckets.of(key)].fetch_add(each, Relaxed);
        self.totals.lookups.fetch_add(each, Relaxed);
        self.totals.all.fetch_add(each, Relaxed);
        if passed {
            self.totals.passed.fetch_add(each, Relaxed);
        }
    }

    /// Multiplies all counts by `factor`. Lookups that are counted at the same time are not lost.
    pub(crate) fn decay(&self, factor: f64) {
        let counters = self.counters.load();
        for counter in counters.lookups.iter().chain([&self.totals.lookups, &self.totals.passed]) {
            let now = counter.load(Relaxed);
            counter.fetch_sub(now - ((now as f64 * factor) as u64).min(now), Relaxed);
        }
    }

    /// Returns the lookups by bucket.
    pub(crate) fn density(&self) -> Density {
        self.counters.load().density()
    }

    /// Returns the number of recent lookups.
    pub(crate) fn lookups(&self) -> u64 {
        self.totals.lookups.load(Relaxed)
    }

    /// Returns the number of recent lookups that no memtable answered.
    pub(crate) fn passed(&self) -> u64 {
        self.totals.passed.load(Relaxed)
    }

    /// Returns the number of lookups since the open.
    pub(crate) fn all(&self) -> u64 {
        self.totals.all.load(Relaxed)
    }

    /// Notes a check of the buckets against the view with this number. Returns whether the last check was of another.
    pub(crate) fn checks(&self, view: u64) -> bool {
        self.checked.swap(view + 1, Relaxed) != view + 1
    }

    /// Returns the number of keys of the keyspace when the buckets were made; 0 if they never were.
    pub(crate) fn keys(&self) -> u64 {
        self.counters.load().keys
    }

    /// Returns the counts as the manifest keeps them, or `None` if there never were any.
    pub(crate) fn saved(&self) -> Option<KeyspaceLookups> {
        let counters = self.counters.load();
        let totals = [self.lookups() as f32, self.passed() as f32];
        let mut lookups = counters.lookups.iter().map(|count| count.load(Relaxed) as f32);
        let first = lookups.next().unwrap_or(0.0);
        let buckets = counters.buckets.splits().iter().cloned().zip(lookups).collect();
        let keys = counters.keys.min(MAX_LEN);
        (totals[0] > 0.0 || keys > 0).then_some(KeyspaceLookups { totals, keys, first, buckets })
    }

    /// Takes over counts that were saved.
    pub(crate) fn restore(&self, saved: &KeyspaceLookups) {
        let (splits, counts): (Vec<_>, Vec<f32>) = saved.buckets.iter().cloned().unzip();
        let mut density = Density::new(Buckets::new(splits));
        let all = std::iter::once(saved.first).chain(counts);
        density.lookups.iter_mut().zip(all).for_each(|(to, from)| *to = f64::from(from));
        self.counters.store(Arc::new(BucketCounters::new(density, saved.keys)));
        for (counter, count) in [&self.totals.lookups, &self.totals.passed].into_iter().zip(saved.totals) {
            // The cast saturates, and NaN becomes 0.
            counter.store(count as u64, Relaxed);
        }
    }

    /// Replaces the buckets. The new ones take over the counts. `keys` is the number of keys of the keyspace.
    pub(crate) fn renew(&self, buckets: Buckets, keys: u64) {
        let density = self.density().over(buckets);
        self.counters.store(Arc::new(BucketCounters::new(density, keys)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::Key;

    #[test]
    fn lookups_count_decay_and_move() {
        let density = LookupDensity::default();
        for number in 0..100u8 {
            density.count(&[number], 16, number < 25);
        }
        assert_eq!(
            (density.lookups(), density.passed(), density.density().lookups),
            (1600, 400, vec![1600.0])
        );
        density.renew(Buckets::new(vec![Key::new(&[64])]), 100);
        assert_eq!(density.keys(), 100);
        let moved = density.density().lookups;
        assert!((moved.iter().sum::<f64>() - 1600.0).abs() <= 2.0 && moved[0] < moved[1], "{moved:?}");
        density.count(&[3], 16, true);
        density.decay(0.5);
        assert_eq!((density.lookups(), density.passed()), (808, 208));
    }

    #[test]
    fn counts_survive_their_save() {
        let density = LookupDensity::default();
        assert!(density.saved().is_none());
        density.count(&[1], 16, true);
        density.renew(Buckets::new(vec![Key::new(&[64]), Key::new(&[128])]), 300);
        for number in 0..200u8 {
            density.count(&[number], 16, number < 25);
        }
        let saved = density.saved().expect("lookups were counted");
        let other = LookupDensity::default();
        other.restore(&saved);
        assert_eq!(other.saved(), Some(saved));
        assert_eq!((other.lookups(), other.passed(), other.keys()), (3216, 416, 300));
        assert_eq!(other.density(), density.density());
        let absurd = KeyspaceLookups { totals: [f32::NAN, -3.0], first: f32::INFINITY, ..Default::default() };
        other.restore(&absurd);
        assert_eq!((other.lookups(), other.passed(), other.density().weight(0).is_finite()), (0, 0, true));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "lookups are counted on several threads")]
    fn no_lookup_is_lost_to_threads_or_decay() {
        let density = LookupDensity::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| density.count(b"k", 16, true)));
            }
            (0..100).for_each(|_| density.decay(1.0));
        });
        assert_eq!((density.lookups(), density.passed()), (640_000, 640_000));
    }
}
