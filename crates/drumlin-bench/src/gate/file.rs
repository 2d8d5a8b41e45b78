//! The file `ci/gate.toml`: one section per case, one line per figure.
//!
//! ```text
//! rustc = "rustc 1.95.0 (..)"
//! processor = ".."
//!
//! [put-random]
//! instructions = { value = 4321.5, tolerance = 0.02, reason = "why it is what it is" }
//! ```
//!
//! Only this subset of TOML is read and written: `key = value` on one line, with comments at the top.

use crate::engine::Result;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Figures of `drumlin bench gate`. A figure outside its tolerance, in either direction, fails the gate.
# `drumlin bench gate --update --reason TEXT` rewrites the values. A line that moves gets the reason.
";

/// One figure of one case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    pub(super) case: String,
    pub(super) metric: String,
    pub(super) value: f64,
    /// Relative tolerance; 0 means exact.
    pub(super) tolerance: f64,
    pub(super) reason: String,
}

impl Figure {
    pub(super) fn new(case: &str, metric: &str, value: f64, tolerance: f64) -> Figure {
        Figure {
            case: case.to_owned(),
            metric: metric.to_owned(),
            value,
            tolerance,
            reason: "first measured".to_owned(),
        }
    }
}

impl Figure {
    /// Returns the relative change to `value`.
    pub(super) fn change(&self, value: f64) -> f64 {
        relative(self.value, value)
    }

    /// Returns the change to `value` in words.
    pub(super) fn told(&self, value: f64) -> String {
        let change = self.change(value);
        if change.is_finite() { format!("{:+.2} %", change * 100.0) } else { format!("from 0 to {value}") }
    }

    /// Returns whether `value` is outside the tolerance.
    pub(super) fn is_moved(&self, value: f64) -> bool {
        self.change(value).abs() > self.tolerance + f64::EPSILON
    }
}

/// Returns the relative difference of `new` from `old`.
fn relative(old: f64, new: f64) -> f64 {
    if old == new {
        return 0.0;
    }
    if old == 0.0 { f64::INFINITY.copysign(new) } else { new / old - 1.0 }
}

/// Build and machine that instruction counts depend on. Other counts do not depend on them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Origin {
    /// Version of the compiler of the measured program.
    pub(super) rustc: String,
    /// Processor model. The C library selects its functions by it.
    pub(super) processor: String,
}

