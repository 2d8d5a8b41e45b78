//! Tests of reads against plain definitions: a sorted list for cursors, a map for user views.
//!
//! `vec_cursor` is a cursor over a list that counts calls and can fail. `history` generates random versions, spreads
//! them over sources, and computes the expected result by brute force.

mod cursors;
mod gets;
pub(crate) mod history;
mod live;
pub(crate) mod vec_cursor;
mod views;
