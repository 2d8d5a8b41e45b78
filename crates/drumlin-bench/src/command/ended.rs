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
    /// Every round was too noisy.
    TooNoisy,
}

impl Ended {
    /// Prints the error message, if any, and returns the exit status.
    pub fn exit_code(self) -> ExitCode {
        let (status, words) = match self {
            Ended::Done => (0, None),
            Ended::Failed(what) => (1, Some(what)),
            Ended::Usage(what) => (2, Some(what)),
            Ended::GateFailed => (3, None),
            Ended::TooNoisy => {
                (4, Some("every round was too noisy: no phase has a usable result".to_owned()))
            }
        };
        if let Some(words) = words {
            note(&format!("error: {words}"));
        }
        ExitCode::from(status)
    }
}
