//! A histogram of lifetimes in logarithmic buckets, four for each doubling. Old samples fade: all counts are halved
//! when their sum reaches [`MOST_WEIGHT`].

use super::bytes::take;
use alloc::vec;
use alloc::vec::Vec;

/// Number of buckets. The last one also has everything longer.
pub const BUCKETS: usize = 256;
/// Sum of the weights at which all are halved.
pub const MOST_WEIGHT: u64 = 131_072;

/// Returns four times the binary logarithm of `x`, rounded down; 0 up to 1.
#[must_use]
pub(super) fn quarter_steps(x: f64) -> usize {
    if x.is_nan() || x <= 1.0 {
        return 0;
    }
    // The exponent, and the quarter in which the mantissa lies: 2^(1/4), 2^(1/2) and 2^(3/4) bound them.
    const QUARTERS: [f64; 3] = [1.189_207_115_002_721, core::f64::consts::SQRT_2, 1.681_792_830_507_429];
    let exponent = (x.to_bits() >> 52) as usize - 1023;
    let mantissa = f64::from_bits((x.to_bits() & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    4 * exponent + QUARTERS.iter().filter(|edge| mantissa >= **edge).count()
}

/// Returns the bucket of `lifetime`: four times its binary logarithm, rounded down.
#[must_use]
pub fn bucket(lifetime: f64) -> usize {
    quarter_steps(lifetime).min(BUCKETS - 1)
}

/// Returns the upper edge of `bucket`.
#[must_use]
pub fn upper_edge(bucket: usize) -> f64 {
    crate::real::exp((bucket + 1) as f64 / 4.0 * core::f64::consts::LN_2)
}

/// A weighted histogram of lifetimes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    weights: Vec<u32>,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { weights: vec![0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// Adds `weight` to the bucket of `lifetime`. A weight counts as at most a quarter of [`MOST_WEIGHT`].
    pub fn add(&mut self, lifetime: f64, weight: u64) {
        let weight = weight.min(MOST_WEIGHT / 4) as u32;
        self.weights[bucket(lifetime)] += weight;
        self.sum += u64::from(weight);
        if self.sum >= MOST_WEIGHT {
            self.weights.iter_mut().for_each(|weight| *weight /= 2);
            self.sum = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        }
    }

    /// Appends the histogram to `out`.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        let used = self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0);
        out.extend((used.clone().count() as u16).to_le_bytes());
        for (bucket, weight) in used {
            out.push(bucket as u8);
            out.extend(weight.to_le_bytes());
        }
    }

    /// Takes a saved histogram off the front of `bytes`.
    pub(super) fn restore(bytes: &mut &[u8]) -> Option<Histogram> {
        let mut histogram = Histogram::default();
        let mut least = 0;
        for _ in 0..u16::from_le_bytes(take(bytes)?) {
            let [bucket] = take(bytes)?;
            let weight = u32::from_le_bytes(take(bytes)?);
            let bucket = usize::from(bucket);
            if bucket < least || weight == 0 {
                return None;
            }
            least = bucket + 1;
            histogram.weights[bucket] = weight;
            histogram.sum += u64::from(weight);
        }
        (histogram.sum < MOST_WEIGHT).then_some(histogram)
    }

    /// Returns the weights by bucket.
    #[must_use]
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Returns the sum of all weights.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the share of the weight below `lifetime`; of its own bucket the half counts. 0.5 without samples.
    #[must_use]
    pub fn rank(&self, lifetime: f64) -> f64 {
        if self.sum == 0 {
            return 0.5;
        }
        let own = bucket(lifetime);
        let below: u64 = self.weights[..own].iter().map(|weight| u64::from(*weight)).sum();
        (below as f64 + f64::from(self.weights[own]) / 2.0) / self.sum as f64
    }

    /// Returns the upper edge of the bucket in which `share` of the weight is reached; `None` without samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.sum == 0 {
            return None;
        }
        let mut left = share * self.sum as f64;
        for (bucket, weight) in self.weights.iter().enumerate() {
            left -= f64::from(*weight);
            if left <= 0.0 && *weight > 0 {
                return Some(upper_edge(bucket));
            }
        }
        Some(upper_edge(BUCKETS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_quarters_of_a_doubling() {
        let buckets = [0.0, 1.0, 2.0, 3.0, 5.0, 1000.0, 1_048_576.0, f64::INFINITY].map(bucket);
        assert_eq!(buckets, [0, 0, 4, 6, 9, 39, 80, 255]);
        assert!((upper_edge(39) - 1024.0).abs() < 1e-6);
        for power in 0..63 {
            assert_eq!(bucket((1u64 << power) as f64), 4 * power, "2^{power}");
        }
    }

    #[test]
    fn old_samples_fade() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.rank(5.0), histogram.quantile(0.5)), (0.5, None));
        for _ in 0..MOST_WEIGHT - 1 {
            histogram.add(10.0, 1);
        }
        assert_eq!(histogram.sum(), MOST_WEIGHT - 1);
        histogram.add(1000.0, 1);
        assert_eq!(histogram.sum(), MOST_WEIGHT / 2 - 1, "halved; the single sample is gone");
        histogram.add(1000.0, u64::MAX);
        assert_eq!(histogram.sum(), MOST_WEIGHT * 3 / 4 - 1);
        assert!(histogram.quantile(0.6).expect("samples") < 12.0);
        assert!((histogram.quantile(0.7).expect("samples") - 1024.0).abs() < 1e-6);
        assert!((histogram.rank(10.0) - 1.0 / 3.0).abs() < 1e-4);
        assert!(histogram.rank(500.0) > 0.66 && histogram.rank(f64::INFINITY) > 0.99);
    }
}
