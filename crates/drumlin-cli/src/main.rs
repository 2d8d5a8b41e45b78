//! The `drumlin` command: load, read, replay, inspect and maintain a store.
//!
//! Layers, each of which depends only on those before it:
//!
//! - [`failure`], [`escape`], [`figures`], [`output`], [`progress`]: display of bytes, numbers and errors;
//! - [`input`]: input formats of entries, traces, and the values that a replay writes;
//! - [`store`]: the store interface of the commands; `store::engine` implements it with the engine;
//! - [`commands`]: one function per subcommand, over `&dyn Store`, so that unit tests run them on a map;
//! - [`picture`]: the drawing of a tree;
//! - [`args`]: the command-line arguments.
//!
//! `drumlin bench` is the crate `drumlin-bench` with Drumlin as its only engine. It takes control before a store is
//! opened.
//!
//! Guarantees for scripts: data goes to stdout, messages and progress to stderr. Keys and values are escaped as
//! described in [`escape`]. The exit status is 0 for success, 1 for a failure or a finding (key not found, damage),
//! and 2 for bad usage. With `--json`, a failure is printed to stdout too, as an object with the member `error`. If the
//! reader closes stdout early, the command ends without an error.

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

use drumlin_bench::command::Program;
use drumlin_bench::drumlin_engine::Drumlin;
use failure::{Failure, Outcome, Verdict};
use output::{Output, note};
use std::io::{self, BufWriter, IsTerminal};
use std::process::ExitCode;

/// Size of the stdout buffer in bytes.
const STDOUT_BUFFER_BYTES: usize = 64 << 10;

#[cfg(feature = "counted")]
#[global_allocator]
static ALLOCATOR: drumlin_bench::allocations::Counting = drumlin_bench::allocations::Counting;

/// Setup of `drumlin bench`: Drumlin is the only engine. A separate program compares it with other engines.
const BENCHMARKS: Program = Program {
    engines: &[&Drumlin],
    prefix: &["bench"],
    allocator: "the system's",
    profiles: include_str!("../../../Cargo.toml"),
};

fn main() -> ExitCode {
    let cli = args::Cli::read();
    if let (args::Command::Bench(bench), None) = (&cli.command, &cli.keyspace) {
        return drumlin_bench::command::run(bench, &BENCHMARKS).exit_code();
    }
    let stdout = io::stdout();
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut sink = BufWriter::with_capacity(STDOUT_BUFFER_BYTES, stdout.lock());
    let mut out = Output::new(&mut sink, colour);
    let json = cli.command.is_json();
    let outcome = commands::run(cli, &mut out);
    exit_code(finish(outcome, json, &mut out))
}

/// Flushes the remaining output. A flush error is reported only if the command itself succeeded. A command that was to
/// print JSON and failed before it printed anything prints its error as JSON, besides the message on stderr.
fn finish(outcome: Outcome, json: bool, out: &mut Output<'_>) -> Outcome {
    if let (true, true, Err(Failure::Failed(what) | Failure::Usage(what))) =
        (json, out.is_untouched(), &outcome)
    {
        out.json(&serde_json::json!({ "error": what })).and_then(|()| out.flush())?;
    }
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
