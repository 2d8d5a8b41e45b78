//! Costs: running means of durations, updated without waiting.
//!
//! A sample that cannot be used is dropped and the mean stays. An example is a duration of 0 on a simulated clock.
//! Means use plain loads and stores, so one of two concurrent samples may be lost.

use super::running::Running;
use crate::base::keyspace_metrics::Activity;
use crate::table::fetched_blocks;
use drumlin_env::Env;
use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_env::sync::plain::{Arc, Mutex};
use drumlin_types::contract::CostView;

/// Running mean; 0 while unknown.
#[derive(Debug)]
pub(crate) struct Mean {
    bits: AtomicU64,
    /// Number of operation samples added.
    samples: AtomicU64,
}

/// Weight of an operation sample.
const SAMPLE: f64 = 1.0 / 128.0;
/// Maximum weight of a compaction speed sample. `MERGE_BYTES` bytes get half of it and make a sample.
const MERGE: f64 = 0.25;
const MERGE_BYTES: f64 = (4 << 20) as f64;
/// Bounds of the speed of a compaction slot, in bytes per second.
const SPEEDS: (f64, f64) = (1e6, 64e9);

impl Default for Mean {
    fn default() -> Mean {
        Mean { bits: AtomicU64::new(0f64.to_bits()), samples: AtomicU64::new(0) }
    }
}

impl Mean {
    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.bits.load(Relaxed))
    }

    /// Adds an operation sample. While there are few, the result is their plain mean: the first operations of a store
    /// find nothing in the cache and say little about later ones.
    pub(crate) fn sample(&self, value: f64) {
        let samples = self.samples.load(Relaxed) + 1;
        self.samples.store(samples, Relaxed);
        self.add(value, SAMPLE.max(1.0 / samples as f64));
    }

    /// Adds a sample with a weight of 0 to 1. The first sample sets the mean.
    pub(crate) fn add(&self, value: f64, weight: f64) {
        if !value.is_finite() || value < 0.0 {
            return;
        }
        let old = self.get();
        let new = if old > 0.0 { old + weight * (value - old) } else { value };
        self.bits.store(new.to_bits(), Relaxed);
    }
}

/// Costs of a store.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Nanoseconds per byte. A mean of speeds would be dominated by the fastest.
    merge_pace: Mean,
    merge_fixed: Mean,
    /// Bytes and nanoseconds of small pieces (subcompactions) not yet included in the speed.
    small: Mutex<(f64, f64)>,
    pub(crate) probes: ProbeTimes,
    cursor: Mean,
    cursor_cached: Mean,
    /// Mean number of blocks that a seek reads, plus one because 0 means unknown.
    seek_blocks: Mean,
    fetch: Mean,
    get: Mean,
    scan: Mean,
    write: Mean,
    /// Running compactions.
    pub(crate) running: Arc<Running>,
    /// Share of sampled operations that ran while a compaction was running, plus one because 0 means unknown.
    beside: Mean,
    fetched: Mutex<Fetched>,
}

/// Rate of blocks that user reads read from the device because the cache did not have them.
#[derive(Debug, Default)]
struct Fetched {
    /// Time of the last reading in monotonic microseconds. `blocks` is the block count at that time.
    at: u64,
    blocks: u64,
    per_second: f64,
}

/// Time that a point lookup spends on one run.
#[derive(Debug, Default)]
pub(crate) struct ProbeTimes {
    denied: Mean,
    reached: Mean,
    /// Of the searched blocks, those without the key. They can be colder than the others.
    absent: Mean,
}

impl ProbeTimes {
    /// Records that a filter ruled a key out after `nanos`.
    pub(crate) fn denied(&self, nanos: u64) {
        self.denied.sample(nanos as f64);
    }

    /// Records that a lookup searched a block, in `nanos` in total.
    pub(crate) fn reached(&self, nanos: u64) {
        self.reached.sample(nanos as f64);
    }

    /// Records that a lookup searched a block in vain, in `nanos` in total.
    pub(crate) fn absent(&self, nanos: u64) {
        self.reached(nanos);
        self.absent.sample(nanos as f64);
    }
}

