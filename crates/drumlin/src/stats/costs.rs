//! How long things take: running means that nobody waits for.
//!
//! A sample that cannot be used (no time passed, as on a simulated clock) is dropped and the mean stays.
//! Means are kept with plain loads and stores: of two samples at the same moment one may be lost.

use super::running::Running;
use crate::table::fetched_blocks;
use drumlin_env::Env;
use drumlin_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_types::contract::CostView;

/// A running mean; 0 when nothing is known.
#[derive(Debug)]
pub(crate) struct Mean {
    bits: AtomicU64,
    /// Samples of operations that it has taken in.
    samples: AtomicU64,
}

/// Weight of a sample of an operation.
const SAMPLE: f64 = 1.0 / 128.0;
/// Weight of a merge's speed at most, and the bytes that give it half of that: so many make a sample.
const MERGE: f64 = 0.25;
const MERGE_BYTES: f64 = (4 << 20) as f64;
/// Bounds of a merge slot's speed, bytes per second.
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

    /// Takes in a sample of operations. While there are few it is their plain mean, as the first operations of a
    /// store, which find nothing in the cache, say little about those that follow.
    pub(crate) fn sample(&self, value: f64) {
        let samples = self.samples.load(Relaxed) + 1;
        self.samples.store(samples, Relaxed);
        self.add(value, SAMPLE.max(1.0 / samples as f64));
    }

    /// Takes in a sample with a weight of 0 to 1; the first one is taken as it is.
    pub(crate) fn add(&self, value: f64, weight: f64) {
        if !value.is_finite() || value < 0.0 {
            return;
        }
        let old = self.get();
        let new = if old > 0.0 { old + weight * (value - old) } else { value };
        self.bits.store(new.to_bits(), Relaxed);
    }
}

/// The costs of a store.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Nanoseconds for each byte: the mean of speeds would be that of the fastest.
    merge_pace: Mean,
    merge_fixed: Mean,
    /// Bytes and nanoseconds of small pieces that are not in the speed yet.
    small: Mutex<(f64, f64)>,
    pub(crate) probes: Probes,
    cursor: Mean,
    cursor_cached: Mean,
    /// One more than the blocks that seeks fetch.
    seek_blocks: Mean,
    fetch: Mean,
    get: Mean,
    scan: Mean,
    write: Mean,
    /// Merges that run.
    pub(crate) running: Arc<Running>,
    /// One more than the share of sampled operations that passed beside any.
    beside: Mean,
    fetched: Mutex<Fetched>,
}

/// What user reads fetched from the device: blocks that the cache did not have.
#[derive(Debug, Default)]
struct Fetched {
    /// Monotonic microseconds and blocks at the last reading.
    at: u64,
    blocks: u64,
    per_second: f64,
}

/// What a point lookup spends on one run.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    denied: Mean,
    reached: Mean,
}

impl Probes {
    /// A filter said no after `nanos`.
    pub(crate) fn denied(&self, nanos: u64) {
        self.denied.sample(nanos as f64);
    }

    /// A block was looked into.
    pub(crate) fn reached(&self, nanos: u64) {
        self.reached.sample(nanos as f64);
    }
}

impl Costs {
    /// An operation was sampled.
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

    /// A seek over `runs` runs took `nanos`, and fetched `blocks` for that.
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

    /// A merge piece read `bytes` in `nanos`, and was installed in `install` more.
    pub(crate) fn merged(&self, bytes: u64, nanos: u64, install: u64) {
        if bytes == 0 || nanos == 0 {
            return;
        }
        // A small piece says little about speed: they are taken together.
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

    /// The cache has missed `blocks` so far.
    pub(crate) fn fetched(&self, now: u64, blocks: u64) {
        let mut fetched = self.fetched.lock();
        let elapsed = now.saturating_sub(fetched.at);
        if fetched.at > 0 && elapsed > 0 {
            fetched.per_second = blocks.saturating_sub(fetched.blocks) as f64 * 1e6 / elapsed as f64;
        }
        (fetched.at, fetched.blocks) = (now, blocks);
    }

    /// Blocks per second that user reads fetched of late.
    pub(crate) fn fetched_per_second(&self) -> f64 {
        self.fetched.lock().per_second
    }

    /// The means, as policies see them.
    pub(crate) fn view(&self) -> CostView {
        let (probe, pace) = (self.probes.denied.get(), self.merge_pace.get());
        CostView {
            merge_bytes_per_s: if pace > 0.0 { 1e9 / pace } else { 0.0 },
            merge_fixed_ns: self.merge_fixed.get(),
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

/// Times the first step of a scan, and counts the blocks that it fetches.
pub(crate) struct Stopwatch {
    env: Env,
    costs: Arc<Costs>,
    runs: usize,
    began: u64,
    /// Blocks that this thread had fetched then.
    fetched: u64,
}

impl Stopwatch {
    /// A watch for a scan over `runs` runs. It runs from [`Stopwatch::begin`] on.
    pub(crate) fn new(env: Env, costs: Arc<Costs>, runs: usize) -> Stopwatch {
        Stopwatch { env, costs, runs, began: 0, fetched: 0 }
    }

    pub(crate) fn begin(&mut self) {
        self.fetched = fetched_blocks();
        self.began = self.env.clock().monotonic_nanos();
    }

    pub(crate) fn stop(self) {
        let nanos = self.env.clock().monotonic_nanos().saturating_sub(self.began);
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
        assert_eq!(costs.view().merge_bytes_per_s, 0.0, "a small piece says nothing");
        (0..4).for_each(|_| costs.merged(1 << 20, 1 << 20, 0));
        assert!((costs.view().merge_bytes_per_s / 1e9 - 1.0).abs() < 0.01, "many do");
        // Half of the bytes at a quarter of the speed: their time counts, not the mean of speeds.
        let mixed = Costs::default();
        (0..400).for_each(|n| mixed.merged(4 << 20, (4 << 20) * (1 + 3 * (n % 2)), 0));
        assert!((mixed.view().merge_bytes_per_s / 1e9 - 0.4).abs() < 0.03, "{:?}", mixed.view());
        (0..200).for_each(|_| costs.merged(1 << 30, 1, 7));
        assert!(costs.view().merge_bytes_per_s > 0.99 * SPEEDS.1);
        assert_eq!(costs.view().merge_fixed_ns, 7.0, "nothing is no cost yet");
    }
}
