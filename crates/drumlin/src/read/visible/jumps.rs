//! Jumps of a search: seeks past many entries at once.
//!
//! A view moves in one direction between two seeks of its user, so its jumps go in that direction too. A table with
//! sound checksums may still have its keys out of order. There a jump can lead back, and the search would never end.
//! So a jump from a key that an earlier jump has passed is corruption.

use crate::base::error::{Error, ErrorKind, Result};
use std::cmp::Ordering;

/// Maximum number of jumps from one key in a row. A sound search makes a few; those of damaged tables must end.
const MOST_REPEATS: u32 = 1 << 16;

/// Direction of a jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// The last jump since the view's user sought.
#[derive(Default)]
pub(super) struct Jumps {
    way: Option<Way>,
    /// Key from which it went.
    key: Vec<u8>,
    /// Number of jumps from that key before it.
    repeats: u32,
}

impl Jumps {
    /// Forgets the jumps before a seek of the user.
    pub(super) fn begin(&mut self) {
        self.way = None;
    }

    /// Checks that a jump from `key` does not follow one from behind it.
    pub(super) fn check(&mut self, way: Way, key: &[u8]) -> Result<()> {
        let order = match way {
            Way::Forward => key.cmp(&self.key),
            Way::Backward => self.key[..].cmp(key),
        };
        match order {
            _ if self.way != Some(way) => {}
            Ordering::Greater => {}
            Ordering::Equal if self.repeats < MOST_REPEATS => {
                self.repeats += 1;
                return Ok(());
            }
            _ => {
                let what = "a table has its keys out of order; `verify` names it";
                return Err(Error::new(ErrorKind::Corruption, what));
            }
        }
        self.way = Some(way);
        self.repeats = 0;
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
        for key in ["b", "b", "c"] {
            jumps.check(Way::Forward, key.as_bytes()).expect("forward");
        }
        assert_eq!(jumps.check(Way::Forward, b"b").expect_err("back").kind(), ErrorKind::Corruption);
        jumps.check(Way::Backward, b"d").expect("the user turned");
        jumps.check(Way::Backward, b"a").expect("backward");
        assert!(jumps.check(Way::Backward, b"b").is_err());
        jumps.begin();
        jumps.check(Way::Backward, b"z").expect("the user sought");
        let repeats = (0..).take_while(|_| jumps.check(Way::Backward, b"z").is_ok()).count();
        assert_eq!(repeats, MOST_REPEATS as usize);
    }
}
