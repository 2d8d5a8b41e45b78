//! A simulated world: a disk that forgets, a clock that stands still, chance that repeats.
//!
//! [`MemEnv`] is the tester's side; the engine sees the [`Env`] made from it. The disk (`disk`, `node`,
//! `names`) keeps what readers see apart from what is on stable storage. `image` draws what a power loss
//! leaves, `fault` says which calls go wrong, `monitor` checks the durability order rules, `world` ties them
//! to one lock and one count of calls.
//!
//! What holds: the same seed and the same calls give the same results, trace and images, in a stepped world;
//! [`MemEnv`]'s own calls are not counted and meet no faults; a [`Disk`] never changes once taken. It is a
//! belief about disks, made to be harsher than real ones, and not a proof about any of them.

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
use names::{Entry, NodeId};
use node::Node;
pub use node::SyncFailure;
pub(crate) use world::World;
pub use world::{Call, Site};

use crate::env::{Backend, Env};
use crate::fs::FileKind;

/// A simulated world, from the tester's side. Clones share it.
#[derive(Clone)]
pub struct MemEnv(Arc<World>);

impl MemEnv {
    /// A stepped world with an empty disk: no threads, and every choice made from `seed`.
    pub fn new(seed: u64) -> MemEnv {
        MemEnv::over(Disk::new(true), seed, ImageReport::default())
    }

    /// A world with an empty disk and real threads, whose order is not under control.
    pub fn threaded(seed: u64) -> MemEnv {
        MemEnv::over(Disk::new(false), seed, ImageReport::default())
    }

    fn over(disk: Disk, seed: u64, report: ImageReport) -> MemEnv {
        MemEnv(Arc::new(World::new(disk, seed, report)))
    }

    /// The handle to give to the engine.
    pub fn env(&self) -> Env {
        Env::over(Backend::Mem(self.0.clone()))
    }

    /// How many I/O calls were made: the index of the next one.
    pub fn io_index(&self) -> u64 {
        self.0.state().index
    }

    /// A hash over every call so far: operation, kind, path, offset, length and written data. Equal seeds
    /// give equal traces.
    pub fn trace_hash(&self) -> u64 {
        self.0.state().trace
    }

    /// Every place in the source that did I/O, and how often.
    pub fn sites(&self) -> Vec<(Site, u64)> {
        self.0.state().sites.iter().map(|(&site, &count)| (site, count)).collect()
    }

    /// Moves the clock.
    pub fn advance(&self, micros: u64) {
        self.0.sleep_micros(micros);
    }

    /// Makes every later call take virtual time: so much each, and so much per KiB transferred. Free at
    /// first.
    pub fn set_io_cost(&self, nanos_per_call: u64, nanos_per_kib: u64) {
        let mut state = self.0.state();
        (state.nanos_per_call, state.nanos_per_kib) = (nanos_per_call, nanos_per_kib);
    }

    /// Gives background steps a time of their own, in which they go on beside the clients, and makes reading
    /// and writing of tables take so many nanoseconds for each block of 4 KiB. A read of a client takes the
    /// time of one block: what it reads ahead comes along. Everything else is free: so the clock shows what a
    /// disk model says of one client in a closed loop.
    pub fn pace(&self, nanos_per_block_read: u64, nanos_per_block_written: u64) {
        self.0.state().paced = Some([nanos_per_block_read, nanos_per_block_written]);
    }
}

/// Pictures of the disk.
impl MemEnv {
    /// The disk as it is now.
    pub fn snapshot(&self) -> Disk {
        self.0.state().picture()
    }

    /// Has a picture taken just before the call with this index, while the run goes on. See
    /// [`MemEnv::taken`].
    pub fn take_snapshot_at(&self, index: u64) {
        self.0.state().wanted.insert(index);
    }

    /// Asks `recorder` at every call whether a picture of the disk is to be taken just before it. It must not
    /// call into this world.
    pub fn record(&self, recorder: impl FnMut(&Call<'_>) -> bool + Send + 'static) {
        self.0.state().recorder = Some(Box::new(recorder));
    }

    /// The pictures taken since this was last called, each with the index of the call that came next.
    pub fn taken(&self) -> Vec<(u64, Disk)> {
        std::mem::take(&mut self.0.state().taken)
    }

    /// What the image lost from which this world was made; nothing for a world made new.
    pub fn image_report(&self) -> ImageReport {
        self.0.image_report
    }
}

impl Disk {
    /// A world whose disk is what a power loss, or the death of the process, leaves of this one. Drawn from
    /// `seed`, which also becomes the seed of the new world. See [`MemEnv::image_report`].
    pub fn image(&self, mode: ImageMode, seed: u64) -> MemEnv {
        let (disk, report) = image::draw(self, mode, seed);
        MemEnv::over(disk, seed, report)
    }
}

/// What goes wrong.
impl MemEnv {
    /// Adds a rule. The rules stay until cleared; the first one that hits a call decides.
    pub fn inject(&self, fault: Fault) {
        self.0.state().faults.add(fault);
    }

