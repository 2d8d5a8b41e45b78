//! The table of recent writes: when the keys of recent flushes were written, in a hash table of bounded size.
//!
//! Eight slots of 16 bytes share a set. A new key replaces the key of its set that was written longest ago. A key is a
//! 32-bit fingerprint in its set, so two keys are taken for one with a probability of 8 in 2^32 for each lookup. A slot
//! has the times of the first and the last write and their number. When the number reaches 64 it is halved, and the
//! first time moves to the middle, so old intervals fade.

use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::Seq;

const WAYS: usize = 8;
/// Number of writes at which a slot forgets half of them.
const MOST_WRITES: u32 = 64;
/// Bits by which times are coarsened when they no longer fit into 32 bits.
const COARSER: u32 = 4;

/// Fingerprint, first write, last write, and number of writes, which is 0 in an empty slot. Times are sequence numbers
/// divided by a power of two. As an array, so that new memory is zeroed by the system when it is first used.
type Slot = [u32; 4];
const FINGERPRINT: usize = 0;
const FIRST: usize = 1;
const LAST: usize = 2;
const WRITES: usize = 3;

/// The recent writes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Sequence number of the oldest write that counts, rounded down.
    pub first: Seq,
    /// Sequence number of the newest write, rounded down.
    pub last: Seq,
    /// Number of writes from the first to the last, both included; at least 1.
    pub writes: u64,
}

/// Recent writes by key.
#[derive(Clone, Debug)]
pub struct RecentWrites {
    slots: Vec<Slot>,
    shift: u32,
}

impl RecentWrites {
    /// Creates a table that takes at most `bytes` bytes, and at least one set of eight keys.
    #[must_use]
    pub fn new(bytes: usize) -> RecentWrites {
        let sets = (bytes / (WAYS * size_of::<Slot>())).max(1);
        RecentWrites { slots: vec![Slot::default(); sets * WAYS], shift: 0 }
    }

    /// Returns the bytes that the table takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// Returns the set of a key with this hash, and its fingerprint.
    fn place(&self, hash: u64) -> (usize, u32) {
        let sets = (self.slots.len() / WAYS) as u64;
        // The upper half of the product is below the number of sets.
        let set = (u64::from(hash as u32) * sets) >> 32;
        (set as usize * WAYS, (hash >> 32) as u32)
    }

    /// Notes a write of the key with this hash, and returns what was known of it before. Writes of one key may come in
    /// any order. The newest write may come again, as in a flush that is repeated; it counts once.
    pub fn write(&mut self, hash: u64, seq: Seq) -> Option<Seen> {
        while seq >> self.shift > u64::from(u32::MAX) {
            self.coarsen();
        }
        let (start, fingerprint) = self.place(hash);
        let now = (seq >> self.shift) as u32;
        let shift = self.shift;
        let set = &mut self.slots[start..start + WAYS];
        let known = set.iter_mut().find(|slot| slot[WRITES] > 0 && slot[FINGERPRINT] == fingerprint);
        if let Some(slot) = known {
            let before = seen(slot, shift);
            if shift == 0 && now == slot[LAST] {
                return Some(before);
            }
            slot[FIRST] = slot[FIRST].min(now);
            slot[LAST] = slot[LAST].max(now);
            slot[WRITES] += 1;
            if slot[WRITES] >= MOST_WRITES {
                slot[WRITES] /= 2;
                slot[FIRST] += (slot[LAST] - slot[FIRST]) / 2;
            }
            return Some(before);
        }
        let age = |slot: &&mut Slot| if slot[WRITES] == 0 { 0 } else { u64::from(slot[LAST]) + 1 };
        if let Some(slot) = set.iter_mut().min_by_key(age) {
            *slot = [fingerprint, now, now, 1];
        }
        None
    }

    /// Forgets the key with this hash, which was deleted.
    pub fn forget(&mut self, hash: u64) {
        let (start, fingerprint) = self.place(hash);
        for slot in &mut self.slots[start..start + WAYS] {
            if slot[FINGERPRINT] == fingerprint {
                *slot = Slot::default();
            }
        }
    }

    fn coarsen(&mut self) {
        self.shift += COARSER;
        for slot in &mut self.slots {
            slot[FIRST] >>= COARSER;
            slot[LAST] >>= COARSER;
        }
    }
}

fn seen(slot: &Slot, shift: u32) -> Seen {
    Seen {
        first: u64::from(slot[FIRST]) << shift,
        last: u64::from(slot[LAST]) << shift,
        writes: u64::from(slot[WRITES]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    #[test]
    fn it_remembers_the_keys_written_last() {
        let mut recent = RecentWrites::new(1);
        assert_eq!(recent.bytes(), WAYS * 16);
        let hash = |key: u64| key << 32;
        for key in 1..=8 {
            assert_eq!(recent.write(hash(key), 10 * key), None);
        }
        assert_eq!(recent.write(hash(1), 100), Some(Seen { first: 10, last: 10, writes: 1 }));
        assert_eq!(
            recent.write(hash(1), 100),
            Some(Seen { first: 10, last: 100, writes: 2 }),
            "known, and not new"
        );
        assert_eq!(recent.write(hash(9), 110), None, "it takes the place of key 2");
        assert_eq!(recent.write(hash(1), 120), Some(Seen { first: 10, last: 100, writes: 2 }));
        assert_eq!(recent.write(hash(2), 130), None);
        recent.forget(hash(1));
        assert_eq!(recent.write(hash(1), 140), None);
    }

    #[test]
    fn old_writes_fade() {
        let mut recent = RecentWrites::new(1 << 10);
        for write in 1..=63u64 {
            recent.write(7, write * 100);
        }
        assert_eq!(recent.write(7, 6400), Some(Seen { first: 100, last: 6300, writes: 63 }));
        let Seen { first, last, writes } = recent.write(7, 6500).expect("known");
        assert_eq!((first, last, writes), (3250, 6400, 32), "the mean interval stays 100");
    }

    #[test]
    fn large_sequence_numbers_are_coarsened() {
        let mut recent = RecentWrites::new(1 << 10);
        recent.write(7, 1000);
        let late = (1 << 56) - 1;
        let before = recent.write(7, late).expect("known");
        assert_eq!((before.first, before.writes), (0, 1));
        let after = recent.write(7, late).expect("known");
        assert!(late - after.last < 1 << 28, "{after:?}");
    }

    /// Keys that are written often stay among many that are written once.
    #[test]
    fn frequent_keys_stay() {
        let mut recent = RecentWrites::new(16 << 10);
        let mut random = SplitMix::new(3);
        let mut known = 0;
        for seq in 0..50_000u64 {
            let key = if seq % 2 == 0 { random.below(200) as u64 } else { 1000 + seq };
            let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let is_known = recent.write(hash, seq).is_some();
            known += u32::from(is_known && seq % 2 == 0);
        }
        assert!(known > 23_000, "{known} of 25,000");
    }
}
