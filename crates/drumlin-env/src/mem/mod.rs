//! A simulated world: a disk that drops unsynced data, a virtual clock, and reproducible random numbers.
//!
//! [`MemEnv`] is the tester's interface; the engine sees the [`Env`] made from it. The disk (`disk`, `node`, `names`)
//! keeps what readers see apart from what is on stable storage. `image` draws what a power loss leaves, `fault`
//! decides which calls fail, and `monitor` checks the durability order rules. `world` puts them behind one lock and
//! one call counter.
//!
//! Invariants: In a stepped world the same seed and the same calls give the same results, trace and images. The calls
//! of [`MemEnv`] itself are not counted and meet no faults. A [`Disk`] never changes once taken. The disk is a model,
//! meant to be harsher than real disks; it proves nothing about any of them.

mod calls;
mod disk;
mod fault;
mod image;
mod monitor;
mod names;
mod node;
mod world;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use calls::{MemFile, MemLock};
pub use disk::Disk;
pub use fault::{Effect, Fault, Fired, Op, When};
pub use image::{ImageMode, ImageReport};
use names::{NameTarget, NodeId};
use node::Inode;
pub use node::SyncFailure;
pub(crate) use world::World;
pub use world::{Call, Site};

use crate::backend::Backend;
use crate::env::Env;
use crate::kinds::FileKind;

/// Tester's interface to a simulated world. Clones share the world.
#[derive(Clone)]
pub struct MemEnv(Arc<World>);

impl MemEnv {
    /// Creates a stepped world with an empty disk: no threads, and every choice follows from `seed`.
    pub fn new(seed: u64) -> MemEnv {
        MemEnv::over(Disk::new(true), seed, ImageReport::default())
    }

    /// Creates a world with an empty disk and real threads, whose order is not controlled.
    pub fn threaded(seed: u64) -> MemEnv {
        MemEnv::over(Disk::new(false), seed, ImageReport::default())
    }

    fn over(disk: Disk, seed: u64, report: ImageReport) -> MemEnv {
        MemEnv(Arc::new(World::new(disk, seed, report)))
    }

    /// Returns the handle for the engine.
    pub fn env(&self) -> Env {
        Env::over(Backend::Mem(self.0.clone()))
    }

    /// Returns the number of I/O calls so far, which is the index of the next call.
    pub fn io_index(&self) -> u64 {
        self.0.state().index
    }

    /// Returns a hash over every call so far: operation, kind, path, offset, length and written data. Equal seeds
    /// give equal traces.
    pub fn trace_hash(&self) -> u64 {
        self.0.state().trace
    }

    /// Returns every call site that did I/O, with its number of calls.
    pub fn sites(&self) -> Vec<(Site, u64)> {
        self.0.state().sites.iter().map(|(&site, &count)| (site, count)).collect()
    }

    /// Limits how many more threads can start, as on a machine that runs out of them. `None` removes the limit.
    pub fn limit_threads(&self, threads: impl Into<Option<u64>>) {
        self.0.state().threads_left = threads.into();
    }

    /// Advances the clock.
    pub fn advance(&self, micros: u64) {
        self.0.sleep_micros(micros);
    }

    /// Sets the virtual time of every later call: nanoseconds per call and per KiB transferred. Both are 0 at first.
    pub fn set_io_cost(&self, nanos_per_call: u64, nanos_per_kib: u64) {
        let mut state = self.0.state();
        (state.nanos_per_call, state.nanos_per_kib) = (nanos_per_call, nanos_per_kib);
    }

    /// Gives background steps a clock of their own, on which they run concurrently with the clients, and sets the
    /// cost of table I/O in nanoseconds per 4 KiB block. A client's read costs one block, whatever it reads ahead.
    /// Everything else is free. So the clock shows the prediction of a disk model for one client in a closed loop.
    pub fn pace(&self, nanos_per_block_read: u64, nanos_per_block_written: u64) {
        self.0.state().paced = Some([nanos_per_block_read, nanos_per_block_written]);
    }
}

/// Snapshots of the disk.
impl MemEnv {
    /// Returns the disk as it is now.
    pub fn snapshot(&self) -> Disk {
        self.0.state().picture()
    }

    /// Takes a snapshot just before the call with this index, while the run continues. See [`MemEnv::taken`].
    pub fn take_snapshot_at(&self, index: u64) {
        self.0.state().wanted.insert(index);
    }

    /// Calls `recorder` at every I/O call; it returns whether to take a snapshot of the disk just before that call.
    /// The recorder must not call into this world.
    pub fn record(&self, recorder: impl FnMut(&Call<'_>) -> bool + Send + 'static) {
        self.0.state().recorder = Some(Box::new(recorder));
    }

    /// Returns the snapshots taken since the previous call of this method, each with the index of the following I/O
    /// call.
    pub fn taken(&self) -> Vec<(u64, Disk)> {
        std::mem::take(&mut self.0.state().taken)
    }

    /// Returns what was lost in the crash image that this world started from; empty for a new world.
    pub fn image_report(&self) -> ImageReport {
        self.0.image_report
    }
}

impl Disk {
    /// Creates a world from a crash image: the disk that a power loss, or the death of the process, leaves of this
    /// one. The image is drawn from `seed`, which also becomes the new world's seed. See [`MemEnv::image_report`].
    pub fn image(&self, mode: ImageMode, seed: u64) -> MemEnv {
        let (disk, report) = image::draw(self, mode, seed);
        MemEnv::over(disk, seed, report)
    }
}

/// Fault injection.
impl MemEnv {
    /// Adds a fault rule. Rules stay until cleared; the first one that hits a call decides.
    pub fn inject(&self, fault: Fault) {
        self.0.state().faults.add(fault);
    }

