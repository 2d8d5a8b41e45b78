//! Workload, measured costs and limits, as a policy sees them.
//!
//! Every figure is either measured or set by the user; none is assumed. A figure that is not known yet is 0.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Observed load of one keyspace, as decayed rates per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadView {
    /// Point lookups per second.
    pub gets: f64,
    /// Seeks per second. Each scan begins with one seek.
    pub seeks: f64,
    /// Writes per second.
    pub writes: f64,
    /// User bytes written per second.
    pub write_bytes: f64,
    /// Mean size of a written entry, in bytes.
    pub entry_bytes: f64,
    /// Bytes per second that user reads fetched from the device.
    pub read_bytes: f64,
    /// Number of point lookups, seeks and writes since the store was opened.
    pub counted: [u64; 3],
    /// Number of client threads that were recently active.
    pub clients: f64,
    /// Time that writers waited for admission, in seconds per second.
    pub waited: f64,
    /// Number of sealed memtables that wait for their flush.
    pub sealed_memtables: u32,
    /// Fill ratio of the active memtable, 0..=1.
    pub memtable_fill: f64,
    /// Number of live snapshots.
    pub snapshots: u32,
    /// Of the runs beyond one that cover the key of a point lookup, the share that a lookup searches in vain; 0 while
    /// it is not known. Lookups search newer runs first and stop at the newest version, so they pass over older runs.
    pub vain_share: f64,
}

impl LoadView {
    /// Returns the share, above 0 and at most 1, of the runs beyond one that a point lookup searches in vain. It is 1
    /// while nothing is known, as for absent keys.
    pub fn vain(&self) -> f64 {
        if self.vain_share > 0.0 { self.vain_share.min(1.0) } else { 1.0 }
    }
}

/// Returns the total variation distance of two operation mixes, from 0 to 1: half the sum of the absolute differences.
///
/// Each mix gives the shares of the three kinds of operation.
pub fn total_variation(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}

/// Measured costs, as running means in nanoseconds and bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CostView {
    /// Input bytes that a busy compaction slot processes per second.
    pub compaction_bytes_per_s: f64,
    /// Fixed cost of a piece (a subcompaction): install and sync, ns.
    pub compaction_fixed_ns: f64,
    /// Bytes of table output that a flush writes per second.
    pub flush_bytes_per_s: f64,
    /// Filter and index probe of one run, ns.
    pub probe_ns: f64,
    /// Mean access to a data block over cache hits and misses, ns.
    pub block_ns: f64,
    /// Positioning of one run's cursor in a seek, ns.
    pub cursor_ns: f64,
    /// Positioning of one run's cursor in seeks that fetch no block, ns.
    pub cursor_cached_ns: f64,
    /// Mean number of blocks that a seek fetches.
    pub seek_blocks: f64,
    /// Time that each fetched block adds to a seek, ns.
    pub fetch_ns: f64,
    /// Mean time of a point lookup, ns.
    pub get_ns: f64,
    /// Mean time of a seek and the reads that follow it, ns.
    pub scan_ns: f64,
    /// Mean time of a write, excluding waits for admission, ns.
    pub write_ns: f64,
    /// Share, 0 to 1, of the operations behind `get_ns`, `scan_ns` and `write_ns` that ran beside a compaction.
    pub busy_share: f64,
}

/// Limits set by the user or the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitView {
    /// Size at which a memtable is sealed, in bytes.
    pub memtable_bytes: u64,
    /// Target size of compaction output files, in bytes.
    pub file_bytes: u64,
    /// Number of compaction slots.
    pub slots: u32,
    /// Number of threads that the machine can run at once; `u32::MAX` for no limit.
    pub cores: u32,
    /// Number of runs at which writers stop.
    pub max_runs: u32,
    /// Upper bound on the write amplification of elective compactions: bytes rewritten per flushed byte.
    pub max_write_amp: f64,
    /// Disk space budget in bytes; `u64::MAX` when there is none.
    pub disk_budget: u64,
    /// Disk space that the store uses, in bytes.
    pub disk_used: u64,
    /// Parameters that are fixed, so that an adaptive policy does not choose them.
    pub pin: Option<Pin>,
    /// Bit set of levels. Bit l is set when enough compactions that take from level l to deeper levels are ready. The
    /// scheduler then refuses further such plans that have no deadline.
    pub enough: u8,
}

impl Default for LimitView {
    fn default() -> LimitView {
        LimitView {
            memtable_bytes: 64 << 20,
            file_bytes: 64 << 20,
            slots: 1,
            cores: u32::MAX,
            max_runs: 64,
            max_write_amp: 20.0,
            disk_budget: u64::MAX,
            disk_used: 0,
            pin: None,
            enough: 0,
        }
    }
}

/// Fixed values of the parameters that the adaptive policy otherwise chooses.
///
/// The parameters are the number M of flush intervals over which a gain counts, the number c of covered runs above
/// which writers are throttled, the number q of compaction passes per written byte, and the size ratio rho. The text
/// form is `M/c/q/rho`, with `none` for no limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pin {
    /// M, 1 to 1000000 flush intervals.
    pub gain_intervals: f64,
    /// c, 2 to 512 runs; infinite for no limit.
    pub slow_above: f64,
    /// q, 0.25 to 64 compaction passes.
    pub passes: f64,
    /// rho, 0.1 to 100; infinite for no limit.
    pub size_ratio: f64,
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Pin, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [gain_intervals, slow_above, passes, size_ratio] = parts[..] else {
            return Err(format!("{text}: must be M/c/q/rho"));
        };
        let number = |name: &str, text: &str, least: f64, most: f64, or_none: bool| {
            if or_none && text == "none" {
                return Ok(f64::INFINITY);
            }
            let value = text.parse::<f64>().ok().filter(|value| (least..=most).contains(value));
            let none = if or_none { " or none" } else { "" };
            value.ok_or_else(|| format!("{name} = {text}: must be {least} to {most}{none}"))
        };
        Ok(Pin {
            gain_intervals: number("M", gain_intervals, 1.0, 1e6, false)?,
            slow_above: number("c", slow_above, 2.0, 512.0, true)?,
            passes: number("q", passes, 0.25, 64.0, false)?,
            size_ratio: number("rho", size_ratio, 0.1, 100.0, true)?,
        })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pin { gain_intervals, slow_above, passes, size_ratio } = self;
        write!(f, "{gain_intervals}/")?;
        if slow_above.is_finite() {
            write!(f, "{slow_above}/")?
        } else {
            f.write_str("none/")?
        }
        write!(f, "{passes}/")?;
        if size_ratio.is_finite() { write!(f, "{size_ratio}") } else { f.write_str("none") }
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
        assert_eq!(refused("0/24/2/1"), "M = 0: must be 1 to 1000000");
        assert_eq!(refused("8/1/2/1"), "c = 1: must be 2 to 512 or none");
        assert_eq!(refused("8/9/none/1"), "q = none: must be 0.25 to 64");
        assert_eq!(refused("8/9/NaN/1"), "q = NaN: must be 0.25 to 64");
        assert_eq!(refused("8/9/2/inf"), "rho = inf: must be 0.1 to 100 or none");
    }
}
