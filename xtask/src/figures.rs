//! Parser for figure lines, which report the volume and the outcome of a test lane.
//!
//! A lane ends with one line per run, `model: ops 3000000, seeds 1500, wrong 0, leaked 0`. The grammar:
//!
//! ```text
//! line   = run *( ";" part )          part   = run | figure *( "," figure )
//! run    = name ":" figure *( "," figure )
//! figure = words number [ "%" | "of" number ]
//! ```
//!
//! A part without a name continues the run before it. `crash images 200000, lost 0` may omit the colon when the name
//! is one word; the remaining words then belong to the first figure. Any other line of a log is not a figure line;
//! looking runs up by name skips it.

/// One figure: `lock held 0`, `sites 100 %`, `modules 3 of 3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// Leading number.
    pub(crate) value: u64,
    /// Everything after the name, as written: "0", "100 %", "3 of 3".
    pub(crate) text: String,
}

impl Figure {
    /// Returns whether the figure counts something, and is no share of something.
    pub(crate) fn is_count(&self) -> bool {
        self.text == self.value.to_string()
    }
}

/// Returns the figures of run `name` in `line`: `None` when the line is not about that run, `Err` when it cannot be
/// parsed.
pub(crate) fn of_run(line: &str, name: &str) -> Option<Result<Vec<Figure>, String>> {
    let mut figures: Option<Vec<Figure>> = None;
    let mut current = false;
    for part in line.trim().split(';') {
        let part = part.trim();
        let body = if let Some((head, body)) = part.split_once(':') {
            current = head.trim() == name;
            body
        } else if figures.is_none() && part.split_whitespace().next() == Some(name) {
            current = true;
            part.get(name.len()..).unwrap_or_default()
        } else {
            part
        };
        if !current {
            continue;
        }
        let list = figures.get_or_insert_with(Vec::new);
        for text in body.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            match figure(text) {
                Some(figure) => list.push(figure),
                None => return Some(Err(format!("`{text}` is no figure: words, then a number"))),
            }
        }
    }
    figures.map(Ok)
}

fn figure(text: &str) -> Option<Figure> {
    let at = text.split_whitespace().position(|word| word.parse::<u64>().is_ok())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let (name, rest) = words.split_at_checked(at)?;
    let value = rest.first()?.parse().ok()?;
    let plain = match rest {
        [_] | [_, "%"] => true,
        [_, "of", total] => total.parse::<u64>().is_ok(),
        _ => false,
    };
    (!name.is_empty() && plain).then(|| Figure { name: name.join(" "), value, text: rest.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, name: &str) -> Vec<(String, u64, String)> {
        let figures = of_run(line, name).expect("the run is in the line").expect("the line can be read");
        figures.into_iter().map(|f| (f.name, f.value, f.text)).collect()
    }

    fn row(name: &str, value: u64, text: &str) -> (String, u64, String) {
        (name.into(), value, text.into())
    }

    #[test]
    fn one_run() {
        let line = "model: ops 3000000, seeds 1500, wrong 0, leaked 0";
        assert_eq!(
            read(line, "model"),
            [
                row("ops", 3_000_000, "3000000"),
                row("seeds", 1500, "1500"),
                row("wrong", 0, "0"),
                row("leaked", 0, "0")
            ]
        );
        assert_eq!(of_run(line, "mode"), None);
        assert_eq!(of_run("  Compiling drumlin v0.1.0", "model"), None);
    }

    #[test]
    fn several_words_percent_and_of() {
        assert_eq!(
            read("crash images 20, split 0; sites 100 %, dropped something 61 %", "crash"),
            [
                row("images", 20, "20"),
                row("split", 0, "0"),
                row("sites", 100, "100 %"),
                row("dropped something", 61, "61 %")
            ]
        );
        assert_eq!(
            read("miri: modules 3 of 3, UB 0", "miri"),
            [row("modules", 3, "3 of 3"), row("UB", 0, "0")]
        );
    }

    #[test]
    fn two_runs_in_a_line() {
        let line = "loom: models 8, failures 0; shuttle: schedules 15000, failures 1";
        assert_eq!(read(line, "loom"), [row("models", 8, "8"), row("failures", 0, "0")]);
        assert_eq!(read(line, "shuttle"), [row("schedules", 15000, "15000"), row("failures", 1, "1")]);
    }

    #[test]
    fn a_run_that_cannot_be_read_is_an_error() {
        for line in ["model: ops", "model: 17", "model: ops 3 4", "model: ops 3 of many"] {
            assert!(matches!(of_run(line, "model"), Some(Err(_))), "{line}");
        }
    }
}
