//! Background work with a time of its own, in simulation.
//!
//! In a stepped world all I/O moves one clock, so a merge would hold its clients up as if there were one
//! thread. In a paced world each lane has its own time: a step moves that alone, and a lane may step whenever
//! its time has not run ahead of the clients'. A client that waits lets its time pass up to the next lane's.
//! Nothing is left to chance: the lane whose time is least goes first, of equals the one started first.

use super::{Lane, Step};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Clock, Stepping};

/// The times of the lanes.
#[derive(Default)]
pub(super) struct Paced {
    lanes: Mutex<Vec<Time>>,
}

/// Where a lane is.
#[derive(Clone, Copy, Default)]
struct Time {
    /// Nanoseconds at which its next step may begin.
    free: u64,
    /// Nanoseconds at which its last step ended.
    ended: u64,
    /// It has nothing to do before that, unless the count of work has changed since.
    rests: Option<u64>,
}

/// Time after which an idle lane is looked at again, nanoseconds.
const IDLE: u64 = 500_000_000;
/// What a step takes at least: nothing goes on for ever at one moment.
const LEAST: u64 = 1;

impl Paced {
    /// Runs the steps that begin by now. `work` counts the events that may end a rest.
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
                Step::More => Time { free: ended, ended, rests: None },
                Step::Idle => Time { free: now + IDLE, ended: now.max(ended), rests: Some(seen) },
                Step::Until(micros) => {
                    let until = micros.saturating_mul(1000).max(now + LEAST);
                    Time { free: until, ended: now.max(ended), rests: Some(seen) }
                }
            };
            if let Some(lane) = self.lanes.lock().get_mut(at) {
                *lane = next;
            }
        }
    }

    /// The nanoseconds at which the next step begins.
    pub(super) fn next_at(&self, lanes: usize, now: u64, work: u64) -> Option<u64> {
        self.next(lanes, now, work).map(|(_, time)| time.free)
    }

    /// The lane that goes next, and when. Rests that are over end now.
    fn next(&self, lanes: usize, now: u64, work: u64) -> Option<(usize, Time)> {
        let mut times = self.lanes.lock();
        times.resize(lanes, Time::default());
        for time in times.iter_mut() {
            if time.rests.is_some_and(|seen| seen != work) {
                // Lanes that wake each other do not do so for ever at one moment.
                *time = Time { free: now.max(time.ended + LEAST), ended: time.ended, rests: None };
            }
        }
        times.iter().copied().enumerate().min_by_key(|(_, time)| time.free)
    }
}
