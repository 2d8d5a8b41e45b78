//! Parameters of a simulation: sizes, rates, limits. The preset is that of the Downforce paper (6.1).

use drumlin_policy::schedule::Settings;

const MIB: u64 = 1 << 20;

/// Throttling of the writer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Writer {
    /// The setup's write rate, reduced linearly from `slow` runs of level 0 down to a stop at `stop` runs.
    Linear {
        /// Number of runs at which slowing begins.
        slow: u32,
        /// Number of runs at which the writer stops.
        stop: u32,
    },
    /// The policy's write rate limit.
    Paced,
}

/// Simulated load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Bytes that the program writes.
    pub total: u64,
    /// Bytes of a memtable; there are two.
    pub memtable: u64,
    /// Bytes of a file.
    pub file: u64,
    /// Scheduler settings, including the number of slots.
    pub settings: Settings,
    /// Bytes per second that the program would write.
    pub write_rate: u64,
    /// Throttling of the writer.
    pub writer: Writer,
    /// Bytes per second of a flush.
    pub flush_rate: u64,
    /// Input bytes per second of a busy slot.
    pub slot_rate: u64,
    /// Bytes per second of the device.
    pub bandwidth: u64,
    /// Whether flushes are served first.
    pub flush_first: bool,
    /// Bytes of all keys together, when keys are overwritten.
    pub universe: Option<u64>,
    /// Lookups and seeks per second that the policy and the scheduler see.
    pub reads: (f64, f64),
    /// Reciprocal of the fraction of pieces that take twenty times as long; 0 for none.
    pub slow_one_in: u32,
    /// Random seed.
    pub seed: u64,
}

impl Setup {
    /// Returns the paper's setup with `slots` slots.
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

    /// Returns the setup with one `of`-th of the bytes.
    pub fn part(self, of: u64) -> Setup {
        Setup { total: self.total / of.max(1), ..self }
    }
}
