//! Rule *unsafe*: `unsafe` is permitted only in the fenced files that ARCHITECTURE.md lists, with a reason each time.
//!
//! The reason is a `// SAFETY:` comment on the lines right above the statement with the `unsafe`, or before it on the
//! same line. Blocks and `unsafe impl` need one. An `unsafe fn` states its contract in its documentation, which
//! clippy checks.

use super::architecture::{Architecture, FILE};
use super::finding::Finding;
use super::repository::Repository;
use super::source::Source;

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &repository.sources {
        let fenced = architecture.fence.iter().any(|pattern| within(pattern, &source.path));
        for (at, token) in source.tokens.iter().enumerate() {
            if token.text != "unsafe" {
                continue;
            }
            // `#[unsafe(no_mangle)]` is an attribute, but as unsafe as a block.
            let next = source.tokens.get(at + 1).map_or("", |token| token.text.as_str());
            if !fenced {
                let message = format!(
                    "`unsafe` outside the fence; use a safe form, or a module of the fence list in {FILE}"
                );
                findings.push(Finding::new(&source.path, token.line, "unsafe", message));
            } else if matches!(next, "{" | "impl") && !has_note(source, token.line) {
                let message = "`unsafe` without a note; write `// SAFETY:` and why it holds, right above";
                findings.push(Finding::new(&source.path, token.line, "unsafe", message));
            }
        }
    }
    findings
}

/// Returns whether `path` matches `pattern`: a file, a folder ending in `/`, or a prefix ending in `*`.
pub(crate) fn within(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern || (pattern.ends_with('/') && path.starts_with(pattern)),
    }
}

/// Searches upwards from `line`: over the rest of the same statement, then through the adjacent comment lines.
fn has_note(source: &Source, line: usize) -> bool {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_note = |at: usize| {
        lines.get(at).is_some_and(|line| line.contains("// SAFETY:") || line.contains("/* SAFETY:"))
    };
    let Some(own) = line.checked_sub(1) else { return false };
    if is_note(own) {
        return true;
    }
    let mut in_statement = true;
    for at in (0..own).rev() {
        let code = source.code.get(at).map_or("", |line| line.trim());
        let comment = code.is_empty() && lines.get(at).is_some_and(|line| !line.trim().is_empty());
        if comment {
            if is_note(at) {
                return true;
            }
            in_statement = false;
        } else if !in_statement
            || code.is_empty()
            || (code.ends_with([';', '{', '}', ',']) && !code.starts_with("#["))
        {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let table = "| fenced file | why |\n|---|---|\n| `crates/a/src/os*` | calls |\n| \
            `crates/a/src/arena.rs` | memory |\n";
        let repository = Repository::of(&[(FILE, table), (path, text)]);
        let (architecture, _) = Architecture::read(&repository);
        check(&repository, &architecture).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn outside_the_fence_there_is_none() {
        assert_eq!(
            found("crates/a/src/b.rs", "// unsafe\nlet x = \"unsafe\";\n// SAFETY: no\nunsafe { f() }\n"),
            [4]
        );
        assert_eq!(found("crates/a/src/b.rs", "#![deny(unsafe_code)]\n"), [0; 0]);
    }

    #[test]
    fn inside_each_has_its_note() {
        let noted = "// SAFETY: it is\n// long.\n#[inline]\nunsafe impl Send for X {}\n// SAFETY: fine\nlet a \
            =\n    unsafe { f() };\nlet b = f(\n";
        assert_eq!(found("crates/a/src/os/unix.rs", noted), [0; 0]);
        assert_eq!(found("crates/a/src/arena.rs", "// SAFETY: one\nunsafe { f() };\nunsafe { g() };\n"), [3]);
        assert_eq!(found("crates/a/src/os.rs", "// SAFETY: far\n\nunsafe { f() }\n"), [3]);
        assert_eq!(found("crates/a/src/os.rs", "unsafe fn f() {}\n// why\nunsafe impl Sync for X {}\n"), [3]);
        assert_eq!(found("crates/a/src/arena.rs/x.rs", "unsafe {}"), [1]);
    }
}
