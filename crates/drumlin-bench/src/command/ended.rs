//! The outcome of a command, and its exit status.

use super::published::note;
use std::process::ExitCode;

/// Outcome of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Success.
    Done,
    /// Error or wrong result.
    Failed(String),
    /// Bad usage.
    Usage(String),
    /// A value of the gate is outside its tolerance.
    GateFailed,
    /// Fewer rounds are usable than a verdict needs: the phases with their engines and numbers of usable rounds.
    TooFewRounds(Vec<String>),
}

impl Ended {
    /// Prints the error message, if any, and returns the exit status.
    pub fn exit_code(self) -> ExitCode {
        let (status, words) = match self {
            Ended::Done => (0, None),
            Ended::Failed(what) => (1, Some(what)),
            Ended::Usage(what) => (2, Some(what)),
            Ended::GateFailed => (3, None),
            Ended::TooFewRounds(short) => {
                (4, Some(format!("too few usable rounds; warnings tell why: {}", short.join("; "))))
            }
        };
        if let Some(words) = words {
            note(&format!("error: {words}"));
        }
        ExitCode::from(status)
    }
}
