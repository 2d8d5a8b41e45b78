//! Results of a command: a verdict or a failure. `main` maps both to an exit status.

use std::fmt;

/// Verdict of a command that ran to completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Success: exit status 0.
    Fine,
    /// The command found a problem, or did not find a key: exit status 1. The command has printed the details.
    Finding,
}

/// Reason why a command stopped early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// Bad usage: the command line asks for something impossible.
    Usage(String),
    /// A call failed while the command ran.
    Failed(String),
    /// The reader of stdout has closed the pipe.
    PipeClosed,
}

/// Result of a fallible call.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
/// Result of a command.
pub(crate) type Outcome = Result<Verdict>;

impl Failure {
    /// Returns a failed call; `doing` is the context that precedes the error message.
    pub(crate) fn failed(doing: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::Failed(format!("{doing}: {why}"))
    }
}

/// Returns the outcome of a command that finds nothing.
pub(crate) fn fine(done: Result<()>) -> Outcome {
    done.map(|()| Verdict::Fine)
}
