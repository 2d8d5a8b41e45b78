//! A file of the simulated disk: its content for readers, and its content on stable storage.
//!
//! Content consists of 4 KiB pages. A page changed since the last sync also keeps its old content, which is the
//! content on stable storage. A page without such an entry is the same in both places. Pages are copied on write, so
//! copying a node copies only pointers.
//!
//! Invariants: bytes past `len` in the last page are zero; an absent page reads as zeros; a page is in at most one of
//! `dirty` and `lost`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::kinds::FileKind;

/// Bytes per page, the unit in which unsynced data is kept or lost.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a page.
pub(crate) type Page = [u8; PAGE];
/// A page of a file; `None` means never written, and reads as zeros.
pub(crate) type Slot = Option<Arc<Page>>;

/// Returns the shared page of zeros that preallocated space uses.
pub(crate) fn zero_page() -> Arc<Page> {
    static ZERO: OnceLock<Arc<Page>> = OnceLock::new();
    ZERO.get_or_init(|| Arc::new([0; PAGE])).clone()
}

/// Returns the bytes of a slot.
pub(crate) fn bytes(slot: &Slot) -> &Page {
    static HOLE: Page = [0; PAGE];
    slot.as_deref().unwrap_or(&HOLE)
}

/// Returns the number of pages for `len` bytes.
pub(crate) fn page_count(len: u64) -> usize {
    len.div_ceil(PAGE as u64) as usize
}

/// Clears the content past the end of a file of length `len`.
fn clear_past_end(pages: &mut Vec<Slot>, len: u64) {
    pages.truncate(page_count(len));
    let tail = (len % PAGE as u64) as usize;
    if tail > 0
        && pages.len() == page_count(len)
        && let Some(Some(page)) = pages.last_mut()
        && page[tail..].iter().any(|&byte| byte != 0)
    {
        Arc::make_mut(page)[tail..].fill(0);
    }
}

/// Effect of a failed sync on the data that it should have made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFailure {
    /// The error is reported once. The pages count as clean, so a later sync succeeds without writing them: readers
    /// see the new bytes, and a power loss restores the old ones.
    Lost,
    /// The content reverts to that of the last successful sync.
    Reverts,
    /// This and every later sync of the file fails; nothing more becomes durable.
    Sticky,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    len: u64,
    pages: Vec<Slot>,
    allocated: u64,
    durable_len: u64,
    len_dirty: bool,
    /// Pages changed since the last sync, with their content on stable storage.
    dirty: BTreeMap<usize, Slot>,
    /// Changed pages that count as clean since a sync failed, with their content on stable storage.
    lost: BTreeMap<usize, Slot>,
    /// Page content before the last sync, for stale reads.
    past: BTreeMap<usize, Slot>,
    sync_error: Option<i32>,
}

impl Inode {
    /// Creates an empty file, all of it on stable storage.
    pub(crate) fn new(kind: FileKind) -> Inode {
        Inode::synced(kind, 0, Vec::new())
    }

    /// Creates a file with this content, all of it on stable storage. Clears bytes past `len`.
    pub(crate) fn synced(kind: FileKind, len: u64, mut pages: Vec<Slot>) -> Inode {
        clear_past_end(&mut pages, len);
        let allocated = pages.iter().flatten().count() as u64;
        Inode {
            kind,
            len,
            pages,
            allocated,
            durable_len: len,
            len_dirty: false,
            dirty: BTreeMap::new(),
            lost: BTreeMap::new(),
            past: BTreeMap::new(),
            sync_error: None,
        }
    }

    /// Returns the length that readers see.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the length on stable storage.
    pub(crate) fn durable_len(&self) -> u64 {
        self.durable_len
    }

