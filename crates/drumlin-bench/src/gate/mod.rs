//! gate
use crate::command::Ended; use crate::command::args::GateArgs;
/// run
pub fn run(_args: &GateArgs) -> Ended { Ended::Done }
