//! The common start of the threads of a phase.
//!
//! A thread that is ready waits for all the others. The clock of the phase then starts for all of them at the same
//! time, so it includes the time in which a thread still waits for a core. If a thread fails or panics before the
//! start, or cannot be started, the phase is called off and all waiting threads return.

use super::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The start of one phase.
pub struct Start {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Threads that are not ready yet.
    missing: u32,
    /// Time at which the last thread was ready.
    begun: Option<u64>,
    is_off: bool,
}

impl Start {
    /// Creates the start of a phase of `threads` threads.
    pub fn new(threads: u32) -> Start {
        let state = State { missing: threads, begun: None, is_off: false };
        Start { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the place of one thread. The thread takes it before it prepares its work, so that a failure there
    /// calls the phase off.
    pub fn place(&self) -> Place<'_> {
        Place(self)
    }

    /// Calls the phase off, unless it has begun.
    pub fn call_off(&self) {
        self.state().is_off = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is plain numbers, so it remains usable after a panic of another thread.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one thread. Dropped before the start, it calls the phase off.
pub struct Place<'a>(&'a Start);

impl Place<'_> {
    /// Waits until all threads are ready. Returns the time of the start; `None` if the phase was called off.
    pub fn wait(&self) -> Option<u64> {
        let mut state = self.0.state();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 && !state.is_off {
            state.begun = Some(process::wall());
            self.0.changed.notify_all();
        }
        while state.begun.is_none() && !state.is_off {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.call_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_begin_at_the_same_time_or_none() {
        let begun_of = |start: &Start| {
            std::thread::scope(|scope| {
                let threads = [(); 3].map(|()| scope.spawn(|| start.place().wait()));
                threads.map(|thread| thread.join().expect("a thread"))
            })
        };
        let all = begun_of(&Start::new(3));
        assert!(all[0].is_some() && all.iter().all(|begun| *begun == all[0]), "{all:?}");
        // The fourth thread cannot be started, or ends before.
        let start = Start::new(4);
        let none = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| begun_of(&start));
            drop(start.place());
            waiting.join().expect("threads")
        });
        assert_eq!(none, [None; 3]);
        assert_eq!(start.place().wait(), None, "it stays called off");
    }
}
