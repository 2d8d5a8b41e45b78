//! Heads of a merging iterator: the current entry of each source that is not exhausted, in merge order.
//!
//! A head caches the first eight key bytes as a big-endian number, so most comparisons compare two integers. Only
//! equal prefixes require a comparison of whole keys.
//!
//! Up to [`SORTED_LIMIT`] heads are kept fully sorted. Reinserting the moved head is a short shift, and takes one
//! comparison if the same source wins again. More heads form a binary heap. If the same source wins again, that takes
//! two comparisons regardless of their number, which suits trees whose deepest run holds most of the keys.
//!
//! Invariant: `first` is the least head by the order that the caller passes in. The order is the same at every call
//! between two `rebuild`s.

use drumlin_types::Seq;

/// Number of heads above which a heap is cheaper than a sorted array.
pub(super) const SORTED_LIMIT: usize = 8;

/// Current entry of one source. Comparisons take it by value, so that a step keeps it in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// First eight bytes of the key, big endian, padded with zeros.
    pub(super) prefix: u64,
    /// Sequence number of the entry.
    pub(super) seq: Seq,
    /// Index of the source.
    pub(super) source: usize,
}

impl Head {
    /// Creates the head of `source`, whose current entry is (`key`, `seq`).
    #[inline]
    pub(super) fn new(key: &[u8], seq: Seq, source: usize) -> Head {
        Head { prefix: prefix(key), seq, source }
    }
}

/// Returns the first eight bytes of `key` as a number. Unequal numbers order as the keys do; equal ones decide
/// nothing.
#[inline]
pub(super) fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut padded = [0; 8];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

/// Collection of heads with fast access to the least.
#[derive(Default)]
pub(super) struct Heads {
    items: Vec<Head>,
    is_heap: bool,
}

impl Heads {
    /// Returns the least head.
    #[inline]
    pub(super) fn first(&self) -> Option<Head> {
        self.items.first().copied()
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// Replaces all heads.
    pub(super) fn rebuild(&mut self, heads: impl Iterator<Item = Head>, before: impl Fn(Head, Head) -> bool) {
        self.items.clear();
        self.items.extend(heads);
        self.is_heap = self.items.len() > SORTED_LIMIT;
        if self.is_heap {
            for top in (0..self.items.len() / 2).rev() {
                self.sift_down(top, &before);
            }
        } else {
            for end in 1..self.items.len() {
                let mut at = end;
                while at > 0 && before(self.items[at], self.items[at - 1]) {
                    self.items.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
    }

    /// Replaces the least head by `head` and restores the order.
    #[inline]
    pub(super) fn replace_first(&mut self, head: Head, before: impl Fn(Head, Head) -> bool) {
        if self.is_heap {
            self.items[0] = head;
            self.sift_down(0, &before);
            return;
        }
        let mut at = 0;
        while at + 1 < self.items.len() && before(self.items[at + 1], head) {
            self.items[at] = self.items[at + 1];
            at += 1;
        }
        self.items[at] = head;
    }

    /// Removes the least head, whose source is exhausted.
    pub(super) fn remove_first(&mut self, before: impl Fn(Head, Head) -> bool) {
        if self.is_heap {
            self.items.swap_remove(0);
            self.sift_down(0, &before);
        } else {
            self.items.remove(0);
        }
    }

    fn sift_down(&mut self, mut at: usize, before: &impl Fn(Head, Head) -> bool) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.items.len() && before(self.items[child], self.items[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.items.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_never_contradict_the_key_order() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefghi", b"abcdefgi"];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i..] {
                assert!(prefix(a) <= prefix(b), "{a:?} {b:?}");
            }
        }
        assert_eq!(prefix(b"\x01\x02"), 0x0102_0000_0000_0000);
    }

    #[test]
    fn both_layouts_give_the_heads_in_order() {
        let before = |a: Head, b: Head| (a.prefix, a.source) < (b.prefix, b.source);
        let head = |prefix: u64, source: usize| Head { prefix, seq: 1, source };
        for sources in [1, 2, SORTED_LIMIT, SORTED_LIMIT + 1, 40] {
            // Source i holds the numbers i * 37 % 11 + 11 * round, for ten rounds.
            let start = |source: usize| (source * 37 % 11) as u64;
            let mut heads = Heads::default();
            heads.rebuild((0..sources).map(|s| head(start(s), s)), before);
            let mut seen = Vec::new();
            while let Some(first) = heads.first() {
                seen.push((first.prefix, first.source));
                match first.prefix + 11 {
                    next if next < 110 => heads.replace_first(head(next, first.source), before),
                    _ => heads.remove_first(before),
                }
            }
            assert_eq!(seen.len(), sources * 10);
            assert!(seen.is_sorted());
        }
    }
}
