//! Repository tasks: the checks and chores that belong to no crate.
//!
//! `cargo xtask` prints the list. Every task is a plain function that takes its input as arguments and returns a
//! `Result`, so that the tests run the same code as the command line.
//!
//! Invariant: no dependencies. These tasks guard the repository, so they must build when nothing else does.

mod bless;
mod figures;
mod floors;
mod sim;
mod structure;
mod tidy;
mod toml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Repository tasks

    cargo xtask tidy [FOLDER]      check the rules of ARCHITECTURE.md and CONTRIBUTING.md,
                                   in this repository or in the one at FOLDER
    cargo xtask structure [--circles|--long]
                                   print metrics of the code structure: import cycles, fields and methods of the
                                   open store, functions and lines over their limits
    cargo xtask floors FILE [--lane merge|nightly]
                                   check the figure lines in FILE against ci/floors.toml
    cargo xtask sim RUN [ARG..]    build drumlin-torture with --cfg sim and start a run; without RUN it lists them
    cargo xtask bless [ARG..]      run the text tests and rewrite their expected output;
                                   ARG is passed to `cargo test`, for example `-p drumlin-types`
    cargo xtask help               print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["tidy"] => tidy::run(&repository_root()),
        ["tidy", folder] => tidy::run(Path::new(folder)),
        ["structure", rest @ ..] => structure::run(&repository_root(), rest),
        ["floors", rest @ ..] => floors::run(&repository_root(), rest),
        ["sim", rest @ ..] => sim::run(&repository_root(), rest),
        ["bless", rest @ ..] => bless::run(&repository_root(), rest),
        [unknown, ..] => Err(format!("unknown task `{unknown}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the workspace's Cargo.toml, which is the parent of this crate.
fn repository_root() -> PathBuf {
    let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().map(PathBuf::from).unwrap_or(crate_folder)
}
