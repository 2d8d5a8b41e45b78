//! A Rust file as the rules see it: lines and tokens, each marked as test code or not.
//!
//! 1. `mask` blanks comments and the contents of strings and characters but keeps every line break, so that a word in
//!    a comment or message never counts as code.
//! 2. The masked text is split into tokens: identifiers, numbers and single punctuation marks, each with its line.
//! 3. The item after each `#[cfg(test)]` or `#[test]` is marked as test code, up to its `;` or closing brace.
//!
//! This is not a full parser: it handles the part of Rust that the rules need, and handles that part exactly. Code in
//! a macro's body counts at the place of the macro.

use std::ops::Range;

/// One token of the masked text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Line number, counted from 1.
    pub(crate) line: usize,
    /// Whether the token is in an item marked `#[cfg(test)]` or `#[test]`, or in a test file.
    pub(crate) in_test: bool,
}

/// A file, read once for all rules.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path relative to the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Lines with comments, strings and characters blanked.
    pub(crate) code: Vec<String>,
    pub(crate) tokens: Vec<Token>,
    /// Line ranges (from 1, half open) of the items marked as test code.
    pub(crate) test_lines: Vec<Range<usize>>,
    /// Modules that the file declares as `#[cfg(test)] mod name;`.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let masked = mask(text);
        let mut tokens = tokens(&masked);
        let mut source = Source {
            path: path.to_string(),
            text: text.to_string(),
            code: masked.lines().map(str::to_string).collect(),
            tokens: Vec::new(),
            test_lines: Vec::new(),
            test_modules: Vec::new(),
        };
        let mut at = 0;
        while at < tokens.len() {
            let Some(item) = test_attribute_end(&tokens, at) else {
                at += 1;
                continue;
            };
            let end = item_end(&tokens, item);
            source.note_test_item(&tokens, at, item, end);
            for token in tokens.iter_mut().take(end).skip(at) {
                token.in_test = true;
            }
            at = end;
        }
        source.tokens = tokens;
        source
    }

    /// Returns a source that consists of these tokens only.
    pub(crate) fn of_tokens(tokens: &[Token]) -> Source {
        Source { tokens: tokens.to_vec(), ..Source::new("", "") }
    }

    /// Marks the whole file as test code.
    pub(crate) fn mark_as_test(&mut self) {
        self.test_lines = std::iter::once(1..self.code.len() + 1).collect();
        self.tokens.iter_mut().for_each(|token| token.in_test = true);
    }

    /// Returns the number of lines in `lines` (from 1) that are neither blank nor comment.
    pub(crate) fn code_lines(&self, lines: Range<usize>) -> usize {
        let first = lines.start.saturating_sub(1);
        self.code.iter().skip(first).take(lines.len()).filter(|line| !line.trim().is_empty()).count()
    }

    fn note_test_item(&mut self, tokens: &[Token], start: usize, item: usize, end: usize) {
        let (Some(first), Some(last)) = (tokens.get(start), tokens.get(end.saturating_sub(1))) else {
            return;
        };
        self.test_lines.push(first.line..last.line + 1);
        let words: Vec<&str> = tokens.iter().take(end).skip(item).map(|token| token.text.as_str()).collect();
        if let Some(at) = words.iter().position(|word| *word == "mod")
            && let [name, ";"] = words.get(at + 1..).unwrap_or_default()
        {
            self.test_modules.push(name.to_string());
        }
    }
}

/// Returns the start of the item after `#[cfg(test)]`, `#[cfg(all(test, ..))]` or `#[test]` at `at`, behind any
/// further attributes. Returns `None` where no such attribute starts.
fn test_attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    let word = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text.as_str());
    let plain = ["#", "[", "cfg", "(", "test", ")", "]"];
    let all = ["#", "[", "cfg", "(", "all", "(", "test"];
    let function = ["#", "[", "test", "]"];
    let is = |pattern: &[&str]| pattern.iter().enumerate().all(|(offset, text)| word(offset) == *text);
    if !is(&plain) && !is(&all) && !is(&function) {
        return None;
    }
    let mut end = at;
    while tokens.get(end).is_some_and(|token| token.text == "#") {
        end = closing(tokens, end + 1)? + 1;
    }
    Some(end)
}

/// Returns the index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the index after the last token of the item at `start`: its `;` outside brackets, or its closing brace.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" | "," => return at + 1,
            "}" => return at,
            "(" | "[" => at = closing(tokens, at).unwrap_or(tokens.len()),
            // `use a::{b, c};` has a brace that is not a body.
            "{" if tokens.get(at.wrapping_sub(1)).is_some_and(|before| before.text == "::") => {
                at = closing(tokens, at).unwrap_or(tokens.len());
            }
            "{" => return closing(tokens, at).map_or(tokens.len(), |end| end + 1),
            _ => {}
        }
        at += 1;
    }
    tokens.len()
}

