//! Instructions per operation, measured by callgrind: the case runs in two child processes, with n and with 2n
//! operations.

use super::case::Case;
use crate::engine::Result;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Returns the instructions that a process for `case` executes with `operations` operations.
fn collected(case: &Case, prefix: &[&str], operations: u64) -> Result<u64> {
    let program = std::env::current_exe().map_err(|e| format!("this executable: {e}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(prefix)
        .args(["gate", "--case", case.name, "--operations", &operations.to_string()])
        .output()
        .map_err(|e| format!("valgrind: {e}; cannot measure instructions; --counts skips them"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{} under valgrind: {}: {text}", case.name, output.status));
    }
    parse(&text).ok_or_else(|| format!("{}: valgrind reported no instruction count: {text}", case.name))
}

/// Returns the number after `Collected :`.
fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// Returns the instructions per operation of each case, which runs `more(n)` operations for n. Runs as many processes
/// in parallel as there are cores.
pub(super) fn instructions(
    cases: &[&Case],
    prefix: &[&str],
    more: impl Fn(u64) -> u64 + Sync,
) -> Result<Vec<(&'static str, f64)>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<f64>)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, case)) = take(&next, cases) {
                    let n = case.operations;
                    let once = collected(case, prefix, more(n));
                    let twice = collected(case, prefix, more(2 * n));
                    let per_operation = |once: u64, twice: u64| (twice as f64 - once as f64) / n as f64;
                    let result = once.and_then(|once| Ok(per_operation(once, twice?)));
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    // Rounds to a tenth of an instruction, which is far below the precision of the measurement.
    let rounded = |value: f64| (value * 10.0).round() / 10.0;
    results.into_iter().map(|(number, result)| Ok((cases[number].name, rounded(result?)))).collect()
}

fn take<'a>(next: &AtomicUsize, cases: &[&'a Case]) -> Option<(usize, &'a Case)> {
    let number = next.fetch_add(1, Relaxed);
    cases.get(number).map(|case| (number, *case))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_prints() {
        let text = "==1== Callgrind\n==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(parse(text), Some(123_456));
        assert_eq!(parse("==1== nothing"), None);
    }
}
