//! `cargo xtask floors FILE`: fails a lane whose figures do not show enough work or the right outcome.
//!
//! `ci/floors.toml` has a section per run of the merge lane, `[model]`. Its bounds hold for the nightly lane too,
//! unless the section `[nightly.model]` has another for the same figure:
//!
//! - `ops = 3000000` is a floor: the figure must be at least that;
//! - `wrong = "0"` is exact: the text of the figure must equal it;
//! - `heap = "<= 110"` is a ceiling.
//!
//! A run fails when a figure violates its bound, when a bounded figure is absent, or when its whole line is absent. A
//! lane may split a run into pieces, each with its own line: floors of counts hold for the sum of the lines, all other
//! bounds for each line. Floors only rise.

use crate::figures::{self, Figure};
use crate::toml;
use std::path::Path;

/// Bound of `ci/floors.toml` on one figure.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bound {
    AtLeast(u64),
    AtMost(u64),
    Exactly(String),
}

#[derive(Debug)]
struct Floor {
    run: String,
    figure: String,
    bound: Bound,
}

/// Runs the command; `arguments` are `FILE [--lane LANE]`.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (file, lane) = match arguments {
        [file] => (*file, "merge"),
        [file, "--lane", lane] | ["--lane", lane, file] => (*file, *lane),
        _ => return Err("usage: cargo xtask floors FILE [--lane merge|nightly]".into()),
    };
    let floors_file = root.join("ci/floors.toml");
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let (floors, log) = (read(&floors_file)?, read(Path::new(file))?);
    let faults = check(&floors, lane, &log)?;
    if faults.is_empty() {
        println!("floors: lane {lane} holds");
        Ok(())
    } else {
        Err(format!("floors: lane {lane} fails\n  {}", faults.join("\n  ")))
    }
}

/// Returns the faults of `log`, one line each; `Err` when the floors themselves cannot be parsed.
fn check(floors: &str, lane: &str, log: &str) -> Result<Vec<String>, String> {
    let floors = of_lane(floors, lane)?;
    if floors.is_empty() {
        return Err(format!("ci/floors.toml has no floor for lane {lane}"));
    }
    let mut runs: Vec<&str> = floors.iter().map(|floor| floor.run.as_str()).collect();
    runs.dedup();
    let mut faults = Vec::new();
    for run in runs {
        let lines: Vec<_> = log
            .lines()
            .filter_map(|line| figures::of_run(line, run).map(|read| (line.trim(), read)))
            .collect();
        if lines.is_empty() {
            faults.push(format!("{run}: its figure line is missing"));
        }
        let mut pieces = Vec::new();
        for (line, read) in lines {
            match read {
                Ok(figures) => pieces.push((line, figures)),
                Err(why) => faults.push(format!("{run}: {why}   in: {line}")),
            }
        }
        for floor in floors.iter().filter(|floor| floor.run == run) {
            let total: u64 = pieces.iter().filter_map(|(_, figures)| floor.count_in(figures)).sum();
            for (line, figures) in &pieces {
                let fault = floor.fault(figures, total);
                faults.extend(fault.map(|fault| format!("{fault}   in: {line}")));
            }
        }
    }
    Ok(faults)
}

impl Floor {
    /// Returns the figure in one line if it is a count, which adds up over the lines of a run.
    fn count_in(&self, figures: &[Figure]) -> Option<u64> {
        figures
            .iter()
            .find(|figure| figure.name == self.figure && figure.is_count())
            .map(|figure| figure.value)
    }

    /// Returns the fault of one line. `total` is the sum of the figure over the run's lines, if it is a count.
    fn fault(&self, figures: &[Figure], total: u64) -> Option<String> {
        let Floor { run, figure: name, bound } = self;
        let Some(figure) = figures.iter().find(|figure| figure.name == *name) else {
            return Some(format!("{run}: figure `{name}` is missing"));
        };
        let held = match bound {
            Bound::AtLeast(floor) if figure.is_count() => total >= *floor,
            Bound::AtLeast(floor) => figure.value >= *floor,
            Bound::AtMost(ceiling) => figure.value <= *ceiling,
            Bound::Exactly(text) => figure.text == *text,
        };
        let demand = match bound {
            Bound::AtLeast(floor) => format!("at least {floor}"),
            Bound::AtMost(ceiling) => format!("at most {ceiling}"),
            Bound::Exactly(text) => format!("exactly {text}"),
        };
        (!held).then(|| format!("{run}: {name} is {}, must be {demand}", figure.text))
    }
}

