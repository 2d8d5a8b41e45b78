//! `cargo xtask sim RUN [ARG..]`: builds `drumlin-torture` for simulation, with `--cfg sim`, and starts a run.
//!
//! The build has its own target folder, `target/sim`. In a shared folder, it and every other build would invalidate
//! each other.

use std::path::Path;
use std::process::Command;

/// Starts the run named in `arguments`.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.push_str(" --cfg sim");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target.join("sim"));
    command
        .args(["run", "--quiet", "--profile", "sim", "--package", "drumlin-torture", "--"])
        .args(arguments);
    let status = command.status().map_err(|error| format!("cargo run could not be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("sim {} failed", arguments.join(" "))) }
}
