//! Sampling during a phase: disk space and runs every 100 ms, all values once a second. While the store settles after
//! the phase, only disk space.
//!
//! A separate thread takes the samples, so a write stall appears as a flat line and not as a gap. Long phases keep
//! only every second, fourth, .. sample, so that no timeline has more than `SAMPLES_MOST`.

use super::oracle::Oracle;
use super::process;
use crate::engine::{Counters, Engine, allocated_bytes};
use crate::report::model::Sample;
use crate::report::progress::Progress;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::Thread;
use std::time::Duration;

/// Interval between two samples of disk space and runs.
const DISK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of these intervals per full sample.
const LOOKS_PER_SAMPLE: u32 = 10;
/// Maximum number of samples in a timeline.
const SAMPLES_MOST: usize = 2000;

/// State shared by the threads of a phase and the sampler.
#[derive(Debug, Default)]
pub struct Shared {
    /// Number of operations done.
    pub ops: AtomicU64,
    /// Set by the sampler to request the percentile of the last interval.
    pub p99_wanted: AtomicBool,
    /// That percentile in microseconds, as the bits of an `f64`; 0 for none.
    pub p99_bits: AtomicU64,
    /// Set when the phase has ended.
    pub done: AtomicBool,
}

/// Samples of a phase.
#[derive(Debug, Default)]
pub struct Samples {
    /// Full samples, one per second.
    pub timeline: Vec<Sample>,
    /// Maximum ratio of disk space to live bytes.
    pub peak_space_amp: Option<f64>,
    /// Maximum number of runs.
    pub runs_max: Option<u64>,
    /// Sum of runs times operations, and the sum of those operations.
    pub runs_weighted: (f64, f64),
}

/// Objects that the sampler reads.
pub struct Watched<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// Directory of the store.
    pub dir: &'a Path,
    /// Expected content of the store.
    pub oracle: &'a Oracle,
    /// State shared with the threads.
    pub shared: &'a Shared,
    /// Progress line.
    pub progress: &'a Progress,
}

impl Watched<'_> {
    /// Returns the bytes on disk; for in-memory stores, the engine's own number.
    fn disk_bytes(&self, now: &Counters) -> u64 {
        now.disk_bytes.unwrap_or_else(|| allocated_bytes(self.dir))
    }

    /// Returns the ratio of disk space to live bytes; `None` if there are no live bytes.
    pub fn space_amp(&self) -> Option<f64> {
        self.space_amp_at(&self.engine.counters())
    }

    fn space_amp_at(&self, now: &Counters) -> Option<f64> {
        let live = self.oracle.live_bytes();
        (live > 0).then(|| self.disk_bytes(now) as f64 / live as f64)
    }

    /// Calls `work` and returns its result with the maximum ratio of disk space to live bytes meanwhile. That is `None`
    /// if `work` took less than a sampling interval.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Option<f64>) {
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let look = || {
                let mut peak: Option<f64> = None;
                loop {
                    std::thread::park_timeout(DISK_INTERVAL);
                    if has_ended.load(Relaxed) {
                        return peak;
                    }
                    peak = [peak, self.space_amp()].into_iter().flatten().reduce(f64::max);
                }
            };
            // Without a thread for it, the maximum is unknown.
            let looking = std::thread::Builder::new().spawn_scoped(scope, look).ok();
            let end = Ending {
                has_ended: &has_ended,
                looking: looking.as_ref().map(|looking| looking.thread().clone()),
            };
            let result = work();
            drop(end);
            (result, looking.and_then(|looking| looking.join().ok().flatten()))
        })
    }

    /// Takes samples until the phase has ended.
    pub fn sample(&self) -> Samples {
        let started = process::wall();
        let before = self.engine.counters();
        let mut samples = Samples::default();
        let (mut looks, mut seconds, mut stride) = (0u32, 0u32, 1);
        let mut ops_before = 0;
        while !self.shared.done.load(Relaxed) {
            std::thread::park_timeout(DISK_INTERVAL);
            let now = self.engine.counters();
            if let Some(amp) = self.space_amp_at(&now) {
                samples.peak_space_amp = Some(samples.peak_space_amp.unwrap_or(0.0).max(amp));
            }
            let ops = self.shared.ops.load(Relaxed);
            samples.note_runs(&now, ops - ops_before);
            ops_before = ops;
            looks += 1;
            if !looks.is_multiple_of(LOOKS_PER_SAMPLE) {
                continue;
            }
            let sample = self.one(started, &before, now);
            self.progress.show(&sample);
            seconds += 1;
            if seconds.is_multiple_of(stride) {
                samples.timeline.push(sample);
            }
            if samples.timeline.len() >= SAMPLES_MOST {
                let mut position = 0;
                samples.timeline.retain(|_| {
                    position += 1;
                    position % 2 == 0
                });
                stride *= 2;
            }
        }
        let now = self.engine.counters();
        let last = self.one(started, &before, now);
        samples.timeline.push(last);
        samples
    }

    fn one(&self, started: u64, before: &Counters, now: Counters) -> Sample {
        let written = |c: &Counters| Some(c.flush_bytes? + c.merge_bytes? + c.gc_bytes.unwrap_or(0));
        let stalled = |c: &Counters| {
            c.stalls.as_ref().map(|stalls| stalls.values().map(|stall| stall.seconds).sum::<f64>())
        };
        let p99 = f64::from_bits(self.shared.p99_bits.swap(0, Relaxed));
        self.shared.p99_wanted.store(true, Relaxed);
        Sample {
            t: (process::wall() - started) as f64 / 1e9,
            ops: self.shared.ops.load(Relaxed),
            p99_us: (p99 > 0.0).then_some(p99),
            disk_bytes: Some(self.disk_bytes(&now)),
            live_bytes: self.oracle.live_bytes(),
            written_bytes: written(&now).zip(written(before)).map(|(now, before)| now - before),
            stall_ms: stalled(&now).zip(stalled(before)).map(|(now, before)| (now - before) * 1e3),
            rss_bytes: process::rss_bytes(),
            runs: now.runs_per_level,
        }
    }
}

/// Ends a sampling thread when dropped, also in a panic: the thread's scope would wait for it.
struct Ending<'a> {
    has_ended: &'a AtomicBool,
    looking: Option<Thread>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        if let Some(looking) = &self.looking {
            looking.unpark();
        }
    }
}

impl Samples {
    fn note_runs(&mut self, now: &Counters, ops: u64) {
        let Some(runs) = now.runs_per_level.as_ref().map(|levels| levels.iter().sum::<u64>()) else { return };
        self.runs_max = Some(self.runs_max.unwrap_or(0).max(runs));
        self.runs_weighted.0 += runs as f64 * ops as f64;
        self.runs_weighted.1 += ops as f64;
    }
}
