//! Rule *tables*: measured tables are generated from the result files in `docs/results/`, never typed by hand.
//!
//! A typed figure goes stale when the code changes. The rule refuses a table if two or more cells of one row are
//! *measured*. Such a cell contains only numbers, units and separators, and at least one number has a decimal point,
//! a percent sign or a unit. A single such cell is permitted, and so is a number in a sentence or in code, since
//! tables of limits, options and reasons have those.
//!
//! The rule reads README.md and its siblings, `docs/` and `docs/design/`. Pages in `docs/results/` are generated.
//! Headers and code blocks do not count.

use super::finding::Finding;
use super::repository::Repository;

/// Documents at the root of the repository that the rule reads.
const AT_ROOT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
/// Folders whose documents the rule reads, without their subfolders.
const FOLDERS: [&str; 2] = ["docs", "docs/design"];

/// Units of time, size and rate. A rate is two of them with a slash between. B is omitted, because it also names a
/// phase.
const UNITS: [&str; 18] = [
    "ns", "us", "µs", "ms", "s", "min", "h", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "op", "ops",
    "x",
];
/// Characters that may stand between numbers and units. They include `*`, so bold digits count as digits.
const SEPARATORS: &str = " .,;:()/+-–±%×~<>=*";
/// Minimum number of measured cells in a row of a measured table. A single figure beside its reason is permitted.
const MEASURED_CELLS: usize = 2;

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let read = repository.documents.iter().filter(|(path, _)| is_read(path));
    let message = "measured table typed by hand: generate it from docs/results/";
    read.flat_map(|(path, text)| {
        measured_tables(text).into_iter().map(|line| Finding::new(path, line, "tables", message))
    })
    .collect()
}

fn is_read(path: &str) -> bool {
    let in_folder = path.rsplit_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder));
    in_folder || AT_ROOT.contains(&path)
}

/// Returns the line of the first measured row of each table that has one.
fn measured_tables(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut in_block = false;
    // Rows count from below the line of dashes, up to the first measured row of the table.
    let mut in_body = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let row = line.trim().strip_prefix('|').filter(|_| !in_block && !line.starts_with("    "));
        let Some(row) = row else {
            in_body = false;
            continue;
        };
        if row.chars().all(|c| "|-: ".contains(c)) {
            in_body = true;
        } else if in_body && row.split('|').filter(|cell| is_measured(cell)).count() >= MEASURED_CELLS {
            found.push(at + 1);
            in_body = false;
        }
    }
    found
}

/// Returns whether `cell` holds nothing but measured numbers.
fn is_measured(cell: &str) -> bool {
    let is_separator = |c: char| SEPARATORS.contains(c);
    let parts =
        || cell.split(|c: char| c.is_ascii_digit() || is_separator(c)).filter(|part| !part.is_empty());
    let has_number = cell.contains(|c: char| c.is_ascii_digit());
    let has_point = cell.as_bytes().windows(3).any(|three| {
        let [before, point, after] = three else { return false };
        before.is_ascii_digit() && *point == b'.' && after.is_ascii_digit()
    });
    let is_figure = has_point || cell.contains('%') || parts().next().is_some();
    has_number && is_figure && parts().all(|part| UNITS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "| what | before | after |\n|---|---|---:|\n";

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&Repository::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn cells_of_numbers_and_units() {
        let measured = [
            "2.17",
            "**2.17**",
            "31 ms",
            "64KiB",
            "0.5 GB/s",
            "+28.4 %",
            "1.66x",
            "7.13, 9.20",
            "32 / 7.3; 36 / 6.6",
            "3.27 (3.05-3.49)",
            "~12 us",
            "< 1 s",
            "105 µs",
        ];
        let others = [
            "",
            "-",
            "7",
            "1, 2",
            "10-20",
            "ms",
            "8..=512",
            "`512MiB`",
            "`8MiB..=1GiB`",
            "43 us to 25",
            "B: 0.3",
            "195 us wall",
            "p99 3.0",
            "III, 4 threads",
        ];
        for cell in measured {
            assert!(is_measured(&format!(" {cell} ")), "{cell}");
        }
        for cell in others {
            assert!(!is_measured(&format!(" {cell} ")), "{cell}");
        }
    }

    #[test]
    fn one_finding_for_each_measured_table() {
        let measured =
            format!("{HEADER}| put | 1.7 us | slow |\n| get | 2.1 us | 1.9 us |\n| scan | 3.5 | 0.9 |\n");
        assert_eq!(found("README.md", &measured), [4]);
        assert_eq!(found("docs/a.md", &format!("{measured}\ntext\n\n{measured}")), [4, 12]);
    }

    #[test]
    fn tables_of_rules_and_options_are_permitted() {
        let rows =
            "| rho | 3 % | none |\n| `max` | `64` | `8.5..=512` |\n| a | B: 43 us to 25 | 2 s at most |\n";
        assert_eq!(found("docs/a.md", &format!("{HEADER}{rows}")), [0; 0]);
        let sizes = "| slots | 1.5 MiB | 16 MiB |\n|---|---|---|\n| 1 | few | many |\n";
        assert_eq!(found("docs/a.md", sizes), [0; 0], "a header");
        let block = format!("```\n{HEADER}| put | 1.7 us | 1.2 us |\n```\n    | put | 1.7 us | 1.2 us |\n");
        assert_eq!(found("docs/a.md", &block), [0; 0], "code blocks");
    }

    #[test]
    fn only_pages_that_people_write_are_read() {
        let table = format!("{HEADER}| put | 1.7 us | 1.2 us |\n");
        for path in ["CHANGELOG.md", "docs/a.md", "docs/design/a.md"] {
            assert_eq!(found(path, &table), [3], "{path}");
        }
        for path in ["docs/results/a.md", "docs/results/comparison/a.md", "compare/README.md"] {
            assert_eq!(found(path, &table), [0; 0], "{path}");
        }
    }
}
