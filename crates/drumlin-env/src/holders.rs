//! Lock holders inside one process: one writer alone, or any number of readers together.
//!
//! Depending on platform, the system's locks belong to a process or to an open file. This module therefore tells two
//! locks in one process apart. The simulated world has no other locks than these.

use std::collections::BTreeMap;

/// Mode in which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Exclusive.
    Alone,
    /// Shared among readers.
    Shared,
}

/// Locked items, with the mode and the number of holders of each.
#[derive(Debug)]
pub(crate) struct Holders<K>(BTreeMap<K, (Hold, u32)>);

impl<K: Ord + Copy> Holders<K> {
    pub(crate) const fn new() -> Holders<K> {
        Holders(BTreeMap::new())
    }

    /// Returns whether a new holder may take `key` in mode `hold` beside the present ones.
    pub(crate) fn admits(&self, key: K, hold: Hold) -> bool {
        self.0.get(&key).is_none_or(|(held, _)| (*held, hold) == (Hold::Shared, Hold::Shared))
    }

    /// Adds a holder if the present ones permit it; returns whether they do.
    pub(crate) fn take(&mut self, key: K, hold: Hold) -> bool {
        let admitted = self.admits(key, hold);
        if admitted {
            self.0.entry(key).or_insert((hold, 0)).1 += 1;
        }
        admitted
    }

    /// Removes a holder.
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
