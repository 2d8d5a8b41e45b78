//! `drumlin-torture RUN [--seed S] [--cases N] [--ops N] ..`: the runs of the lanes, each with its figure line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    drumlin_torture::command::main(&arguments)
}
