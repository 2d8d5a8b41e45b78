//! Whether the filter of a new table is built as a Ribbon filter.
//!
//! A Ribbon filter rejects more vain lookups than a Bloom filter with the same bits, but costs time when it is built
//! and when it is probed. It pays if the blocks that it saves would take longer:
//!
//! ```text
//! life * vain * (bloom(b) - ribbon(b)) * block  >  keys * 95 ns + life * probed * 40 ns
//! ```
//!
//! `life` is the number of the keyspace's lookups until a table of the level is compacted away. `vain` is the share
//! of them that probe the table and do not find their key, `probed` the share that probe it. `block` is the time of
//! an unneeded block. `bloom` and `ribbon` are the rates of the ideal curves (`rate.rs`); a real blocked Bloom filter
//! is worse, so the saving is underestimated. Measured with 2 to 10 bits per key and 100,000 and 600,000 keys on one
//! core of a Xeon: building takes 95 to 110 ns a key in place of 3 to 11, a probe 20 to 55 ns more.
//!
//! No table is left without a filter because of a short life. A Bloom filter is built in a few ns a key, a hundredth
//! of what a compaction takes for an entry. Lives are no safe guide either: while lookups pause, tables are compacted
//! away after no lookups at all. The tables built last would then have no filter when lookups come back.

use super::rate::{BLOOM, RIBBON, rate};

/// Extra build time over a Bloom filter, per key, in ns.
const BUILD_NS: f64 = 95.0;
/// Extra time of a probe over a Bloom filter, in ns.
const PROBE_NS: f64 = 40.0;

/// Expected use of a new table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outlook {
    /// Number of distinct keys.
    pub keys: f64,
    /// Lookups of the keyspace until the table is compacted away.
    pub life: f64,
    /// Share of the lookups that search the table in vain.
    pub vain: f64,
    /// Share of the lookups that probe the table.
    pub probed: f64,
    /// Time of an unneeded block in ns: its search, and its read if it is not cached.
    pub block_ns: f64,
}

/// Returns whether a Ribbon filter with `bits` bits per key pays. If a number is not known (NaN), it does not.
pub fn ribbon_pays(outlook: &Outlook, bits: f64) -> bool {
    let Outlook { keys, life, vain, probed, block_ns } = *outlook;
    let saved = life * vain * (rate(BLOOM, bits) - rate(RIBBON, bits)) * block_ns;
    saved > keys * BUILD_NS + life * probed * PROBE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Outlook = Outlook { keys: 1e5, life: 1e6, vain: 0.5, probed: 0.5, block_ns: 65_000.0 };

    #[test]
    fn blocks_of_a_device_pay() {
        assert!(ribbon_pays(&TABLE, 4.0) && ribbon_pays(&TABLE, 10.0));
        // One vain lookup for each 32 keys, where a Bloom filter passes 0.1.
        let lookups = |each: f64| Outlook { life: 1e5 * each * 2.0, probed: 0.0, ..TABLE };
        assert!(!ribbon_pays(&lookups(1.0 / 50.0), 4.8) && ribbon_pays(&lookups(1.0 / 20.0), 4.8));
    }

    #[test]
    fn cached_blocks_pay_at_few_bits() {
        let cached = Outlook { block_ns: 1500.0, life: 1e7, ..TABLE };
        assert!(ribbon_pays(&cached, 3.0) && !ribbon_pays(&cached, 10.0));
        assert!(!ribbon_pays(&Outlook { vain: 0.05, ..cached }, 3.0), "most probes find their key");
    }

    #[test]
    fn what_is_unknown_or_absent_pays_nothing() {
        for (life, vain, bits) in [(0.0, 0.5, 4.0), (1e6, 0.0, 4.0), (1e6, 0.5, 0.0), (f64::NAN, 0.5, 4.0)] {
            assert!(!ribbon_pays(&Outlook { life, vain, ..TABLE }, bits), "{life} {vain} {bits}");
        }
    }
}
