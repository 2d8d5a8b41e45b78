//! Rule *links*: a relative link in a document leads to an existing file, and to an existing heading in it.
//!
//! The rule ignores links to other sites, and the text of code blocks and code spans.

use super::finding::Finding;
use super::repository::Repository;

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &repository.documents {
        for (target, line) in links(text) {
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if elsewhere {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let resolved = if file.is_empty() { Some(path.clone()) } else { resolve(path, file) };
            let fault = match resolved {
                Some(file) if repository.paths.contains(&file) || file.is_empty() => {
                    let heading = anchor.is_empty()
                        || repository.documents.get(&file).is_none_or(|text| has_heading(text, anchor));
                    (!heading).then(|| format!("{file} has no heading `#{anchor}`"))
                }
                Some(file) => Some(format!("there is no {file}")),
                None => Some("it leaves the repository".to_string()),
            };
            if let Some(fault) = fault {
                findings.push(Finding::new(
                    path,
                    line,
                    "links",
                    format!("link to `{target}`: {fault}; correct the link"),
                ));
            }
        }
    }
    findings
}

/// Returns the targets of `[text](target)` and `[name]: target`, with their lines.
fn links(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (index, raw) in text.lines().enumerate() {
        if raw.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block || raw.starts_with("    ") {
            continue;
        }
        // Every second part between backticks is code.
        let line: String = raw.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for piece in line.split("](").skip(1) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            found.push((target.to_string(), index + 1));
        }
        if let Some((_, target)) = line.trim().strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((target.trim().to_string(), index + 1));
        }
    }
    found
}

/// Resolves `target` relative to the document `from`; `None` above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn has_heading(text: &str, anchor: &str) -> bool {
    let heading = |line: &str| line.starts_with('#').then(|| slug(line.trim_start_matches('#').trim()));
    text.lines().filter_map(heading).any(|slug| slug == anchor)
}

/// Returns a heading's anchor: lower case, words joined by dashes, punctuation dropped.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let repository =
            Repository::of(&[("docs/a.md", text), ("docs/b.md", "# The tree, drawn\n"), ("src/x.rs", "")]);
        check(&repository).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_that_lead_somewhere() {
        let text = "[b](b.md) [x](../src/x.rs) [f](../src/)\n[h](b.md#the-tree-drawn) \
            [web](https://a.b/c)\n[me](#own)\n# Own\n[r]: b.md\n`[no](no.md)`\n```\n[no](no.md)\n```\n";
        assert_eq!(found(text), [0; 0]);
    }

    #[test]
    fn links_that_do_not() {
        assert_eq!(found("x\n[c](c.md)\n[h](b.md#gone)\n[up](../../y)\n[r]: none.md\n"), [2, 3, 4, 5]);
    }
}
