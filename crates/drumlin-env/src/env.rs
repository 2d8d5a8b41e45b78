//! The handle through which the engine reaches the world.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::batch::{self, ReadRequest};
use crate::clock::Clock;
use crate::fs::Fs;
use crate::mem::World;
use crate::note::Note;
use crate::os;
use crate::slow::Slow;

/// Which world a handle belongs to.
#[derive(Clone)]
pub(crate) enum Backend {
    /// The machine's, perhaps slowed down.
    Os(Option<Arc<Slow>>),
    Mem(Arc<World>),
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Os(_) => "Os",
            Backend::Mem(_) => "Mem",
        })
    }
}

/// Files, clock, randomness, threads. A cheap handle: clones share one world.
#[derive(Clone, Debug)]
pub struct Env {
    fs: Fs,
    clock: Clock,
}

impl Env {
    /// The machine this process runs on.
    pub fn os() -> Env {
        Env::over(Backend::Os(None))
    }

    /// The same on a slower device: each request of flushes and merges takes about `micros` microseconds more, for
    /// each 256 KiB of it. For measurements.
    pub fn slowed(micros: u64) -> Env {
        Env::over(Backend::Os(Some(Arc::new(Slow::new(micros)))))
    }

    pub(crate) fn over(backend: Backend) -> Env {
        Env { fs: Fs { backend: backend.clone(), syncs: Arc::default() }, clock: Clock(backend) }
    }

    /// The file system.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// 64 random bits. In a [`crate::MemEnv`] they come from the stream of its seed and `purpose`.
    pub fn random_u64(&self, purpose: &'static str) -> u64 {
        match &self.fs.backend {
            Backend::Os(_) => os::random_u64(),
            Backend::Mem(mem) => mem.random_u64(purpose),
        }
    }

    /// Starts a thread. Fails with [`io::ErrorKind::Unsupported`] in a stepped world, where nothing is
    /// spawned.
    pub fn spawn(&self, name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
        if self.stepping().is_some() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a stepped world starts no threads"));
        }
        std::thread::Builder::new().name(name.to_owned()).spawn(f).map(JoinHandle)
    }

    /// In a stepped world, the source of scheduling choices: jobs run as steps between client operations, and
    /// [`Env::spawn`] is refused.
    pub fn stepping(&self) -> Option<Stepping> {
        match &self.fs.backend {
            Backend::Os(_) => None,
            Backend::Mem(mem) => mem.is_stepped().then(|| Stepping(mem.clone())),
        }
    }

    /// Tells the order monitor what the I/O around this call is for; nothing outside a [`crate::MemEnv`].
    pub fn note(&self, note: Note<'_>) {
        if let Backend::Mem(mem) = &self.fs.backend {
            mem.note(note);
        }
    }

    /// Does many reads side by side; the results are in their order. Where the world is simulated, one by one.
    pub fn read_batch(&self, requests: Vec<ReadRequest>) -> Vec<io::Result<Vec<u8>>> {
        match &self.fs.backend {
            Backend::Os(_) => batch::side_by_side(requests),
            Backend::Mem(_) => batch::one_by_one(&requests),
        }
    }

    /// Runs `look`, whose I/O is for checks that are no part of the program: a [`crate::MemEnv`] neither counts nor
    /// disturbs it. It must not change anything.
    pub fn peek<T>(&self, look: impl FnOnce() -> T) -> T {
        match &self.fs.backend {
            Backend::Os(_) => look(),
            Backend::Mem(mem) => {
                let _peeking = mem.begin_peek();
                look()
            }
        }
    }

    /// How many threads can run at once.
    pub fn available_cores(&self) -> usize {
        match &self.fs.backend {
            Backend::Os(_) => std::thread::available_parallelism().map_or(1, usize::from),
            Backend::Mem(_) => 4,
        }
    }

    /// Bytes of memory that this process may use, where that is known.
    pub fn total_memory(&self) -> Option<u64> {
        match &self.fs.backend {
            Backend::Os(_) => os::total_memory(),
            Backend::Mem(_) => Some(1 << 30),
        }
    }
}

/// Seeded choices of a stepped world.
#[derive(Clone)]
pub struct Stepping(Arc<World>);

impl Stepping {
    /// A draw from `0..n`; 0 when `n` is 0.
    pub fn choose(&self, n: usize) -> usize {
        self.0.choose(n)
    }

    /// Whether background steps have a time of their own: [`crate::MemEnv::pace`].
    pub fn is_paced(&self) -> bool {
        self.0.is_paced()
    }

    /// Runs a background step beside the clients: the clock then stands where it stood. Also gives the
    /// nanoseconds that the step took.
    pub fn beside<T>(&self, step: impl FnOnce() -> T) -> (T, u64) {
        self.0.beside(step)
    }

    /// Lets the clients' time pass up to `nanos`.
    pub fn pass_until(&self, nanos: u64) {
        let now = self.0.monotonic_nanos();
        self.0.sleep_micros(nanos.saturating_sub(now).div_ceil(1000));
    }
}

impl fmt::Debug for Stepping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stepping")
    }
}

/// A running thread. Dropping the handle lets the thread go on alone.
#[derive(Debug)]
pub struct JoinHandle(std::thread::JoinHandle<()>);

impl JoinHandle {
    /// Waits for the thread's end; an error when it panicked.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.join()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Whether the calling thread is the one behind this handle.
    pub fn is_current(&self) -> bool {
        self.0.thread().id() == std::thread::current().id()
    }
}
