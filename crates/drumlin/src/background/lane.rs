//! Lane: one background job queue, run in bounded steps.

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// There is more work to do at once.
    More,
    /// Nothing to do until the next event.
    Idle,
    /// Nothing to do until this monotonic time in microseconds.
    Until(u64),
}

/// Background work of one kind. `step` is never called concurrently for one lane.
pub(crate) trait Lane: Send + Sync {
    fn name(&self) -> String;
    fn step(&self) -> Step;
    /// Handles a panic in a step: ends all waits for the work of that step.
    fn panicked(&self);
    /// Gives up unfinished work at shutdown.
    fn abandon(&self);
}
