//! Rules *essay*, *names* and *unfinished*: what a file says first, what things are called, and that it is done.
//!
//! - Every Rust file opens with `//!`: what it is, how it works, which invariants it keeps.
//! - One word per role. The words that ARCHITECTURE.md rules out appear in no type's name and no file's name.
//! - No file is the second version of another by suffix; versions of a format are siblings in one folder.
//! - No unfinished code, no debug print, no test that does not run.

use super::Finding;
use super::repository::Repository;
use super::source::Source;

/// Words for roles that have a better one, and that word.
const RULED_OUT: [(&str, &str); 8] = [
    ("picker", "policy"),
    ("strategy", "policy"),
    ("compactor", "executor"),
    ("worker", "executor or job"),
    ("manager", "what it does"),
    ("helper", "what it does"),
    ("util", "what it holds"),
    ("utils", "what it holds"),
];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    repository
        .sources
        .iter()
        .flat_map(|source| [essay(source), names(source), unfinished(source)].concat())
        .collect()
}

fn essay(source: &Source) -> Vec<Finding> {
    if source.text.trim_start_matches('\u{feff}').starts_with("//!") {
        return Vec::new();
    }
    vec![Finding::new(
        &source.path,
        1,
        "essay",
        "the file opens without `//!`; say what it is, how it works, what it keeps",
    )]
}

fn names(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let file = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    if let Some((_, version)) = file.rsplit_once("_v")
        && !version.is_empty()
        && version.chars().all(|c| c.is_ascii_digit())
    {
        let message = "a second version by suffix; replace the first, or make a folder with `v1.rs`, `v2.rs`";
        findings.push(Finding::new(&source.path, 1, "names", message));
    }
    for (word, instead) in ruled_out(file.split('_').map(str::to_string)) {
        findings.push(Finding::new(
            &source.path,
            1,
            "names",
            format!("file name with `{word}`; say {instead}"),
        ));
    }
    for pair in source.tokens.windows(2) {
        let [keyword, name] = pair else { continue };
        if matches!(keyword.text.as_str(), "struct" | "enum" | "trait" | "type" | "union") {
            for (word, instead) in ruled_out(camel_words(&name.text)) {
                let message = format!("type `{}` with the word `{word}`; say {instead}", name.text);
                findings.push(Finding::new(&source.path, name.line, "names", message));
            }
        }
    }
    findings
}

fn ruled_out(words: impl Iterator<Item = String>) -> Vec<(&'static str, &'static str)> {
    let words: Vec<String> = words.map(|word| word.to_lowercase()).collect();
    let is_used =
        |ruled_out: &str| words.iter().any(|word| word == ruled_out || *word == format!("{ruled_out}s"));
    RULED_OUT.iter().copied().filter(|(word, _)| is_used(word)).take(1).collect()
}

/// `ValueFileId` as `Value`, `File`, `Id`.
fn camel_words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    words.into_iter()
}

fn unfinished(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let words: Vec<&str> = source.tokens.iter().map(|token| token.text.as_str()).collect();
    for (at, token) in source.tokens.iter().enumerate() {
        let message = match words.get(at..).unwrap_or_default() {
            [name @ ("todo" | "unimplemented"), "!", "(" | "[" | "{", ..] => {
                format!("`{name}!` is unfinished code; finish it, or return an error that says so")
            }
            ["dbg", "!", "(" | "[" | "{", ..] => "`dbg!` is a leftover; take it out".to_string(),
            ["#", "[", "ignore", "]" | "=", ..] => {
                "a test that does not run proves nothing; make it run, or take it out".to_string()
            }
            _ => continue,
        };
        findings.push(Finding::new(&source.path, token.line, "unfinished", message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Repository::of(&[(path, text)]));
        findings.iter().map(|finding| format!("{}: {}", finding.line, finding.rule)).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_file_opens_with_its_essay() {
        assert_eq!(found("a.rs", "//! What.\n"), NONE);
        assert_eq!(found("a.rs", "// What.\n//! late\n"), ["1: essay"]);
        assert_eq!(found("a.rs", ""), ["1: essay"]);
    }

    #[test]
    fn ruled_out_words() {
        assert_eq!(found("a.rs", "//! x\nstruct Scheduler;\nuse p::Strategy;\nfn worker() {}\n"), NONE);
        let text =
            "//! x\nstruct FilePicker;\npub enum ManagerKind {}\ntrait Strategy {}\ntype IoUtils = u8;\n";
        assert_eq!(found("a.rs", text), ["2: names", "3: names", "4: names", "5: names"]);
        assert_eq!(found("a/io_utils.rs", "//! x\n"), ["1: names"]);
        assert_eq!(found("a/helpers.rs", "//! x\n"), ["1: names"]);
    }

    #[test]
    fn versions_by_suffix() {
        assert_eq!(found("a/block_v2.rs", "//! x\n"), ["1: names"]);
        assert_eq!(found("a/block/v2.rs", "//! x\n"), NONE);
        assert_eq!(found("a/block_value.rs", "//! x\n"), NONE);
    }

    #[test]
    fn unfinished_code() {
        // Put together here, so that a search for such words finds none in this file.
        let [later, never, print] = ["todo", "unimplemented", "dbg"].map(|word| format!("{word}!"));
        let skip = ["ignore", "ignore = \"slow\""].map(|what| format!("#[{what}]"));
        let text = format!(
            "//! x\nfn f() {{ {later}() }}\nfn g() {{ {never}(\"x\") }}\nfn h() {{ {print}(1); }}\n{}\n{}\nfn t() {{}}\n// {later}()\n",
            skip[0], skip[1]
        );
        let expected = ["2: unfinished", "3: unfinished", "4: unfinished", "5: unfinished", "6: unfinished"];
        assert_eq!(found("a.rs", &text), expected);
    }
}
