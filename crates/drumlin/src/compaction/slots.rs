//! How many compactions may run at a time: a fixed number, or one that is found by measuring.
//!
//! The number is measured in intervals of two seconds of the environment's clock. Compactions count the bytes that they
//! write, the time of their steps, and the CPU time of these. If slots were busy for half of an interval, one more slot
//! is tried. It stays only if compactions then wrote a twentieth more (`limits::Tuner`). There are at most 32. With
//! linear scaling the 22nd slot gains less than a twentieth, so the search ends at 21.
//!
//! `limits::slots` bounds the number by the memory for compactions and by the cores that the program leaves. A slot
//! counts as the share of a core that it was measured to use. So CPU-bound compactions get no more slots than cores,
//! and I/O-bound compactions get as many as raise the throughput of the device.
//!
//! Invariants: a fixed number never changes. Only the environment's clocks and counters are read. So a simulated world,
//! in which no step uses CPU time, decides the same for the same seed.

use drumlin_env::sync::Mutex;
use drumlin_env::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use drumlin_policy::schedule::limits::{self, Machine, Tuner};

/// Length of an interval in microseconds.
const INTERVAL: u64 = 2_000_000;
/// Busy fraction of all slots at which one more is tried. The write throttle slows writers until compactions keep up.
/// So slots can hold writers back without being busy all the time.
const WELL_USED: f64 = 0.5;
/// Memory that a busy slot is assumed to need: read-ahead of its inputs, and blocks of its output.
const SLOT_MEMORY: u64 = 2 << 20;
/// Compactions may use one part in this many of the store's memory.
const MEMORY_PART: u64 = 8;
/// Largest initial number of slots.
const FIRST_MOST: usize = 4;

const MIB: f64 = 1_048_576.0;

/// The current number of compaction slots.
#[derive(Debug)]
pub(crate) struct Slots {
    count: AtomicUsize,
    /// When the interval ends, in monotonic microseconds. `u64::MAX` if the number is fixed.
    ends: AtomicU64,
    /// Counters of all compactions since the store was opened.
    written: AtomicU64,
    busy_nanos: AtomicU64,
    core_nanos: AtomicU64,
    /// `None` if the number is fixed.
    search: Option<Mutex<SlotSearch>>,
    /// Threads that the machine can run at once, as of the open.
    cores: usize,
}

#[derive(Debug)]
struct SlotSearch {
    tuner: Tuner,
    /// Cores that the program leaves, and memory for compactions.
    cores: f64,
    memory: u64,
    /// Largest number of slots for which threads could be started.
    threads: usize,
    since: SlotReading,
    /// Share of a core that a busy slot used in the last interval.
    share: f64,
    /// Bytes per second in the last interval.
    rate: f64,
}

/// Values of the counters at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct SlotReading {
    /// Monotonic time in microseconds.
    at: u64,
    written: u64,
    busy_nanos: u64,
    core_nanos: u64,
}

/// A change of the number of slots.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SlotChange {
    pub(crate) before: usize,
    pub(crate) slots: usize,
    /// Reason, with the measured numbers.
    pub(crate) reason: String,
}

impl Slots {
    /// Creates `count` slots. For 0 the number is found by measuring from time `now` in microseconds on, for a
    /// machine of `cores` cores and a store of `memory` bytes.
    pub(crate) fn new(count: usize, cores: usize, memory: u64, now: u64) -> Slots {
        let free = cores.saturating_sub(1).max(1);
        let mut search = SlotSearch {
            tuner: Tuner::new(1),
            cores: free as f64,
            memory: memory / MEMORY_PART,
            threads: usize::MAX,
            since: SlotReading { at: now, ..SlotReading::default() },
            share: 0.0,
            rate: 0.0,
        };
        let first = free.min(FIRST_MOST).min(search.most() as usize);
        search.tuner = Tuner::new(first as u32);
        Slots {
            count: AtomicUsize::new(if count == 0 { first } else { count }),
            ends: AtomicU64::new(if count == 0 { now + INTERVAL } else { u64::MAX }),
            written: AtomicU64::new(0),
            busy_nanos: AtomicU64::new(0),
            core_nanos: AtomicU64::new(0),
            search: (count == 0).then(|| Mutex::new(search)),
            cores,
        }
    }