    /// Returns the bytes of disk in use.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated * PAGE as u64
    }

    /// Returns a page as readers see it.
    pub(crate) fn current(&self, page: usize) -> Slot {
        self.pages.get(page).cloned().flatten()
    }

    /// Returns the pages as readers see them.
    pub(crate) fn pages(&self) -> &[Slot] {
        &self.pages
    }

    /// Returns the pages that a power loss may revert, with their content on stable storage.
    pub(crate) fn unsynced(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.dirty.iter().chain(&self.lost).map(|(&page, slot)| (page, slot))
    }

    /// Returns whether a power loss leaves the file as readers see it.
    pub(crate) fn is_durable(&self) -> bool {
        self.dirty.is_empty() && self.lost.is_empty() && self.durable_len == self.len
    }

    /// Returns whether the file is durable and no sync failure is pending.
    pub(crate) fn is_pristine(&self) -> bool {
        self.is_durable() && self.sync_error.is_none()
    }

    /// Returns whether a power loss leaves the first `end` bytes as readers see them.
    pub(crate) fn is_durable_to(&self, end: u64) -> bool {
        self.durable_len >= end
            && self.unsynced().all(|(page, old)| {
                let from = page as u64 * PAGE as u64;
                let upto = end.saturating_sub(from).min(PAGE as u64) as usize;
                bytes(old)[..upto] == bytes(&self.current(page))[..upto]
            })
    }

    /// Reads at `offset`; returns fewer bytes at the end of the file.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.read_pages(offset, buf, |page| bytes(self.pages.get(page).unwrap_or(&None)))
    }

    /// As [`Inode::read`], but returns each page as it was before its last change, as a disk that lost the last write
    /// does.
    pub(crate) fn read_stale(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.read_pages(offset, buf, |page| {
            let past = self.dirty.get(&page).or_else(|| self.past.get(&page));
            bytes(past.unwrap_or(self.pages.get(page).unwrap_or(&None)))
        })
    }

    fn read_pages<'a>(&'a self, offset: u64, buf: &mut [u8], page: impl Fn(usize) -> &'a Page) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for_each_page(offset, n, |index, within, done, count| {
            buf[done..done + count].copy_from_slice(&page(index)[within..within + count]);
        });
        n
    }

    /// Returns the page for writing, after saving its old content.
    fn touch(&mut self, page: usize) -> &mut Page {
        self.remember(page);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let slot = &mut self.pages[page];
        self.allocated += u64::from(slot.is_none());
        Arc::make_mut(slot.get_or_insert_with(zero_page))
    }

    /// Marks a page as changed since the last sync.
    fn remember(&mut self, page: usize) {
        if !self.dirty.contains_key(&page) {
            let old = self.lost.remove(&page).unwrap_or_else(|| self.current(page));
            self.dirty.insert(page, old);
        }
    }

    fn change_len(&mut self, len: u64) {
        if self.len != len {
            self.len = len;
            self.len_dirty = true;
        }
    }

    /// Writes at `offset`; fills a gap before it with zeros.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        for_each_page(offset, data.len(), |page, within, done, count| {
            self.touch(page)[within..within + count].copy_from_slice(&data[done..done + count]);
        });
        self.change_len(self.len.max(offset + data.len() as u64));
    }

    fn is_hole(&self, page: usize) -> bool {
        self.pages.get(page).is_none_or(Option::is_none)
    }

    /// Returns how many bytes of the range can be written when the disk may grow by at most `free` bytes.
    pub(crate) fn fits(&self, offset: u64, len: u64, free: u64) -> u64 {
        let first = (offset / PAGE as u64) as usize;
        let mut holes = (first..page_count(offset + len)).filter(|&page| self.is_hole(page));
        match holes.nth((free / PAGE as u64) as usize) {
            Some(page) => (page as u64 * PAGE as u64).saturating_sub(offset),
            None => len,
        }
    }

    /// Preallocates the range and extends the file to the range's end.
    pub(crate) fn allocate(&mut self, offset: u64, len: u64) {
        let first = (offset / PAGE as u64) as usize;
        for page in first..page_count(offset + len) {
            if self.is_hole(page) {
                self.touch(page);
            }
        }
        self.change_len(self.len.max(offset + len));
    }

    /// Truncates or extends the file; returns the pages cut off.
    pub(crate) fn set_len(&mut self, len: u64) -> Vec<Arc<Page>> {
        let keep = page_count(len);
        let mut gone = Vec::new();
        for page in keep..self.pages.len() {
            self.remember(page);
            gone.extend(self.pages[page].take());
        }
        self.allocated -= gone.len() as u64;
        self.pages.truncate(keep);
        let tail = (len % PAGE as u64) as usize;
        if len < self.len && tail > 0 && self.pages.get(keep - 1).is_some_and(Option::is_some) {
            self.touch(keep - 1)[tail..].fill(0);
        }
        self.change_len(len);
        gone
    }

    /// Makes the file durable; fails for a file whose syncs fail permanently.
    pub(crate) fn sync(&mut self) -> Result<(), i32> {
        if let Some(errno) = self.sync_error {
            return Err(errno);
        }
        // `dirty` is small and `past` is large; `append` would rebuild the whole map.
        self.past.extend(std::mem::take(&mut self.dirty));
        if self.len_dirty {
            self.durable_len = self.len;
            self.len_dirty = false;
        }
        Ok(())
    }

    /// Makes the pages of the range durable, and nothing else.
    pub(crate) fn sync_range(&mut self, offset: u64, len: u64) -> Result<(), i32> {
        if let Some(errno) = self.sync_error {
            return Err(errno);
        }
        let first = (offset / PAGE as u64) as usize;
        for page in first..page_count(offset.saturating_add(len)) {
            if let Some(old) = self.dirty.remove(&page) {
                self.past.insert(page, old);
            }
        }
        Ok(())
    }

    /// Applies the effect of a failing sync.
    pub(crate) fn fail_sync(&mut self, failure: SyncFailure, errno: i32) {
        match failure {
            SyncFailure::Lost => {
                self.lost.append(&mut self.dirty);
                self.len_dirty = false;
            }
            SyncFailure::Reverts => {
                let dirty = std::mem::take(&mut self.dirty);
                self.restore(dirty);
            }
            SyncFailure::Sticky => self.sync_error = Some(errno),
        }
    }

    /// Evicts the pages whose sync failed, as memory pressure does. Readers then see stable storage again.
    pub(crate) fn evict(&mut self) {
        if !self.lost.is_empty() || (!self.len_dirty && self.len != self.durable_len) {
            let lost = std::mem::take(&mut self.lost);
            self.restore(lost);
        }
    }

    fn restore(&mut self, old: BTreeMap<usize, Slot>) {
        for (page, slot) in old {
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            self.pages[page] = slot;
        }
        // If changed pages remain, the present length belongs to them.
        if self.dirty.is_empty() {
            self.len = self.durable_len;
            self.len_dirty = false;
        }
        clear_past_end(&mut self.pages, self.len);
        self.allocated = self.pages.iter().flatten().count() as u64;
    }

    /// Damages the file: changes bytes for readers and on stable storage alike.
    pub(crate) fn damage(&mut self, offset: u64, data: &[u8]) {
        for_each_page(offset, data.len(), |page, within, done, count| {
            let patch = |slot: &mut Slot| {
                Arc::make_mut(slot.get_or_insert_with(zero_page))[within..within + count]
                    .copy_from_slice(&data[done..done + count]);
            };
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            patch(&mut self.pages[page]);
            self.dirty.get_mut(&page).map(patch);
            self.lost.get_mut(&page).map(patch);
        });
        let end = offset + data.len() as u64;
        (self.len, self.durable_len) = (self.len.max(end), self.durable_len.max(end));
        self.allocated = self.pages.iter().flatten().count() as u64;
    }
}

