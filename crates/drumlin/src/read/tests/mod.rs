//! Tests of reading, against plain definitions: a sorted list for cursors, a map for what users see.
//!
//! `vec_cursor` is a cursor over a list that counts what it is asked and can fail. `history` draws random
//! versions, spreads them over sources, and says by brute force what a reader must see.

mod cursors;
mod gets;
pub(crate) mod history;
mod live;
pub(crate) mod vec_cursor;
mod views;
