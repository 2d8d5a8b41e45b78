//! Threads: those of the standard library, or those of the model checker in its builds, as its locks are.

use std::io;

#[cfg(shuttle)]
use shuttle::thread as made_of;
#[cfg(not(shuttle))]
use std::thread as made_of;

/// Identity of a thread.
pub(crate) use made_of::ThreadId;

/// Returns the identity of the calling thread.
pub(crate) fn current() -> ThreadId {
    made_of::current().id()
}

/// Starts a thread.
pub(crate) fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    made_of::Builder::new().name(name.to_owned()).spawn(f).map(JoinHandle)
}

/// Yields the processor to other threads.
pub fn yield_now() {
    made_of::yield_now();
}

/// Returns whether the calling thread is unwinding from a panic.
pub fn is_unwinding() -> bool {
    std::thread::panicking()
}

/// Handle to a running thread. Dropping the handle detaches the thread.
#[derive(Debug)]
pub struct JoinHandle(made_of::JoinHandle<()>);

impl JoinHandle {
    /// Waits until the thread ends. Returns an error when it panicked.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.join()
    }

    /// Returns whether the thread has ended.
    #[cfg(not(shuttle))]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Returns whether the calling thread is the one behind this handle.
    pub fn is_current(&self) -> bool {
        self.0.thread().id() == made_of::current().id()
    }
}
