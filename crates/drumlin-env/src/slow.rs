//! A slower device than there is: every large request to a table takes some time more.
//!
//! Large requests are those of flushes and merges; what lookups read is small and passes. So a machine with few cores
//! shows what many slots do on a device that makes them wait. The added time is drawn evenly from a fifth around its
//! mean, by a seeded sequence.

use crate::fs::FileKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests from this size on are those of background work.
const LARGE: usize = 64 << 10;
/// Bytes that one request of the device carries.
const CHUNK: usize = 256 << 10;

/// Time that large requests take more.
#[derive(Debug)]
pub(crate) struct Slow {
    micros: u64,
    drawn: AtomicU64,
}

impl Slow {
    pub(crate) fn new(micros: u64) -> Slow {
        Slow { micros, drawn: AtomicU64::new(1) }
    }

    /// Waits as a request of `bytes` bytes to a file of `kind` does.
    pub(crate) fn wait(&self, kind: FileKind, bytes: usize) {
        if kind != FileKind::Table || bytes < LARGE {
            return;
        }
        for _ in 0..bytes.div_ceil(CHUNK) {
            std::thread::sleep(Duration::from_micros(self.next()));
        }
    }

    /// The next added time: 80 to 120 percent of the mean.
    fn next(&self) -> u64 {
        let number = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (number ^ (number >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
        self.micros * (80 + mixed % 41) / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_times_lie_around_their_mean() {
        let slow = Slow::new(1000);
        let times: Vec<u64> = (0..4000).map(|_| slow.next()).collect();
        assert!(times.iter().all(|t| (800..=1200).contains(t)));
        let mean = times.iter().sum::<u64>() / 4000;
        assert!((985..=1015).contains(&mean), "{mean}");
        assert!(times.iter().any(|t| *t < 850) && times.iter().any(|t| *t > 1150));
    }
}
