//! Simulated side of [`crate::Fs`] and [`crate::File`]: each call is counted and subject to faults.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::fault::{Effect, Op};
use super::names::NodeId;
use super::node::PAGE;
use super::world::{About, State, World};
use crate::holders::Hold;
use crate::kinds::{Access, Caller, DirEntry, FileKind, FileStatus, Sync};

/// Returns the length of a transfer that a fault cuts short.
fn half(len: usize) -> usize {
    len.div_ceil(2)
}

impl World {
    pub(crate) fn create_dir_all(&self, dir: &Path, at: Caller) -> io::Result<()> {
        self.call(About::path(Op::CreateDir, dir, at), |state, _| state.disk.create_dir_all(dir))
    }

    /// Returns kind and identity of the file at `path`, for the call record.
    fn known(&self, path: &Path) -> (Option<FileKind>, Option<NodeId>) {
        let state = self.state();
        let node = state.disk.file(path).ok();
        (node.map(|id| state.disk.node(id).kind), node)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path, at: Caller) -> io::Result<()> {
        let (kind, node) = self.known(from);
        let about = About { kind, node, to: Some(to), ..About::path(Op::Rename, from, at) };
        self.call(about, |state, _| state.disk.rename(from, to))
    }

    pub(crate) fn link(&self, from: &Path, to: &Path, at: Caller) -> io::Result<()> {
        let (kind, node) = self.known(from);
        let about = About { kind, node, to: Some(to), ..About::path(Op::Link, from, at) };
        self.call(about, |state, _| state.disk.link(from, to))
    }

    pub(crate) fn unlink(&self, path: &Path, kind: FileKind, at: Caller) -> io::Result<()> {
        let about = About { kind: Some(kind), ..About::path(Op::Unlink, path, at) };
        self.call(about, |state, _| state.disk.unlink(path))
    }

    pub(crate) fn remove_dir(&self, dir: &Path, at: Caller) -> io::Result<()> {
        self.call(About::path(Op::RemoveDir, dir, at), |state, _| state.disk.remove_dir(dir))
    }

    pub(crate) fn sync_dir(&self, dir: &Path, at: Caller) -> io::Result<()> {
        self.call(About::path(Op::SyncDir, dir, at), |state, _| state.disk.sync_dir(dir, &state.open))
    }

    pub(crate) fn list(&self, dir: &Path, at: Caller) -> io::Result<Vec<DirEntry>> {
        self.call(About::path(Op::List, dir, at), |state, _| state.disk.list(dir))
    }

    pub(crate) fn exists(&self, path: &Path, at: Caller) -> io::Result<bool> {
        self.call(About::path(Op::Exists, path, at), |state, _| Ok(state.disk.find(path)?.is_some()))
    }

    pub(crate) fn lock(self: &Arc<Self>, path: &Path, hold: Hold, at: Caller) -> io::Result<Option<MemLock>> {
        let about = About { kind: Some(FileKind::Lock), ..About::path(Op::Lock, path, at) };
        self.call(about, |state, _| {
            let node = match state.disk.find(path)? {
                None if hold == Hold::Alone => state.disk.create(path, FileKind::Lock)?,
                _ => state.disk.file(path)?,
            };
            if !state.locked.take(node, hold) {
                return Ok(None);
            }
            *state.open.entry(node).or_default() += 1;
            Ok(Some(MemLock { world: self.clone(), path: path.to_owned(), node }))
        })
    }

    pub(crate) fn free_space(&self, dir: &Path, at: Caller) -> io::Result<u64> {
        self.call(About::path(Op::FreeSpace, dir, at), |state, _| match state.disk.find(dir)? {
            Some(_) => Ok(state.disk.free(&state.open)),
            None => Err(Errno::NOENT.into()),
        })
    }

    pub(crate) fn file_len(&self, path: &Path, at: Caller) -> io::Result<u64> {
        let (kind, _) = self.known(path);
        let about = About { kind, ..About::path(Op::FileLen, path, at) };
        self.call(about, |state, _| Ok(state.disk.node(state.disk.file(path)?).len()))
    }
}

/// A lock held in the simulated world until dropped.
pub(crate) struct MemLock {
    world: Arc<World>,
    path: PathBuf,
    node: NodeId,
}

impl MemLock {
    pub(crate) fn is_in_place(&self) -> bool {
        self.world.state().disk.file(&self.path).is_ok_and(|node| node == self.node)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.world.state();
        state.locked.give_back(self.node);
        state.closed(self.node);
    }
}

/// An open file of the simulated disk.
pub(crate) struct MemFile {
    world: Arc<World>,
    path: PathBuf,
    kind: FileKind,
    node: NodeId,
    writable: bool,
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.world.state().closed(self.node);
    }
}

