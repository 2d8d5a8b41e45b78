//! Rule *experiments*: the library that programs embed contains no code that only tests and experiments need.
//!
//! Such code (the policy `chaos`, simulated disks and the like) requires one of the features `experiments` and
//! `testing`. A build of the whole workspace enables both, since cargo unifies the features that the crates request.
//! So such a build does not show what a program gets. This rule reads manifests instead: those of the engine and of
//! all crates that the crate table lets it depend on.
//!
//! 1. Their default features enable neither feature, also not through other features.
//! 2. No dependency enables either feature, and neither does the workspace's list of shared dependencies. Development
//!    dependencies may enable `testing` alone, so that the tests of each of these crates run without `experiments`.
//! 3. The test hooks of the public API have the attribute for `testing`.

use super::architecture::Architecture;
use super::finding::Finding;
use super::repository::Repository;
use crate::toml::{self, Entry};

/// Features that a program must not get unless it requests them.
const FEATURES: [&str; 2] = ["experiments", "testing"];
/// Test hooks of the public API: the file, and the line that the attribute `#[cfg(feature = "testing")]` precedes.
const HOOKS: [(&str, &str); 5] = [
    ("crates/drumlin/src/lib.rs", "pub mod env {"),
    ("crates/drumlin/src/api/db.rs", "pub fn env("),
    ("crates/drumlin/src/api/db.rs", "pub fn step_background("),
    ("crates/drumlin/src/options/macros.rs", "pub fn random("),
    ("crates/drumlin/src/repair/mod.rs", "pub fn repair_in("),
];
/// Crate that programs embed.
const EMBEDDED: &str = "drumlin";

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let embedded = embedded(architecture);
    let mut findings = open_hooks(repository);
    for (path, text) in &repository.manifests {
        let entries = toml::entries(text);
        let name = entries.iter().find(|entry| entry.section == "package" && entry.key == "name");
        let is_embedded = name.is_some_and(|name| embedded.contains(&name.value.as_str()));
        if !is_embedded && path != "Cargo.toml" {
            continue;
        }
        let found = entries.iter().filter(|entry| enables(entry)).chain(default(&entries));
        findings.extend(found.map(|entry| {
            let message = format!(
                "programs that embed `{EMBEDDED}` would get a feature of {FEATURES:?}; enable it only where tests and \
                 experiments start: in unpublished crates and in the command"
            );
            Finding::new(path, entry.line, "experiments", message)
        }));
    }
    findings
}

/// Returns the test hooks that programs get without the feature `testing`.
fn open_hooks(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, hook) in HOOKS {
        let Some(source) = repository.sources.iter().find(|source| source.path == path) else { continue };
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with(hook));
        let is_gated = at.is_some_and(|at| at > 0 && lines[at - 1] == "#[cfg(feature = \"testing\")]");
        if !is_gated {
            let message =
                format!("`{hook}` is for tests: put `#[cfg(feature = \"testing\")]` on the line before it");
            findings.push(Finding::new(path, at.map_or(1, |at| at + 1), "experiments", message));
        }
    }
    findings
}

/// Returns the engine and all crates that it may depend on.
fn embedded(architecture: &Architecture) -> Vec<&str> {
    let mut names = vec![EMBEDDED];
    let mut at = 0;
    while let Some(name) = names.get(at).copied() {
        let rows = architecture.crates.iter().filter(|row| row.name == name);
        for dependency in rows.flat_map(|row| &row.may_depend_on) {
            if !names.contains(&dependency.as_str()) {
                names.push(dependency);
            }
        }
        at += 1;
    }
    names
}

/// Returns whether `entry` is a dependency that enables a forbidden feature, or that cannot be read.
fn enables(entry: &Entry) -> bool {
    let mut parts = entry.section.split('.');
    let list = parts.find(|part| part.ends_with("dependencies"));
    // A list over several lines cannot be read.
    if list.is_some() && entry.value.contains('[') && !entry.value.contains(']') {
        return true;
    }
    match list {
        Some("dev-dependencies") => words(entry).any(|word| word == "experiments"),
        Some(_) => words(entry).any(|word| FEATURES.contains(&word)),
        None => false,
    }
}

