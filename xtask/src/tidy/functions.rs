//! Counts functions, fields and methods by tokens.

use super::source::{Source, Token};
use std::ops::Range;

/// Maximum lines of code in a function, including its signature and closing brace.
pub(crate) const LINES_MAX: usize = 70;

/// Returns the functions outside tests with more than [`LINES_MAX`] lines of code: name, line, number of lines.
pub(crate) fn over_limit(source: &Source) -> Vec<(String, usize, usize)> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.text != "fn" || token.in_test {
            continue;
        }
        let (Some(name), Some(end)) = (tokens.get(at + 1), body_end(tokens, at)) else { continue };
        let last = tokens.get(end).map_or(token.line, |token| token.line);
        let lines = source.code_lines(token.line..last + 1);
        if lines > LINES_MAX {
            found.push((name.text.clone(), token.line, lines));
        }
    }
    found
}

/// Returns the index of the brace that closes the body of the item at `at`; `None` without a body.
fn body_end(tokens: &[Token], at: usize) -> Option<usize> {
    let (mut depth, mut round) = (0usize, 0usize);
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" => round += 1,
            ")" | "]" => round = round.saturating_sub(1),
            ";" if depth == 0 && round == 0 => return None,
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the number of fields of the struct `name`; 0 if the file does not define it.
pub(crate) fn fields_of(source: &Source, name: &str) -> usize {
    let tokens = &source.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let Some(at) =
        (0..tokens.len()).find(|at| text(*at) == "struct" && text(at + 1) == name && text(at + 2) == "{")
    else {
        return 0;
    };
    let Some(end) = body_end(tokens, at) else { return 0 };
    let mut depth = 0usize;
    let mut fields = 0;
    for index in at + 2..end {
        match text(index) {
            "{" | "(" | "[" | "<" => depth += 1,
            "}" | ")" | "]" | ">" => depth = depth.saturating_sub(1),
            ":" if depth == 1 => fields += 1,
            _ => {}
        }
    }
    fields
}

/// Returns the ranges of tokens of the inherent `impl` blocks of `name`, without tests.
pub(crate) fn impl_blocks(source: &Source, name: &str) -> Vec<Range<usize>> {
    let tokens = &source.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let is_impl = |at: &usize| text(*at) == "impl" && text(at + 1) == name && text(at + 2) == "{";
    let starts = (0..tokens.len()).filter(is_impl);
    let starts = starts.filter(|at| tokens.get(*at).is_some_and(|token| !token.in_test));
    starts.filter_map(|at| Some(at..body_end(tokens, at)?)).collect()
}

/// Returns the number of functions in the inherent `impl` blocks of `name`, without tests.
pub(crate) fn methods_of(source: &Source, name: &str) -> usize {
    let text = |at: usize| source.tokens.get(at).map_or("", |token| token.text.as_str());
    let mut methods = 0;
    for block in impl_blocks(source, name) {
        let mut depth = 0usize;
        for index in block {
            match text(index) {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                "fn" if depth == 1 => methods += 1,
                _ => {}
            }
        }
    }
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let body = "    let x = 1;\n".repeat(LINES_MAX);
        let source = Source::new(
            "a.rs",
            &format!("fn short() {{}}\nfn long(a: [u8; 4]) {{\n{body}}}\ntrait T {{ fn none(); }}\n"),
        );
        assert_eq!(over_limit(&source), [("long".to_string(), 2, LINES_MAX + 2)]);
    }

    #[test]
    fn fields_and_methods_are_counted() {
        let source = Source::new(
            "a.rs",
            "struct Store { a: Vec<u8>, pub(crate) b: BTreeMap<u8, (u8, u8)> }\nimpl Store { fn f() { fn \
                inner() {} } fn g() {} }\nimpl Clone for Store { fn clone() {} }\n",
        );
        assert_eq!((fields_of(&source, "Store"), methods_of(&source, "Store")), (2, 2));
    }
}
