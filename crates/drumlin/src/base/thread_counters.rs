//! Exact counters that many threads add to.
//!
//! Each thread with a number below [`OWNED`] has a cache line of its own and adds to it without a locked instruction.
//! Other threads share one line. A total is the sum over all lines. It is no snapshot: threads add meanwhile. All
//! accesses are relaxed, so totals of two counters have no order without fences.

use super::thread_number::thread_number;
use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of threads with counters of their own.
const OWNED: usize = 32;

/// Counters of one thread, or of all others.
#[derive(Debug)]
#[repr(align(128))]
struct CounterLine<const N: usize>([AtomicU64; N]);

impl<const N: usize> CounterLine<N> {
    const fn new() -> CounterLine<N> {
        CounterLine([const { AtomicU64::new(0) }; N])
    }
}

/// `N` counters.
#[derive(Debug)]
pub(crate) struct ThreadCounters<const N: usize> {
    /// Counters of the threads with small numbers. Only the thread with its number changes a line.
    owned: [CounterLine<N>; OWNED],
    shared: CounterLine<N>,
}

impl<const N: usize> Default for ThreadCounters<N> {
    fn default() -> Self {
        ThreadCounters { owned: [const { CounterLine::new() }; OWNED], shared: CounterLine::new() }
    }
}

impl<const N: usize> ThreadCounters<N> {
    /// Adds `n` to counter `which`. Returns the previous count of the counter that it added to: that of this thread, or
    /// the shared one.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) -> u64 {
        match thread_number().and_then(|number| self.owned.get(number)) {
            Some(line) => {
                let before = line.0[which].load(Relaxed);
                line.0[which].store(before + n, Relaxed);
                before
            }
            None => self.shared.0[which].fetch_add(n, Relaxed),
        }
    }

    /// Returns the total of counter `which`.
    pub(crate) fn total(&self, which: usize) -> u64 {
        let owned: u64 = self.owned.iter().map(|line| line.0[which].load(Relaxed)).sum();
        owned + self.shared.0[which].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "counts on real threads")]
    fn nothing_is_lost_between_threads() {
        let counters = ThreadCounters::<2>::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..OWNED + 3 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            counters.add(0, 1);
                            counters.add(1, 3);
                        }
                    });
                }
            });
        }
        let all = 3 * (OWNED as u64 + 3) * 100;
        assert_eq!([0, 1].map(|which| counters.total(which)), [all, 3 * all]);
    }
}
