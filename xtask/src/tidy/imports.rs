//! Rule *imports*: imports between modules of the engine follow the import table of ARCHITECTURE.md.
//!
//! A module's name is its path below `crates/drumlin/src`; the longest row that contains it applies. A module may
//! import itself, the modules of its row, the leaves, its own folder, and what its row lists. `lib.rs` may re-export
//! anything. Test code is exempt.

use super::architecture::{Architecture, FILE, ModuleRow, Reach, covers};
use super::finding::Finding;
use super::paths;
use super::repository::Repository;
use super::source::Source;
use std::collections::BTreeSet;

pub(super) const ENGINE: &str = "crates/drumlin/src/";

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let mut findings = check_folders(repository, architecture);
    for source in &repository.sources {
        let Some(inside) = source.path.strip_prefix(ENGINE) else { continue };
        let module = module_of(inside);
        if module.is_empty() || source.tokens.iter().all(|token| token.in_test) {
            continue;
        }
        match architecture.row_of(&module) {
            Some((row, name)) => findings.extend(check_file(source, &module, row, name, architecture)),
            // A folder's own file without a row may only declare the folder's modules.
            None if is_folder(&module, architecture) => {}
            None => {
                let name = module.join("::");
                let message = format!("module `{name}` has no row in the import table of {FILE}; add one");
                findings.push(Finding::new(&source.path, 1, "imports", message));
            }
        }
    }
    findings
}

/// Checks that the table of folders names each folder of the engine once, and nothing else.
fn check_folders(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let inside = |path: &String| path.strip_prefix(ENGINE).is_some_and(|rest| rest.ends_with("/mod.rs"));
    let sources = repository.sources.iter().map(|source| &source.path).filter(|path| inside(path));
    let there: BTreeSet<&str> =
        sources.filter_map(|path| path.strip_prefix(ENGINE)?.split('/').next()).collect();
    let listed: BTreeSet<&str> = architecture.folders.iter().map(|(name, _)| name.as_str()).collect();
    let missing = there.iter().filter(|name| !listed.is_empty() && !listed.contains(*name)).map(|name| {
        let message =
            format!("folder `{name}` has no row in the table of folders of {FILE}; say what lives there");
        Finding::new(&format!("{ENGINE}{name}/mod.rs"), 1, "imports", message)
    });
    let gone =
        architecture.folders.iter().filter(|(name, _)| !there.contains(name.as_str())).map(|(name, line)| {
            Finding::new(
                FILE,
                *line,
                "imports",
                format!("there is no folder `{name}` in {ENGINE}; take the row out"),
            )
        });
    missing.chain(gone).collect()
}

/// Returns `compaction/merge.rs` as `[compaction, merge]`, and `lib.rs` as an empty path.
pub(super) fn module_of(inside: &str) -> Vec<String> {
    let stem = inside.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" { Vec::new() } else { stem.split('/').map(str::to_string).collect() }
}

fn is_folder(module: &[String], architecture: &Architecture) -> bool {
    let name = module.join("::");
    architecture.modules.iter().flat_map(|row| &row.modules).any(|listed| covers(&name, listed))
}

fn check_file(
    source: &Source,
    module: &[String],
    row: &ModuleRow,
    name: &str,
    architecture: &Architecture,
) -> Vec<Finding> {
    let is_ours = |name: &str| name.starts_with("drumlin_");
    let mut findings = Vec::new();
    for path in paths::named(source, module, is_ours).into_iter().filter(|path| !path.in_test) {
        let Some((root, rest)) = path.segments.split_first() else { continue };
        let finding = |message| Finding::new(&source.path, path.line, "imports", message);
        if root != "crate" {
            let wanted = root.replace('_', "-");
            let free = wanted == "drumlin-types" || row.may_import == Reach::Everything;
            if !free && !row.crates.contains(&wanted) {
                findings.push(finding(format!(
                    "`{name}` may not use the crate `{wanted}`; take a plain value from a module that may, or \
                        change the table in {FILE}"
                )));
            }
        } else if !allowed(rest, module, row, architecture) {
            let target = architecture.row_of(rest).map_or(rest.join("::"), |(_, target)| target.to_string());
            findings.push(finding(format!(
                "`{name}` may not import `{target}`; let a module above both join them, or change the table in \
                    {FILE} and say why"
            )));
        }
    }
    findings
}

