//! What a policy sees of the workload, of measured costs and of limits. Everything here is measured or
//! set by the user; nothing is assumed. Unknown figures are 0.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Observed load of one keyspace: decayed rates, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadView {
    /// Point lookups per second.
    pub gets: f64,
    /// Seeks (scans begun) per second.
    pub seeks: f64,
    /// Writes per second.
    pub writes: f64,
    /// Written user bytes per second.
    pub write_bytes: f64,
    /// Mean bytes of one written entry.
    pub entry_bytes: f64,
    /// Bytes per second that user reads fetched from the device.
    pub read_bytes: f64,
    /// Point lookups, seeks and writes counted since the store was opened.
    pub counted: [u64; 3],
    /// Client threads seen active lately.
    pub clients: f64,
    /// Seconds per second that writers waited to be admitted.
    pub waited: f64,
    /// Sealed memtables that wait for their flush.
    pub sealed_memtables: u32,
    /// Fill of the active memtable, 0..=1.
    pub memtable_fill: f64,
    /// Snapshots alive.
    pub snapshots: u32,
}

/// The total variation of two mixes of operations, each as shares of its kinds: half the sum of their differences, 0 to 1.
pub fn total_variation(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}

/// Measured costs, as running means; nanoseconds and bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CostView {
    /// Input bytes that a busy merge slot handles per second.
    pub merge_bytes_per_s: f64,
    /// Fixed cost of a merge piece: install and sync, ns.
    pub merge_fixed_ns: f64,
    /// Bytes of table output that a flush writes per second.
    pub flush_bytes_per_s: f64,
    /// Filter and fence probe of one run, ns.
    pub probe_ns: f64,
    /// Data block access, cached or not as they occur, ns.
    pub block_ns: f64,
    /// Placing one run's cursor in a seek, ns.
    pub cursor_ns: f64,
    /// The same in seeks for which no block had to be fetched, ns.
    pub cursor_cached_ns: f64,
    /// Blocks that a seek fetches, mean.
    pub seek_blocks: f64,
    /// What each of them adds to the time of the seek, ns.
    pub fetch_ns: f64,
    /// Mean time of a point lookup, ns.
    pub get_ns: f64,
    /// Mean time of a seek with what follows it, ns.
    pub scan_ns: f64,
    /// Mean time of a write without waiting, ns.
    pub write_ns: f64,
    /// Share, 0 to 1, of the operations behind these three means that passed while a merge ran.
    pub busy_share: f64,
}

/// Numbers that the user or the engine sets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitView {
    /// Size at which a memtable is sealed, bytes.
    pub memtable_bytes: u64,
    /// Size at which output files are cut, bytes.
    pub file_bytes: u64,
    /// Merge slots.
    pub slots: u32,
    /// Most runs a tree may have before writers stop.
    pub max_runs: u32,
    /// Bytes rewritten per flushed byte that elective merges may use.
    pub max_write_amp: f64,
    /// Disk budget in bytes; `u64::MAX` when there is none.
    pub disk_budget: u64,
    /// Bytes of disk in use by the store.
    pub disk_used: u64,
    /// Numbers that an adaptive policy must not choose itself.
    pub pin: Option<Pin>,
    /// Bit l: enough merges that take from level l downward are ready. A plan from there without a deadline would be
    /// refused.
    pub enough: u8,
}

impl Default for LimitView {
    fn default() -> LimitView {
        LimitView {
            memtable_bytes: 64 << 20,
            file_bytes: 64 << 20,
            slots: 1,
            max_runs: 64,
            max_write_amp: 20.0,
            disk_budget: u64::MAX,
            disk_used: 0,
            pin: None,
            enough: 0,
        }
    }
}

/// Fixed values for what the adaptive policy otherwise chooses (arce.md 3.7): the windows M over which a
/// gain counts, the covered runs c above which writers slow, the merge passes q per written byte, and the
/// size balance rho. As text `M/c/q/rho`, with `none` for no limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pin {
    /// M, 1 to 1000000 windows.
    pub horizon: f64,
    /// c, 2 to 512 runs; infinite for none.
    pub calm: f64,
    /// q, 0.25 to 64 passes.
    pub passes: f64,
    /// rho, 0.1 to 100; infinite for none.
    pub balance: f64,
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Pin, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [horizon, calm, passes, balance] = parts[..] else {
            return Err(format!("{text}: must be M/c/q/rho"));
        };
        let number = |name: &str, text: &str, least: f64, most: f64, or_none: bool| {
            if or_none && text == "none" {
                return Ok(f64::INFINITY);
            }
            let value = text.parse::<f64>().ok().filter(|value| (least..=most).contains(value));
            let none = if or_none { " or none" } else { "" };
            value.ok_or_else(|| format!("{name} = {text}: must be {least}..={most}{none}"))
        };
        Ok(Pin {
            horizon: number("M", horizon, 1.0, 1e6, false)?,
            calm: number("c", calm, 2.0, 512.0, true)?,
            passes: number("q", passes, 0.25, 64.0, false)?,
            balance: number("rho", balance, 0.1, 100.0, true)?,
        })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pin { horizon, calm, passes, balance } = self;
        write!(f, "{horizon}/")?;
        if calm.is_finite() {
            write!(f, "{calm}/")?
        } else {
            f.write_str("none/")?
        }
        write!(f, "{passes}/")?;
        if balance.is_finite() { write!(f, "{balance}") } else { f.write_str("none") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn pins_come_back_from_their_text() {
        for text in ["8/24/2/1", "1000000/none/0.25/none", "1.5/2/64/0.1"] {
            assert_eq!(text.parse::<Pin>().unwrap().to_string(), text);
        }
        let refused = |text: &str| text.parse::<Pin>().unwrap_err();
        assert_eq!(refused("8/24/2"), "8/24/2: must be M/c/q/rho");
        assert_eq!(refused("0/24/2/1"), "M = 0: must be 1..=1000000");
        assert_eq!(refused("8/1/2/1"), "c = 1: must be 2..=512 or none");
        assert_eq!(refused("8/9/none/1"), "q = none: must be 0.25..=64");
        assert_eq!(refused("8/9/NaN/1"), "q = NaN: must be 0.25..=64");
        assert_eq!(refused("8/9/2/inf"), "rho = inf: must be 0.1..=100 or none");
    }
}
