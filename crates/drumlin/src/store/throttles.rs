//! The write rate limit.
//!
//! Each policy asks for a limit in the form of a `Pace`. The rate follows from this limit, the current number of runs,
//! and the speed of compactions. The lowest rate of all keyspaces is the writers' limit. The speed counts as at most
//! `background_rate`, here and in the costs that policies receive.

use crate::base::event::StallCause;
use crate::compaction::control::Control;
use crate::compaction::slots::Slots;
use crate::stats::Costs;
use crate::write::pacing::{self, Gate};
use drumlin_env::sync::Mutex;
use drumlin_types::contract::CostView;

/// Assumed speed of a compaction slot before any was measured, in bytes per second.
const SLOT_SPEED_GUESS: f64 = 150e6;
/// Fraction of the largest number of runs from which on the rate may fall at once.
const URGENT_SHARE: f64 = 0.95;

/// Writes that wait, by cause: their number, and the time of the first in microseconds.
#[derive(Default)]
pub(crate) struct Stopped(Mutex<[(usize, u64); 2]>);

impl Stopped {
    /// Counts a write that begins to wait at `now`. Returns whether it is the only one.
    pub(crate) fn enter(&self, cause: StallCause, now: u64) -> bool {
        let (count, since) = &mut self.0.lock()[cause as usize];
        *count += 1;
        if *count == 1 {
            *since = now;
        }
        *count == 1
    }

    /// Counts the end of a wait. Returns when the first one began if no other write waits.
    pub(crate) fn leave(&self, cause: StallCause) -> Option<u64> {
        let (count, since) = &mut self.0.lock()[cause as usize];
        *count -= 1;
        (*count == 0).then_some(*since)
    }
}

/// The two write throttles, and the writes that wait.
pub(crate) struct Throttles {
    /// Writes that wait until they may go on.
    pub(crate) stopped: Stopped,
    /// Throttle for writers.
    pub(crate) writers: Gate,
    /// Throttle for the writes of flushes and compactions.
    pub(crate) background: Gate,
}

impl Throttles {
    /// Creates the throttles. Background writes may use `background_rate` bytes per second; 0 for no limit.
    pub(super) fn new(background_rate: u64) -> Throttles {
        Throttles {
            stopped: Stopped::default(),
            writers: Gate::new(),
            background: Gate::limited(background_rate),
        }
    }

    /// Returns `costs` with the speed that each of `slots` compaction slots reaches under `background_rate`. A speed
    /// that was not measured stays unknown, unless the limit is below what is assumed.
    pub(super) fn limited(&self, costs: CostView, slots: usize) -> CostView {
        let share = self.background.rate() as f64 / slots.max(1) as f64;
        let speed = match costs.compaction_bytes_per_s {
            measured if measured > 0.0 => measured.min(share),
            _ if share < SLOT_SPEED_GUESS => share,
            unknown => unknown,
        };
        CostView { compaction_bytes_per_s: speed, ..costs }
    }

    /// Sets the writers' throttle to the lowest rate that any keyspace's policy asks for.
    pub(super) fn refresh(&self, control: &Control, costs: &Costs, slots: &Slots, now: u64) {
        let speed = match self.limited(costs.view(), slots.count()).compaction_bytes_per_s {
            known if known > 0.0 => known,
            _ => SLOT_SPEED_GUESS,
        } * slots.count() as f64;
        let (mut rate, mut urgent) = (pacing::UNLIMITED, false);
        for keyspace in &control.keyspaces {
            let Some(pace) = &keyspace.pace else { continue };
            let runs = keyspace.paced_runs(pace);
            rate = rate.min(pacing::rate(pace, runs, speed));
            urgent |= runs >= URGENT_SHARE * pace.stop || pace.hard_stop;
        }
        self.writers.approach(rate, now, urgent);
    }
}