/// Splits the text into tokens: an identifier or number, `::`, or any other single mark.
fn tokens(masked: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (index, line) in masked.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (text, after) = rest.split_at(length);
            if !first.is_whitespace() {
                found.push(Token { text: text.to_string(), line: index + 1, in_test: false });
            }
            rest = after;
        }
    }
    found
}

/// Replaces comments, strings and characters by spaces; keeps line breaks.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let after_word = at > 0 && bytes.get(at - 1).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let blank = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if rest.starts_with('"') {
            string(rest)
        } else if !after_word && rest.starts_with(['r', 'b', 'c']) {
            prefixed_string(rest)
        } else if rest.starts_with('\'') {
            character(rest)
        } else {
            0
        };
        let Some(first) = rest.chars().next() else { break };
        if blank == 0 {
            masked.push(first);
            at += first.len_utf8();
            continue;
        }
        let hidden = rest.get(..blank).unwrap_or(rest);
        masked.extend(hidden.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        at += hidden.len();
    }
    masked
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of the string literal that starts with the quote at 0.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a literal `b".."`, `r".."`, `br#".."#`, `c".."` or `b'x'`; 0 for a plain word.
fn prefixed_string(rest: &str) -> usize {
    let prefix = rest.find(|c: char| !matches!(c, 'b' | 'r' | 'c')).unwrap_or(rest.len());
    let Some((letters, tail)) = rest.split_at_checked(prefix) else { return 0 };
    if !matches!(letters, "r" | "b" | "c" | "br" | "cr") {
        return 0;
    }
    if letters == "b" && tail.starts_with('\'') {
        return prefix + character(tail);
    }
    let hashes = tail.find(|c| c != '#').unwrap_or(tail.len());
    if !tail.get(hashes..).is_some_and(|body| body.starts_with('"')) {
        return 0;
    }
    if !letters.contains('r') {
        return if hashes == 0 { prefix + string(tail) } else { 0 };
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = prefix + hashes + 1;
    rest.get(body..).and_then(|inner| inner.find(&close)).map_or(rest.len(), |end| body + end + close.len())
}

/// Returns the length of a character literal at 0; 0 if the quote starts a lifetime.
fn character(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    let Some((_, first)) = characters.next() else { return 0 };
    if first == '\\' {
        // The character after the backslash may be a quote.
        return characters.skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1);
    }
    characters.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let source = Source::new("a.rs", text);
        source.tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blank() {
        assert_eq!(words("a // unsafe\n/* b /* c */ d */ e"), "a e");
        assert_eq!(words(r#"f("x\"unsafe", 'y', '\'', b'z', b"w", '"', k)"#), "f ( , , , , , , k )");
        assert_eq!(words("r#\"unsafe \" \"# + br\"x\" + raw + 'a: &'a str"), "+ + raw + ' a : & ' a str");
        assert_eq!(words("fn r#type() {}"), "fn r # type ( ) { }");
    }

    #[test]
    fn lines_survive_masking() {
        let source = Source::new("a.rs", "let a = \"x\ny\";\n/*\n\n*/ b\n");
        let lines: Vec<_> = source.tokens.iter().map(|token| (token.text.as_str(), token.line)).collect();
        assert_eq!(lines, [("let", 1), ("a", 1), ("=", 1), (";", 2), ("b", 5)]);
        assert_eq!(source.code_lines(1..6), 3);
    }

    #[test]
    fn test_items_are_marked() {
        let text = "use a::b;\n#[cfg(test)]\nuse c::{d, e};\nfn f() {}\n#[cfg(test)]\n#[rustfmt::skip]\nmod \
            tests {\n fn g() { }\n}\nfn h() {}\n#[cfg(not(test))]\nfn i() {}\n#[cfg(test)]\nmod oracle;\nmacro_rules! \
            m { () => { #[test] fn j() {} }; }\n";
        let source = Source::new("a.rs", text);
        let plain: Vec<_> = source.tokens.iter().filter(|t| !t.in_test).map(|t| t.text.as_str()).collect();
        assert_eq!(
            plain.join(" "),
            "use a :: b ; fn f ( ) { } fn h ( ) { } # [ cfg ( not ( test ) ) ] fn i ( ) { } macro_rules ! m { ( \
                ) = > { } ; }"
        );
        assert_eq!(source.test_lines, [2..4, 5..10, 13..15, 15..16]);
        assert_eq!(source.test_modules, ["oracle"]);
    }
}
