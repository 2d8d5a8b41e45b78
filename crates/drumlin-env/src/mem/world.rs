//! The simulated world behind a [`crate::MemEnv`]: disk, clock, random streams, faults and records behind one lock.
//!
//! Every file system call goes through [`World::call`]. It takes the next I/O index, snapshots the disk if requested,
//! records site and trace, evaluates the fault rules, notifies the order monitor, and runs the call.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::Path;

use rustix::io::Errno;

use super::disk::{Disk, Open};
use super::fault::{Effect, Faults, Op};
use super::image::ImageReport;
use super::monitor::{Monitor, Seen};
use super::names::NodeId;
use super::node::SyncFailure;
use crate::holders::Holders;
use crate::kinds::{Caller, FileKind};
use crate::note::Note;
use crate::random::{Random, fold, fold_word};
use crate::sync::plain::{Mutex, MutexGuard};
use crate::threads::{self, ThreadId};

/// Clock of a new world, in microseconds since 1970.
const START_UNIX_MICROS: u64 = 1_600_000_000_000_000;

/// Payload of a panic requested with [`crate::MemEnv::panic_at_step`].
struct InjectedPanic;

/// A call site of I/O: an operation on a kind of file, by a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The operation.
    pub op: Op,
    /// Kind of the file; `None` for directories.
    pub kind: Option<FileKind>,
    /// Source location of the caller.
    pub at: &'static Location<'static>,
}

/// One I/O call, as it begins.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// I/O index of the call.
    pub index: u64,
    /// Call site.
    pub site: Site,
    /// The file or directory.
    pub path: &'a Path,
    /// Number of earlier calls from the same site.
    pub seen_before: u64,
}

/// Decides for each call whether to snapshot the disk just before it.
pub(crate) type Recorder = Box<dyn FnMut(&Call<'_>) -> bool + Send>;

pub(crate) struct World {
    stepped: bool,
    seed: u64,
    pub(crate) image_report: ImageReport,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) disk: Disk,
    pub(crate) open: Open,
    pub(crate) locked: Holders<NodeId>,
    pub(crate) index: u64,
    pub(crate) nanos: u64,
    pub(crate) nanos_per_call: u64,
    pub(crate) nanos_per_kib: u64,
    /// Nanoseconds to read and to write a table block, where background steps have a clock of their own.
    pub(crate) paced: Option<[u64; 2]>,
    /// Whether a background step is running.
    is_beside: bool,
    pub(crate) trace: u64,
    pub(crate) sites: BTreeMap<Site, u64>,
    pub(crate) wanted: BTreeSet<u64>,
    pub(crate) taken: Vec<(u64, Disk)>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) faults: Faults,
    pub(crate) monitor: Monitor,
    /// Threads that are in a check, whose calls are not counted.
    peeking: Vec<ThreadId>,
    /// Number of background steps begun.
    pub(crate) steps: u64,
    /// Number of the background step that panics, and of its calls that succeed first.
    pub(crate) panics: Option<(u64, u64)>,
    /// Within that step: number of calls that still succeed.
    doomed: Option<u64>,
    /// Largest number of open files; `None` means no limit.
    pub(crate) open_files_limit: Option<usize>,
    /// Number of threads that can still start; `None` means no limit.
    pub(crate) threads_left: Option<u64>,
    streams: BTreeMap<&'static str, Random>,
}

/// Subject of a call, for counting, faults and the order monitor.
pub(crate) struct About<'a> {
    pub(crate) op: Op,
    pub(crate) kind: Option<FileKind>,
    pub(crate) path: &'a Path,
    pub(crate) to: Option<&'a Path>,
    pub(crate) node: Option<NodeId>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) data: &'a [u8],
    pub(crate) at: Caller,
}

impl<'a> About<'a> {
    pub(crate) fn path(op: Op, path: &'a Path, at: Caller) -> About<'a> {
        About { op, kind: None, path, to: None, node: None, offset: 0, len: 0, data: &[], at }
    }
}

/// A check in progress, whose calls are not counted.
pub(crate) struct Peeking<'a>(&'a World);

impl Drop for Peeking<'_> {
    fn drop(&mut self) {
        let (own, state) = (threads::current(), &mut *self.0.state());
        if let Some(at) = state.peeking.iter().position(|thread| *thread == own) {
            state.peeking.swap_remove(at);
        }
    }
}