/// Returns the entry of the default features if they enable a forbidden feature, or if they cannot be read.
fn default(entries: &[Entry]) -> Option<&Entry> {
    let of = |name: &str| entries.iter().find(|entry| entry.section == "features" && entry.key == name);
    let default = of("default")?;
    let mut names = vec!["default"];
    let mut at = 0;
    while let Some(name) = names.get(at).copied() {
        let Some(entry) = of(name) else {
            at += 1;
            continue;
        };
        if !entry.value.ends_with(']') || words(entry).any(|word| FEATURES.contains(&word)) {
            return Some(default);
        }
        names.extend(words(entry).filter(|word| !names.contains(word)).collect::<Vec<_>>());
        at += 1;
    }
    None
}

/// Returns the names in quotes, without the crate of `crate/feature`.
fn words(entry: &Entry) -> impl Iterator<Item = &str> {
    let quoted = entry.value.split('"').skip(1).step_by(2);
    quoted.map(|word| word.rsplit_once('/').map_or(word, |(_, feature)| feature))
}

#[cfg(test)]
mod tests {
    use super::super::architecture::FILE;
    use super::*;

    const TABLE: &str = "\
| crate | role | may depend on | tests |
|---|---|---|---|
| `drumlin` | engine | `drumlin-policy` | |
| `drumlin-policy` | decisions | `drumlin-types` | |
| `drumlin-types` | words | nothing | |
| `drumlin-torture` | tests | `drumlin` | |
";

    fn found(path: &str, manifest: &str) -> Vec<usize> {
        let repository = Repository::of(&[(FILE, TABLE), (path, manifest)]);
        let (architecture, _) = Architecture::read(&repository);
        check(&repository, &architecture).iter().map(|finding| finding.line).collect()
    }

    fn of(name: &str, rest: &str) -> Vec<usize> {
        found(&format!("crates/{name}/Cargo.toml"), &format!("[package]\nname = \"{name}\"\n{rest}"))
    }

    #[test]
    fn defaults_do_not_lead_there() {
        assert_eq!(
            of("drumlin-types", "[features]\nexperiments = []\ndefault = [\"std\"]\nstd = []\n"),
            [0; 0]
        );
        assert_eq!(of("drumlin-types", "[features]\ndefault = [\"experiments\"]\n"), [4]);
        assert_eq!(
            of("drumlin", "[features]\ndefault = [\"more\"]\nmore = [\"drumlin-policy/experiments\"]\n"),
            [4]
        );
        assert_eq!(
            of("drumlin", "[features]\ndefault = [\n  \"experiments\",\n]\n"),
            [4],
            "a list of many lines"
        );
        assert_eq!(of("drumlin", "[features]\nexperiments = [\"drumlin-policy/experiments\"]\n"), [0; 0]);
        let own = "drumlin = { path = \".\", features = [\"testing\"] }\n";
        assert_eq!(of("drumlin", &format!("[dependencies]\n{own}")), [4]);
        assert_eq!(of("drumlin", &format!("[dev-dependencies]\n{own}")), [0; 0]);
    }

    #[test]
    fn no_dependency_enables_it() {
        let with = "drumlin-policy = { workspace = true, features = [\"experiments\"] }\n";
        for section in ["dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
            assert_eq!(of("drumlin", &format!("[{section}]\n{with}")), [4], "{section}");
        }
        assert_eq!(of("drumlin", "[dependencies.drumlin-policy]\nfeatures = [\"experiments\"]\n"), [4]);
        assert_eq!(found("Cargo.toml", &format!("[workspace.dependencies]\n{with}")), [2]);
        assert_eq!(of("drumlin-torture", &format!("[dependencies]\n{with}")), [0; 0]);
    }

    #[test]
    fn test_hooks_need_their_feature() {
        let found = |text: &str| {
            let repository = Repository::of(&[("crates/drumlin/src/lib.rs", text)]);
            open_hooks(&repository).iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(found("//! x\n#[cfg(feature = \"testing\")]\npub mod env {\n}\n"), [0; 0]);
        assert_eq!(found("//! x\n/// y\npub mod env {\n}\n"), [3]);
        assert_eq!(found("//! x\n"), [1]);
    }
}
