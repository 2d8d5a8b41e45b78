//! What elective merges may rewrite (arce.md 3.6).
//!
//! A balance of bytes gains `max_write_amp` for each flushed byte, a quarter for each byte that reads
//! fetched from the device, and the size of the tree each day, up to twice that size. Every merge pays;
//! elective ones only what is there, those that are a must down to minus the size of the tree. Hence over
//! any interval, elective bytes are at most 2N + amp * flushed + reads / 4 + N * days: reads alone cannot
//! keep a tree merging for ever.

use super::model::bounded;
use alloc::vec::Vec;
use drumlin_types::RunId;

/// Bytes gained per byte that reads fetched.
const PER_READ: f64 = 0.25;
const DAY_MICROS: f64 = 86_400e6;

/// Bytes that merges may rewrite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Balance {
    left: f64,
    /// Bytes gained per flushed byte.
    pub(crate) amp: f64,
}

impl Balance {
    /// Nothing yet.
    pub(crate) fn new(left: f64, amp: f64) -> Balance {
        Balance { left: bounded(left, -1e18, 1e18), amp }
    }

    pub(crate) fn left(&self) -> f64 {
        self.left
    }

    fn gain(&mut self, bytes: f64, tree: f64) {
        self.left = (self.left + bytes).min(2.0 * tree);
    }

    /// `bytes` were flushed; the tree now holds `tree`.
    pub(crate) fn flushed(&mut self, bytes: f64, tree: f64) {
        self.gain(self.amp * bytes, tree);
    }

    /// `micros` passed, in which reads fetched `read` bytes from the device.
    pub(crate) fn passed(&mut self, micros: f64, read: f64, tree: f64) {
        self.gain(PER_READ * read.max(0.0) + tree * micros.max(0.0) / DAY_MICROS, tree);
    }

    /// A merge of `bytes` was started.
    pub(crate) fn merged(&mut self, bytes: f64, tree: f64) {
        self.left = (self.left - bytes).max(self.left.min(-tree));
    }
}

/// First pause of a refused or failed merge, doubling to the last; microseconds.
const REST_FIRST: u64 = 1_000_000;
const REST_LAST: u64 = 60_000_000;
/// Merges at rest that are remembered.
const MOST_RESTING: usize = 8;

/// Merges that were refused or failed, and rest for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resting(Vec<Rest>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    ends: (RunId, RunId),
    until: u64,
    pause: u64,
}

impl Resting {
    /// The merge between the runs `ends` was refused, or failed.
    pub(crate) fn failed(&mut self, ends: (RunId, RunId), now: u64) {
        let pause = match self.0.iter().position(|rest| rest.ends == ends) {
            Some(at) => (self.0.remove(at).pause * 2).min(REST_LAST),
            None => REST_FIRST,
        };
        if self.0.len() == MOST_RESTING {
            self.0.remove(0);
        }
        self.0.push(Rest { ends, until: now.saturating_add(pause), pause });
    }

    /// As numbers, four for each.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = [f64; 4]> {
        self.0.iter().map(|r| [r.ends.0.0 as f64, r.ends.1.0 as f64, r.until as f64, r.pause as f64])
    }

    /// Takes back one of [`Resting::numbers`].
    pub(crate) fn push(&mut self, [newest, oldest, until, pause]: [f64; 4]) {
        let ends = (RunId(newest as u64), RunId(oldest as u64));
        let pause = (pause as u64).clamp(REST_FIRST, REST_LAST);
        self.0.push(Rest { ends, until: until as u64, pause });
        self.0.truncate(MOST_RESTING);
    }

    /// Whether the merge between `ends` rests.
    pub(crate) fn holds(&self, ends: (RunId, RunId), now: u64) -> bool {
        self.0.iter().any(|rest| rest.ends == ends && rest.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn elective_bytes_stay_below_their_bound() {
        let mut dice = SplitMix::new(5);
        for _ in 0..200 {
            let tree = 1000.0 + dice.below(100_000) as f64;
            let amp = 3.0 + dice.below(40) as f64;
            let mut balance = Balance::new(2.0 * tree, amp);
            let (mut flushed, mut reads, mut days, mut elective) = (0.0, 0.0, 0.0, 0.0);
            for _ in 0..300 {
                let bytes = dice.below(3000) as f64;
                match dice.below(4) {
                    0 => {
                        balance.flushed(bytes, tree);
                        flushed += bytes;
                    }
                    1 => {
                        balance.passed(bytes * 1e6, bytes, tree);
                        days += bytes * 1e6 / DAY_MICROS;
                        reads += bytes;
                    }
                    2 => balance.merged(bytes * 9.0, tree),
                    _ if bytes * 10.0 <= balance.left() => {
                        balance.merged(bytes * 10.0, tree);
                        elective += bytes * 10.0;
                    }
                    _ => {}
                }
                assert!(balance.left() >= -tree && balance.left() <= 2.0 * tree);
                let bound = 2.0 * tree + amp * flushed + PER_READ * reads + tree * days;
                assert!(elective <= bound * (1.0 + 1e-12), "{elective} of {bound}");
            }
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let (mut resting, ends) = (Resting::default(), (RunId(1), RunId(2)));
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            resting.failed(ends, now);
            assert!(resting.holds(ends, now + seconds * 1_000_000 - 1));
            assert!(!resting.holds(ends, now + seconds * 1_000_000));
            assert!(!resting.holds((RunId(1), RunId(3)), now));
            now += seconds * 1_000_000;
        }
    }
}
