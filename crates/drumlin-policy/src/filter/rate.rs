//! False-positive rate of a filter by its bits per key.
//!
//! The rate falls exponentially: `rate = exp(-slope * bits)`. An ideal Bloom filter has the slope (ln 2)^2. The blocked
//! filter of format 1 is up to 3 percent above this up to 6 bits, 18 percent at 10 bits and 84 percent at 16. The curve
//! is used only to divide bits; everything else uses rates as built. Dividing by it costs at most 0.6 percent more
//! unneeded blocks than dividing by the real curve.

use crate::real;
use core::f64::consts::LN_2;

/// Slope of a Bloom filter.
pub const BLOOM: f64 = LN_2 * LN_2;
/// Slope of a Ribbon filter: 1.04 bits for each halving of the rate.
pub const RIBBON: f64 = LN_2 / 1.04;

/// Returns the false-positive rate of a filter with `bits` bits per key; 1 without a filter.
pub fn rate(slope: f64, bits: f64) -> f64 {
    if bits > 0.0 { real::exp(-slope * bits) } else { 1.0 }
}

/// Returns 1 - rate(1), the share of vain lookups that one bit per key rejects. One bit beats none if the price of a
/// bit times the number of keys is below this share of the table's weight.
pub(super) fn worth_of_one_bit(slope: f64) -> f64 {
    1.0 - real::exp(-slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_formulas() {
        assert!((BLOOM - 0.480_453).abs() < 1e-6);
        assert!((rate(BLOOM, 10.0) - 0.0082).abs() < 1e-4, "{}", rate(BLOOM, 10.0));
        assert_eq!((rate(BLOOM, 0.0), rate(BLOOM, -1.0), rate(BLOOM, f64::NAN)), (1.0, 1.0, 1.0));
        assert!((worth_of_one_bit(BLOOM) - 0.3815).abs() < 1e-4);
    }
}
