//! Jumps of a search: seeks past many entries at once.
//!
//! A view moves in one direction until its user seeks or turns, so its jumps go in that direction too. A table with
//! sound checksums may still have its keys out of order. There a jump can lead back, and the search would never end.
//! So a jump from a key that an earlier jump has passed is corruption.

use crate::base::error::{Error, ErrorKind, Result};
use std::cmp::Ordering;

/// Maximum number of jumps from one key in a row. A sound search makes at most four; those of damaged tables must end.
const MOST_REPEATS: u32 = 64;

/// Direction of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Way {
    #[default]
    Forward,
    Backward,
}

/// The last jump since the view's user sought or turned.
#[derive(Default)]
pub(super) struct Jumps {
    way: Way,
    /// Whether there was one.
    any: bool,
    /// Key from which it went.
    key: Vec<u8>,
    /// Number of jumps from that key before it.
    repeats: u32,
}

impl Jumps {
    /// Begins a search after a seek of the user.
    pub(super) fn begin(&mut self, way: Way) {
        (self.way, self.any) = (way, false);
    }

    /// Begins a search from where the last one ended.
    #[inline]
    pub(super) fn go_on(&mut self, way: Way) {
        if self.way != way {
            self.begin(way);
        }
    }

    /// Checks that a jump from `key` does not follow one from behind it.
    pub(super) fn check(&mut self, key: &[u8]) -> Result<()> {
        let order = match self.way {
            Way::Forward => key.cmp(&self.key),
            Way::Backward => self.key[..].cmp(key),
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
    fn jumps_go_one_way() {
        let mut jumps = Jumps::default();
        jumps.begin(Way::Forward);
        for key in ["b", "b", "c"] {
            jumps.go_on(Way::Forward);
            jumps.check(key.as_bytes()).expect("forward");
        }
        assert_eq!(jumps.check(b"b").expect_err("back").kind(), ErrorKind::Corruption);
        jumps.go_on(Way::Backward);
        jumps.check(b"d").expect("the user turned");
        jumps.check(b"a").expect("backward");
        assert!(jumps.check(b"b").is_err());
        jumps.begin(Way::Backward);
        jumps.check(b"z").expect("the user sought");
        let repeats = (0..).take_while(|_| jumps.check(b"z").is_ok()).count();
        assert_eq!(repeats, MOST_REPEATS as usize);
    }
}
