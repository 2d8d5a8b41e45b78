//! Limits on work under way, and the number of compaction slots.
//!
//! Every limit exempts the oldest unfinished ticket into a level, so half-installed tickets cannot block each other.

use super::weights::Weights;

/// Concurrency mode of compactions. All modes but the first are for comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Concurrency {
    /// Any legal plan may run at any time, and each piece is installed on its own.
    #[default]
    Pipelined,
    /// As in engines without a pipeline: level 0 and level 1 exclude each other, and files that overlap busy ones are
    /// busy too. Tiers compact one plan at a time, and a plan is installed as a whole.
    Split,
    /// Like [`Concurrency::Split`], with a single thread per plan.
    Unsplit,
}

impl Concurrency {
    /// Names of the modes: `pipelined`, `split` and `unsplit`.
    pub const NAMES: [(&'static str, Concurrency); 3] = [
        ("pipelined", Concurrency::Pipelined),
        ("split", Concurrency::Split),
        ("unsplit", Concurrency::Unsplit),
    ];
}

/// Scheduler settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Number of compaction slots.
    pub slots: u32,
    /// Concurrency mode of compactions.
    pub mode: Concurrency,
    /// Smallest and largest input bytes of a piece.
    pub piece: (u64, u64),
    /// Number of extra runs that a level may have; `None` derives it from the slots.
    pub depth_cap: Option<u32>,
    /// Fixed fold period that replaces the one computed from costs.
    pub fold_every: Option<u32>,
    /// Fill of the output level above which a level pair loses its precedence.
    pub back_pressure: f64,
    /// Microseconds that a finished piece waits before it lands.
    pub hold: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            slots: 1,
            mode: Concurrency::Pipelined,
            piece: (8 << 20, 64 << 20),
            depth_cap: None,
            fold_every: None,
            back_pressure: 3.0,
            hold: 10_000_000,
        }
    }
}

impl Settings {
    /// Returns X, the number of runs beyond the target shape at which a level takes no more without folding.
    pub fn cap(&self) -> u32 {
        self.depth_cap.unwrap_or((self.slots / 2).clamp(8, 16))
    }

    /// Returns the upper bound on unfinished tickets of a keyspace.
    pub fn most_tickets(&self) -> usize {
        4 * self.slots as usize + 16
    }

    /// Returns the number of ready pieces of a level pair at which no further plan for it is admitted. With one slot
    /// this is zero while the slot is busy. Queued plans become outdated: a plan that is made when it can start
    /// covers more data at once.
    pub fn most_ready(&self, is_busy: bool) -> usize {
        let half = self.slots as usize / 2;
        if is_busy { half } else { half.max(1) }
    }

    /// Returns whether there is only one slot. Such a slot serves upper levels first, between the pieces of a long
    /// compaction, and otherwise finishes what it began.
    pub fn gives_way(&self) -> bool {
        self.slots <= 1 && self.mode == Concurrency::Pipelined
    }

    /// Returns the bytes beyond the target shape that upper levels may hold before levels over their size take no more.
    pub fn most_extra(&self, weights: &Weights) -> f64 {
        let share = weights.growth().filter(|t| *t > 1.0).map_or(0.25, |t| 1.0 / (t - 1.0));
        let moving = 4.0 * f64::from(self.slots.max(1)) * self.piece.1 as f64;
        moving.max(share.clamp(0.05, 1.0) * weights.live)
    }
}

/// Returns the bytes that a compaction of `bytes` may write: its input, plus 1/16 for blocks that come out less
/// dense.
pub fn with_margin(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16)
}

/// Properties of the machine that determine the number of slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Number of cores that the foreground leaves, at least 1.
    pub cores: f64,
    /// CPU time per wall-clock time of a busy slot.
    pub busy: f64,
    /// Device bandwidth in bytes per second.
    pub device: f64,
    /// Bytes read and written per second by a slot.
    pub slot: f64,
    /// Memory for compactions in total, and per slot.
    pub memory: (u64, u64),
}

/// Returns the number of slots that cores, device and memory can sustain.
pub fn slots(machine: &Machine) -> u32 {
    let by = |have: f64, each: f64| if each > 0.0 { (have / each) as u32 } else { u32::MAX };
    let cores = by(machine.cores.max(1.0), machine.busy);
    let device = by(machine.device, machine.slot);
    let memory = by(machine.memory.0 as f64, machine.memory.1 as f64);
    cores.min(device).min(memory).clamp(1, 32)
}

/// Hill climber for the number of slots. It keeps a step only if compaction throughput rises by five percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuner {
    /// Number of slots in force.
    pub slots: u32,
    /// Throughput before the last step, and the direction of that step.
    before: Option<(f64, i32)>,
    rest: u32,
}

/// Least throughput ratio at which a step is kept.
const WORTH: f64 = 1.05;
/// Number of intervals without a step after a step was taken back.
const REST: u32 = 8;

impl Tuner {
    /// Starts with `slots` slots.
    pub fn new(slots: u32) -> Tuner {
        Tuner { slots: slots.max(1), before: None, rest: 0 }
    }

    /// Processes one interval and returns the number of slots. `all_busy` tells whether all slots were busy, `rate`
    /// is the compaction throughput in bytes per second, and `most` is the upper bound on slots.
    pub fn interval(&mut self, rate: f64, all_busy: bool, most: u32) -> u32 {
        let most = most.max(1);
        match self.before.take() {
            Some((before, step)) if rate < before * WORTH => {
                self.slots = self.slots.saturating_add_signed(-step);
                self.rest = REST;
            }
            _ if self.rest > 0 => self.rest -= 1,
            _ if all_busy && self.slots < most => {
                self.before = Some((rate, 1));
                self.slots += 1;
            }
            _ => {}
        }
        self.slots = self.slots.clamp(1, most);
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_cores_device_and_memory() {
        // Each 256 KiB takes 0.2 ms of CPU and 4 ms of waiting.
        let rate: f64 = 256.0 * 1024.0 / 4.2e-3;
        assert!((rate / 1048576.0 - 59.5).abs() < 0.05);
        let mib = 1048576.0;
        let machine = Machine {
            cores: 1.0,
            busy: 1.0 / 21.0,
            device: 2000.0 * mib,
            slot: 2.0 * rate,
            memory: (1 << 30, 1),
        };
        assert_eq!(slots(&machine), 16);
        assert_eq!(slots(&Machine { device: 1e12, ..machine }), 21);
        assert_eq!(slots(&Machine { memory: (3 << 20, 1 << 20), ..machine }), 3);
        assert_eq!(slots(&Machine { cores: 0.0, busy: 4.0, ..machine }), 1);
    }

    #[test]
    fn caps_follow_the_slots() {
        let cap = |slots| Settings { slots, ..Settings::default() }.cap();
        assert_eq!([1, 16, 20, 32, 64].map(cap), [8, 8, 10, 16, 16]);
    }

    #[test]
    fn steps_that_gain_nothing_are_taken_back() {
        // Throughput stops growing at 6 slots.
        let mut tuner = Tuner::new(1);
        for _ in 0..200 {
            let rate = f64::from(tuner.slots.min(6));
            tuner.interval(rate, true, 32);
        }
        assert!((6..=7).contains(&tuner.slots), "{}", tuner.slots);
        let mut idle = Tuner::new(4);
        for _ in 0..50 {
            idle.interval(1.0, false, 32);
        }
        assert_eq!(idle.slots, 4);
    }
}