impl World {
    pub(crate) fn new(disk: Disk, seed: u64, image_report: ImageReport) -> World {
        let state = State {
            open: Open::new(),
            locked: Holders::new(),
            index: 0,
            nanos: disk.nanos,
            nanos_per_call: 0,
            nanos_per_kib: 0,
            paced: None,
            is_beside: false,
            trace: 0,
            sites: BTreeMap::new(),
            wanted: BTreeSet::new(),
            taken: Vec::new(),
            recorder: None,
            faults: Faults::new(seed),
            monitor: Monitor::new(&disk),
            peeking: Vec::new(),
            steps: 0,
            panics: None,
            doomed: None,
            open_files_limit: None,
            threads_left: None,
            streams: BTreeMap::new(),
            disk,
        };
        let stepped = state.disk.stepped;
        World { stepped, seed, image_report, state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn is_stepped(&self) -> bool {
        self.stepped
    }

    pub(crate) fn monotonic_nanos(&self) -> u64 {
        self.state().nanos
    }

    pub(crate) fn unix_micros(&self) -> u64 {
        START_UNIX_MICROS + self.monotonic_nanos() / 1000
    }

    pub(crate) fn sleep_micros(&self, micros: u64) {
        let mut state = self.state();
        state.nanos = state.nanos.saturating_add(micros.saturating_mul(1000));
        drop(state);
        if !self.stepped {
            crate::threads::yield_now();
        }
    }

    /// Runs `step` and restores the clock. Also returns the time that the step took.
    pub(crate) fn beside<T>(&self, step: impl FnOnce() -> T) -> (T, u64) {
        let began = {
            let mut state = self.state();
            state.is_beside = true;
            state.nanos
        };
        let result = step();
        let mut state = self.state();
        state.is_beside = false;
        let passed = state.nanos.saturating_sub(began);
        state.nanos = began;
        (result, passed)
    }

    /// Runs a background step. Returns `None` when a test made it panic; any other panic propagates.
    pub(crate) fn step<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let is_doomed = {
            let state = &mut *self.state();
            let number = state.steps;
            state.steps += 1;
            state.doomed = state.panics.filter(|(wanted, _)| *wanted == number).map(|(_, calls)| calls);
            state.doomed.is_some()
        };
        if !is_doomed {
            return Some(step());
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let result = step();
            // The step made fewer calls than requested, so it panics at its end.
            if self.state().doomed.take().is_some() {
                resume_unwind(Box::new(InjectedPanic));
            }
            result
        }));
        match result {
            Ok(result) => Some(result),
            Err(panic) if panic.is::<InjectedPanic>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Counts a thread that is about to start. Fails when no more threads can start.
    pub(crate) fn begin_thread(&self) -> io::Result<()> {
        if let Some(left) = &mut self.state().threads_left {
            let no_more = || io::Error::new(io::ErrorKind::WouldBlock, "no more threads can be started");
            *left = left.checked_sub(1).ok_or_else(no_more)?;
        }
        Ok(())
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.state().paced.is_some()
    }

    pub(crate) fn random_u64(&self, purpose: &'static str) -> u64 {
        self.state().stream(self.seed, purpose).next_u64()
    }

    pub(crate) fn choose(&self, n: usize) -> usize {
        self.state().stream(self.seed, "schedule").index(n)
    }

    /// Starts a check: until the returned guard is dropped, calls of this thread are not counted and meet no
    /// faults.
    pub(crate) fn begin_peek(&self) -> Peeking<'_> {
        self.state().peeking.push(threads::current());
        Peeking(self)
    }

    pub(crate) fn note(&self, note: Note<'_>) {
        let state = &mut *self.state();
        state.monitor.note(note, &state.disk, state.index);
    }

    /// Runs one I/O call. `act` receives any fault effect that `call` does not handle itself.
    pub(crate) fn call<T>(
        &self,
        about: About<'_>,
        act: impl FnOnce(&mut State, Option<Effect>) -> io::Result<T>,
    ) -> io::Result<T> {
        let state = &mut *self.state();
        if !state.peeking.is_empty() && state.peeking.contains(&threads::current()) {
            return act(state, None);
        }
        match &mut state.doomed {
            Some(0) => {
                state.doomed = None;
                // `resume_unwind` bypasses the panic hook, since a test requested this panic.
                resume_unwind(Box::new(InjectedPanic));
            }
            Some(calls) => *calls -= 1,
            None => {}
        }
        let index = state.begin(&about);
        let effect = state.faults.judge(index, about.op, about.kind);
        state.tell_monitor(&about, index, None);
        let outcome = match effect {
            _ if state.lacks_descriptor(about.op) => Err(Errno::MFILE.into()),
            Some(Effect::Fail(errno)) => {
                let loses =
                    (about.op.is_sync() || about.op == Op::Close) && errno != Errno::INTR.raw_os_error();
                if loses {
                    state.fail_sync(&about, SyncFailure::Lost, errno);
                }
                Err(io::Error::from_raw_os_error(errno))
            }
            Some(Effect::FailSync(errno, failure)) => {
                state.fail_sync(&about, failure, errno);
                Err(io::Error::from_raw_os_error(errno))
            }
            effect => act(state, effect),
        };
        // The caller repeats an interrupted call, so the monitor does not count it as failed.
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            state.tell_monitor(&about, index, Some(outcome.is_err()));
        }
        outcome
    }
}

