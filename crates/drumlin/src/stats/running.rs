//! Concurrency of compactions: how many run, the maximum so far, and for how long some ran into different levels.

use drumlin_env::Env;
use drumlin_env::sync::plain::atomic::{AtomicU64, Ordering::Relaxed};
use drumlin_env::sync::plain::{Arc, Mutex};

/// Running compactions, with totals since the start.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Number of running compactions, for frequent lock-free reads.
    count: AtomicU64,
    state: Mutex<RunningState>,
}

/// Totals of concurrent compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Beside {
    /// Maximum number of compactions at a time.
    pub(crate) most: u64,
    /// Microseconds with compactions into two or more levels at once.
    pub(crate) cross_level_micros: u64,
}

#[derive(Debug, Default)]
struct RunningState {
    /// Number of running compactions by output level.
    levels: [u64; 8],
    seen: Beside,
    /// Time at which compactions into a second level started, in microseconds.
    crossed_at: Option<u64>,
}

impl RunningState {
    fn settle(&mut self, now: u64) {
        let is_crossed = self.levels.iter().filter(|running| **running > 0).count() > 1;
        self.seen.most = self.seen.most.max(self.levels.iter().sum());
        match self.crossed_at {
            None if is_crossed => self.crossed_at = Some(now),
            Some(since) if !is_crossed => {
                self.seen.cross_level_micros += now.saturating_sub(since);
                self.crossed_at = None;
            }
            _ => {}
        }
    }
}

/// Guard of a running compaction; its drop ends the count.
pub(crate) struct OneRunning {
    running: Arc<Running>,
    env: Env,
    level: usize,
}

impl Running {
    /// Returns whether any compaction is running.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Records the start of a compaction into `level`.
    pub(crate) fn begin(self: &Arc<Running>, env: &Env, level: u8) -> OneRunning {
        let mut state = self.state.lock();
        let level = usize::from(level).min(state.levels.len() - 1);
        state.levels[level] += 1;
        self.count.fetch_add(1, Relaxed);
        state.settle(env.clock().monotonic_micros());
        OneRunning { running: self.clone(), env: env.clone(), level }
    }

    /// Returns the totals so far. Includes an overlap that lasts until `now`.
    pub(crate) fn seen(&self, now: u64) -> Beside {
        let state = self.state.lock();
        let lasting = state.crossed_at.map_or(0, |since| now.saturating_sub(since));
        Beside { cross_level_micros: state.seen.cross_level_micros + lasting, ..state.seen }
    }
}

impl Drop for OneRunning {
    fn drop(&mut self) {
        let mut state = self.running.state.lock();
        state.levels[self.level] -= 1;
        self.running.count.fetch_sub(1, Relaxed);
        state.settle(self.env.clock().monotonic_micros());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::MemEnv;

    #[test]
    fn merges_into_different_levels_cross() {
        let env = MemEnv::new(1).env();
        let running = Arc::new(Running::default());
        let pass = |micros| env.clock().sleep_micros(micros);
        let now = || env.clock().monotonic_micros();
        let first = running.begin(&env, 1);
        pass(10);
        let second = running.begin(&env, 1);
        pass(10);
        assert_eq!(running.seen(now()), Beside { most: 2, cross_level_micros: 0 });
        let deep = running.begin(&env, 2);
        pass(100);
        assert!(running.seen(now()).cross_level_micros >= 100);
        drop(first);
        pass(100);
        drop(second);
        let seen = running.seen(now());
        assert!(seen.most == 3 && (200..1000).contains(&seen.cross_level_micros), "{seen:?}");
        pass(1000);
        drop(deep);
        assert_eq!(running.seen(now()), seen);
    }
}
