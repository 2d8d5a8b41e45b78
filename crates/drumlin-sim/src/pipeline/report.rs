//! Results of a simulated load.

use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::LEVELS;

/// Length of the histogram of busy slots, which bounds the number of slots that it can tell apart.
pub const SLOTS: usize = 65;

/// Figures of one load.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Virtual nanoseconds until the last byte was written.
    pub nanos: u64,
    /// Bytes written by the program.
    pub ingested: u64,
    /// Bytes written by flushes.
    pub flushed: u64,
    /// Bytes written by compactions.
    pub merged: u64,
    /// Bytes that changed their level by a trivial move.
    pub moved: u64,
    /// Bytes of output levels that were folded.
    pub folded: u64,
    /// Nanoseconds by number of busy slots.
    pub busy: Vec<u64>,
    /// Slot nanoseconds by source level.
    pub by_level: [u64; LEVELS],
    /// Busy slots by source level, every tenth of a virtual second.
    pub series: Vec<[u16; LEVELS]>,
    /// Largest number of runs in level 0.
    pub most_level0: usize,
    /// Sum over the seconds of the mean depth, in thousandths, and the number of seconds.
    pub depth: (u64, u64),
    /// Number of compacted pieces, of those that finished before they could be installed, and of those that landed.
    pub pieces: (u64, u64, u64),
    /// Number of plans admitted, and refused.
    pub plans: (u64, u64),
    /// Nanoseconds in which writes were stopped.
    pub stopped: u64,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            nanos: 0,
            ingested: 0,
            flushed: 0,
            merged: 0,
            moved: 0,
            folded: 0,
            busy: vec![0; SLOTS],
            by_level: [0; LEVELS],
            series: Vec::new(),
            most_level0: 0,
            depth: (0, 0),
            pieces: (0, 0, 0),
            plans: (0, 0),
            stopped: 0,
        }
    }
}

impl Report {
    /// Returns the throughput in MiB per second.
    pub fn throughput(&self) -> f64 {
        self.ingested as f64 / 1_048_576.0 / (self.nanos.max(1) as f64 / 1e9)
    }

    /// Returns the bytes written per byte that the program wrote.
    pub fn write_amp(&self) -> f64 {
        (self.flushed + self.merged) as f64 / self.ingested.max(1) as f64
    }

    /// Returns the mean number of busy slots.
    pub fn mean_busy(&self) -> f64 {
        let sum: u128 = self.busy.iter().enumerate().map(|(n, time)| n as u128 * u128::from(*time)).sum();
        sum as f64 / self.busy.iter().sum::<u64>().max(1) as f64
    }

    /// Returns the fraction of the time with at least `slots` slots busy.
    pub fn share_busy(&self, slots: usize) -> f64 {
        let most = slots.min(self.busy.len());
        self.busy[most..].iter().sum::<u64>() as f64 / self.busy.iter().sum::<u64>().max(1) as f64
    }

    /// Returns the mean number of slots whose piece comes from `level`.
    pub fn mean_of_level(&self, level: usize) -> f64 {
        self.by_level[level] as f64 / self.nanos.max(1) as f64
    }

    /// Returns the mean over time of the number of files that a read meets.
    pub fn mean_depth(&self) -> f64 {
        self.depth.0 as f64 / 1000.0 / self.depth.1.max(1) as f64
    }
}
