//! The simulated disk: files, names, capacity, and the effect of each file system call on them.
//!
//! This module does not deal with faults, counting or threads. Its calls fail as the system's do, with the same error
//! codes. A copy of a disk shares all pages with the original, so taking a snapshot at any call is cheap.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::names::{NameTarget, Names, NodeId};
use super::node::{Inode, Page, SyncFailure};
use crate::kinds::{DirEntry, FileKind};

/// Maximum number of pages of deleted files kept as garbage, which grown files may show after a power loss.
const GRAVEYARD: usize = 64;
/// Maximum file length. No test needs a longer file, so a larger offset is a mistake.
const MAX_LEN: u64 = 1 << 36;

/// A snapshot of the simulated disk: what was written, and what of it is on stable storage.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub(crate) nodes: BTreeMap<NodeId, Arc<Inode>>,
    pub(crate) names: Arc<Names>,
    pub(crate) graveyard: Arc<VecDeque<Arc<Page>>>,
    pub(crate) capacity: Option<u64>,
    /// Kind of the files that may not grow beyond a number of bytes.
    pub(crate) limited: Option<(FileKind, u64)>,
    pub(crate) next_node: NodeId,
    /// Clock of the world at the snapshot, in nanoseconds.
    pub(crate) nanos: u64,
    /// Whether the snapshot comes from a stepped world.
    pub(crate) stepped: bool,
}

/// Number of open handles per file.
pub(crate) type Open = BTreeMap<NodeId, u32>;

impl Disk {
    pub(crate) fn new(stepped: bool) -> Disk {
        Disk { stepped, ..Disk::default() }
    }

    /// Returns the disk with all handles closed. Files without a name, now or after any power loss, are gone.
    pub(crate) fn without_handles(&self) -> Disk {
        let mut disk = self.clone();
        let named = disk.names.reachable();
        disk.nodes.retain(|id, _| named.contains(id));
        disk
    }

