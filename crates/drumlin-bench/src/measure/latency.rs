//! Measurement and storage of latencies.
//!
//! The end of one call is the start of the next, so a call needs only one clock reading. If calls take less than 2
//! microseconds on average, only one in 16 is timed, with two readings. Latencies are kept in HDR histograms, in
//! nanoseconds with three significant digits, one per kind of call.

use crate::generate::stream::Call;
use crate::report::model::Latency;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Mean call time in nanoseconds below which only a sample of the calls is timed.
const SAMPLED_BELOW: f64 = 2_000.0;
/// Sampling interval: one call in this many is timed.
pub const SAMPLE_EVERY: u64 = 16;
/// Number of calls that are timed before the decision to sample.
const TRIAL: u64 = 1024;
/// Upper bound of the histograms: one hour in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are legal")
}

/// Returns the name of a kind of call in reports.
pub fn kind(call: Call) -> &'static str {
    match call {
        Call::Put => "put",
        Call::Batch => "batch",
        Call::Get => "get",
        Call::GetAbsent => "get_absent",
        Call::MultiGet => "multi_get",
        Call::Range(_) | Call::Reseek => "range",
        Call::Scan(_) => "scan",
        Call::Delete => "delete",
        Call::Modify => "modify",
    }
}

/// Latencies of one thread.
pub struct Recorder {
    kinds: BTreeMap<&'static str, (u64, Histogram<u64>)>,
    /// Latencies since the last call of `take_interval_p99`.
    interval: Histogram<u64>,
    timed: u64,
    total: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { kinds: BTreeMap::new(), interval: histogram(), timed: 0, total: 0 }
    }
}

impl Recorder {
    /// Returns whether calls are so short that only a sample is timed.
    pub fn is_sampling(&self) -> bool {
        self.timed >= TRIAL && (self.total as f64 / self.timed as f64) < SAMPLED_BELOW
    }

    /// Counts `operations` operations of `call`.
    pub fn count(&mut self, call: Call, operations: u64) {
        self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram())).0 += operations;
    }

    /// Records a call that took `nanos`.
    pub fn record(&mut self, call: Call, nanos: u64) {
        self.timed += 1;
        self.total += nanos;
        self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram())).1.saturating_record(nanos);
        self.interval.saturating_record(nanos);
    }

    /// Returns the 99th percentile since the last call of this function, in microseconds; `None` if nothing was
    /// timed.
    pub fn take_interval_p99(&mut self) -> Option<f64> {
        let p99 = (!self.interval.is_empty()).then(|| self.interval.value_at_quantile(0.99) as f64 / 1e3);
        self.interval.reset();
        p99
    }

    /// Adds the recordings of another thread.
    pub fn add(&mut self, other: &Recorder) {
        for (name, (operations, recorded)) in &other.kinds {
            let (count, histogram) = self.kinds.entry(name).or_insert_with(|| (0, histogram()));
            *count += operations;
            // Both histograms have the same bounds, so the addition cannot fail.
            let _ = histogram.add(recorded);
        }
    }

    /// Returns operations and latencies by kind of call.
    pub fn by_kind(&self, intended: bool) -> BTreeMap<String, (u64, Latency)> {
        let kinds = self.kinds.iter();
        kinds.map(|(name, (ops, h))| ((*name).to_owned(), (*ops, summary(h, intended)))).collect()
    }

    /// Returns the latencies of all kinds together.
    pub fn all(&self, intended: bool) -> Latency {
        let mut all = histogram();
        for (_, histogram) in self.kinds.values() {
            let _ = all.add(histogram);
        }
        summary(&all, intended)
    }
}

fn summary(histogram: &Histogram<u64>, intended: bool) -> Latency {
    let some = |nanos: f64| (!histogram.is_empty()).then_some(nanos / 1e3);
    let quantile = |q: f64| some(histogram.value_at_quantile(q) as f64);
    Latency {
        mean: some(histogram.mean()),
        p50: quantile(0.5),
        p99: quantile(0.99),
        p99_9: quantile(0.999),
        p99_99: quantile(0.9999),
        max: some(histogram.max() as f64),
        samples: histogram.len(),
        from_intended_start: intended,
    }
}
