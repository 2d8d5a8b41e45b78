//! Reseeks: seeks by which a search passes many hidden entries at once.
//!
//! A view moves in one direction until its user seeks or turns, so its reseeks go in that direction too. A table with
//! sound checksums may still have its keys out of order. There a reseek can lead back, and the search would never end.
//! So a reseek from a key that an earlier one has passed is corruption.

use crate::base::cursor::Direction;
use crate::base::error::{Error, ErrorKind, Result};
use std::cmp::Ordering;

/// Maximum number of reseeks from one key in a row. With sound tables, no test makes more than four.
const MOST_REPEATS: u32 = 64;

/// The last reseek since the view's user sought or turned.
#[derive(Default)]
pub(super) struct Reseeks {
    direction: Direction,
    /// Whether there was one.
    any: bool,
    /// Key from which it went.
    key: Vec<u8>,
    /// Number of reseeks from that key before it.
    repeats: u32,
}

impl Reseeks {
    /// Begins a search after a seek of the user.
    pub(super) fn begin(&mut self, direction: Direction) {
        (self.direction, self.any) = (direction, false);
    }

    /// Begins a search from where the last one ended.
    #[inline]
    pub(super) fn go_on(&mut self, direction: Direction) {
        if self.direction != direction {
            self.begin(direction);
        }
    }

    /// Checks that a reseek from `key` does not follow one from behind it.
    pub(super) fn check(&mut self, key: &[u8]) -> Result<()> {
        let order = match self.direction {
            Direction::Forward => key.cmp(&self.key),
            Direction::Backward => self.key[..].cmp(key),
        };
        if self.any && order == Ordering::Equal && self.repeats < MOST_REPEATS {
            self.repeats += 1;
            return Ok(());
        }
        if self.any && order != Ordering::Greater {
            let what = "a table has its keys out of order; `verify` names it";
            return Err(Error::new(ErrorKind::Corruption, what));
        }
        (self.any, self.repeats) = (true, 0);
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reseeks_go_in_one_direction() {
        let mut reseeks = Reseeks::default();
        reseeks.begin(Direction::Forward);
        for key in ["b", "b", "c"] {
            reseeks.go_on(Direction::Forward);
            reseeks.check(key.as_bytes()).expect("forward");
        }
        assert_eq!(reseeks.check(b"b").expect_err("back").kind(), ErrorKind::Corruption);
        reseeks.go_on(Direction::Backward);
        reseeks.check(b"d").expect("the user turned");
        reseeks.check(b"a").expect("backward");
        assert!(reseeks.check(b"b").is_err());
        reseeks.begin(Direction::Backward);
        reseeks.check(b"z").expect("the user sought");
        let repeats = (0..).take_while(|_| reseeks.check(b"z").is_ok()).count();
        assert_eq!(repeats, MOST_REPEATS as usize);
    }
}
