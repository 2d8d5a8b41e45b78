//! What the store must hold: the version of every id, and how many bytes all of them take.
//!
//! One word for each id: how often it was written, and whether it is there now. Writers note a write when the engine has
//! acknowledged it, readers look before they ask. On one thread that is exact. On several, an id that another thread
//! is writing may be newer than noted, so only its presence is certain.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Set when the id was removed after its last write.
const REMOVED: u32 = 1 << 31;

/// The truth about every id.
#[derive(Debug)]
pub struct Oracle {
    versions: Vec<AtomicU32>,
    /// Bytes of the value of each id, for workloads in which they differ.
    sizes: Vec<AtomicU32>,
    live_bytes: AtomicI64,
    entries: AtomicI64,
}

impl Oracle {
    /// Knows of `ids` ids, none of them there. `varied` says whether values differ in size.
    pub fn new(ids: u64, varied: bool) -> Oracle {
        let zeros = |n: u64| (0..n).map(|_| AtomicU32::new(0)).collect();
        Oracle {
            versions: zeros(ids),
            sizes: zeros(if varied { ids } else { 0 }),
            live_bytes: AtomicI64::new(0),
            entries: AtomicI64::new(0),
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for word in self.versions.iter().chain(&self.sizes) {
            word.store(0, Relaxed);
        }
        self.live_bytes.store(0, Relaxed);
        self.entries.store(0, Relaxed);
    }

    fn word(&self, id: u64) -> u32 {
        self.versions.get(id as usize).map_or(0, |word| word.load(Relaxed))
    }

    /// Whether there is an entry for `id`.
    pub fn is_present(&self, id: u64) -> bool {
        let word = self.word(id);
        word != 0 && word & REMOVED == 0
    }

    /// The version that was last noted for `id`; 0 when it was never written.
    pub fn version(&self, id: u64) -> u64 {
        u64::from(self.word(id) & !REMOVED)
    }

    /// The version that the next write of `id` has.
    pub fn next_version(&self, id: u64) -> u64 {
        self.version(id) + 1
    }

    /// `id` was written at `version`: `key` bytes of key, `value` bytes of value.
    pub fn note_put(&self, id: u64, version: u64, key: usize, value: usize) {
        let Some(word) = self.versions.get(id as usize) else { return };
        let before = word.swap(version as u32 & !REMOVED, Relaxed);
        let was_there = before != 0 && before & REMOVED == 0;
        let size_before = match self.sizes.get(id as usize) {
            Some(size) => size.swap(value as u32, Relaxed) as usize,
            None => value,
        };
        if was_there {
            self.add(0, value as i64 - size_before as i64);
        } else {
            self.add(1, (key + value) as i64);
        }
    }

    /// `id` was removed; `value` is the size of values when all are alike.
    pub fn note_delete(&self, id: u64, key: usize, value: usize) {
        let Some(word) = self.versions.get(id as usize) else { return };
        if self.is_present(id) {
            word.fetch_or(REMOVED, Relaxed);
            let size = self.sizes.get(id as usize).map_or(value, |size| size.load(Relaxed) as usize);
            self.add(-1, -((key + size) as i64));
        }
    }

    fn add(&self, entries: i64, bytes: i64) {
        if entries != 0 {
            self.entries.fetch_add(entries, Relaxed);
        }
        if bytes != 0 {
            self.live_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Key and value bytes of all entries.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Relaxed).max(0) as u64
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_bytes_follow_puts_and_deletes() {
        let oracle = Oracle::new(4, true);
        oracle.note_put(1, oracle.next_version(1), 10, 100);
        oracle.note_put(1, oracle.next_version(1), 10, 40);
        oracle.note_put(2, 1, 10, 5);
        assert_eq!((oracle.live_bytes(), oracle.entries(), oracle.version(1)), (65, 2, 2));
        oracle.note_delete(1, 10, 0);
        oracle.note_delete(1, 10, 0);
        assert_eq!((oracle.live_bytes(), oracle.entries()), (15, 1));
        assert!(!oracle.is_present(1) && oracle.is_present(2) && !oracle.is_present(3));
        assert_eq!(oracle.next_version(1), 3);
        oracle.note_put(1, 3, 10, 1);
        assert_eq!((oracle.live_bytes(), oracle.version(1)), (26, 3));
    }
}