/// Returns the floors of one lane, those of each run together. Sections of the merge lane are plain run names; other
/// lanes prefix theirs, and take over every floor of the merge lane that they do not set.
fn of_lane(text: &str, lane: &str) -> Result<Vec<Floor>, String> {
    let mut floors = set_by(text, lane)?;
    if lane != "merge" && !floors.is_empty() {
        let others = set_by(text, "merge")?;
        let is_set = |other: &Floor| floors.iter().any(|f| f.run == other.run && f.figure == other.figure);
        let others: Vec<Floor> = others.into_iter().filter(|other| !is_set(other)).collect();
        floors.extend(others);
        floors.sort_by(|a, b| a.run.cmp(&b.run));
    }
    Ok(floors)
}

/// Returns the floors in the sections of one lane.
fn set_by(text: &str, lane: &str) -> Result<Vec<Floor>, String> {
    let mut floors = Vec::new();
    for entry in toml::entries(text) {
        let (entry_lane, run) = entry.section.split_once('.').unwrap_or(("merge", &entry.section));
        if entry_lane != lane {
            continue;
        }
        let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
        let bound = if !entry.quoted {
            number(&entry.value).map(Bound::AtLeast)
        } else if let Some(ceiling) = entry.value.strip_prefix("<=") {
            number(ceiling).map(Bound::AtMost)
        } else {
            Some(Bound::Exactly(entry.value.trim().to_string()))
        };
        let Some(bound) = bound else {
            return Err(format!("ci/floors.toml:{}: `{}` is no bound", entry.line, entry.value));
        };
        floors.push(Floor { run: run.to_string(), figure: entry.key.clone(), bound });
    }
    Ok(floors)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &str = "\
[model]
ops = 3_000_000
wrong = \"0\"
[kill]
\"lock held\" = \"0\"
heap = \"<= 110\"
[nightly.model]
ops = 30000000
";

    fn faults(lane: &str, log: &str) -> Vec<String> {
        check(FLOORS, lane, log).expect("the floors can be read")
    }

    #[test]
    fn a_lane_that_meets_its_floors_is_clean() {
        let log =
            "   Compiling x\nmodel: ops 3000000, seeds 9, wrong 0\nkill: kills 3, lock held 0, heap 110 %\n";
        assert_eq!(faults("merge", log), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_miss_is_told() {
        let log = "model: ops 2999999, wrong 1\nkill: lock held 0, heap 111 %\n";
        assert_eq!(
            faults("merge", log),
            [
                "model: ops is 2999999, must be at least 3000000   in: model: ops 2999999, wrong 1",
                "model: wrong is 1, must be exactly 0   in: model: ops 2999999, wrong 1",
                "kill: heap is 111 %, must be at most 110   in: kill: lock held 0, heap 111 %",
            ]
        );
    }

    #[test]
    fn a_missing_line_or_figure_fails() {
        assert_eq!(
            faults("merge", "model: ops 4000000\n"),
            ["model: figure `wrong` is missing   in: model: ops 4000000", "kill: its figure line is missing"]
        );
    }

    #[test]
    fn floors_of_counts_hold_for_the_sum_and_other_bounds_for_each_line() {
        let kill = "kill: lock held 0, heap 60\n";
        let whole = ["model: ops 29999995, wrong 0\nmodel: ops 5, wrong 0\n", kill].concat();
        assert_eq!(faults("nightly", &whole), Vec::<String>::new());
        let short =
            faults("nightly", &["model: ops 29999994, wrong 0\nmodel: ops 5, wrong 0\n", kill].concat());
        assert_eq!(short.len(), 2, "{short:?}");
        let models = "model: ops 3000000, wrong 0\nmodel: ops 5, wrong 1\n";
        assert_eq!(
            faults("merge", &[models, kill, kill].concat()),
            ["model: wrong is 1, must be exactly 0   in: model: ops 5, wrong 1"],
            "ceilings hold for each line"
        );
        let sites = "[crash]\nsites = 90\n";
        let faults = check(sites, "merge", "crash: sites 50 %\ncrash: sites 50 %\n").unwrap();
        assert_eq!(faults.len(), 2, "percentages do not add up");
    }

    #[test]
    fn the_nightly_lane_keeps_the_bounds_that_it_does_not_set() {
        assert_eq!(
            faults("nightly", "model: ops 30000000, wrong 1\n"),
            [
                "kill: its figure line is missing",
                "model: wrong is 1, must be exactly 0   in: model: ops 30000000, wrong 1",
            ]
        );
    }

    #[test]
    fn a_lane_without_floors_or_a_bound_that_is_none_is_an_error() {
        assert!(check(FLOORS, "hourly", "").is_err());
        assert!(check("[model]\nops = many\n", "merge", "").is_err());
    }

    #[test]
    fn the_floors_of_the_repository_can_be_read() {
        let text = std::fs::read_to_string(crate::repository_root().join("ci/floors.toml")).unwrap();
        assert!(!of_lane(&text, "merge").unwrap().is_empty());
    }
}
