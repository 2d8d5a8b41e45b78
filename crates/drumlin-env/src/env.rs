//! [`Env`]: the handle through which the engine reaches files, clock, randomness and threads.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::backend::Backend;
use crate::batch;
use crate::clock::Clock;
use crate::fs::Fs;
use crate::mem::World;
use crate::note::Note;
use crate::request::ReadRequest;
use crate::threads::{self, JoinHandle};

/// Access to files, clock, randomness and threads. Clones are cheap and share one world.
#[derive(Clone, Debug)]
pub struct Env {
    fs: Fs,
    clock: Clock,
}

impl Env {
    /// Returns an environment over the machine that this process runs on.
    pub fn os() -> Env {
        Env::over(Backend::os())
    }

    /// Returns an environment over a machine with a slower device, for measurements. Each large table request, as
    /// flushes and compactions make, takes about `micros` microseconds longer per 256 KiB.
    pub fn slowed(micros: u64) -> Env {
        Env::over(Backend::slowed(micros))
    }

    pub(crate) fn over(backend: Backend) -> Env {
        let clock = Clock(backend.time());
        Env { fs: Fs { backend, syncs: Arc::default() }, clock }
    }

    /// Returns the file system.
    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns 64 random bits. A [`crate::MemEnv`] draws them from the stream of its seed and `purpose`.
    pub fn random_u64(&self, purpose: &'static str) -> u64 {
        self.fs.backend.random_u64(purpose)
    }

    /// Starts a thread. Fails with [`io::ErrorKind::Unsupported`] in a stepped world, which has no threads.
    pub fn spawn(&self, name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
        if self.stepping().is_some() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a stepped world has no threads"));
        }
        self.fs.backend.begin_thread()?;
        threads::spawn(name, f)
    }

    /// Returns the source of scheduling choices in a stepped world, where jobs run as steps between client operations
    /// and [`Env::spawn`] fails. Returns `None` elsewhere.
    pub fn stepping(&self) -> Option<Stepping> {
        self.fs.backend.stepped().map(Stepping)
    }

    /// Reports to the order monitor what the surrounding I/O is for. Has no effect outside a [`crate::MemEnv`].
    pub fn note(&self, note: Note<'_>) {
        self.fs.backend.note(note);
    }

    /// Runs many reads concurrently and returns the results in request order. A simulated world runs them one by one.
    pub fn read_batch(&self, requests: Vec<ReadRequest>) -> Vec<io::Result<Vec<u8>>> {
        if self.fs.backend.is_simulated() {
            batch::one_by_one(&requests)
        } else {
            batch::side_by_side(requests)
        }
    }

    /// Runs `look`, whose I/O serves checks that are not part of the program. A [`crate::MemEnv`] does not count this
    /// I/O and injects no faults into it. `look` must not change anything.
    pub fn peek<T>(&self, look: impl FnOnce() -> T) -> T {
        self.fs.backend.peek(look)
    }

    /// Returns the number of threads that can run at once.
    pub fn available_cores(&self) -> usize {
        self.fs.backend.available_cores()
    }

    /// Returns the maximum number of open files of this process, if limited.
    pub fn open_file_limit(&self) -> Option<u64> {
        self.fs.backend.open_file_limit()
    }

    /// Returns the maximum length in bytes of a file that this process writes, if limited.
    pub fn file_size_limit(&self) -> Option<u64> {
        self.fs.backend.file_size_limit()
    }

    /// Returns the bytes of memory that this process may use, if known.
    pub fn total_memory(&self) -> Option<u64> {
        self.fs.backend.total_memory()
    }
}

/// Source of seeded scheduling choices in a stepped world.
#[derive(Clone)]
pub struct Stepping(Arc<World>);

impl Stepping {
    /// Returns a draw from `0..n`; 0 when `n` is 0.
    pub fn choose(&self, n: usize) -> usize {
        self.0.choose(n)
    }

    /// Returns whether background steps have a clock of their own, see [`crate::MemEnv::pace`].
    pub fn is_paced(&self) -> bool {
        self.0.is_paced()
    }

    /// Runs a background step. Returns `None` when a test made it panic with [`crate::MemEnv::panic_at_step`].
    pub fn step<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        self.0.step(step)
    }

    /// Runs a background step concurrently with the clients: restores the clock afterwards. Returns the step's result
    /// and the nanoseconds that it took.
    pub fn beside<T>(&self, step: impl FnOnce() -> T) -> (T, u64) {
        self.0.beside(step)
    }

    /// Advances the clients' clock to `nanos`.
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
