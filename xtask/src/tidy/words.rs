//! Rules *essay*, *names*, *words* and *unfinished*: opening essays, names of roles, plain words, and finished code.
//!
//! - Every Rust file opens with `//!`: its purpose, its method and its invariants.
//! - Each role has one word. The words that ARCHITECTURE.md rules out appear in no type name and no file name.
//! - No file is a second version of another by suffix; versions of a format are siblings in one folder.
//! - Comments and documents use the field's terms: a list of private idioms is banned.
//! - No unfinished code, no debug print, no disabled test.

use super::finding::Finding;
use super::repository::Repository;
use super::source::Source;

/// Words that are ruled out, each with its replacement.
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

/// Idioms that a reader stumbles over, each with what to say instead.
const IDIOMS: [(&str, &str); 10] = [
    ("whoever", "name who it is"),
    ("is told of", "receives or is notified of"),
    ("hears", "receives"),
    ("knows of", "includes"),
    ("ends by itself", "expires"),
    ("of now", "current"),
    ("put off", "deferred or backed off"),
    ("nobody knows", "is unknown"),
    ("so many", "the number"),
    ("what it goes by", "its state"),
];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let of_source =
        |source: &Source| [essay(source), names(source), unfinished(source), comments(source)].concat();
    let mut findings: Vec<Finding> = repository.sources.iter().flat_map(of_source).collect();
    for (path, text) in &repository.documents {
        let lines = text.lines().enumerate();
        findings.extend(lines.flat_map(|(at, line)| idioms(path, at + 1, line)));
    }
    findings
}

/// Idioms in the comments of a file.
fn comments(source: &Source) -> Vec<Finding> {
    let is_comment = |(_, line): &(usize, &str)| line.trim_start().starts_with("//");
    let lines = source.text.lines().enumerate().filter(is_comment);
    lines.flat_map(|(at, line)| idioms(&source.path, at + 1, line)).collect()
}

fn idioms(path: &str, line: usize, text: &str) -> Vec<Finding> {
    let words = format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
    let used = IDIOMS.iter().filter(|(idiom, _)| words.contains(&format!(" {idiom} ")));
    used.map(|(idiom, instead)| {
        Finding::new(path, line, "words", format!("\"{idiom}\" reads badly; say {instead}"))
    })
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

/// Splits `ValueFileId` into `Value`, `File` and `Id`.
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

    #[test]
    fn idioms_are_found_in_comments_and_documents() {
        let code = "//! x\n// Whoever reads this\nlet hears = 1;\n";
        let repository = Repository::of(&[("a.rs", code), ("b.md", "The load of now.")]);
        let found = check(&repository);
        let places: Vec<(&str, usize)> = found.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(places, [("a.rs", 2), ("b.md", 1)]);
    }

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
        // Assembled here, so that a search for such words finds none in this file.
        let [later, never, print] = ["todo", "unimplemented", "dbg"].map(|word| format!("{word}!"));
        let skip = ["ignore", "ignore = \"slow\""].map(|what| format!("#[{what}]"));
        let text = format!(
            "//! x\nfn f() {{ {later}() }}\nfn g() {{ {never}(\"x\") }}\nfn h() {{ {print}(1); }}\n{}\n{}\nfn \
                t() {{}}\n// {later}()\n",
            skip[0], skip[1]
        );
        let expected = ["2: unfinished", "3: unfinished", "4: unfinished", "5: unfinished", "6: unfinished"];
        assert_eq!(found("a.rs", &text), expected);
    }
}
