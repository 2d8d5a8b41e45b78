//! Inputs that are the same on every machine, for every engine, from one seed.
//!
//! [`random`] gives numbers, [`keys`] and [`values`] the bytes, [`choose`] which id an operation touches, and
//! [`stream`] puts them together: operations in chunks, with the digest that proves two runs did the same work.
//! [`trace`] reads requests that were recorded elsewhere.

pub mod choose;
pub mod keys;
pub mod random;
pub mod stream;
pub mod trace;
pub mod values;
pub mod zipf;

#[cfg(test)]
mod tests;
