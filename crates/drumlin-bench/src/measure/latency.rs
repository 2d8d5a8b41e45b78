//! Measurement and storage of latencies.
//!
//! The end of one call is the start of the next, so a call needs only one clock reading. In a phase of many calls, only
//! one in 16 is timed, with two readings, and counts as 16 calls. The number of operations of the phase decides, not
//! the speed of the engine, so all engines pay for equally many readings. The position of the timed calls changes from
//! chunk to chunk at random, since the first call after the drawing of keys is slower. Latencies are kept in HDR
//! histograms, in nanoseconds with three significant digits, one per kind of call.

use crate::generate::random::mix;
use crate::generate::stream::Call;
use crate::report::model::Latency;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Number of operations of a phase from which on only a sample of its calls is timed.
pub const SAMPLED_FROM: u64 = 200_000;
/// Sampling interval: one call in this many is timed.
const SAMPLE_EVERY: usize = 16;
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

/// Which calls of a chunk are timed.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    calls: usize,
    /// Position of the timed call in each group of calls; `None` if all are timed.
    place: Option<usize>,
}

impl Timing {
    /// Returns whether only some calls are timed: each then needs two readings of the clock.
    pub fn is_sample(self) -> bool {
        self.place.is_some()
    }

    /// Returns the number of calls that the call at `position` stands for; 0 if it is not timed.
    pub fn weight(self, position: usize) -> u64 {
        let Some(place) = self.place else { return 1 };
        let (group, within) = (position / SAMPLE_EVERY, position % SAMPLE_EVERY);
        // The last group may be smaller.
        let size = SAMPLE_EVERY.min(self.calls - group * SAMPLE_EVERY);
        if within == place % size { size as u64 } else { 0 }
    }
}

/// Latencies of one thread.
pub struct Recorder {
    kinds: BTreeMap<&'static str, (u64, Histogram<u64>)>,
    /// Latencies since the last call of `take_interval_p99`.
    interval: Histogram<u64>,
    chunks: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { kinds: BTreeMap::new(), interval: histogram(), chunks: 0 }
    }
}

impl Recorder {
    /// Returns which calls of the next chunk, of `calls`, are timed: all, or a sample.
    pub fn timing(&mut self, calls: usize, is_sample: bool) -> Timing {
        self.chunks += 1;
        Timing { calls, place: is_sample.then(|| mix(self.chunks) as usize % SAMPLE_EVERY) }
    }

    /// Counts `operations` operations of `call`.
    pub fn count(&mut self, call: Call, operations: u64) {
        self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram())).0 += operations;
    }

    /// Records a call that took `nanos` and stands for `calls`.
    pub fn record(&mut self, call: Call, nanos: u64, calls: u64) {
        let (_, of_kind) = self.kinds.entry(kind(call)).or_insert_with(|| (0, histogram()));
        of_kind.saturating_record_n(nanos, calls);
        self.interval.saturating_record_n(nanos, calls);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_calls_stand_for_all_wherever_they_lie() {
        let mut recorder = Recorder::default();
        let mut times = [0; 300];
        let mut calls = 0;
        // The first chunks are timed as a whole; the last group of a chunk is smaller.
        for chunk in 0..2000 {
            let timing = recorder.timing(times.len(), chunk > 3);
            let weights = (0..times.len()).map(|position| timing.weight(position));
            assert_eq!(weights.sum::<u64>(), 300, "{timing:?}");
            for (position, times) in times.iter_mut().enumerate() {
                let weight = timing.weight(position);
                assert!(chunk > 3 || weight == 1, "{timing:?}");
                if weight > 0 {
                    *times += 1;
                    // Calls after the drawing of keys are slow.
                    recorder.record(Call::Get, if position < 3 { 5_000 } else { 500 }, weight);
                }
            }
            calls += 300;
        }
        assert!(times.iter().all(|times| (60..400).contains(times)), "{times:?}");
        let all = recorder.all(false);
        assert_eq!(all.samples, calls);
        // One call in a hundred is slow.
        assert!(all.p99.is_some_and(|p99| p99 < 6.0) && all.p99_9.is_some_and(|it| it > 4.9), "{all:?}");
        let mean = all.mean.expect("calls");
        assert!((0.535..0.555).contains(&mean), "{mean} is not 0.545");
    }
}
