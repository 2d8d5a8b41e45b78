//! Latencies: how they are taken and kept.
//!
//! The end of one call is the start of the next, so a call costs one reading of the clock. When calls turn out to take
//! less than 2 microseconds, only one in 16 is timed, by two readings. Values are kept in HDR histograms, nanoseconds
//! with three digits, one for each kind of call.

use crate::generate::stream::Call;
use crate::report::model::Latency;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Mean nanoseconds of a call below which calls are sampled.
const SAMPLED_BELOW: f64 = 2_000.0;
/// One call in so many is timed then.
pub const SAMPLE_EVERY: u64 = 16;
/// Calls that are timed before that is decided.
const TRIAL: u64 = 1024;
/// Longest latency that is told apart: an hour.
const LONGEST: u64 = 3_600_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are legal")
}

/// The name of a kind of call in reports.
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

/// The latencies of one thread.
pub struct Recorder {
    kinds: BTreeMap<&'static str, (u64, Histogram<u64>)>,
    /// Since the sampler last asked.
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
    /// Whether so few calls are timed that sampling is worth it.
    pub fn is_sampling(&self) -> bool {
        self.timed >= TRIAL && (self.total as f64 / self.timed as f64) < SAMPLED_BELOW
    }

    /// `operations` of `call` were done.
    pub fn count(&mut self, call: Call, operations: u64) {
        self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram())).0 += operations;
    }

    /// A call took `nanos`.
    pub fn record(&mut self, call: Call, nanos: u64) {
        self.timed += 1;
        self.total += nanos;
        self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram())).1.saturating_record(nanos);
        self.interval.saturating_record(nanos);
    }

    /// The 99th percentile since this was last called, in microseconds; `None` when nothing was timed.
    pub fn take_interval_p99(&mut self) -> Option<f64> {
        let p99 = (!self.interval.is_empty()).then(|| self.interval.value_at_quantile(0.99) as f64 / 1e3);
        self.interval.reset();
        p99
    }

    /// Adds what another thread recorded.
    pub fn add(&mut self, other: &Recorder) {
        for (name, (operations, recorded)) in &other.kinds {
            let (count, histogram) = self.kinds.entry(name).or_insert_with(|| (0, histogram()));
            *count += operations;
            // Equal bounds: nothing is out of range.
            let _ = histogram.add(recorded);
        }
    }

    /// Operations and latencies by kind.
    pub fn by_kind(&self, intended: bool) -> BTreeMap<String, (u64, Latency)> {
        let kinds = self.kinds.iter();
        kinds.map(|(name, (ops, h))| ((*name).to_owned(), (*ops, summary(h, intended)))).collect()
    }

    /// Latencies of all kinds together.
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
