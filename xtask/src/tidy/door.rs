//! Rule *door*: only `drumlin-env` accesses the operating system.
//!
//! - Code may name the standard library's files, threads, time and locks only where the door table of ARCHITECTURE.md
//!   permits it. All other code uses `drumlin_env`, so that a simulation can replace all of it.
//! - Test code may use files, threads and locks. It may not read a clock: no test's verdict depends on one.
//! - The pure crates are `#![no_std]` and use the standard library only under `#[cfg(test)]`.

use super::architecture::{Architecture, FILE};
use super::fence::within;
use super::finding::Finding;
use super::paths::{self, NamedPath};
use super::repository::Repository;
use super::source::Source;

const PURE: [&str; 4] = [
    "crates/drumlin-types/src/",
    "crates/drumlin-format/src/",
    "crates/drumlin-policy/src/",
    "crates/drumlin-sim/src/",
];

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &repository.sources {
        if let Some(pure) = PURE.iter().find(|folder| source.path.starts_with(**folder)) {
            findings.extend(check_pure(source, source.path == format!("{pure}lib.rs")));
        }
        let allowed: Vec<&str> = architecture
            .doors
            .iter()
            .filter(|row| within(&row.path, &source.path))
            .flat_map(|row| row.may_use.iter().map(String::as_str))
            .collect();
        for path in paths::named(source, &[], |name| name == "std") {
            let Some((door, instead)) = door(&path) else { continue };
            let free = path.in_test && door != "time";
            if !free && !allowed.contains(&door) {
                let message = format!(
                    "`{}` goes around the door; use {instead}, or list this file in {FILE}",
                    path.segments.join("::")
                );
                findings.push(Finding::new(&source.path, path.line, "door", message));
            }
        }
    }
    findings
}

/// Returns the door that a path of `std` needs, and what to use instead.
fn door(path: &NamedPath) -> Option<(&'static str, &'static str)> {
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    match segments.get(1..)? {
        ["fs" | "*", ..] => Some(("fs", "`drumlin_env::Fs`")),
        ["thread", ..] => Some(("thread", "`Env::spawn`")),
        // A duration is a plain value.
        ["time", "Duration", ..] => None,
        ["time", ..] => Some(("time", "`drumlin_env::Clock`")),
        ["sync", "Mutex" | "MutexGuard" | "RwLock" | "Condvar" | "*", ..] => {
            Some(("sync", "`drumlin_env::sync`"))
        }
        _ => None,
    }
}

fn check_pure(source: &Source, is_root: bool) -> Vec<Finding> {
    let words: Vec<&str> = source.tokens.iter().map(|token| token.text.as_str()).collect();
    let mut findings = Vec::new();
    if is_root && !words.windows(5).any(|words| words == ["#", "!", "[", "no_std", "]"]) {
        findings.push(Finding::new(&source.path, 1, "door", "a pure crate opens with `#![no_std]`"));
    }
    for (at, token) in source.tokens.iter().enumerate() {
        if !token.in_test && words.get(at..at + 3) == Some(&["extern", "crate", "std"]) {
            let message =
                "a pure crate has no standard library; use `core` and `alloc`, or mark it `#[cfg(test)]`";
            findings.push(Finding::new(&source.path, token.line, "door", message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let table = "| door | may use | why |\n|---|---|---|\n| `crates/drumlin-env/` | `fs`, `thread`, `time`, \
            `sync` | the door |\n| `crates/drumlin-cli/` | `fs` | input |\n";
        let repository = Repository::of(&[(FILE, table), (path, text)]);
        let (architecture, _) = Architecture::read(&repository);
        check(&repository, &architecture).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn only_listed_files_go_through() {
        let all = "use std::fs;\nuse std::{io, thread};\nstd::time::Instant::now();\nuse std::sync::{Arc, Mutex};\n";
        assert_eq!(found("crates/drumlin-env/src/os.rs", all), [0; 0]);
        assert_eq!(found("crates/drumlin-cli/src/main.rs", all), [2, 3, 4]);
        assert_eq!(found("crates/drumlin/src/db.rs", all), [1, 2, 3, 4]);
        assert_eq!(
            found("crates/drumlin/src/db.rs", "use core::time::Duration; use std::sync::Arc;"),
            [0; 0]
        );
        assert_eq!(found("crates/drumlin/src/db.rs", "use std as s;"), [1]);
    }

    #[test]
    fn tests_read_no_clock() {
        let text = "#[cfg(test)]\nmod tests {\n use std::fs;\n use std::time::Duration;\n use \
            std::time::{Duration, Instant};\n}\n";
        assert_eq!(found("crates/drumlin/src/db.rs", text), [5]);
    }

    #[test]
    fn pure_crates_stay_pure() {
        let root = "crates/drumlin-policy/src/lib.rs";
        assert_eq!(
            found(root, "//! X\n#![no_std]\nextern crate alloc;\n#[cfg(test)]\nextern crate std;\n"),
            [0; 0]
        );
        assert_eq!(found(root, "//! X\n#![no_std]\nextern crate std;\n"), [3]);
        assert_eq!(found(root, "//! X\nfn f() {}\n"), [1]);
        assert_eq!(found("crates/drumlin-policy/src/a.rs", "//! X\nextern crate std as s;\n"), [2]);
    }
}
