//! When lookups skip a table's filter.
//!
//! A filter saves the blocks of lookups in vain, and costs every lookup a probe, which mostly misses the processor's
//! cache. Where nearly all lookups find their key, as in a store of one run, it costs more than it saves:
//!
//! ```text
//! vain * (1 - rate) * block  <  1/2 * (vain + found) * probe
//! ```
//!
//! `vain` and `found` are the table's recent lookups, `rate` is the filter's false-positive rate, `block` the time of
//! an unneeded block, and `probe` that of a probe. The filter is used again when both sides would be equal without the
//! half. Lookups of absent keys that come in between read a block each, so their number is bounded: of 100,000
//! lookups, 5,000 with blocks of 1 us, and 78 with blocks of 65 us.

/// Time of a probe in ns: a line that is not in the processor's cache. Without filters, lookups of present keys in a
/// cached store of two million entries took 90 ns less (of 1,090). Smaller stores save less.
const PROBE_NS: f64 = 50.0;
/// Share of the cost of the probes below which the saving must lie.
const MARGIN: f64 = 0.5;
/// Fewest recent lookups of a table that say anything.
const EVIDENCE: f64 = 4096.0;

/// Returns the number of vain lookups at which a table's filter is worth its probes; `None` if it is worth them now, or
/// too little is known.
pub fn skipped_until(vain: f64, found: f64, rate: f64, block_ns: f64) -> Option<f64> {
    let lookups = vain + found;
    let is_known = lookups >= EVIDENCE && lookups.is_finite() && rate.is_finite() && block_ns > 0.0;
    // A block takes no less than a probe.
    let saved = (1.0 - rate) * block_ns.max(PROBE_NS);
    let worth = lookups * PROBE_NS / saved.max(f64::MIN_POSITIVE);
    (is_known && vain < MARGIN * worth).then_some(worth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_save_nothing_are_skipped() {
        // Cached blocks of 1 us: a vain lookup in 40 pays for the probes.
        assert_eq!(skipped_until(0.0, 1e5, 0.0, 1000.0), Some(5000.0));
        assert!(skipped_until(2400.0, 1e5, 0.0, 1000.0).is_some());
        assert_eq!(skipped_until(2600.0, 1e5, 0.0, 1000.0), None);
        // Blocks of a device: a few in ten thousand do.
        assert!(skipped_until(30.0, 1e5, 0.01, 65_000.0).is_some_and(|until| until < 80.0));
        assert_eq!(skipped_until(50.0, 1e5, 0.01, 65_000.0), None);
        assert_eq!(skipped_until(6e4, 4e4, 0.0, 1.0), None, "no block is that fast");
        // A filter that lets everything pass is never worth a probe.
        assert!(skipped_until(1e5, 0.0, 1.0, 1000.0).is_some_and(|until| until > 1e9));
    }

    #[test]
    fn what_is_unknown_is_not_skipped() {
        for (vain, found, rate, block) in [
            (0.0, 4000.0, 0.01, 1e3),
            (0.0, 1e5, 0.01, 0.0),
            (f64::NAN, 1e5, 0.01, 1e3),
            (0.0, 1e5, f64::NAN, 1e3),
        ] {
            assert_eq!(skipped_until(vain, found, rate, block), None, "{vain} {found} {rate} {block}");
        }
    }
}