    /// Fails the call with this index with a code of the operating system.
    pub fn fail_at(&self, index: u64, errno: i32) {
        self.inject(Fault { op: None, kind: None, when: When::Index(index), effect: Effect::Fail(errno) });
    }

    /// Removes all rules.
    pub fn clear_faults(&self) {
        self.0.state().faults.clear();
    }

    /// The faults that happened.
    pub fn fired(&self) -> Vec<Fired> {
        self.0.state().faults.fired.clone()
    }

    /// Limits the disk to so many bytes, counted in whole pages of files that have a name or are open; none
    /// for no limit.
    pub fn set_capacity(&self, bytes: impl Into<Option<u64>>) {
        self.0.state().disk.capacity = bytes.into();
    }

    /// Bytes of the disk in use.
    pub fn used_space(&self) -> u64 {
        let state = self.0.state();
        state.disk.used(&state.open)
    }

    /// Forgets the pages whose sync failed with [`SyncFailure::Lost`], as memory pressure does to a real
    /// system: readers see stable storage again.
    pub fn evict(&self) {
        let mut state = self.0.state();
        let ids: Vec<NodeId> = state.disk.nodes.keys().copied().collect();
        for id in ids {
            state.disk.node_mut(id).evict();
        }
    }

    /// Makes the first broken durability order rule a panic in the call that breaks it, to see where it comes
    /// from.
    pub fn stop_at_order_violation(&self) {
        self.0.state().monitor.stops = true;
    }

    /// What broke a durability order rule, in order. Empty in a correct run.
    pub fn order_violations(&self) -> Vec<String> {
        self.0.state().monitor.violations()
    }
}

/// A look at the disk, and damage to it, without I/O calls.
impl MemEnv {
    /// Every file, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.state().disk.names.files().map(|(path, _)| path.to_owned()).collect()
    }

    /// A file's content, as readers see it.
    pub fn peek(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.state();
        let node = state.disk.node_at(path)?;
        let mut content = vec![0; node.len() as usize];
        node.read(0, &mut content);
        Some(content)
    }

    /// The kind a file was created with.
    pub fn kind_of(&self, path: &Path) -> Option<FileKind> {
        self.0.state().disk.node_at(path).map(|node| node.kind)
    }

    /// Whether a power loss now leaves the file, with its name, as it is.
    pub fn is_durable(&self, path: &Path) -> bool {
        let state = self.0.state();
        state.disk.names.is_durable(path) && state.disk.node_at(path).is_some_and(Node::is_durable)
    }

    /// Damages a file: changes bytes, for readers and on stable storage alike. False when there is no such
    /// file.
    pub fn patch(&self, path: &Path, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.0.state();
        let Ok(id) = state.disk.file(path) else { return false };
        state.disk.node_mut(id).damage(offset, bytes);
        true
    }

    /// Damages a file: cuts it, or extends it with zeros, on stable storage too. False when there is no such
    /// file.
    pub fn truncate_file(&self, path: &Path, len: u64) -> bool {
        let mut state = self.0.state();
        let Ok(id) = state.disk.file(path) else { return false };
        let node = state.disk.node_mut(id);
        node.set_len(len);
        *node = Node::synced(node.kind, len, node.pages().to_vec());
        true
    }

    /// Puts a file on stable storage, with its directories, in place of one that may be there.
    pub fn plant(&self, path: &Path, kind: FileKind, content: &[u8]) {
        let mut state = self.0.state();
        let above: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
        let mut node = Node::new(kind);
        node.damage(0, content);
        let id = state.disk.add_node(node);
        let names = state.disk.names_mut();
        for dir in above.iter().rev().filter(|dir| dir.file_name().is_some()) {
            names.set_durable(dir, Entry::Dir);
        }
        names.set_durable(path, Entry::File(id));
    }
}

impl fmt::Debug for MemEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemEnv").field("io_index", &self.io_index()).finish_non_exhaustive()
    }
}