    /// Fails the call with this index with an operating system error code.
    pub fn fail_at(&self, index: u64, errno: i32) {
        self.inject(Fault { op: None, kind: None, when: When::Index(index), effect: Effect::Fail(errno) });
    }

    /// Removes all fault rules.
    pub fn clear_faults(&self) {
        self.0.state().faults.clear();
    }

    /// Makes background step number `step`, counted from 0, panic before its I/O call number `calls`. A step with
    /// fewer calls panics at its end.
    pub fn panic_at_step(&self, step: u64, calls: u64) {
        self.0.state().panics = Some((step, calls));
    }

    /// Returns the number of background steps begun.
    pub fn steps(&self) -> u64 {
        self.0.state().steps
    }

    /// Returns the faults that happened.
    pub fn fired(&self) -> Vec<Fired> {
        self.0.state().faults.fired.clone()
    }

    /// Limits the disk to this many bytes, counted in whole pages of files that have a name or are open. `None`
    /// removes the limit.
    pub fn set_capacity(&self, bytes: impl Into<Option<u64>>) {
        self.0.state().disk.capacity = bytes.into();
    }

    /// Limits the length of files of `kind`, as `RLIMIT_FSIZE` does for all files. Calls that would make one longer
    /// fail with `EFBIG`. `None` removes the limit.
    pub fn set_file_len_limit(&self, kind: FileKind, bytes: impl Into<Option<u64>>) {
        self.0.state().disk.limited = bytes.into().map(|bytes| (kind, bytes));
    }

    /// Limits the number of open files, as `RLIMIT_NOFILE` does. `None` removes the limit. Calls that need a descriptor
    /// and get none fail with `EMFILE`.
    pub fn set_open_files_limit(&self, limit: impl Into<Option<usize>>) {
        self.0.state().open_files_limit = limit.into();
    }

    /// Returns the number of open files.
    pub fn open_files(&self) -> usize {
        self.0.state().open_files()
    }

    /// Returns the bytes of the disk in use.
    pub fn used_space(&self) -> u64 {
        let state = self.0.state();
        state.disk.used(&state.open)
    }

    /// Evicts the pages whose sync failed with [`SyncFailure::Lost`], as memory pressure does on a real system.
    /// Readers then see stable storage again.
    pub fn evict(&self) {
        let mut state = self.0.state();
        let ids: Vec<NodeId> = state.disk.nodes.keys().copied().collect();
        for id in ids {
            state.disk.node_mut(id).evict();
        }
    }

    /// Makes the first violation of a durability order rule panic in the offending call, to show its backtrace.
    pub fn stop_at_order_violation(&self) {
        self.0.state().monitor.stops = true;
    }

    /// Returns the violations of durability order rules, in order. Empty in a correct run.
    pub fn order_violations(&self) -> Vec<String> {
        self.0.state().monitor.violations()
    }
}

/// Inspection of the disk, and damage to it, without I/O calls.
impl MemEnv {
    /// Returns the paths of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.state().disk.names.files().map(|(path, _)| path.to_owned()).collect()
    }

    /// Returns a file's content as readers see it.
    pub fn peek(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.state();
        let node = state.disk.node_at(path)?;
        let mut content = vec![0; node.len() as usize];
        node.read(0, &mut content);
        Some(content)
    }

    /// Returns the kind that a file was created with.
    pub fn kind_of(&self, path: &Path) -> Option<FileKind> {
        self.0.state().disk.node_at(path).map(|node| node.kind)
    }

    /// Returns whether a power loss now would leave the file and its directory entry unchanged.
    pub fn is_durable(&self, path: &Path) -> bool {
        let state = self.0.state();
        state.disk.names.is_durable(path) && state.disk.node_at(path).is_some_and(Inode::is_durable)
    }

    /// Damages a file by changing bytes, for readers and on stable storage alike. Returns `false` when the file does
    /// not exist.
    pub fn patch(&self, path: &Path, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.0.state();
        let Ok(id) = state.disk.file(path) else { return false };
        state.disk.node_mut(id).damage(offset, bytes);
        true
    }

    /// Damages a file by truncating it, or extending it with zeros, on stable storage too. Returns `false` when the
    /// file does not exist.
    pub fn truncate_file(&self, path: &Path, len: u64) -> bool {
        let mut state = self.0.state();
        let Ok(id) = state.disk.file(path) else { return false };
        let node = state.disk.node_mut(id);
        node.set_len(len);
        *node = Inode::synced(node.kind, len, node.pages().to_vec());
        true
    }

    /// Puts a file and its directories on stable storage, replacing an existing file.
    pub fn plant(&self, path: &Path, kind: FileKind, content: &[u8]) {
        let mut state = self.0.state();
        let above: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
        let mut node = Inode::new(kind);
        node.damage(0, content);
        let id = state.disk.add_node(node);
        let names = state.disk.names_mut();
        for dir in above.iter().rev().filter(|dir| dir.file_name().is_some()) {
            names.set_durable(dir, NameTarget::Dir);
        }
        names.set_durable(path, NameTarget::File(id));
    }
}

impl fmt::Debug for MemEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemEnv").field("io_index", &self.io_index()).finish_non_exhaustive()
    }
}
