//! Reads the tables of ARCHITECTURE.md as rules.
//!
//! The first cell of a table's header identifies the table. Only words in backticks count, so a cell may contain any
//! prose:
//!
//! | header starts with | column 1 | column 2 | column 3 | column 4 |
//! |---|---|---|---|---|
//! | `crate` | the crate | its role | its permitted dependencies | what only its tests may use |
//! | `module` | modules, `a::{b, c}` for siblings | their permitted imports | crates besides `drumlin-types` | |
//! | `fenced file` | file, or prefix ending in `*` | why | | |
//! | `folder` | folders of the engine | what lives there | | |
//! | `door` | file or folder | what it may use: `fs`, `thread`, `time`, `sync` | why | |
//!
//! In the second column of the module table two words have a meaning. A *leaf* may be imported by every module and
//! imports only leaves. *Everything* lets the hub and the public API import all modules.
//!
//! The cycle search omits a row that may import everything, so each module that imports such a row must name it.
//!
//! Invariants checked here: every table exists, no module is in two rows, and the imports form no cycle.

use super::finding::Finding;
use super::repository::Repository;

pub(crate) const FILE: &str = "ARCHITECTURE.md";

#[derive(Debug, Default)]
pub(crate) struct Architecture {
    pub(crate) crates: Vec<CrateRow>,
    pub(crate) modules: Vec<ModuleRow>,
    /// Paths where `unsafe` is permitted.
    pub(crate) fence: Vec<String>,
    pub(crate) doors: Vec<DoorRow>,
    /// Folders of the engine, with the line of each row.
    pub(crate) folders: Vec<(String, usize)>,
}

#[derive(Debug)]
pub(crate) struct CrateRow {
    pub(crate) name: String,
    pub(crate) may_depend_on: Vec<String>,
    /// Crates that development dependencies may name besides.
    pub(crate) tests_may_use: Vec<String>,
}

/// Modules with the same rights. They may import each other.
#[derive(Debug)]
pub(crate) struct ModuleRow {
    pub(crate) modules: Vec<String>,
    pub(crate) may_import: Reach,
    pub(crate) crates: Vec<String>,
    line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    Leaf,
    Only(Vec<String>),
    Everything,
}

#[derive(Debug)]
pub(crate) struct DoorRow {
    pub(crate) path: String,
    pub(crate) may_use: Vec<String>,
}

/// Cells of one table row.
struct Row {
    line: usize,
    cells: Vec<String>,
}

impl Row {
    fn names(&self, column: usize) -> Vec<String> {
        self.cells.get(column).map(|cell| quoted(cell)).unwrap_or_default()
    }

    fn says(&self, column: usize, word: &str) -> bool {
        self.cells.get(column).is_some_and(|cell| cell.split(|c: char| !c.is_alphabetic()).any(|w| w == word))
    }
}

impl Architecture {
    /// Returns the rules, and the findings about the document itself.
    pub(crate) fn read(repository: &Repository) -> (Architecture, Vec<Finding>) {
        let text = repository.documents.get(FILE).map_or("", String::as_str);
        let mut findings = Vec::new();
        let mut rows = |header: &str| {
            let rows = table(text, header);
            if rows.is_empty() {
                let message =
                    format!("no table whose header starts with `{header}`; the rules are read from it");
                findings.push(Finding::new(FILE, 1, "architecture", message));
            }
            rows
        };
        let first = |row: &Row| row.names(0).into_iter().next().unwrap_or_default();
        let crate_row = |row: &Row| CrateRow {
            name: first(row),
            may_depend_on: row.names(2),
            tests_may_use: row.names(3),
        };
        let crates = rows("crate").iter().map(crate_row).collect();
        let modules = rows("module").iter().map(module_row).collect();
        let fence = rows("fenced file").iter().flat_map(|row| row.names(0)).collect();
        let doors =
            rows("door").iter().map(|row| DoorRow { path: first(row), may_use: row.names(1) }).collect();
        let folders = table(text, "folder");
        let folders = folders.iter().flat_map(|row| row.names(0).into_iter().map(|name| (name, row.line)));
        let folders = folders.collect();
        let architecture = Architecture { crates, modules, fence, doors, folders };
        findings.extend(architecture.twice_listed());
        findings.extend(architecture.cycle());
        (architecture, findings)
    }

    /// Returns the row of the longest listed module that contains `path` (segments below `crate`), with that module's
    /// name.
    pub(crate) fn row_of(&self, path: &[String]) -> Option<(&ModuleRow, &str)> {
        let holding = |module: &str| {
            let mut wanted = module.split("::");
            path.iter().zip(wanted.by_ref()).all(|(have, want)| have == want) && wanted.next().is_none()
        };
        let of_row = |row| names_of(row).filter(|module| holding(module)).map(move |module| (row, module));
        self.modules.iter().flat_map(of_row).max_by_key(|(_, module)| module.len())
    }

