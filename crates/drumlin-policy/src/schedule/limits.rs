//! Numbers that bound what is under way (downforce.md 3.7, 4), and the number of slots (2, 3.8).
//!
//! Each limit spares the oldest unfinished ticket into a level: half-installed tickets cannot block each other.

use super::weights::Weights;

/// How plans follow each other. All but the first are for comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Any legal plan may run at any time, and each piece installs alone.
    #[default]
    Pipelined,
    /// As engines without a pipeline: level 0 and level 1 exclude each other, files that overlap busy ones are
    /// busy too, tiers merge one plan at a time, and a plan installs as a whole.
    Split,
    /// As [`Mode::Split`], with one thread for a plan.
    Unsplit,
}

impl Mode {
    /// Its name: `pipelined`, `split` or `unsplit`.
    pub const NAMES: [(&'static str, Mode); 3] =
        [("pipelined", Mode::Pipelined), ("split", Mode::Split), ("unsplit", Mode::Unsplit)];
}

/// What the scheduler goes by besides the tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Merge slots.
    pub slots: u32,
    /// How plans follow each other.
    pub mode: Mode,
    /// Least and most input bytes of a piece.
    pub piece: (u64, u64),
    /// Extra runs that a level may have; `None` derives them from the slots.
    pub depth_cap: Option<u32>,
    /// A fixed fold period in place of the one that costs suggest.
    pub fold_every: Option<u32>,
    /// From this fill of its target on, a level pair no longer goes first.
    pub back_pressure: f64,
    /// Microseconds that a finished piece waits before it lands.
    pub hold: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            slots: 1,
            mode: Mode::Pipelined,
            piece: (8 << 20, 64 << 20),
            depth_cap: None,
            fold_every: None,
            back_pressure: 3.0,
            hold: 10_000_000,
        }
    }
}

impl Settings {
    /// X: runs beyond the design at which a level takes no more without folding.
    pub fn cap(&self) -> u32 {
        self.depth_cap.unwrap_or((self.slots / 2).clamp(8, 16))
    }

    /// Unfinished tickets that a keyspace may have.
    pub fn most_tickets(&self) -> usize {
        4 * self.slots as usize + 16
    }

    /// Ready pieces of a level pair from which on no plan for it is admitted; with one slot, none while that is busy.
    /// What is queued grows old: more could be merged at once by a plan that is made when it can start.
    pub fn most_ready(&self, is_busy: bool) -> usize {
        let half = self.slots as usize / 2;
        if is_busy { half } else { half.max(1) }
    }

    /// The only slot: it serves what is above first, between the pieces of a merge, and else finishes what it began.
    pub fn gives_way(&self) -> bool {
        self.slots <= 1 && self.mode == Mode::Pipelined
    }

    /// Bytes beyond the design that the upper levels may hold before levels over their size take no more.
    pub fn most_extra(&self, weights: &Weights) -> f64 {
        let share = weights.growth().filter(|t| *t > 1.0).map_or(0.25, |t| 1.0 / (t - 1.0));
        let moving = 4.0 * f64::from(self.slots.max(1)) * self.piece.1 as f64;
        moving.max(share.clamp(0.05, 1.0) * weights.live)
    }
}

/// Extra disk of a running plan: `runs` input runs, `running` pieces started in key order, tables of `table` bytes and
/// outputs of at most `output` bytes.
pub fn extra_disk(runs: u64, running: u64, table: u64, output: u64) -> u64 {
    running * output + 2 * running * runs * table
}

/// What is known of the machine, for the number of slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Cores that the foreground leaves, at least 1.
    pub cores: f64,
    /// CPU time per wall time of a busy slot.
    pub busy: f64,
    /// Bytes per second that the device gives.
    pub device: f64,
    /// Bytes read and written per second by a slot.
    pub slot: f64,
    /// Memory for merges, and what one slot takes of it.
    pub memory: (u64, u64),
}

/// Slots that cores, device and memory carry.
pub fn slots(machine: &Machine) -> u32 {
    let by = |have: f64, each: f64| if each > 0.0 { (have / each) as u32 } else { u32::MAX };
    let cores = by(machine.cores.max(1.0), machine.busy);
    let device = by(machine.device, machine.slot);
    let memory = by(machine.memory.0 as f64, machine.memory.1 as f64);
    cores.min(device).min(memory).clamp(1, 32)
}

/// Finds the number of slots by trying: a step is kept only where merges gained a twentieth by it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuner {
    /// The number in force.
    pub slots: u32,
    /// The rate before the last step, and its direction.
    before: Option<(f64, i32)>,
    rest: u32,
}

/// Gain from which a step is kept.
const WORTH: f64 = 1.05;
/// Intervals without a step after one that was taken back.
const REST: u32 = 8;

impl Tuner {
    /// Begins with a guess.
    pub fn new(slots: u32) -> Tuner {
        Tuner { slots: slots.max(1), before: None, rest: 0 }
    }

    /// One interval passed in which all slots were busy, or not, and merges handled `rate` bytes per second; `most`
    /// slots are allowed.
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
        // 0.2 ms of CPU and 4 ms of waiting for each 256 KiB.
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
    fn extra_disk_has_a_bound_whatever_the_plan() {
        assert_eq!(extra_disk(2, 4, 32 << 20, 64 << 20), 768 << 20);
    }

    #[test]
    fn caps_follow_the_slots() {
        let cap = |slots| Settings { slots, ..Settings::default() }.cap();
        assert_eq!([1, 16, 20, 32, 64].map(cap), [8, 8, 10, 16, 16]);
    }

    #[test]
    fn steps_that_gain_nothing_are_taken_back() {
        // Gains end at 6 slots.
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
