//! What is simulated: sizes, rates, limits. The preset is that of the Downforce paper (6.1).

use crate::schedule::Settings;

const MIB: u64 = 1 << 20;

/// How fast the program writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Writer {
    /// As fast as it may, at most at the rate of the setup; slowed evenly from `slow` runs of level 0 to a stop at
    /// `stop`.
    Linear {
        /// Runs from which on it is slowed.
        slow: u32,
        /// Runs at which it stops.
        stop: u32,
    },
    /// As fast as the policy's pace lets it.
    Paced,
}

/// A simulated load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Bytes that the program writes.
    pub total: u64,
    /// Bytes of a memtable; there are two.
    pub memtable: u64,
    /// Bytes of a file.
    pub file: u64,
    /// Limits of the scheduler; the number of slots stands here.
    pub settings: Settings,
    /// Bytes per second that the program would write.
    pub write_rate: u64,
    /// How it is slowed.
    pub writer: Writer,
    /// Bytes per second of a flush.
    pub flush_rate: u64,
    /// Input bytes per second of a busy slot.
    pub slot_rate: u64,
    /// Bytes per second of the device.
    pub bandwidth: u64,
    /// Flushes are served first.
    pub flush_first: bool,
    /// Bytes of all keys, when keys are overwritten.
    pub universe: Option<u64>,
    /// Lookups and seeks per second that the policy and the scheduler are told of.
    pub reads: (f64, f64),
    /// One piece in so many takes twenty times as long; 0 for none.
    pub slow_one_in: u32,
    /// Seed of the keys' chance.
    pub seed: u64,
}

impl Setup {
    /// The paper's, with so many slots.
    pub fn downforce(slots: u32) -> Setup {
        Setup {
            total: 51_200 * MIB,
            memtable: 64 * MIB,
            file: 64 * MIB,
            settings: Settings { slots, ..Settings::default() },
            write_rate: 800 * MIB,
            writer: Writer::Linear { slow: 20, stop: 36 },
            flush_rate: 800 * MIB,
            slot_rate: 200 * MIB,
            bandwidth: 8000 * MIB,
            flush_first: true,
            universe: None,
            reads: (0.0, 0.0),
            slow_one_in: 0,
            seed: 1,
        }
    }

    /// The same with a part of the bytes.
    pub fn part(self, of: u64) -> Setup {
        Setup { total: self.total / of.max(1), ..self }
    }
}
