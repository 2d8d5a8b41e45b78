//! Distribution of latencies: a histogram with buckets of at most 12.5 % width.
//!
//! Eight buckets share each power of two, so a bucket number follows from the leading bits of a value, and a quantile
//! is at most an eighth too large. Threads record without a lock. One more bucket holds everything of 2^40 nanoseconds
//! (about 18 minutes) or longer; its upper bound is the longest sample.

use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets in each power of two, as a power of two.
const SUB_BITS: u32 = 3;
/// Values from 2 to this power on share the bucket `OVERFLOW`.
const MAX_BITS: u32 = 40;
const OVERFLOW: usize = ((MAX_BITS - SUB_BITS + 1) << SUB_BITS) as usize;
const BUCKETS: usize = OVERFLOW + 1;

/// Returns the bucket of `nanos`.
fn bucket(nanos: u64) -> usize {
    if nanos < 1 << SUB_BITS {
        return nanos as usize;
    }
    if nanos >= 1 << MAX_BITS {
        return OVERFLOW;
    }
    let shift = nanos.ilog2() - SUB_BITS;
    // The leading bit counts as one group of buckets, so the groups follow each other without a gap.
    ((shift << SUB_BITS) as u64 + (nanos >> shift)) as usize
}

/// Returns the largest value of `bucket`; that of `OVERFLOW` has no bound.
fn upper_bound(bucket: usize) -> u64 {
    if bucket == OVERFLOW {
        return u64::MAX;
    }
    let sub = 1 << SUB_BITS;
    if bucket < sub {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    (((bucket & (sub - 1)) + sub + 1) as u64) * (1 << shift) - 1
}

/// Recorder of latencies, shared by threads.
pub(crate) struct Latencies {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_nanos: AtomicU64::new(0),
            max_nanos: AtomicU64::new(0),
        }
    }
}

impl Latencies {
    pub(crate) fn record(&self, nanos: u64) {
        self.counts[bucket(nanos)].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos, Relaxed);
        self.max_nanos.fetch_max(nanos, Relaxed);
    }

    /// Returns what was recorded so far. A sample that is being recorded may count in part.
    pub(crate) fn read(&self) -> LatencyHistogram {
        LatencyHistogram {
            counts: self.counts.iter().map(|count| count.load(Relaxed)).collect(),
            sum_nanos: self.sum_nanos.load(Relaxed),
            max_nanos: self.max_nanos.load(Relaxed),
        }
    }
}

/// Distribution of the latencies of sampled operations, in nanoseconds.
///
/// About one operation in 64 is sampled, at random. A quantile is at most 12.5 % too large. See
/// [`Keyspace::metrics`](crate::Keyspace::metrics) for an example.
///
/// With the feature `serde`, it is serialized as its number of samples, mean, quantiles 0.5, 0.9, 0.99 and 0.999, and
/// maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    sum_nanos: u64,
    max_nanos: u64,
}

impl LatencyHistogram {
    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the mean in nanoseconds, or 0 without samples.
    pub fn mean_nanos(&self) -> u64 {
        self.sum_nanos.checked_div(self.samples()).unwrap_or(0)
    }

    /// Returns the longest latency in nanoseconds, or 0 without samples.
    pub fn max_nanos(&self) -> u64 {
        self.max_nanos
    }

