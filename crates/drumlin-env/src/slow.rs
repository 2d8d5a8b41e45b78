//! Simulated slow device: adds time to every large request to a table.
//!
//! Flushes and compactions make large requests; the small reads of lookups get no delay. So a machine with few cores
//! shows the effect of many compaction slots on a device that makes them wait. A seeded sequence draws each delay
//! uniformly from 80 to 120 percent of the mean.

use crate::kinds::FileKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Minimum size of a request that counts as background work.
const LARGE: usize = 64 << 10;
/// Number of bytes per device request.
const CHUNK: usize = 256 << 10;

/// Delay of large requests.
#[derive(Debug)]
pub(crate) struct Slow {
    micros: u64,
    drawn: AtomicU64,
}

impl Slow {
    pub(crate) fn new(micros: u64) -> Slow {
        Slow { micros, drawn: AtomicU64::new(1) }
    }

    /// Sleeps for the delay of a request of `bytes` bytes to a file of `kind`.
    pub(crate) fn wait(&self, kind: FileKind, bytes: usize) {
        if kind != FileKind::Table || bytes < LARGE {
            return;
        }
        for _ in 0..bytes.div_ceil(CHUNK) {
            std::thread::sleep(Duration::from_micros(self.next()));
        }
    }

    /// Returns the next delay: 80 to 120 percent of the mean.
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