/// Content of the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct File {
    pub(super) origin: Origin,
    pub(super) figures: Vec<Figure>,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        File::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<File> {
        let mut file = File::default();
        let mut case = String::new();
        for (line_number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let bad = || {
                format!(
                    "line {line_number}: not `metric = {{ value = .., tolerance = .., reason = \"..\" }}`"
                )
            };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                case = name.to_owned();
                continue;
            }
            let (name, value) = line.split_once('=').ok_or_else(bad)?;
            let (name, value) = (name.trim(), value.trim());
            let origin = match name {
                "rustc" => Some(&mut file.origin.rustc),
                "processor" => Some(&mut file.origin.processor),
                _ => None,
            };
            if let Some(origin) = origin.filter(|_| case.is_empty()) {
                *origin = value.trim_matches('"').to_owned();
                continue;
            }
            let inner = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(bad)?;
            let (numbers, reason) = inner.split_once("reason").ok_or_else(bad)?;
            let mut fields = numbers.split(',').filter_map(|field| field.split_once('='));
            let mut number = |wanted: &str| {
                let (name, value) = fields.next()?;
                (name.trim() == wanted).then(|| value.trim().parse::<f64>().ok())?
            };
            let (value, tolerance) = number("value").zip(number("tolerance")).ok_or_else(bad)?;
            if !value.is_finite() || !tolerance.is_finite() || tolerance < 0.0 {
                return Err(format!(
                    "line {line_number}: a value or tolerance that nothing can be compared with"
                ));
            }
            if file.figure(&case, name).is_some() {
                return Err(format!("line {line_number}: {case}, {name}: it is listed twice"));
            }
            let reason = reason.trim_start_matches([' ', '=']).trim().trim_matches('"').to_owned();
            file.figures.push(Figure {
                case: case.clone(),
                metric: name.to_owned(),
                value,
                tolerance,
                reason,
            });
        }
        Ok(file)
    }

    pub(super) fn figure(&self, case: &str, metric: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.case == case && figure.metric == metric)
    }

    /// Returns this file with the figures just measured and the old figures for which `keeps` is true. A figure that is
    /// new, or outside its tolerance, gets `reason`. The others keep their value and reason: many small changes could
    /// otherwise add up without a reason.
    pub(super) fn updated(
        &self,
        measured: &[Figure],
        keeps: impl Fn(&Figure) -> bool,
        origin: Origin,
        reason: &str,
    ) -> File {
        let mut figures: Vec<Figure> = self.figures.iter().filter(|figure| keeps(figure)).cloned().collect();
        for new in measured {
            let old = self.figure(&new.case, &new.metric);
            if let Some(old) = old.filter(|old| !old.is_moved(new.value)) {
                figures.push(old.clone());
                continue;
            }
            let in_line = |c: char| {
                if c == '"' {
                    '\''
                } else if c.is_control() {
                    ' '
                } else {
                    c
                }
            };
            let reason = reason.chars().map(in_line).collect();
            let tolerance = old.map_or(new.tolerance, |old| old.tolerance);
            figures.push(Figure { reason, tolerance, ..new.clone() });
        }
        figures.sort_by(|a, b| (&a.case, &a.metric).cmp(&(&b.case, &b.metric)));
        File { origin, figures }
    }

    fn text(&self) -> String {
        let Origin { rustc, processor } = &self.origin;
        let mut text = format!("{HEAD}\nrustc = \"{rustc}\"\nprocessor = \"{processor}\"\n");
        let mut case = "";
        for figure in &self.figures {
            if figure.case != case {
                case = &figure.case;
                let _ = writeln!(text, "\n[{case}]");
            }
            let Figure { metric, value, tolerance, reason, .. } = figure;
            let _ = writeln!(
                text,
                "{metric} = {{ value = {value}, tolerance = {tolerance}, reason = \"{reason}\" }}"
            );
        }
        text
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        crate::command::published::replace(path, &self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_relative_to_what_was() {
        assert_eq!(relative(4.0, 5.0), 0.25);
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(0.0, 1.0), f64::INFINITY);
    }

    #[test]
    fn what_is_written_is_read() {
        let file = File {
            origin: Origin { rustc: "rustc 1".to_owned(), processor: "a = b".to_owned() },
            figures: vec![
                Figure { reason: "a, b = c".to_owned(), ..Figure::new("get", "instructions", 12.5, 0.02) },
                Figure::new("put", "write_amp", 0.0, 0.0),
            ],
        };
        assert_eq!(File::parse(&file.text()), Ok(file.clone()));
        let cases = [(12.6, 12.5, "a, b = c"), (13.0, 13.0, "it is slower")];
        for (measured, value, reason) in cases {
            let new = [Figure::new("get", "instructions", measured, 0.5)];
            let updated =
                file.updated(&new, |figure| figure.case != "get", Origin::default(), "it is\nslower");
            assert_eq!(File::parse(&updated.text()), Ok(updated.clone()));
            let found = updated.figure("get", "instructions");
            let found = found.map(|figure| (figure.value, figure.tolerance, figure.reason.as_str()));
            assert_eq!(found, Some((value, 0.02, reason)));
            assert_eq!(updated.figures.len(), 2);
        }
        assert!(File::parse("[x]\ny = 1\n").is_err());
    }

    #[test]
    fn figures_that_nothing_can_fail_are_refused() {
        let parsed = |figures: &str| File::parse(&format!("[x]\n{figures}\n"));
        let line = |value: &str, tolerance: &str| {
            format!("y = {{ value = {value}, tolerance = {tolerance}, reason = \"r\" }}")
        };
        parsed(&line("1", "0.02")).expect("a figure");
        for (value, tolerance) in [("nan", "0"), ("inf", "0"), ("1", "nan"), ("1", "inf"), ("1", "-0.1")] {
            let refused = parsed(&line(value, tolerance)).expect_err("not a figure");
            assert!(refused.starts_with("line 2: a value or tolerance"), "{refused}");
        }
        let twice = parsed(&format!("{}\n{}", line("1", "0"), line("2", "0"))).expect_err("listed twice");
        assert_eq!(twice, "line 3: x, y: it is listed twice");
    }
}