/// Calls `visit(page, offset within it, offset within the range, bytes)` for each page of a range.
fn for_each_page(offset: u64, len: usize, mut visit: impl FnMut(usize, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let count = (PAGE - within).min(len - done);
        visit((at / PAGE as u64) as usize, within, done, count);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn content(node: &Inode) -> Vec<u8> {
        let mut data = vec![0; node.len() as usize];
        assert_eq!(node.read(0, &mut data), data.len());
        data
    }

    fn durable(node: &Inode) -> Vec<u8> {
        let mut pages = node.pages().to_vec();
        for (page, old) in node.unsynced() {
            pages.resize(pages.len().max(page + 1), None);
            pages[page] = old.clone();
        }
        content(&Inode::synced(node.kind, node.durable_len(), pages))
    }

    /// Compares random changes with two plain byte vectors: what readers see, and what the last sync left.
    #[test]
    fn a_node_is_two_byte_vectors() {
        for seed in 0..200 {
            let mut random = Random::new(seed, "node");
            let mut node = Inode::new(FileKind::Log);
            let (mut now, mut safe) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                let offset = random.index(20_000);
                match random.index(6) {
                    0 => {
                        node.set_len(offset as u64);
                        now.resize(offset, 0);
                    }
                    1 => {
                        let end = offset + random.index(9000);
                        node.allocate(offset as u64, (end - offset) as u64);
                        now.resize(now.len().max(end), 0);
                    }
                    2 => {
                        node.sync().unwrap();
                        safe = now.clone();
                    }
                    3 if random.chance(1, 4) => {
                        node.fail_sync(SyncFailure::Reverts, 5);
                        now = safe.clone();
                    }
                    _ => {
                        let mut data = vec![0; random.index(9000)];
                        random.fill(&mut data);
                        node.write(offset as u64, &data);
                        now.resize(now.len().max(offset + data.len()), 0);
                        now[offset..offset + data.len()].copy_from_slice(&data);
                    }
                }
                assert_eq!(content(&node), now, "seed {seed}");
                assert_eq!(durable(&node), safe, "seed {seed}");
                assert_eq!(node.allocated, node.pages.iter().flatten().count() as u64);
                if node.is_durable() {
                    assert_eq!(now, safe);
                }
            }
        }
    }

    #[test]
    fn a_lost_sync_leaves_the_old_content_until_the_page_is_written_again() {
        let mut node = Inode::new(FileKind::Log);
        node.write(0, b"old");
        node.sync().unwrap();
        node.write(0, b"new");
        node.fail_sync(SyncFailure::Lost, 5);
        node.sync().unwrap();
        assert_eq!((content(&node), durable(&node)), (b"new".to_vec(), b"old".to_vec()));
        let mut evicted = node.clone();
        evicted.evict();
        assert_eq!(content(&evicted), b"old");
        assert!(evicted.is_durable());
        node.write(1, b"E");
        node.sync().unwrap();
        assert_eq!(durable(&node), b"nEw");
        assert!(node.is_durable());
    }

    #[test]
    fn a_sticky_failure_stays() {
        let mut node = Inode::new(FileKind::Log);
        node.write(0, b"x");
        node.fail_sync(SyncFailure::Sticky, 5);
        assert_eq!(node.sync(), Err(5));
        assert_eq!(node.sync(), Err(5));
        assert_eq!(durable(&node), b"");
    }

    #[test]
    fn reads_from_the_past_see_the_write_before_the_last() {
        let mut node = Inode::new(FileKind::Log);
        node.write(0, b"one");
        node.sync().unwrap();
        node.write(0, b"two");
        let mut buf = [0; 3];
        node.read_stale(0, &mut buf);
        assert_eq!(&buf, b"one");
        node.sync().unwrap();
        node.read_stale(0, &mut buf);
        assert_eq!(&buf, b"one");
    }

    #[test]
    fn a_prefix_is_durable_when_its_bytes_are() {
        let mut node = Inode::new(FileKind::Log);
        node.write(0, &[1; 100]);
        node.sync().unwrap();
        node.write(100, &[2; 5000]);
        assert!(node.is_durable_to(100) && !node.is_durable_to(101));
        node.write(50, &[3]);
        assert!(node.is_durable_to(50) && !node.is_durable_to(51));
    }

    #[test]
    fn damage_changes_stable_storage_too() {
        let mut node = Inode::new(FileKind::Table);
        node.write(0, &[7; 10]);
        node.sync().unwrap();
        node.write(5, &[8]);
        node.damage(2, &[1, 2]);
        assert_eq!(durable(&node), [7, 7, 1, 2, 7, 7, 7, 7, 7, 7]);
        assert_eq!(content(&node), [7, 7, 1, 2, 7, 8, 7, 7, 7, 7]);
    }
}