    /// Returns the target of `path`; fails when one of its parents is a file.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Option<NameTarget>> {
        for above in path.ancestors().skip(1) {
            match self.names.live(above) {
                Some(NameTarget::Dir) => return Ok(self.names.live(path)),
                Some(NameTarget::File(_)) => return Err(Errno::NOTDIR.into()),
                None => {}
            }
        }
        Ok(self.names.live(path))
    }

    /// Returns the file at `path`.
    pub(crate) fn file(&self, path: &Path) -> io::Result<NodeId> {
        match self.find(path)? {
            Some(NameTarget::File(id)) => Ok(id),
            Some(NameTarget::Dir) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Returns the file at `path`, if it exists.
    pub(crate) fn node_at(&self, path: &Path) -> Option<&Inode> {
        self.file(path).ok().map(|id| self.node(id))
    }

    /// Fails unless `path` is a directory.
    pub(crate) fn require_dir(&self, path: &Path) -> io::Result<()> {
        match self.find(path)? {
            Some(NameTarget::Dir) => Ok(()),
            Some(NameTarget::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn require_parent(&self, path: &Path) -> io::Result<()> {
        self.require_dir(path.parent().ok_or(Errno::INVAL)?)
    }

    /// Returns a file that has a name, is open, or may reappear after a power loss.
    pub(crate) fn node(&self, id: NodeId) -> &Inode {
        &self.nodes[&id]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Inode {
        Arc::make_mut(self.nodes.get_mut(&id).expect("a file lives while it is open or may be named"))
    }

    pub(crate) fn names_mut(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.names)
    }

    /// Adds a file without a name to the disk.
    pub(crate) fn add_node(&mut self, node: Inode) -> NodeId {
        self.add_shared(Arc::new(node))
    }

    /// As [`Disk::add_node`], for a file shared with another disk.
    pub(crate) fn add_shared(&mut self, node: Arc<Inode>) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    pub(crate) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        match self.find(dir)? {
            Some(NameTarget::Dir) => return Ok(()),
            Some(NameTarget::File(_)) => return Err(Errno::EXIST.into()),
            None => {}
        }
        let missing: Vec<&Path> =
            dir.ancestors().take_while(|path| self.names.live(path).is_none()).collect();
        for path in missing.into_iter().rev() {
            self.names_mut().set(path, Some(NameTarget::Dir));
        }
        Ok(())
    }

    pub(crate) fn create(&mut self, path: &Path, kind: FileKind) -> io::Result<NodeId> {
        self.require_parent(path)?;
        if self.find(path)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let id = self.add_node(Inode::new(kind));
        self.names_mut().set(path, Some(NameTarget::File(id)));
        Ok(id)
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.require_parent(from)?;
        self.require_parent(to)?;
        let id = self.file(from)?;
        match self.find(to)? {
            Some(NameTarget::Dir) => return Err(Errno::ISDIR.into()),
            // Renaming one name of a file to another of its names keeps both.
            Some(NameTarget::File(replaced)) if replaced == id => return Ok(()),
            _ => {}
        }
        let names = self.names_mut();
        names.set(to, Some(NameTarget::File(id)));
        names.set(from, None);
        Ok(())
    }

    pub(crate) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let from = self.find(from)?.ok_or(Errno::NOENT)?;
        self.require_parent(to)?;
        if self.find(to)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let id = from.file().ok_or(Errno::PERM)?;
        self.names_mut().set(to, Some(NameTarget::File(id)));
        Ok(())
    }

    pub(crate) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.names_mut().set(path, None);
        Ok(())
    }

    pub(crate) fn remove_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.require_dir(dir)?;
        if self.names.list(dir).next().is_some() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.names_mut().set(dir, None);
        Ok(())
    }

    pub(crate) fn sync_dir(&mut self, dir: &Path, open: &Open) -> io::Result<()> {
        self.require_dir(dir)?;
        self.names_mut().sync(dir);
        self.bury(open);
        Ok(())
    }

    /// Frees unreachable files. Their pages serve as garbage for a while.
    fn bury(&mut self, open: &Open) {
        let reachable = self.names.reachable();
        let gone: Vec<NodeId> = self
            .nodes
            .keys()
            .copied()
            .filter(|id| !reachable.contains(id) && !open.contains_key(id))
            .collect();
        for id in gone {
            let node = self.nodes.remove(&id).expect("the id was just listed");
            self.inter(node.pages().iter().flatten().cloned());
        }
    }

    fn inter(&mut self, pages: impl Iterator<Item = Arc<Page>>) {
        let graveyard = Arc::make_mut(&mut self.graveyard);
        graveyard.extend(pages.filter(|page| page.iter().any(|&byte| byte != 0)));
        let excess = graveyard.len().saturating_sub(GRAVEYARD);
        graveyard.drain(..excess);
    }

    pub(crate) fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.require_dir(dir)?;
        let entries = self.names.list(dir).filter_map(|(path, entry)| {
            let name = path.file_name()?.to_str()?.to_owned();
            let len = entry.file().map_or(0, |id| self.node(id).len());
            Some(DirEntry { name, len, is_dir: entry == NameTarget::Dir })
        });
        let mut entries: Vec<DirEntry> = entries.collect();
        entries.sort();
        Ok(entries)
    }

    /// Returns the bytes in use by files that have a name or are open.
    pub(crate) fn used(&self, open: &Open) -> u64 {
        let mut held: Vec<NodeId> =
            self.names.files().map(|(_, id)| id).chain(open.keys().copied()).collect();
        held.sort_unstable();
        held.dedup();
        held.iter().map(|&id| self.node(id).allocated()).sum()
    }

    /// Returns the free bytes.
    pub(crate) fn free(&self, open: &Open) -> u64 {
        self.capacity.map_or(1 << 40, |capacity| capacity.saturating_sub(self.used(open)))
    }

    /// Refuses files that grow too long.
    fn check_range(&self, id: NodeId, offset: u64, len: u64) -> io::Result<()> {
        let limit =
            self.limited.filter(|(kind, _)| *kind == self.node(id).kind).map_or(MAX_LEN, |(_, len)| len);
        match offset.checked_add(len) {
            Some(end) if end <= limit => Ok(()),
            _ => Err(Errno::FBIG.into()),
        }
    }

    /// Writes as many bytes as fit; fails when none do.
    pub(crate) fn write(&mut self, id: NodeId, offset: u64, data: &[u8], open: &Open) -> io::Result<usize> {
        let len = data.len() as u64;
        self.check_range(id, offset, len)?;
        let fits = match self.capacity {
            Some(_) => self.node(id).fits(offset, len, self.free(open)),
            None => len,
        };
        if fits == 0 && len > 0 {
            return Err(Errno::NOSPC.into());
        }
        self.node_mut(id).write(offset, &data[..fits as usize]);
        Ok(fits as usize)
    }

    pub(crate) fn allocate(&mut self, id: NodeId, offset: u64, len: u64, open: &Open) -> io::Result<()> {
        self.check_range(id, offset, len)?;
        if self.capacity.is_some() && self.node(id).fits(offset, len, self.free(open)) < len {
            return Err(Errno::NOSPC.into());
        }
        self.node_mut(id).allocate(offset, len);
        Ok(())
    }

    pub(crate) fn set_len(&mut self, id: NodeId, len: u64) -> io::Result<()> {
        self.check_range(id, len, 0)?;
        let gone = self.node_mut(id).set_len(len);
        self.inter(gone.into_iter());
        Ok(())
    }

    pub(crate) fn sync(&mut self, id: NodeId) -> io::Result<()> {
        self.node_mut(id).sync().map_err(io::Error::from_raw_os_error)
    }

    pub(crate) fn sync_range(&mut self, id: NodeId, offset: u64, len: u64) -> io::Result<()> {
        self.node_mut(id).sync_range(offset, len).map_err(io::Error::from_raw_os_error)
    }

    pub(crate) fn fail_sync(&mut self, id: NodeId, failure: SyncFailure, errno: i32) {
        self.node_mut(id).fail_sync(failure, errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_what_fits_and_gives_space_back() {
        let mut disk = Disk::new(true);
        let open = Open::new();
        disk.capacity = Some(3 * 4096);
        let a = disk.create(Path::new("a"), FileKind::Table).unwrap();
        assert_eq!(disk.write(a, 0, &[1; 5000], &open).unwrap(), 5000);
        assert_eq!(disk.free(&open), 4096);
        // The write fills an existing page and one new page.
        assert_eq!(disk.write(a, 5000, &[1; 9000], &open).unwrap(), 3 * 4096 - 5000);
        let error = disk.write(a, 3 * 4096, &[1], &open).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.write(a, 0, &[2; 4096], &open).unwrap(), 4096);
        let b = disk.create(Path::new("b"), FileKind::Table).unwrap();
        assert_eq!(disk.allocate(b, 0, 1, &open).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let held = Open::from([(a, 1)]);
        disk.unlink(Path::new("a")).unwrap();
        assert_eq!((disk.free(&held), disk.free(&open)), (0, 3 * 4096));
    }

    #[test]
    fn a_file_lives_until_nothing_can_reach_it() {
        let mut disk = Disk::new(true);
        let a = disk.create(Path::new("a"), FileKind::Table).unwrap();
        disk.write(a, 0, b"bytes", &Open::new()).unwrap();
        let open = Open::from([(a, 1)]);
        disk.unlink(Path::new("a")).unwrap();
        disk.sync_dir(Path::new(""), &open).unwrap();
        assert_eq!(disk.node(a).len(), 5);
        disk.sync_dir(Path::new(""), &Open::new()).unwrap();
        assert!(disk.nodes.is_empty());
        assert_eq!(&disk.graveyard[0][..5], b"bytes");
    }

    #[test]
    fn a_copy_is_not_changed_by_later_calls() {
        let mut disk = Disk::new(true);
        let a = disk.create(Path::new("a"), FileKind::Table).unwrap();
        disk.write(a, 0, b"one", &Open::new()).unwrap();
        let copy = disk.clone();
        disk.write(a, 0, b"two", &Open::new()).unwrap();
        disk.unlink(Path::new("a")).unwrap();
        let mut buf = [0; 3];
        copy.node_at(Path::new("a")).unwrap().read(0, &mut buf);
        assert_eq!(&buf, b"one");
    }
}
