//! `drumlin-torture RUN [--seed S] [--cases N] [--ops N] ..`: runs one torture run and prints its figure line.

use std::process::ExitCode;

/// Counts heap use, since the fuzz run limits the heap memory of decoders.
#[global_allocator]
static ALLOCATOR: drumlin_torture::fuzz::heap::Counting = drumlin_torture::fuzz::heap::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    drumlin_torture::command::main(&arguments)
}