impl Costs {
    /// Records a sampled operation for the share of busy time.
    fn sampled(&self) {
        let is_beside = self.running.is_any();
        self.beside.sample(if is_beside { 2.0 } else { 1.0 });
    }

    pub(crate) fn got(&self, nanos: u64) {
        self.sampled();
        self.get.sample(nanos as f64);
    }

    pub(crate) fn wrote(&self, nanos: u64) {
        self.sampled();
        self.write.sample(nanos as f64);
    }

    /// Records a seek over `runs` runs that took `nanos` and read `blocks` blocks.
    pub(crate) fn sought(&self, nanos: u64, runs: usize, blocks: u64) {
        self.sampled();
        self.scan.sample(nanos as f64);
        let each = nanos as f64 / runs.max(1) as f64;
        self.cursor.sample(each);
        if blocks == 0 {
            self.cursor_cached.sample(each);
        } else {
            let cached = self.cursor_cached.get() * runs as f64;
            self.fetch.sample((nanos as f64 - cached).max(0.0) / blocks as f64);
        }
        self.seek_blocks.sample(1.0 + blocks as f64);
    }

    /// Records a compaction piece that read `bytes` in `nanos` and took another `install` nanoseconds to install.
    pub(crate) fn merged(&self, bytes: u64, nanos: u64, install: u64) {
        if bytes == 0 || nanos == 0 {
            return;
        }
        // One small piece says little about speed, so small pieces are combined.
        let mut small = self.small.lock();
        *small = (small.0 + bytes as f64, small.1 + nanos as f64);
        if small.0 >= MERGE_BYTES {
            let (bytes, nanos) = std::mem::take(&mut *small);
            let weight = MERGE * bytes / (bytes + MERGE_BYTES);
            self.merge_pace.add(1e9 / (bytes * 1e9 / nanos).clamp(SPEEDS.0, SPEEDS.1), weight);
        }
        drop(small);
        self.merge_fixed.add(install as f64, MERGE);
    }

    /// Records that the cache has missed `blocks` blocks in total.
    pub(crate) fn fetched(&self, now: u64, blocks: u64) {
        let mut fetched = self.fetched.lock();
        let elapsed = now.saturating_sub(fetched.at);
        if fetched.at > 0 && elapsed > 0 {
            fetched.per_second = blocks.saturating_sub(fetched.blocks) as f64 * 1e6 / elapsed as f64;
        }
        (fetched.at, fetched.blocks) = (now, blocks);
    }

    /// Returns the recent number of blocks per second that user reads read from the device.
    pub(crate) fn fetched_per_second(&self) -> f64 {
        self.fetched.lock().per_second
    }

    /// Returns the time of a block that a lookup searches in vain, in ns. It errs on the high side: it is the largest
    /// of three means, over all searched blocks, over those searched in vain, and over reads from the file. 0 if no
    /// lookup was timed.
    pub(crate) fn vain_block_ns(&self) -> f64 {
        let searched = self.probes.reached.get().max(self.probes.absent.get());
        if searched > 0.0 { searched.max(self.fetch.get()) } else { 0.0 }
    }

    /// Returns the means in the form that policies receive.
    pub(crate) fn view(&self) -> CostView {
        let (probe, pace) = (self.probes.denied.get(), self.merge_pace.get());
        CostView {
            compaction_bytes_per_s: if pace > 0.0 { 1e9 / pace } else { 0.0 },
            compaction_fixed_ns: self.merge_fixed.get(),
            flush_bytes_per_s: 0.0,
            probe_ns: probe,
            block_ns: (self.probes.reached.get() - probe).max(0.0),
            cursor_ns: self.cursor.get(),
            cursor_cached_ns: self.cursor_cached.get(),
            fetch_ns: self.fetch.get(),
            seek_blocks: (self.seek_blocks.get() - 1.0).max(0.0),
            get_ns: self.get.get(),
            scan_ns: self.scan.get(),
            write_ns: self.write.get(),
            busy_share: (self.beside.get() - 1.0).clamp(0.0, 1.0),
        }
    }
}