pub(super) fn allowed(
    target: &[String],
    module: &[String],
    row: &ModuleRow,
    architecture: &Architecture,
) -> bool {
    // A name re-exported at the crate's root, or a glob of it, hides its origin.
    let Some(first) = target.first() else { return false };
    let Some((target_row, target_name)) = architecture.row_of(target) else {
        // The target is a folder without its own row: only its own modules may import it.
        return module.first() == Some(first);
    };
    let own = row.modules.iter().any(|listed| covers(listed, target_name) || covers(target_name, listed));
    own || target_row.may_import == Reach::Leaf
        || match &row.may_import {
            Reach::Leaf => false,
            Reach::Only(names) => names.iter().any(|name| covers(name, target_name)),
            Reach::Everything => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| module | may import | crates |
|---|---|---|
| `error` | leaf | |
| `version` | nothing | `drumlin-format` |
| `table` | nothing | |
| `compaction::claims` | `version` | |
| `compaction::{merge, output}` | `table`, `compaction::claims` | |
| `db` | everything | |
";

    fn found(path: &str, text: &str) -> Vec<String> {
        let repository = Repository::of(&[(FILE, TABLE), (path, text)]);
        let (architecture, _) = Architecture::read(&repository);
        let findings = check(&repository, &architecture);
        findings
            .into_iter()
            .map(|f| format!("{}: {}", f.line, f.message.split(';').next().unwrap_or("")))
            .collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_the_table_allows_passes() {
        let merge = "use crate::error::Result;\nuse crate::table::{Reader, iter::Iter};\nuse \
            super::output::Out;\nuse crate::compaction::claims;\nuse super::Glossary;\n";
        assert_eq!(found("crates/drumlin/src/compaction/merge.rs", merge), NONE);
        assert_eq!(
            found("crates/drumlin/src/version/run.rs", "use crate::version::X; use drumlin_format::m;"),
            NONE
        );
        assert_eq!(found("crates/drumlin/src/db.rs", "use crate::{compaction::merge, table};"), NONE);
        assert_eq!(found("crates/drumlin/src/lib.rs", "pub use crate::db::Db;"), NONE);
        assert_eq!(found("crates/drumlin/src/compaction/mod.rs", "mod merge;"), NONE);
        assert_eq!(found("crates/drumlin-env/src/lib.rs", "use crate::db::Db;"), NONE);
    }

    #[test]
    fn what_it_does_not_allow_is_found() {
        assert_eq!(
            found(
                "crates/drumlin/src/version/mod.rs",
                "use crate::error::E;\nuse crate::{\n  table::Reader,\n};\n"
            ),
            ["3: `version` may not import `table`"]
        );
        assert_eq!(
            found("crates/drumlin/src/compaction/merge.rs", "fn f() { super::super::version::g() }"),
            ["1: `compaction::merge` may not import `version`"]
        );
        assert_eq!(
            found("crates/drumlin/src/error.rs", "use crate::db::Db;"),
            ["1: `error` may not import `db`"]
        );
        assert_eq!(
            found("crates/drumlin/src/table.rs", "use crate::Db;"),
            ["1: `table` may not import `Db`"]
        );
        assert_eq!(
            found("crates/drumlin/src/table.rs", "use drumlin_policy::x;"),
            ["1: `table` may not use the crate `drumlin-policy`"]
        );
        assert_eq!(
            found("crates/drumlin/src/extra.rs", "//! x\nfn f() {}"),
            ["1: module `extra` has no row in the import table of ARCHITECTURE.md"]
        );
    }

    #[test]
    fn the_table_of_folders_matches_the_folders() {
        let folders = "| folder | what |\n|---|---|\n| `table` | tables |\n| `gone` | nothing |\n";
        let document = format!("{TABLE}\n{folders}");
        let files = ["table", "version"].map(|name| format!("crates/drumlin/src/{name}/mod.rs"));
        let repository = Repository::of(&[(FILE, &document), (&files[0], "//! x"), (&files[1], "//! x")]);
        let (architecture, _) = Architecture::read(&repository);
        let found: Vec<String> =
            check_folders(&repository, &architecture).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`version`") && found[1].contains("`gone`"), "{found:?}");
    }

    #[test]
    fn tests_are_free() {
        let text = "#[cfg(test)]\nmod tests { use crate::db::Db; }\n";
        assert_eq!(found("crates/drumlin/src/table.rs", text), NONE);
        assert_eq!(found("crates/drumlin/src/table/tests.rs", "use crate::db::Db;"), NONE);
    }
}
