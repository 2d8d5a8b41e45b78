//! A world in memory: files, a virtual clock, seeded randomness.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{Backend, Env};
use crate::fs::{Access, Caller, DirEntry, FileKind, Sync};
use crate::note::Note;
use crate::random::Random;
use crate::sync::Mutex;

/// A simulated world.
#[derive(Clone)]
pub struct MemEnv(Arc<World>);

impl MemEnv {
    /// A stepped world: no threads, all choices made from `seed`.
    pub fn new(seed: u64) -> MemEnv {
        MemEnv(Arc::new(World { stepped: true, seed, state: Mutex::default() }))
    }

    /// A world in memory with real threads.
    pub fn threaded(seed: u64) -> MemEnv {
        MemEnv(Arc::new(World { stepped: false, seed, state: Mutex::default() }))
    }

    /// The handle to give to the engine.
    pub fn env(&self) -> Env {
        Env::over(Backend::Mem(self.0.clone()))
    }
}

pub(crate) struct World {
    stepped: bool,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, Arc<Mutex<Vec<u8>>>>,
    dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    streams: BTreeMap<&'static str, Random>,
    nanos: u64,
}

fn missing<T>() -> io::Result<T> {
    Err(rustix::io::Errno::NOENT.into())
}

fn taken<T>() -> io::Result<T> {
    Err(rustix::io::Errno::EXIST.into())
}

impl State {
    fn has_dir(&self, dir: &Path) -> bool {
        dir.as_os_str().is_empty() || dir == Path::new("/") || self.dirs.contains(dir)
    }

    fn has_parent(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.has_dir(parent))
    }
}

impl World {
    pub(crate) fn monotonic_nanos(&self) -> u64 {
        self.state.lock().nanos
    }
    pub(crate) fn unix_micros(&self) -> u64 {
        1_600_000_000_000_000 + self.monotonic_nanos() / 1000
    }
    pub(crate) fn sleep_micros(&self, micros: u64) {
        self.state.lock().nanos += micros * 1000;
    }
    pub(crate) fn random_u64(&self, purpose: &'static str) -> u64 {
        let mut state = self.state.lock();
        state.streams.entry(purpose).or_insert_with(|| Random::new(self.seed, purpose)).next_u64()
    }
    pub(crate) fn choose(&self, n: usize) -> usize {
        let mut state = self.state.lock();
        state.streams.entry("schedule").or_insert_with(|| Random::new(self.seed, "schedule")).index(n)
    }
    pub(crate) fn is_stepped(&self) -> bool {
        self.stepped
    }
    pub(crate) fn note(&self, _note: Note<'_>) {}
    pub(crate) fn create_dir_all(&self, dir: &Path, _at: Caller) -> io::Result<()> {
        let mut state = self.state.lock();
        for dir in dir.ancestors() {
            state.dirs.insert(dir.to_owned());
        }
        Ok(())
    }
    pub(crate) fn rename(&self, from: &Path, to: &Path, _at: Caller) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_parent(to) {
            return missing();
        }
        let Some(file) = state.files.remove(from) else { return missing() };
        state.files.insert(to.to_owned(), file);
        Ok(())
    }
    pub(crate) fn link(&self, from: &Path, to: &Path, _at: Caller) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_parent(to) {
            return missing();
        }
        let Some(file) = state.files.get(from).cloned() else { return missing() };
        if state.files.contains_key(to) {
            return taken();
        }
        state.files.insert(to.to_owned(), file);
        Ok(())
    }
    pub(crate) fn unlink(&self, path: &Path, _kind: FileKind, _at: Caller) -> io::Result<()> {
        if self.state.lock().files.remove(path).is_none() { missing() } else { Ok(()) }
    }
    pub(crate) fn sync_dir(&self, dir: &Path, _at: Caller) -> io::Result<()> {
        if self.state.lock().has_dir(dir) { Ok(()) } else { missing() }
    }
    pub(crate) fn list(&self, dir: &Path, _at: Caller) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        if !state.has_dir(dir) {
            return missing();
        }
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let files = state.files.iter().filter(|(path, _)| path.parent() == Some(dir));
        let files = files.filter_map(|(path, file)| {
            Some(DirEntry { name: name(path)?, len: file.lock().len() as u64, is_dir: false })
        });
        let dirs = state.dirs.iter().filter(|path| path.parent() == Some(dir));
        let dirs = dirs.filter_map(|path| Some(DirEntry { name: name(path)?, len: 0, is_dir: true }));
        let mut entries: Vec<_> = files.chain(dirs).collect();
        entries.sort();
        Ok(entries)
    }
    pub(crate) fn exists(&self, path: &Path, _at: Caller) -> io::Result<bool> {
        let state = self.state.lock();
        Ok(state.files.contains_key(path) || state.has_dir(path))
    }
    pub(crate) fn lock(self: &Arc<Self>, path: &Path, _at: Caller) -> io::Result<Option<MemLock>> {
        let mut state = self.state.lock();
        if !state.has_parent(path) {
            return missing();
        }
        state.files.entry(path.to_owned()).or_default();
        Ok(state
            .locked
            .insert(path.to_owned())
            .then(|| MemLock { world: self.clone(), path: path.to_owned() }))
    }
    pub(crate) fn free_space(&self, _dir: &Path, _at: Caller) -> io::Result<u64> {
        Ok(1 << 40)
    }
    pub(crate) fn file_len(&self, path: &Path, _at: Caller) -> io::Result<u64> {
        match self.state.lock().files.get(path) {
            Some(file) => Ok(file.lock().len() as u64),
            None => missing(),
        }
    }
}

pub(crate) struct MemLock {
    world: Arc<World>,
    path: PathBuf,
}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.world.state.lock().locked.remove(&self.path);
    }
}

pub(crate) struct MemFile(Arc<Mutex<Vec<u8>>>);

impl MemFile {
    pub(crate) fn open(
        world: &Arc<World>,
        path: &Path,
        _kind: FileKind,
        access: Access,
        _at: Caller,
    ) -> io::Result<MemFile> {
        let mut state = world.state.lock();
        if access == Access::Create {
            if state.files.contains_key(path) {
                return taken();
            }
            if !state.has_parent(path) {
                return missing();
            }
            state.files.insert(path.to_owned(), Arc::default());
        }
        match state.files.get(path) {
            Some(file) => Ok(MemFile(file.clone())),
            None => missing(),
        }
    }
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8], _at: Caller) -> io::Result<usize> {
        let data = self.0.lock();
        let rest = data.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8], _at: Caller) -> io::Result<usize> {
        let mut data = self.0.lock();
        let end = offset as usize + bytes.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }
    pub(crate) fn allocate(&self, offset: u64, len: u64, _at: Caller) -> io::Result<()> {
        let mut data = self.0.lock();
        let end = (offset + len) as usize;
        if data.len() < end {
            data.resize(end, 0);
        }
        Ok(())
    }
    pub(crate) fn set_len(&self, len: u64, _at: Caller) -> io::Result<()> {
        self.0.lock().resize(len as usize, 0);
        Ok(())
    }
    pub(crate) fn len(&self, _at: Caller) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }
    pub(crate) fn sync(&self, _sync: Sync, _at: Caller) -> io::Result<()> {
        Ok(())
    }
    pub(crate) fn close(self, _at: Caller) -> io::Result<()> {
        Ok(())
    }
}