impl State {
    fn stream(&mut self, seed: u64, purpose: &'static str) -> &mut Random {
        self.streams.entry(purpose).or_insert_with(|| Random::new(seed, purpose))
    }

    /// Returns the time of a table transfer in a paced world.
    fn block_cost(&self, about: &About<'_>) -> u64 {
        let (Some([read, write]), Some(FileKind::Table)) = (self.paced, about.kind) else { return 0 };
        match about.op {
            // A client waits for one access; readahead is free.
            Op::Read if !self.is_beside => read,
            Op::Read => read * about.len.div_ceil(4096),
            // Writes have any length, so they cost time per byte.
            Op::Write => write * about.len / 4096,
            _ => 0,
        }
    }

    /// Returns whether `op` needs a file descriptor and none is left.
    fn lacks_descriptor(&self, op: Op) -> bool {
        let opens = matches!(op, Op::Create | Op::Open | Op::OpenWrite | Op::SyncDir | Op::List | Op::Lock);
        opens && self.open_files_limit.is_some_and(|limit| self.open_files() >= limit)
    }

    /// Returns the number of open files.
    pub(crate) fn open_files(&self) -> usize {
        self.open.values().map(|count| *count as usize).sum()
    }

    /// Takes the next index, records the call, and returns the index.
    fn begin(&mut self, about: &About<'_>) -> u64 {
        let index = self.index;
        self.index += 1;
        let site = Site { op: about.op, kind: about.kind, at: about.at };
        let count = self.sites.entry(site).or_default();
        let call = Call { index, site, path: about.path, seen_before: *count };
        *count += 1;
        let asked = self.recorder.as_mut().is_some_and(|recorder| recorder(&call));
        if self.wanted.remove(&index) || asked {
            let picture = self.picture();
            self.taken.push((index, picture));
        }
        let cost = self.nanos_per_call + self.nanos_per_kib * about.len.div_ceil(1024);
        self.nanos = self.nanos.saturating_add(cost).saturating_add(self.block_cost(about));
        let kind = about.kind.map_or(0, |kind| 1 + kind as u64);
        let mut trace = fold_word(self.trace, about.op as u64 | kind << 8);
        trace = fold(trace, about.path.as_os_str().as_encoded_bytes());
        if let Some(to) = about.to {
            trace = fold(trace, to.as_os_str().as_encoded_bytes());
        }
        trace = fold_word(fold_word(trace, about.offset), about.len);
        self.trace = if about.data.is_empty() { trace } else { fold(trace, about.data) };
        index
    }

    /// Returns the disk as it is now.
    pub(crate) fn picture(&self) -> Disk {
        Disk { nanos: self.nanos, ..self.disk.clone() }
    }

    fn fail_sync(&mut self, about: &About<'_>, failure: SyncFailure, errno: i32) {
        match about.node {
            Some(node) => self.disk.fail_sync(node, failure, errno),
            // A sticky failure loses nothing by itself: the fault rule must fail the later syncs too.
            None if failure != SyncFailure::Sticky => self.disk.names_mut().lose_sync(about.path),
            None => {}
        }
    }

    /// Notifies the monitor. `failed` is `None` before the call acts.
    fn tell_monitor(&mut self, about: &About<'_>, index: u64, failed: Option<bool>) {
        let seen = Seen {
            disk: &self.disk,
            index,
            op: about.op,
            kind: about.kind,
            path: about.path,
            to: about.to,
            node: about.node,
        };
        match failed {
            None => self.monitor.before(&seen),
            Some(failed) => self.monitor.after(&seen, failed),
        }
    }

    pub(crate) fn closed(&mut self, node: NodeId) {
        if let Some(count) = self.open.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&node);
            }
        }
    }
}
