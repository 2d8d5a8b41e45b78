//! Generated inputs that are equal on every machine and for every engine, from one seed.
//!
//! [`random`] generates numbers, [`keys`] and [`values`] the bytes, and [`choose`] the id that an operation accesses.
//! [`stream`] combines them to operations in chunks, with a digest that proves that two runs did the same work.
//! [`trace`] reads recorded requests.

pub mod choose;
pub mod keys;
pub mod random;
pub mod stream;
pub mod trace;
pub mod values;
pub mod zipf;

#[cfg(test)]
mod tests;
