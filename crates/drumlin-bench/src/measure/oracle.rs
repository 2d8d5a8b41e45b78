//! The expected content of the store: the version of every id, and the total live bytes.
//!
//! One word per id holds the number of its writes and whether it is deleted. Writers update it after the engine has
//! acknowledged a write, and readers read it before the engine call. With one thread, this is exact. With several, an
//! id that another thread is writing may be newer than recorded, so only its presence is certain.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Set if the id was deleted after its last write.
const REMOVED: u32 = 1 << 31;

/// Expected state of every id.
#[derive(Debug)]
pub struct Oracle {
    versions: Vec<AtomicU32>,
    /// Value size of each id in bytes, for workloads with varying sizes.
    sizes: Vec<AtomicU32>,
    live_bytes: AtomicI64,
    entries: AtomicI64,
}

impl Oracle {
    /// Creates an oracle of `ids` absent ids. `varied` says whether value sizes vary.
    pub fn new(ids: u64, varied: bool) -> Oracle {
        let zeros = |n: u64| (0..n).map(|_| AtomicU32::new(0)).collect();
        Oracle {
            versions: zeros(ids),
            sizes: zeros(if varied { ids } else { 0 }),
            live_bytes: AtomicI64::new(0),
            entries: AtomicI64::new(0),
        }
    }

    /// Resets all ids to absent.
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

    /// Returns whether `id` has an entry.
    pub fn is_present(&self, id: u64) -> bool {
        let word = self.word(id);
        word != 0 && word & REMOVED == 0
    }

    /// Returns the last recorded version of `id`; 0 if it was never written.
    pub fn version(&self, id: u64) -> u64 {
        u64::from(self.word(id) & !REMOVED)
    }

    /// Returns the version of the next write of `id`.
    pub fn next_version(&self, id: u64) -> u64 {
        self.version(id) + 1
    }

    /// Records a put of `id` at `version`, with `key` bytes of key and `value` bytes of value.
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

    /// Records a deletion of `id`. `value` is the value size if all values have the same size.
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

    /// Returns the key and value bytes of all entries.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Relaxed).max(0) as u64
    }

    /// Returns the number of entries.
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