    fn twice_listed(&self) -> Vec<Finding> {
        let mut seen = Vec::new();
        let mut findings = Vec::new();
        for row in &self.modules {
            for module in &row.modules {
                if seen.contains(&module) {
                    let message = format!("`{module}` has two rows in the import table; give it one");
                    findings.push(Finding::new(FILE, row.line, "architecture", message));
                }
                seen.push(module);
            }
        }
        findings
    }

    /// Finds imports that lead through other rows back to the module where they start.
    fn cycle(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (start, row) in self.modules.iter().enumerate() {
            let mut reached = self.next_rows(row, start);
            let mut at = 0;
            while let Some(next) = reached.get(at).copied() {
                let further = self.modules.get(next).map(|row| self.next_rows(row, next)).unwrap_or_default();
                for row in further {
                    if !reached.contains(&row) {
                        reached.push(row);
                    }
                }
                at += 1;
            }
            if reached.contains(&start) {
                let message = format!(
                    "the import table lets `{}` import itself in a circle; cut one side",
                    row.modules.join("`, `")
                );
                findings.push(Finding::new(FILE, row.line, "architecture", message));
            }
        }
        findings
    }

    /// Returns the rows that `row`, number `own`, may import, except itself.
    fn next_rows(&self, row: &ModuleRow, own: usize) -> Vec<usize> {
        let Reach::Only(allowed) = &row.may_import else { return Vec::new() };
        let is_allowed = |module: &String| allowed.iter().any(|name| covers(name, module));
        let rows = self.modules.iter().enumerate();
        rows.filter(|(at, row)| *at != own && row.modules.iter().any(is_allowed)).map(|(at, _)| at).collect()
    }
}

fn names_of(row: &ModuleRow) -> impl Iterator<Item = &str> {
    row.modules.iter().map(String::as_str)
}

/// Returns whether the module `name` is or contains `path`.
pub(crate) fn covers(name: &str, path: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn module_row(row: &Row) -> ModuleRow {
    let expand = |names: Vec<String>| names.iter().flat_map(|name| siblings(name)).collect();
    let may_import = if row.says(1, "everything") {
        Reach::Everything
    } else if row.says(1, "leaf") {
        Reach::Leaf
    } else {
        Reach::Only(expand(row.names(1)))
    };
    ModuleRow { modules: expand(row.names(0)), may_import, crates: row.names(2), line: row.line }
}

/// Expands `a::{b, c}` to `a::b` and `a::c`.
fn siblings(name: &str) -> Vec<String> {
    match name.strip_suffix('}').and_then(|name| name.split_once('{')) {
        Some((parent, names)) => names.split(',').map(|name| format!("{parent}{}", name.trim())).collect(),
        None => vec![name.to_string()],
    }
}

/// Returns the words in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(|word| word.trim().to_string())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Returns the rows of the first table whose header's first cell is `header`.
fn table(text: &str, header: &str) -> Vec<Row> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(|cell| cell.trim().to_string()).collect())
    };
    let lines: Vec<_> = text.lines().map(cells).collect();
    let is_header = |row: &Option<Vec<String>>| {
        row.as_ref().and_then(|row| row.first()).is_some_and(|cell| cell == header)
    };
    let Some(start) = lines.iter().position(is_header) else { return Vec::new() };
    let body = lines.into_iter().enumerate().skip(start + 2);
    body.map_while(|(at, cells)| Some(Row { line: at + 1, cells: cells? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Architecture, Vec<Finding>) {
        Architecture::read(&Repository::of(&[(FILE, text)]))
    }

    const OTHERS: &str = "| crate | r | d |\n|-|-|-|\n| `a` | | |\n\n| fenced file | w |\n|-|-|\n| `f.rs` | \
        |\n\n| door | u | w |\n|-|-|-|\n| `d/` | `fs` | |\n\n| module | may import | crates |\n|-|-|-|\n";

    #[test]
    fn tables_are_found_and_siblings_expanded() {
        let (found, findings) = read(&format!(
            "{OTHERS}| `error` | leaf | |\n| `a::{{b, c}}` | only `d` | `drumlin-env` |\n| `d` | nothing | |\n\nend"
        ));
        assert_eq!(findings, []);
        assert_eq!(found.modules[1].modules, ["a::b", "a::c"]);
        assert_eq!(found.modules[1].may_import, Reach::Only(vec!["d".into()]));
        assert_eq!(found.modules[0].may_import, Reach::Leaf);
        assert_eq!((found.fence.len(), found.doors.len(), found.crates.len()), (1, 1, 1));
        let path = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(found.row_of(&path(&["a", "c", "X"])).map(|(_, name)| name), Some("a::c"));
        assert!(found.row_of(&path(&["a"])).is_none());
    }

    #[test]
    fn missing_tables_doubles_and_circles_are_found() {
        assert_eq!(read("nothing").1.len(), 4);
        let (_, findings) =
            read(&format!("{OTHERS}| `a` | `b` | |\n| `b` | `c` | |\n| `c` | `a` | |\n| `a` | | |\n"));
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [18, 15, 16, 17]);
    }
}