/// Stopwatch for the first step of a scan. It also counts the blocks that the step reads.
pub(crate) struct Stopwatch {
    env: Env,
    costs: Arc<Costs>,
    activity: Arc<Activity>,
    runs: usize,
    began: u64,
    /// Number of blocks that this thread had read at the start.
    fetched: u64,
}

impl Stopwatch {
    /// Creates a stopwatch for a scan over `runs` runs. It starts at [`Stopwatch::begin`].
    pub(crate) fn new(env: Env, costs: Arc<Costs>, activity: Arc<Activity>, runs: usize) -> Stopwatch {
        Stopwatch { env, costs, activity, runs, began: 0, fetched: 0 }
    }

    pub(crate) fn begin(&mut self) {
        self.fetched = fetched_blocks();
        self.began = self.env.clock().monotonic_nanos();
    }

    pub(crate) fn stop(self) {
        let nanos = self.env.clock().monotonic_nanos().saturating_sub(self.began);
        self.activity.scan_latency.record(nanos);
        self.costs.sought(nanos, self.runs, fetched_blocks() - self.fetched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_drop_what_they_cannot_use() {
        let mean = Mean::default();
        mean.add(f64::NAN, 0.5);
        mean.add(-1.0, 0.5);
        assert_eq!(mean.get(), 0.0);
        mean.add(10.0, 0.5);
        mean.add(20.0, 0.5);
        assert_eq!(mean.get(), 15.0);
    }

    #[test]
    fn operations_beside_merges_are_a_share() {
        let costs = Arc::new(Costs::default());
        assert_eq!(costs.view().busy_share, 0.0);
        (0..1000).for_each(|_| costs.got(5));
        assert_eq!(costs.view().busy_share, 0.0);
        let env = drumlin_env::MemEnv::new(1).env();
        let (one, two) = (costs.running.begin(&env, 1), costs.running.begin(&env, 1));
        (0..1000).for_each(|_| costs.wrote(5));
        drop(one);
        (0..1000).for_each(|_| costs.sought(5, 1, 0));
        assert!(costs.view().busy_share > 0.999);
        drop(two);
        (0..89).for_each(|_| costs.got(5));
        assert!((costs.view().busy_share - 0.5).abs() < 0.01, "half of them, after 89 of 128");
    }

    #[test]
    fn fetched_blocks_are_a_rate() {
        let costs = Costs::default();
        costs.fetched(1_000_000, 500);
        assert_eq!(costs.fetched_per_second(), 0.0);
        costs.fetched(3_000_000, 700);
        assert_eq!(costs.fetched_per_second(), 100.0);
        costs.fetched(3_000_000, 900);
        costs.fetched(4_000_000, 100);
        assert_eq!(costs.fetched_per_second(), 0.0, "a counter that went back is no rate");
    }

    #[test]
    fn speeds_of_merges_stay_in_their_bounds() {
        let costs = Costs::default();
        costs.merged(1 << 10, 1, 0);
        costs.merged(0, 5, 5);
        assert_eq!(costs.view().compaction_bytes_per_s, 0.0, "a small piece says nothing");
        (0..4).for_each(|_| costs.merged(1 << 20, 1 << 20, 0));
        assert!((costs.view().compaction_bytes_per_s / 1e9 - 1.0).abs() < 0.01, "many do");
        // Half of the bytes at a quarter of the speed: the total time counts, not the mean of speeds.
        let mixed = Costs::default();
        (0..400).for_each(|n| mixed.merged(4 << 20, (4 << 20) * (1 + 3 * (n % 2)), 0));
        assert!((mixed.view().compaction_bytes_per_s / 1e9 - 0.4).abs() < 0.03, "{:?}", mixed.view());
        (0..200).for_each(|_| costs.merged(1 << 30, 1, 7));
        assert!(costs.view().compaction_bytes_per_s > 0.99 * SPEEDS.1);
        assert_eq!(costs.view().compaction_fixed_ns, 7.0, "nothing is no cost yet");
    }
}
