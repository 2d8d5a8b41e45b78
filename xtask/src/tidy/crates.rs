//! Rule *crates*: crates depend only in the directions of the crate table of ARCHITECTURE.md.
//!
//! The rule reads every `Cargo.toml` under `crates/`: normal, build, development and target dependencies. A
//! dependency belongs to this workspace when its name, or the package that it renames, starts with `drumlin`. The
//! table has a column of its own for what tests may use besides: only development dependencies may point there.

use super::architecture::{Architecture, CrateRow, FILE};
use super::finding::Finding;
use super::repository::Repository;
use crate::toml::{self, Entry};

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &repository.manifests {
        if !path.starts_with("crates/") {
            continue;
        }
        let entries = toml::entries(text);
        let name = entries.iter().find(|entry| entry.section == "package" && entry.key == "name");
        let Some(name) = name.map(|entry| entry.value.as_str()) else { continue };
        let Some(row) = architecture.crates.iter().find(|row| row.name == name) else {
            let message = format!("crate `{name}` has no row in the crate table of {FILE}; add one");
            findings.push(Finding::new(path, 1, "crates", message));
            continue;
        };
        for (dependency, line, of_tests) in entries.iter().filter_map(ours) {
            if !allows(row, &dependency, of_tests) {
                let message = format!(
                    "`{name}` may not depend on `{dependency}`; the directions are in {FILE}, move what both \
                        need below both"
                );
                findings.push(Finding::new(path, line, "crates", message));
            }
        }
    }
    findings
}

fn allows(row: &CrateRow, dependency: &str, of_tests: bool) -> bool {
    let lists = |names: &[String]| names.iter().any(|name| name == dependency);
    // A crate's tests may use the crate itself with more features.
    lists(&row.may_depend_on) || of_tests && (lists(&row.tests_may_use) || dependency == row.name)
}

/// Returns the crate of this workspace that `entry` depends on, if any, the line, and whether only tests depend on it.
fn ours(entry: &Entry) -> Option<(String, usize, bool)> {
    let is_list = |section: &str| section.ends_with("dependencies");
    // `[dependencies.drumlin-types]` means the same as `[dependencies]` with `drumlin-types.`.
    let key = match entry.section.rsplit_once('.') {
        _ if is_list(&entry.section) => entry.key.split('.').next().unwrap_or_default(),
        Some((list, name)) if is_list(list) => name,
        _ => return None,
    };
    let renamed = entry.value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
    let renamed = renamed.or((entry.key == "package").then_some(entry.value.as_str()));
    let name = renamed.unwrap_or(key);
    let of_tests = entry.section.split('.').any(|part| part == "dev-dependencies");
    name.starts_with("drumlin").then(|| (name.to_string(), entry.line, of_tests))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str) -> Vec<usize> {
        let table = "| crate | role | may depend on | tests |\n|---|---|---|---|\n| `drumlin-env` | door | \
            `drumlin-types` | `drumlin-sim` |\n";
        let repository = Repository::of(&[(FILE, table), ("crates/drumlin-env/Cargo.toml", manifest)]);
        let (architecture, _) = Architecture::read(&repository);
        check(&repository, &architecture).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn directions_of_the_table() {
        let package = "[package]\nname = \"drumlin-env\"\n";
        assert_eq!(
            found(&format!("{package}[dependencies]\ndrumlin-types.workspace = true\nlibm = \"1\"\n")),
            [0; 0]
        );
        assert_eq!(found(&format!("{package}[dependencies]\ndrumlin.workspace = true\n")), [4]);
        assert_eq!(
            found(&format!("{package}[dev-dependencies]\ndrumlin-policy = {{ path = \"x\" }}\n")),
            [4]
        );
        assert_eq!(
            found(&format!("{package}[target.'cfg(unix)'.dependencies.drumlin]\nworkspace = true\n")),
            [4]
        );
        assert_eq!(
            found(&format!("{package}[dependencies]\nengine = {{ package = \"drumlin\", path = \"x\" }}\n")),
            [4]
        );
        assert_eq!(found("[package]\nname = \"drumlin-extra\"\n"), [1]);
    }

    #[test]
    fn tests_may_use_more() {
        let of = |section: &str| {
            found(&format!("[package]\nname = \"drumlin-env\"\n[{section}]\ndrumlin-sim.workspace = true\n"))
        };
        assert_eq!(of("dev-dependencies"), [0; 0]);
        assert_eq!(of("target.'cfg(unix)'.dev-dependencies"), [0; 0]);
        assert_eq!(of("dependencies"), [4]);
        assert_eq!(of("build-dependencies"), [4]);
    }
}
