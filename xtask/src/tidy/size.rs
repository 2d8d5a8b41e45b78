//! Rule *size*: limits the length of files, so that a reader can keep each one in mind.
//!
//! - A file has at most 600 lines of code, without blank lines, comments and inline tests. A test file is measured
//!   whole.
//! - An inline test module has at most 150 such lines; move a longer one to a sibling `tests.rs`.
//! - A function outside tests has at most 70 lines of code, and a line has at most 120 columns.
//! - `ci/tidy-ratchet.txt` lists older offenders as `path lines`; they may only shrink. The listed number equals the
//!   file's length, a file within the limit leaves the list, and no file joins it.

use super::finding::Finding;
use super::functions;
use super::repository::{RATCHET, Repository};
use super::source::Source;
use std::collections::BTreeMap;

const FILE_CODE_LINES_MAX: usize = 600;
const INLINE_TEST_LINES_MAX: usize = 150;
/// Longest line, in characters.
pub(crate) const COLUMNS_MAX: usize = 120;

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let listed = entries(repository.ratchet.as_deref().unwrap_or_default());
    let mut findings = Vec::new();
    let mut over = BTreeMap::new();
    for source in &repository.sources {
        let whole = 1..source.code.len() + 1;
        let is_test_file = source.test_lines.contains(&whole);
        let tests = |source: &Source| -> usize {
            source.test_lines.iter().map(|lines| source.code_lines(lines.clone())).sum()
        };
        let lines = source.code_lines(whole) - if is_test_file { 0 } else { tests(source) };
        if !is_test_file {
            findings.extend(long_functions(source));
        }
        findings.extend(wide_lines(source));
        if lines > FILE_CODE_LINES_MAX {
            over.insert(source.path.as_str(), lines);
            if !listed.contains_key(source.path.as_str()) {
                let message = format!(
                    "{lines} lines of code, at most {FILE_CODE_LINES_MAX}; split it by concern, each part with \
                        its essay"
                );
                findings.push(Finding::new(&source.path, 1, "size", message));
            }
        }
        let inline = source.test_lines.iter().filter(|_| !is_test_file);
        for block in inline {
            let lines = source.code_lines(block.clone());
            if lines > INLINE_TEST_LINES_MAX {
                let message = format!(
                    "{lines} lines of inline tests, at most {INLINE_TEST_LINES_MAX}; move them to a sibling tests.rs"
                );
                findings.push(Finding::new(&source.path, block.start, "size", message));
            }
        }
    }
    findings.extend(check_ratchet(repository, &listed, &over));
    findings
}

/// Returns a map from path to (line in the list, permitted lines of code).
fn entries(ratchet: &str) -> BTreeMap<&str, (usize, usize)> {
    let lines = ratchet.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
    lines
        .filter_map(|(at, line)| {
            let (path, allowed) = line.trim().split_once(' ')?;
            Some((path, (at + 1, allowed.trim().parse().ok()?)))
        })
        .collect()
}

fn check_ratchet(
    repository: &Repository,
    listed: &BTreeMap<&str, (usize, usize)>,
    over: &BTreeMap<&str, usize>,
) -> Vec<Finding> {
    let before = repository.ratchet_before.as_deref().map(entries);
    let mut findings = Vec::new();
    for (path, (line, allowed)) in listed {
        let message = match (over.get(path), before.as_ref().map(|before| before.get(path))) {
            (None, _) => "is within the cap or gone; take it off the list".to_string(),
            (Some(lines), _) if lines > allowed => {
                format!("grew from {allowed} to {lines} lines of code; shrink it")
            }
            (Some(lines), _) if lines < allowed => {
                format!("shrank to {lines} lines of code; write that number here")
            }
            (_, Some(None)) => "joined the list, which may only shrink; split the file instead".to_string(),
            (_, Some(Some((_, earlier)))) if allowed > earlier => {
                format!("its number rose from {earlier}; the list may only shrink")
            }
            _ => continue,
        };
        findings.push(Finding::new(RATCHET, *line, "size", format!("{path} {message}")));
    }
    findings
}

/// Finds functions that are too long for a reader to keep in mind.
fn long_functions(source: &Source) -> Vec<Finding> {
    let most = functions::LINES_MAX;
    let finding = |(name, line, lines)| {
        let message =
            format!("`{name}` has {lines} lines of code, at most {most}; let it name its steps in order");
        Finding::new(&source.path, line, "size", message)
    };
    functions::over_limit(source).into_iter().map(finding).collect()
}

fn wide_lines(source: &Source) -> Vec<Finding> {
    let wide = |(at, line): (usize, &str)| {
        let columns = line.chars().count();
        let message = format!("{columns} columns, at most {COLUMNS_MAX}; break the line");
        (columns > COLUMNS_MAX).then(|| Finding::new(&source.path, at + 1, "size", message))
    };
    source.text.lines().enumerate().filter_map(wide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(code: usize, tests: usize) -> String {
        let mut text = "//! Essay.\n\n// a comment\n".to_string() + &"f();\n".repeat(code);
        if tests > 0 {
            // The attribute, the module's two lines, and the body.
            text += &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "g();\n\n".repeat(tests - 3));
        }
        text
    }

    fn found(code: usize, tests: usize, ratchet: Option<&str>, before: Option<&str>) -> Vec<String> {
        let mut repository = Repository::of(&[("crates/x/src/a.rs", &file(code, tests))]);
        repository.ratchet = ratchet.map(str::to_string);
        repository.ratchet_before = before.map(str::to_string);
        check(&repository).iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.message)).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn caps_count_code_only() {
        assert_eq!(found(600, 150, None, None), NONE);
        assert!(found(601, 0, None, None)[0].starts_with("crates/x/src/a.rs:1: 601 lines of code"));
        assert!(found(10, 151, None, None)[0].starts_with("crates/x/src/a.rs:14: 151 lines of inline tests"));
    }

    #[test]
    fn a_file_of_tests_has_the_file_cap() {
        let of = |lines| check(&Repository::of(&[("crates/x/src/a/tests.rs", &file(lines, 0))])).len();
        assert_eq!((of(600), of(601)), (0, 1));
    }

    #[test]
    fn lines_are_wide_with_a_text_or_without() {
        let of = |line: &str| {
            let text = format!("//! Essay.\n\n{line}\n");
            check(&Repository::of(&[("crates/x/src/a.rs", &text)])).len()
        };
        for line in ["\"{}\";", "//{}", "{}"] {
            let filled = |columns: usize| line.replace("{}", &"é".repeat(columns - (line.len() - 2)));
            assert_eq!((of(&filled(120)), of(&filled(121))), (0, 1), "{line}");
        }
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        let entry = |lines: usize| format!("# offenders\ncrates/x/src/a.rs {lines}\n");
        assert_eq!(found(700, 0, Some(&entry(700)), None), NONE);
        assert_eq!(found(700, 0, Some(&entry(700)), Some(&entry(720))), NONE);
        assert!(found(701, 0, Some(&entry(700)), None)[0].contains("grew from 700"));
        assert!(found(699, 0, Some(&entry(700)), None)[0].contains("write that number"));
        assert!(found(600, 0, Some(&entry(700)), None)[0].contains("take it off"));
        assert!(found(700, 0, Some(&entry(700)), Some("# empty\n"))[0].contains("joined the list"));
        assert!(found(700, 0, Some(&entry(700)), Some(&entry(690)))[0].contains("rose from 690"));
    }
}
