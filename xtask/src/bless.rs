//! `cargo xtask bless`: makes the text tests rewrite their expected output.
//!
//! A text test builds an input, runs a command and compares the resulting text. With `DRUMLIN_BLESS=1` its runner
//! writes the result into the test file instead of comparing. Review the change in the diff, like any other.

use std::path::Path;
use std::process::Command;

/// Runs `cargo test` in bless mode; `arguments` select the tests.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("DRUMLIN_BLESS", "1").arg("test");
    if arguments.is_empty() {
        command.arg("--workspace");
    }
    command.args(arguments);
    let status = command.status().map_err(|error| format!("cargo test could not be started: {error}"))?;
    if status.success() {
        println!("blessed: read the difference before you commit it");
        Ok(())
    } else {
        Err("cargo test failed while blessing: a test failed for another reason than its expected text"
            .into())
    }
}
