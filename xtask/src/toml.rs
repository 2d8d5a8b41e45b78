//! Parser for the subset of TOML in this repository's own files: sections, and `key = value` on one line.
//!
//! It works line by line. A value is stored as text; the quotes of a string are removed and noted. It skips lines
//! that are neither a section nor an assignment, such as the inside of a long array, since no task needs them.

/// One `key = value`, with its section ("" at the top of the file).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    /// Text right of `=`, without the quotes of a plain string.
    pub(crate) value: String,
    /// Whether the value was in quotes.
    pub(crate) quoted: bool,
    /// Line number, counted from 1.
    pub(crate) line: usize,
}

/// Returns all entries of `text`, in order.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut section = String::new();
    let mut found = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let line = without_comment(raw).trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(|c| c == '[' || c == ']').trim().to_string();
            // `name = [` closes with a lone `]`, which is not a section.
            continue;
        }
        let Some((key, value)) = assignment(line) else { continue };
        let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        found.push(Entry {
            section: section.clone(),
            key: key.trim().trim_matches('"').to_string(),
            value: inner.unwrap_or(value).to_string(),
            quoted: inner.is_some(),
            line: index + 1,
        });
    }
    found
}

/// Splits at the first `=` outside quotes.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let at = unquoted(line, '=')?;
    let (key, value) = (line.get(..at)?, line.get(at + 1..)?.trim());
    (!key.trim().is_empty()).then_some((key, value))
}

fn without_comment(line: &str) -> &str {
    unquoted(line, '#').and_then(|at| line.get(..at)).unwrap_or(line)
}

/// Returns the position of the first `wanted` outside double quotes.
fn unquoted(line: &str, wanted: char) -> Option<usize> {
    let mut inside = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => inside = !inside,
            c if c == wanted && !inside => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_strings() {
        let text = "top = 1 # a note\n[a.b]\nx.workspace = true\n\"lock held\" = \"0 # no\"\nlong = [\n  \
            \"v\",\n]\n[[c]]\ny = 2\n";
        let found: Vec<_> =
            entries(text).into_iter().map(|e| (e.section, e.key, e.value, e.quoted, e.line)).collect();
        let row = |s: &str, k: &str, v: &str, q, l| (s.to_string(), k.to_string(), v.to_string(), q, l);
        assert_eq!(
            found,
            [
                row("", "top", "1", false, 1),
                row("a.b", "x.workspace", "true", false, 3),
                row("a.b", "lock held", "0 # no", true, 4),
                row("a.b", "long", "[", false, 5),
                row("c", "y", "2", false, 9),
            ]
        );
    }
}