    /// Returns the number of threads that the machine can run at once.
    pub(crate) fn cores(&self) -> u32 {
        u32::try_from(self.cores).unwrap_or(u32::MAX)
    }

    /// Returns the current number of slots. Surplus slots finish their piece and start no other.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns whether the interval is over.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.ends.load(Relaxed)
    }

    /// Counts a step of a compaction: bytes written, wall-clock time and CPU time in nanoseconds.
    pub(crate) fn worked(&self, written: u64, busy_nanos: u64, core_nanos: u64) {
        self.written.fetch_add(written, Relaxed);
        self.busy_nanos.fetch_add(busy_nanos, Relaxed);
        self.core_nanos.fetch_add(core_nanos, Relaxed);
    }

    /// Records that no thread could be started for more than `most` slots.
    pub(crate) fn refuse_beyond(&self, most: usize) {
        if let Some(search) = &self.search {
            search.lock().threads = most.max(1);
        }
    }

    /// Ends the interval if it is over, which may change the number. While `is_frozen` the number stays, and nothing is
    /// measured.
    pub(crate) fn interval(&self, now: u64, is_frozen: bool) -> Option<SlotChange> {
        if !self.is_due(now) {
            return None;
        }
        let mut search = self.search.as_ref()?.lock();
        self.ends.store(now + INTERVAL, Relaxed);
        let reading = SlotReading {
            at: now,
            written: self.written.load(Relaxed),
            busy_nanos: self.busy_nanos.load(Relaxed),
            core_nanos: self.core_nanos.load(Relaxed),
        };
        let change = search.take(reading, is_frozen)?;
        self.count.store(change.slots, Relaxed);
        Some(change)
    }
}

impl SlotSearch {
    fn take(&mut self, reading: SlotReading, is_frozen: bool) -> Option<SlotChange> {
        let since = std::mem::replace(&mut self.since, reading);
        if is_frozen {
            return None;
        }
        let before = self.tuner.slots as usize;
        let micros = reading.at.saturating_sub(since.at).max(1) as f64;
        let rate = reading.written.saturating_sub(since.written) as f64 * 1e6 / micros;
        let busy_nanos = reading.busy_nanos.saturating_sub(since.busy_nanos) as f64;
        if busy_nanos > 0.0 {
            self.share = reading.core_nanos.saturating_sub(since.core_nanos) as f64 / busy_nanos;
        }
        let busy = busy_nanos / (micros * 1000.0 * before as f64);
        let most = self.most();
        let slots = self.tuner.interval(rate, busy >= WELL_USED, most) as usize;
        let last = std::mem::replace(&mut self.rate, rate);
        if slots == before {
            return None;
        }
        let verdict = match slots {
            more if more > before => "one more slot is tried",
            _ if before > most as usize => "cores, memory or threads allow no more",
            _ => "the last slot gained too little",
        };
        let reason = format!(
            "{verdict}: compactions wrote {:.1} MiB/s, {:.1} in the interval before; slots were busy {:.0} % of the \
             time, with {:.0} % of a core each; at most {most}",
            rate / MIB,
            last / MIB,
            100.0 * busy,
            100.0 * self.share
        );
        Some(SlotChange { before, slots, reason })
    }

