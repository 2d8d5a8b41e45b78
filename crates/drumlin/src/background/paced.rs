//! Paced simulation: each background lane has its own time.
//!
//! In an unpaced simulation all I/O moves one clock, so a compaction would delay its clients as if there were one
//! thread. In a paced simulation each lane has its own time, and a step advances only that. A lane may step whenever
//! its time is not ahead of the clients' time. A client that waits advances its time to that of the next lane.
//! Scheduling is deterministic: the lane with the least time goes first; of equals, the lane that was started first.

use super::lane::{Lane, Step};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Clock, Stepping};

/// Times of all lanes.
#[derive(Default)]
pub(super) struct Paced {
    lanes: Mutex<Vec<LaneTime>>,
}

/// Time of one lane.
#[derive(Clone, Copy, Default)]
struct LaneTime {
    /// Earliest start of the next step, in nanoseconds.
    free: u64,
    /// End of the last step, in nanoseconds.
    ended: u64,
    /// Work count at the start of an idle period. The lane has nothing to do before `free` unless the count changes.
    rests: Option<u64>,
}

/// Nanoseconds after which an idle lane steps again.
const IDLE: u64 = 500_000_000;
/// Minimum duration of a step in nanoseconds, so that time always advances.
const LEAST: u64 = 1;

impl Paced {
    /// Runs the steps that are due. `work` counts the events that may end an idle period.
    pub(super) fn run(
        &self,
        lanes: &[Arc<dyn Lane>],
        stepping: &Stepping,
        clock: &Clock,
        work: impl Fn() -> u64,
    ) {
        while let Some((at, time)) = self.next(lanes.len(), clock.monotonic_nanos(), work()) {
            if time.free > clock.monotonic_nanos() {
                return;
            }
            let seen = work();
            let (step, passed) = stepping.beside(|| lanes[at].step());
            let (now, ended) = (clock.monotonic_nanos(), time.free + passed.max(LEAST));
            let next = match step {
                Step::More => LaneTime { free: ended, ended, rests: None },
                Step::Idle => LaneTime { free: now + IDLE, ended: now.max(ended), rests: Some(seen) },
                Step::Until(micros) => {
                    let until = micros.saturating_mul(1000).max(now + LEAST);
                    LaneTime { free: until, ended: now.max(ended), rests: Some(seen) }
                }
            };
            if let Some(lane) = self.lanes.lock().get_mut(at) {
                *lane = next;
            }
        }
    }

    /// Returns the start of the next step, in nanoseconds.
    pub(super) fn next_at(&self, lanes: usize, now: u64, work: u64) -> Option<u64> {
        self.next(lanes, now, work).map(|(_, time)| time.free)
    }

    /// Returns the lane that steps next and its time. Ends idle periods if the work count has changed.
    fn next(&self, lanes: usize, now: u64, work: u64) -> Option<(usize, LaneTime)> {
        let mut times = self.lanes.lock();
        times.resize(lanes, LaneTime::default());
        for time in times.iter_mut() {
            if time.rests.is_some_and(|seen| seen != work) {
                // Time must advance, so that lanes that wake each other do not loop forever at one moment.
                *time = LaneTime { free: now.max(time.ended + LEAST), ended: time.ended, rests: None };
            }
        }
        times.iter().copied().enumerate().min_by_key(|(_, time)| time.free)
    }
}
