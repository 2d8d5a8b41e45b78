//! Distribution of write waits.

use alloc::vec::Vec;

/// Wait times, each with the number of writes that had it.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Vec<(f64, f64)>);

impl Waits {
    /// Records that `writes` writes waited `nanos` nanoseconds each.
    pub(super) fn add(&mut self, nanos: f64, writes: f64) {
        match self.0.last_mut() {
            Some((last, count)) if *last == nanos => *count += writes,
            _ => self.0.push((nanos, writes)),
        }
    }

    /// Returns the wait that all but one in `one_in` writes stay within.
    pub(super) fn all_but(&mut self, one_in: f64) -> f64 {
        self.0.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut left = self.0.iter().map(|(_, writes)| writes).sum::<f64>() / one_in;
        for (nanos, writes) in &self.0 {
            left -= writes;
            if left < 0.0 {
                return *nanos;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_counted_in_writes() {
        let mut waits = Waits::default();
        waits.add(0.0, 500.0);
        waits.add(0.0, 490.0);
        waits.add(7.0, 9.0);
        waits.add(90.0, 1.0);
        assert_eq!(
            [1000.5, 1000.0, 200.0, 100.0, 90.0, 2.0].map(|n| waits.all_but(n)),
            [90.0, 7.0, 7.0, 0.0, 0.0, 0.0]
        );
        assert_eq!(Waits::default().all_but(1000.0), 0.0);
    }
}
