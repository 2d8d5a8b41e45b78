//! How a command ends: with a verdict, or with a failure. Both map to an exit status in `main`.

use std::fmt;

/// What a command that ran to its end has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// All is well.
    Fine,
    /// Something was found, or not found: exit status 1, and the command has said what.
    Finding,
}

/// Why a command stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be.
    Usage(String),
    /// A call failed while the command ran.
    Failed(String),
    /// Nobody reads stdout any more.
    PipeClosed,
}

/// Result of everything that can fail.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
/// Result of a command.
pub(crate) type Outcome = Result<Verdict>;

impl Failure {
    /// A failed call, with what was being done put before it.
    pub(crate) fn failed(doing: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::Failed(format!("{doing}: {why}"))
    }
}
