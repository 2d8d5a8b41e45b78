//! The encoding of the saved state.
//!
//! A version byte, then 8-byte little-endian numbers. A state of another version is ignored as a whole. Parameters out
//! of bounds are clamped. Any other invalid number rejects the state.

use crate::compaction::arce::measure::model::bounded;
use crate::compaction::arce::score::formula::Tuple;
use alloc::format;
use alloc::vec::Vec;
use drumlin_types::contract::PolicyError;

/// Bounds on the parameter c, if it is finite.
pub(crate) const LEAST_SLOW_ABOVE: f64 = 2.0;
pub(crate) const MOST_SLOW_ABOVE: f64 = 512.0;

/// Writes numbers after a version byte.
pub(crate) struct StateWriter(Vec<u8>);

impl StateWriter {
    pub(crate) fn new(version: u8) -> StateWriter {
        StateWriter(Vec::from([version]))
    }

    pub(crate) fn numbers(&mut self, numbers: &[f64]) {
        numbers.iter().for_each(|number| self.0.extend(number.to_le_bytes()));
    }

    pub(crate) fn tuple(&mut self, tuple: &Tuple) {
        self.numbers(&[tuple.gain_intervals, tuple.slow_above, tuple.passes, tuple.size_ratio]);
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what a [`StateWriter`] wrote.
pub(crate) struct StateReader<'a>(&'a [u8]);

impl<'a> StateReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], version: u8) -> Result<StateReader<'a>, PolicyError> {
        match bytes.split_first() {
            Some((&found, rest)) if found == version => Ok(StateReader(rest)),
            Some((found, _)) => {
                Err(PolicyError(format!("the saved state of arce has version {found}, not {version}")))
            }
            None => Err(PolicyError("the saved state of arce is empty".into())),
        }
    }

    pub(crate) fn numbers<const N: usize>(&mut self) -> Result<[f64; N], PolicyError> {
        let mut numbers = [0.0; N];
        for number in &mut numbers {
            let Some((bytes, rest)) = self.0.split_first_chunk() else {
                return Err(PolicyError("the saved state of arce is truncated".into()));
            };
            (*number, self.0) = (f64::from_le_bytes(*bytes), rest);
        }
        Ok(numbers)
    }

    pub(crate) fn tuple(&mut self) -> Result<Tuple, PolicyError> {
        let [gain_intervals, slow_above, passes, size_ratio] = self.numbers()?;
        let open = |value: f64, least, most| {
            if value == f64::INFINITY { value } else { bounded(value, least, most) }
        };
        Ok(Tuple {
            gain_intervals: bounded(gain_intervals, 1.0, 1e6),
            slow_above: open(slow_above, LEAST_SLOW_ABOVE, MOST_SLOW_ABOVE),
            passes: bounded(passes, 0.25, 64.0),
            size_ratio: open(size_ratio, 0.1, 100.0),
        })
    }
}
