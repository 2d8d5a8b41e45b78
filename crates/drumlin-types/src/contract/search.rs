//! The trait of searches that a policy requests and the engine steps off the write path.

use alloc::vec::Vec;

/// A longer search over an immutable copy of the policy's input. The engine steps it in bounded slices.
pub trait SearchTask: Send {
    /// Performs one slice of work, in less than a millisecond. `Some` ends the search with its encoded result.
    fn step(&mut self) -> Option<Vec<u8>>;

    /// Returns whether the search responds to a changed load. The engine may spend its saved search budget on such a
    /// search.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Returns the best result so far, for an engine that must stop the search early.
    fn best(&self) -> Option<Vec<u8>> {
        None
    }
}