    /// Returns the number of slots that cores, memory and threads allow.
    fn most(&self) -> u32 {
        // The throughput of the device is unknown. A step that the device does not reward is undone later.
        let memory = (self.memory, SLOT_MEMORY);
        let machine = Machine { cores: self.cores, busy: self.share, device: 0.0, slot: 0.0, memory };
        limits::slots(&machine).min(u32::try_from(self.threads).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory for 32 slots.
    const MEMORY: u64 = 512 << 20;

    /// Runs intervals in which all slots are busy with a fraction `core` of a core each, and write `rate` MiB per
    /// second for the current number of slots. Returns the number of slots after each interval.
    fn numbers(slots: &Slots, intervals: u64, core: f64, rate: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut numbers = Vec::new();
        for interval in 1..=intervals {
            let busy = INTERVAL * 1000 * slots.count() as u64;
            let written = rate(slots.count()) * MIB * INTERVAL as f64 / 1e6;
            slots.worked(written as u64, busy, (busy as f64 * core) as u64);
            if let Some(change) = slots.interval(interval * INTERVAL, false) {
                assert_eq!(change.slots, slots.count());
                assert!(change.before.abs_diff(change.slots) == 1, "the number must change in steps of one");
            }
            numbers.push(slots.count());
        }
        numbers
    }

    #[test]
    fn slots_that_wait_become_as_many_as_the_device_rewards() {
        let slots = Slots::new(0, 2, MEMORY, 0);
        assert_eq!(slots.count(), 1);
        let numbers = numbers(&slots, 100, 0.05, |n| 60.0 * n.min(9) as f64);
        assert!(numbers[20..].iter().all(|n| (9..=10).contains(n)), "{numbers:?}");
        let tried = numbers[20..].iter().filter(|n| **n == 10).count();
        assert!(tried <= 10, "a slot that gains nothing is removed, and not tried again at once");
    }

    #[test]
    fn slots_that_compute_get_the_cores_that_are_left() {
        let slots = Slots::new(0, 4, MEMORY, 0);
        assert!(numbers(&slots, 50, 1.0, |n| 60.0 * n as f64).iter().all(|n| *n == 3));
        let half = Slots::new(0, 4, MEMORY, 0);
        assert_eq!(numbers(&half, 50, 0.5, |n| 60.0 * n as f64).last(), Some(&6));
    }

    #[test]
    fn memory_and_threads_bound_what_is_tried() {
        let gains = |n: usize| (n * n) as f64;
        let small = Slots::new(0, 2, 8 * MEMORY_PART * SLOT_MEMORY, 0);
        assert_eq!(numbers(&small, 100, 0.0, gains).last(), Some(&8));
        let large = Slots::new(0, 2, 1 << 40, 0);
        assert_eq!(numbers(&large, 100, 0.0, gains).last(), Some(&32));
        let few = Slots::new(0, 2, MEMORY, 0);
        few.refuse_beyond(3);
        assert_eq!(numbers(&few, 100, 0.0, gains).last(), Some(&3));
    }

    #[test]
    fn a_number_that_was_set_stays_and_so_does_a_frozen_one() {
        let set = Slots::new(2, 8, MEMORY, 0);
        assert!(numbers(&set, 50, 0.0, |n| n as f64).iter().all(|n| *n == 2));
        let frozen = Slots::new(0, 2, MEMORY, 0);
        for interval in 1..50 {
            frozen.worked(1 << 30, 2 * INTERVAL * 1000, 0);
            assert_eq!(frozen.interval(interval * INTERVAL, true), None);
        }
        assert_eq!(frozen.count(), 1);
    }

    #[test]
    fn idle_slots_and_short_intervals_change_nothing() {
        let slots = Slots::new(0, 2, MEMORY, 0);
        slots.worked(1 << 20, INTERVAL * 1000, 0);
        assert_eq!(slots.interval(INTERVAL - 1, false), None);
        let change = slots.interval(INTERVAL, false).expect("all slots were busy");
        assert_eq!((change.before, change.slots), (1, 2));
        assert!(
            change.reason.starts_with("one more slot is tried: compactions wrote 0.5 MiB/s"),
            "{}",
            change.reason
        );
        let back = slots.interval(2 * INTERVAL, false).expect("nothing was written since");
        assert_eq!((back.before, back.slots), (2, 1));
        for interval in 3..50 {
            assert_eq!(slots.interval(interval * INTERVAL, false), None);
        }
    }
}