    /// Returns the latency in nanoseconds that the share `quantile` of the samples does not exceed: 0.5 gives the
    /// median, 1.0 the maximum. Values outside of 0 to 1 are clamped. Without samples it is 0.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let users = drumlin::Db::open(dir.path())?.keyspace("users")?;
    /// for number in 0..1000_u32 {
    ///     users.get(number.to_be_bytes())?;
    /// }
    /// let latency = users.metrics().get_latency;
    /// assert!(latency.samples() > 0);
    /// assert!(latency.quantile_nanos(0.5) <= latency.max_nanos());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn quantile_nanos(&self, quantile: f64) -> u64 {
        let samples = self.samples();
        let wanted = ((quantile.clamp(0.0, 1.0) * samples as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_bound(bucket).min(self.max_nanos);
            }
        }
        self.max_nanos
    }

    /// Returns the distribution of the samples after `earlier`, a reading of the same histogram. Its maximum follows
    /// from the buckets: it is at most 12.5 % too large, or that of `self` if it is 18 minutes or longer.
    #[must_use]
    pub fn since(&self, earlier: &LatencyHistogram) -> LatencyHistogram {
        let before = |bucket: usize| earlier.counts.get(bucket).copied().unwrap_or(0);
        let counts: Vec<u64> =
            self.counts.iter().enumerate().map(|(b, count)| count.saturating_sub(before(b))).collect();
        let last = counts.iter().rposition(|count| *count > 0);
        let max_nanos = last.map_or(0, |bucket| upper_bound(bucket).min(self.max_nanos));
        LatencyHistogram { counts, sum_nanos: self.sum_nanos.saturating_sub(earlier.sum_nanos), max_nanos }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut all = serializer.serialize_struct("LatencyHistogram", 7)?;
        all.serialize_field("samples", &self.samples())?;
        all.serialize_field("mean_nanos", &self.mean_nanos())?;
        all.serialize_field("p50_nanos", &self.quantile_nanos(0.5))?;
        all.serialize_field("p90_nanos", &self.quantile_nanos(0.9))?;
        all.serialize_field("p99_nanos", &self.quantile_nanos(0.99))?;
        all.serialize_field("p999_nanos", &self.quantile_nanos(0.999))?;
        all.serialize_field("max_nanos", &self.max_nanos())?;
        all.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut first = 0;
        for number in 0..OVERFLOW {
            let last = upper_bound(number);
            assert_eq!((bucket(first), bucket(last)), (number, number), "{first} to {last}");
            assert!(last - first <= first / 8, "{first} to {last}");
            first = last + 1;
        }
        assert_eq!(first, 1 << MAX_BITS);
        assert_eq!((bucket(first), bucket(u64::MAX)), (OVERFLOW, OVERFLOW));
    }

    #[test]
    fn the_longest_latencies_have_a_bucket_of_their_own() {
        let recorder = Latencies::default();
        let (below, above) = ((1 << MAX_BITS) - 1, 1 << (MAX_BITS + 9));
        [below, above].iter().for_each(|nanos| recorder.record(*nanos));
        let both = recorder.read();
        assert_eq!((both.quantile_nanos(0.5), both.quantile_nanos(1.0)), (below, above));
        recorder.record(above);
        assert_eq!(recorder.read().since(&both).max_nanos(), above);
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_an_eighth_too_large(
            values in prop::collection::vec(0_u64..1 << 50, 1..200),
            quantile in 0.0..=1.0_f64,
        ) {
            let recorder = Latencies::default();
            values.iter().for_each(|value| recorder.record(*value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let at = ((quantile * sorted.len() as f64).ceil() as usize).max(1) - 1;
            let (exact, max) = (sorted[at], sorted[sorted.len() - 1]);
            let histogram = recorder.read();
            let found = histogram.quantile_nanos(quantile);
            if exact < 1 << MAX_BITS {
                prop_assert!(found >= exact && found <= exact + exact / 8 + 1, "{found} for {exact}");
            } else {
                prop_assert_eq!(found, max);
            }
            prop_assert_eq!(histogram.quantile_nanos(1.0), max);
            prop_assert_eq!(histogram.samples(), values.len() as u64);
        }
    }

    #[test]
    fn an_interval_is_the_difference_of_two_readings() {
        let recorder = Latencies::default();
        assert_eq!((recorder.read().quantile_nanos(0.5), recorder.read().mean_nanos()), (0, 0));
        [100, 200].iter().for_each(|nanos| recorder.record(*nanos));
        let before = recorder.read();
        (0..10).for_each(|_| recorder.record(5));
        let interval = recorder.read().since(&before);
        assert_eq!((interval.samples(), interval.mean_nanos(), interval.max_nanos()), (10, 5, 5));
        assert_eq!(before.since(&LatencyHistogram::default()), before);
        assert_eq!(before.since(&before).max_nanos(), 0);
    }
}
