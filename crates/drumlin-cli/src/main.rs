//! The `drumlin` command: load, read, replay, look into and look after a store.
//!
//! How it is laid out, each layer knowing only those before it:
//!
//! - [`failure`], [`escape`], [`figures`], [`output`], [`progress`]: how bytes, numbers and trouble are shown;
//! - [`input`]: the formats entries come in, traces, and the values that a replay writes;
//! - [`store`]: what the commands need of a store; `store::engine` alone speaks to the engine;
//! - [`commands`]: one function per subcommand, over `&dyn Store`, so that tests run them on a map;
//! - [`picture`]: the drawing of a tree;
//! - [`args`]: the command line.
//!
//! `drumlin bench` is the crate `drumlin-bench` with this one engine; it takes over before a store is opened.
//!
//! Promises to scripts: data goes to stdout, words and progress to stderr; keys and values are escaped as
//! [`escape`] says; the exit status is 0 for success, 1 for a finding (a key that is not there, damage) or a
//! failed call, 2 for bad usage. A reader that closes stdout early ends the command quietly.

mod args;
mod commands;
mod escape;
mod failure;
mod figures;
mod input;
mod output;
mod picture;
mod progress;
mod store;

use clap::Parser;
use drumlin_bench::command::Program;
use drumlin_bench::drumlin_engine::Drumlin;
use failure::{Failure, Outcome, Verdict};
use output::{Output, note};
use std::io::{self, BufWriter, IsTerminal};
use std::process::ExitCode;

/// Bytes gathered before a write to stdout.
const STDOUT_BUFFER_BYTES: usize = 64 << 10;

#[cfg(feature = "counted")]
#[global_allocator]
static ALLOCATOR: drumlin_bench::allocations::Counting = drumlin_bench::allocations::Counting;

/// What `drumlin bench` offers: this engine alone. Comparisons with others are a program of their own.
const BENCHMARKS: Program = Program { engines: &[&Drumlin], prefix: &["bench"], allocator: "the system's" };

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    if let args::Command::Bench(bench) = &cli.command {
        return drumlin_bench::command::run(bench, &BENCHMARKS).exit_code();
    }
    let stdout = io::stdout();
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut sink = BufWriter::with_capacity(STDOUT_BUFFER_BYTES, stdout.lock());
    let mut out = Output::new(&mut sink, colour);
    let outcome = commands::run(cli, &mut out);
    exit_code(finish(outcome, &mut out))
}

/// Flushes what is left; trouble doing so counts unless the command failed before.
fn finish(outcome: Outcome, out: &mut Output<'_>) -> Outcome {
    let verdict = outcome?;
    out.flush()?;
    Ok(verdict)
}

fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(Verdict::Fine) | Err(Failure::PipeClosed) => ExitCode::SUCCESS,
        Ok(Verdict::Finding) => ExitCode::from(1),
        Err(Failure::Failed(what)) => {
            note(&format!("drumlin: {what}"));
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            note(&format!("drumlin: {what}"));
            ExitCode::from(2)
        }
    }
}
