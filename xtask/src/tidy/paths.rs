//! Paths that a file names: `use crate::a::{b, c as d}`, `super::e::f()`, `std::sync::Mutex`.
//!
//! From each token that can start a path (`crate`, `super`, `self`, or a crate's name), the code follows the `::`
//! chain and expands use trees in braces. It resolves `super` and `self` against the file's own module, so the rules
//! see absolute paths only. A `super` inside an inline module resolves as if it were at the top of the file.

use super::source::{Source, Token};

/// A path with all its segments, `["crate", "version", "Run"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) in_test: bool,
}

/// Returns all paths in `source` that start at `crate` (directly, or through `super` or `self`) or at a name for
/// which `is_crate` holds. `module` is the file's own path below `crate`.
pub(crate) fn named(source: &Source, module: &[String], is_crate: impl Fn(&str) -> bool) -> Vec<NamedPath> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let continues = at > 0 && tokens.get(at - 1).is_some_and(|before| before.text == "::");
        let followed = text(tokens, at + 1) == "::";
        let root = token.text.as_str();
        let roots = matches!(root, "crate" | "super" | "self") || is_crate(root);
        // A leading `::` may precede a crate's name: `::std::fs`.
        let absolute = continues && is_crate(root) && !ends_path(tokens, at.wrapping_sub(2));
        if !followed || !roots || (continues && !absolute) {
            at += 1;
            continue;
        }
        let mut paths = Vec::new();
        at = tree(tokens, at, &[], &mut paths);
        for (segments, line) in paths {
            if let Some(segments) = resolve(segments, module) {
                found.push(NamedPath { segments, line, in_test: token.in_test });
            }
        }
    }
    for path in renamed_crates(source, &is_crate) {
        found.push(path);
    }
    found
}

/// Returns renamed crates. `use std as s` and `extern crate std` have no `::` to follow and would hide all later
/// paths, so they count as naming the whole crate. `use {std::fs, crate::a}` needs no special case.
fn renamed_crates(source: &Source, is_crate: impl Fn(&str) -> bool) -> Vec<NamedPath> {
    let tokens = &source.tokens;
    let renamed = |at: usize| text(tokens, at) == "use" && text(tokens, at + 2) == "as";
    (0..tokens.len())
        .filter(|at| renamed(*at))
        .filter_map(|at| tokens.get(at + 1))
        .filter(|token| is_crate(&token.text))
        .map(|token| NamedPath {
            segments: vec![token.text.clone(), "*".into()],
            line: token.line,
            in_test: token.in_test,
        })
        .collect()
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn ends_path(tokens: &[Token], at: usize) -> bool {
    let before = text(tokens, at);
    (is_word(before) && !matches!(before, "use" | "in" | "as" | "return")) || matches!(before, ">" | ")")
}

/// Parses the path or use tree at `at`, adds its leaves to `paths`, and returns the end position.
fn tree(tokens: &[Token], at: usize, prefix: &[String], paths: &mut Vec<(Vec<String>, usize)>) -> usize {
    let mut segments = prefix.to_vec();
    let mut at = at;
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        match text(tokens, at) {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    let before = at;
                    at = tree(tokens, at, &segments, paths);
                    if text(tokens, at) == "as" {
                        at += 2;
                    }
                    if text(tokens, at) == "," || at == before {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" if text(tokens, at.wrapping_sub(1)) == "::" => {
                segments.push("*".into());
                at += 1;
            }
            // `{self, ..}` names the prefix itself.
            "self" if !segments.is_empty() => at += 1,
            word if is_word(word) => {
                segments.push(word.to_string());
                at += 1;
            }
            _ => {}
        }
        if text(tokens, at) == "::"
            && (is_word(text(tokens, at + 1)) || matches!(text(tokens, at + 1), "{" | "*"))
        {
            at += 1;
        } else {
            paths.push((segments, line));
            return at.max(1);
        }
    }
}

/// Makes `super` and `self` absolute. Returns `None` when there are more `super` than modules.
fn resolve(segments: Vec<String>, module: &[String]) -> Option<Vec<String>> {
    let first = segments.first()?.clone();
    if !matches!(first.as_str(), "super" | "self") {
        return Some(segments);
    }
    let ups = segments.iter().skip_while(|s| *s == "self").take_while(|s| *s == "super").count();
    let rest = segments.iter().skip_while(|s| matches!(s.as_str(), "self" | "super"));
    let base = module.get(..module.len().checked_sub(ups)?)?;
    Some(std::iter::once("crate".to_string()).chain(base.iter().cloned()).chain(rest.cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let module = ["compaction".to_string(), "merge".to_string()];
        let source = Source::new("a.rs", text);
        named(&source, &module, |name| name == "std" || name.starts_with("drumlin_"))
            .into_iter()
            .map(|path| format!("{}:{}", path.line, path.segments.join("::")))
            .collect()
    }

    #[test]
    fn use_trees_are_expanded() {
        let text =
            "use crate::{\n    a::{self, b::C, d as e},\n    f,\n};\nuse std::sync::{Arc, atomic::*};\n";
        assert_eq!(
            paths(text),
            [
                "2:crate::a",
                "2:crate::a::b::C",
                "2:crate::a::d",
                "3:crate::f",
                "5:std::sync::Arc",
                "5:std::sync::atomic::*"
            ]
        );
    }

    #[test]
    fn expressions_and_relative_paths() {
        let text = "fn f() { crate::a::b(1); super::output::g(); self.h(); ::std::fs::read(p); x::std::y(); \
            }\nuse super::super::version::Run;\nuse self::k;\npub(crate) fn l() -> Vec<std::time::Instant> {}\nuse \
            {std::fs, crate::m};";
        assert_eq!(
            paths(text),
            [
                "1:crate::a::b",
                "1:crate::compaction::output::g",
                "1:std::fs::read",
                "2:crate::version::Run",
                "3:crate::compaction::merge::k",
                "4:std::time::Instant",
                "5:std::fs",
                "5:crate::m",
            ]
        );
    }

    #[test]
    fn a_renamed_crate_counts_as_all_of_it() {
        assert_eq!(paths("use std as s;"), ["1:std::*"]);
    }
}
