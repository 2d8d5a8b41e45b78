//! Who holds a lock inside one process: one writer alone, or any number of readers together.
//!
//! The system's locks belong to a process or to an open file, by platform, so two opens in one process are told apart
//! here. The simulated world has no other locks than these.

use std::collections::BTreeMap;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// By one alone.
    Alone,
    /// By those who only read.
    Shared,
}

/// Locked things, and how many hold each.
#[derive(Debug)]
pub(crate) struct Holders<K>(BTreeMap<K, (Hold, u32)>);

impl<K: Ord + Copy> Holders<K> {
    pub(crate) const fn new() -> Holders<K> {
        Holders(BTreeMap::new())
    }

    /// Whether `key` may be held in the way `hold` beside those who hold it.
    pub(crate) fn admits(&self, key: K, hold: Hold) -> bool {
        self.0.get(&key).is_none_or(|(held, _)| (*held, hold) == (Hold::Shared, Hold::Shared))
    }

    /// Counts one more holder, if that may be.
    pub(crate) fn take(&mut self, key: K, hold: Hold) -> bool {
        let admitted = self.admits(key, hold);
        if admitted {
            self.0.entry(key).or_insert((hold, 0)).1 += 1;
        }
        admitted
    }

    /// One holder less.
    pub(crate) fn give_back(&mut self, key: K) {
        if let Some((_, count)) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let mut holders = Holders::new();
        assert!(holders.take(1, Hold::Shared) && holders.take(1, Hold::Shared));
        assert!(!holders.take(1, Hold::Alone));
        assert!(holders.take(2, Hold::Alone));
        assert!(!holders.take(2, Hold::Shared) && !holders.take(2, Hold::Alone));
        holders.give_back(1);
        assert!(!holders.admits(1, Hold::Alone), "one reader is left");
        holders.give_back(1);
        holders.give_back(2);
        assert!(holders.admits(1, Hold::Alone) && holders.admits(2, Hold::Shared));
    }
}
