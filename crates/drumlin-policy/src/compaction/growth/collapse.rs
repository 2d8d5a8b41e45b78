//! Collapse on reads: merges the runs of H for readers while nothing is written.
//!
//! A schedule keeps runs for later units. When writes stop and reads go on, these runs would cost readers for ever.
//! The time that readers spend on the runs of H since these last changed is a debt. Once it reaches the time that
//! merging them takes, they are merged: first all runs of H into one, then all of H into V1 and V2, and then all runs
//! of V1 into one. This is the ski rental rule: it spends at most twice the time of the best choice in hindsight.
//! Each merge leaves fewer runs, so it ends.

use alloc::vec::Vec;

/// Upper bound on the time between two policy calls that is added to the debt, in microseconds.
const LONGEST: u64 = 10_000_000;

/// What the runs of H have cost readers since they last changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadDebt {
    /// Number of runs and of units.
    runs: (usize, u16),
    /// Time of the last policy call, in microseconds.
    seen: u64,
    nanos: f64,
}

impl ReadDebt {
    /// Adds the reads until `now`. One run costs readers `read_cost` nanoseconds per second.
    pub(super) fn add(&mut self, runs: (usize, u16), now: u64, read_cost: f64) {
        if self.runs != runs {
            *self = ReadDebt { runs, seen: now, nanos: 0.0 };
            return;
        }
        let micros = now.saturating_sub(self.seen).min(LONGEST);
        let added = read_cost * runs.0 as f64 * micros as f64 / 1e6;
        if added.is_finite() && added > 0.0 {
            self.nanos += added;
        }
        self.seen = now;
    }

    /// Returns whether readers have paid for a compaction of `bytes`, at `speed` bytes per second.
    pub(super) fn pays(&self, bytes: u64, speed: f64) -> bool {
        speed > 0.0 && self.nanos / 1e9 >= bytes as f64 / speed
    }

    /// Returns the debt in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.nanos / 1e9
    }
}

impl ReadDebt {
    /// Appends the debt to `bytes`.
    pub(super) fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.runs.0 as u64).to_le_bytes());
        bytes.extend(self.runs.1.to_le_bytes());
        bytes.extend(self.seen.to_le_bytes());
        bytes.extend(self.nanos.to_le_bytes());
    }

    /// Parses what [`ReadDebt::save`] appended, and returns the rest. `None` if it is damaged.
    pub(super) fn restore(bytes: &[u8]) -> Option<(ReadDebt, &[u8])> {
        let (runs, bytes) = bytes.split_first_chunk()?;
        let (units, bytes) = bytes.split_first_chunk()?;
        let (seen, bytes) = bytes.split_first_chunk()?;
        let (nanos, bytes) = bytes.split_first_chunk()?;
        let runs = usize::try_from(u64::from_le_bytes(*runs)).ok()?;
        let nanos = f64::from_le_bytes(*nanos);
        let debt =
            ReadDebt { runs: (runs, u16::from_le_bytes(*units)), seen: u64::from_le_bytes(*seen), nanos };
        (nanos.is_finite() && nanos >= 0.0).then_some((debt, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debt_grows_while_the_runs_stay() {
        let mut debt = ReadDebt::default();
        debt.add((4, 9), 1_000_000, 1e6);
        assert_eq!(debt.seconds(), 0.0, "what was before is not known");
        debt.add((4, 9), 2_000_000, 1e6);
        assert!((debt.seconds() - 0.004).abs() < 1e-12);
        // 4 ms pay for 400 kB at 100 MB/s.
        assert!(debt.pays(400_000, 100e6) && !debt.pays(400_001, 100e6) && !debt.pays(0, 0.0));
        debt.add((4, 9), 1_000_000_000_000, 1e6);
        assert!((debt.seconds() - 0.044).abs() < 1e-12, "a long sleep counts as ten seconds");
        debt.add((4, 9), 1_000_000_000_001, f64::NAN);
        debt.add((4, 10), 1_000_000_000_002, 1e6);
        assert_eq!(debt.seconds(), 0.0);
    }
}