impl MemFile {
    pub(crate) fn open(
        world: &Arc<World>,
        path: &Path,
        kind: FileKind,
        access: Access,
        at: Caller,
    ) -> io::Result<MemFile> {
        let op = match access {
            Access::Create => Op::Create,
            Access::Read | Access::ReadDirect => Op::Open,
            Access::Write => Op::OpenWrite,
        };
        let about = About { kind: Some(kind), ..About::path(op, path, at) };
        world.call(about, |state, _| {
            let node = match access {
                Access::Create => state.disk.create(path, kind)?,
                Access::Read | Access::ReadDirect | Access::Write => state.disk.file(path)?,
            };
            *state.open.entry(node).or_default() += 1;
            let writable = !matches!(access, Access::Read | Access::ReadDirect);
            Ok(MemFile { world: world.clone(), path: path.to_owned(), kind, node, writable })
        })
    }

    fn about(&self, op: Op, offset: u64, len: u64, at: Caller) -> About<'_> {
        let (kind, node) = (Some(self.kind), Some(self.node));
        About { kind, node, offset, len, ..About::path(op, &self.path, at) }
    }

    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8], at: Caller) -> io::Result<usize> {
        let about = self.about(Op::Read, offset, buf.len() as u64, at);
        self.world.call(about, |state, effect| Ok(self.read(state, effect, offset, buf)))
    }

    fn read(&self, state: &mut State, effect: Option<Effect>, offset: u64, buf: &mut [u8]) -> usize {
        let node = state.disk.node(self.node);
        match effect {
            Some(Effect::Short) => {
                let short = half(buf.len());
                node.read(offset, &mut buf[..short])
            }
            Some(Effect::Stale) => node.read_stale(offset, buf),
            Some(Effect::Misdirected) => {
                let n = node.read(offset, buf);
                // The bytes come from another page, or in a file of one page from a wrong offset in it.
                let pages = node.len().div_ceil(PAGE as u64).max(1);
                let away = if pages > 1 {
                    (1 + state.faults.draw(pages - 1)) * PAGE as u64
                } else {
                    1 + state.faults.draw(node.len().max(2) - 1)
                };
                let whole = pages.max(2) * PAGE as u64;
                let from = if pages > 1 { (offset + away) % whole } else { away };
                buf[..n].fill(0);
                node.read(from, &mut buf[..n]);
                n
            }
            Some(Effect::FlipBit) => {
                let n = node.read(offset, buf);
                if n > 0 {
                    let bit = state.faults.draw(n as u64 * 8) as usize;
                    buf[bit / 8] ^= 1 << (bit % 8);
                }
                n
            }
            _ => node.read(offset, buf),
        }
    }

    fn require_writable(&self, otherwise: Errno) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(otherwise.into()) }
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8], at: Caller) -> io::Result<usize> {
        let about = About { data, ..self.about(Op::Write, offset, data.len() as u64, at) };
        self.world.call(about, |state, effect| {
            self.require_writable(Errno::BADF)?;
            let State { disk, open, .. } = state;
            match effect {
                Some(Effect::Short) => disk.write(self.node, offset, &data[..half(data.len())], open),
                Some(Effect::Partial(errno)) => {
                    disk.write(self.node, offset, &data[..half(data.len())], open)?;
                    Err(io::Error::from_raw_os_error(errno))
                }
                _ => disk.write(self.node, offset, data, open),
            }
        })
    }

    pub(crate) fn allocate(&self, offset: u64, len: u64, at: Caller) -> io::Result<()> {
        self.world.call(self.about(Op::Allocate, offset, len, at), |state, _| {
            if len == 0 {
                return Ok(());
            }
            self.require_writable(Errno::BADF)?;
            state.disk.allocate(self.node, offset, len, &state.open)
        })
    }

    pub(crate) fn set_len(&self, len: u64, at: Caller) -> io::Result<()> {
        self.world.call(self.about(Op::SetLen, len, 0, at), |state, _| {
            self.require_writable(Errno::INVAL)?;
            state.disk.set_len(self.node, len)
        })
    }

    /// Returns length and name status. A file of this disk has one name, or those that `link` added; this checks the
    /// name that it was opened by.
    pub(crate) fn status(&self) -> FileStatus {
        let state = self.world.state();
        let is_named = state.disk.file(&self.path).is_ok_and(|node| node == self.node);
        FileStatus { len: state.disk.node(self.node).len(), is_named }
    }

    pub(crate) fn len(&self, at: Caller) -> io::Result<u64> {
        self.world.call(self.about(Op::Len, 0, 0, at), |state, _| Ok(state.disk.node(self.node).len()))
    }

    pub(crate) fn sync(&self, sync: Sync, at: Caller) -> io::Result<()> {
        let op = match sync {
            Sync::Data => Op::SyncData,
            Sync::All => Op::SyncAll,
        };
        self.world.call(self.about(op, 0, 0, at), |state, _| state.disk.sync(self.node))
    }

    pub(crate) fn sync_range(&self, offset: u64, len: u64, at: Caller) -> io::Result<()> {
        let about = self.about(Op::SyncData, offset, len, at);
        self.world.call(about, |state, _| state.disk.sync_range(self.node, offset, len))
    }

    pub(crate) fn close(self, at: Caller) -> io::Result<()> {
        let closed = self.world.call(self.about(Op::Close, 0, 0, at), |_, _| Ok(()));
        // As on a real system, an interrupted close has closed the file.
        closed.or_else(|error| if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) })
    }
}
