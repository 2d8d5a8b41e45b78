//! Rule *calls*: a call of a method of the open store counts as an import of the file that implements the method.
//!
//! `Store` has inherent methods in several folders. Callers need no `use` for them, so the rule *imports* does not see
//! these calls. This rule does: it finds the folder of each method, and checks each call by the import table.
//!
//! A call is recognized by its receiver (`store`, or `self` in an `impl Store` block), by the path `Store::method`, or
//! by a method name that no other type of the engine has. Other calls are not checked.

use super::architecture::{Architecture, FILE};
use super::finding::Finding;
use super::functions::impl_blocks;
use super::imports::{ENGINE, allowed, module_of};
use super::repository::Repository;
use super::source::{Source, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Type whose methods stand in several folders.
const HUB: &str = "Store";

pub(crate) fn check(repository: &Repository, architecture: &Architecture) -> Vec<Finding> {
    let engine = || repository.sources.iter().filter(|source| source.path.starts_with(ENGINE));
    let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for source in engine() {
        let module = module_of(source.path.strip_prefix(ENGINE).unwrap_or_default());
        for name in functions_in(&source.tokens) {
            *defined.entry(name).or_default() += 1;
        }
        for block in impl_blocks(source, HUB) {
            for name in functions_in(source.tokens.get(block).unwrap_or_default()) {
                homes.insert(name, module.clone());
            }
        }
    }
    let unique: BTreeSet<&str> =
        defined.into_iter().filter(|(_, count)| *count == 1).map(|(name, _)| name).collect();
    engine().flat_map(|source| check_file(source, &homes, &unique, architecture)).collect()
}

/// Returns the names of the functions that `tokens` define, without tests.
fn functions_in(tokens: &[Token]) -> impl Iterator<Item = &str> {
    let names = tokens.windows(2).filter(|pair| pair[0].text == "fn" && !pair[0].in_test);
    names.map(|pair| pair[1].text.as_str())
}

fn check_file(
    source: &Source,
    homes: &BTreeMap<&str, Vec<String>>,
    unique: &BTreeSet<&str>,
    architecture: &Architecture,
) -> Vec<Finding> {
    let module = module_of(source.path.strip_prefix(ENGINE).unwrap_or_default());
    let Some((row, name)) = architecture.row_of(&module) else { return Vec::new() };
    let inside = impl_blocks(source, HUB);
    let is_of_hub = |at: usize, receiver: &str, method: &str| match receiver {
        "store" | HUB => true,
        "self" => inside.iter().any(|block| block.contains(&at)) || unique.contains(method),
        _ => unique.contains(method),
    };
    let mut findings = Vec::new();
    for (at, call) in source.tokens.windows(4).enumerate() {
        let [receiver, dot, method, open] = call else { continue };
        let is_call = dot.text == "." && matches!(open.text.as_str(), "(" | "::");
        let is_path = dot.text == "::" && receiver.text == HUB;
        if !is_call && !is_path || method.in_test {
            continue;
        }
        let Some(home) = homes.get(method.text.as_str()) else { continue };
        if is_of_hub(at, &receiver.text, &method.text) && !allowed(home, &module, row, architecture) {
            let (method_name, home) = (&method.text, home.join("::"));
            let message = format!(
                "`{name}` may not call `{HUB}::{method_name}` of `{home}`; move the method below both, or change the \
                 table in {FILE} and say why"
            );
            findings.push(Finding::new(&source.path, method.line, "calls", message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| module | may import | crates |
|---|---|---|
| `store` | nothing | |
| `jobs` | `store` | |
| `ops` | `store`, `jobs` | |
";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("{ENGINE}{path}")).collect();
        let mut all = vec![(FILE, TABLE)];
        all.extend(paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)));
        let repository = Repository::of(&all);
        let (architecture, _) = Architecture::read(&repository);
        let findings = check(&repository, &architecture);
        findings
            .into_iter()
            .map(|f| format!("{}:{}: {}", f.path, f.line, f.message.split(';').next().unwrap_or("")))
            .collect()
    }

    #[test]
    fn calls_follow_the_import_table() {
        let store = ("store/mod.rs", "struct Store {}\nimpl Store { fn sync(&self) { self.flush() } }\n");
        let jobs = (
            "jobs/mod.rs",
            "impl Store {\n fn flush(&self) { self.sync(); self.close(); }\n}\nimpl Lane { fn close(&self) {} \
             fn step(&self) { self.close(); self.store.close(); self.merge.verify_all(); map(Store::close); } }\n",
        );
        let ops = ("ops/mod.rs", "impl Store { fn close(&self) { self.flush() } fn verify_all(&self) {} }\n");
        let engine = |path: &str| format!("{ENGINE}{path}");
        let (in_store, in_jobs) = (engine("store/mod.rs"), engine("jobs/mod.rs"));
        assert_eq!(
            found(&[store, jobs, ops]),
            [
                format!("{in_store}:2: `store` may not call `Store::flush` of `jobs`"),
                format!("{in_jobs}:2: `jobs` may not call `Store::close` of `ops`"),
                format!("{in_jobs}:4: `jobs` may not call `Store::close` of `ops`"),
                format!("{in_jobs}:4: `jobs` may not call `Store::verify_all` of `ops`"),
                format!("{in_jobs}:4: `jobs` may not call `Store::close` of `ops`"),
            ]
        );
    }

    #[test]
    fn tests_are_free() {
        let ops = ("ops/mod.rs", "impl Store { fn close(&self) {} }\n");
        let jobs = ("jobs/mod.rs", "#[cfg(test)]\nmod tests { fn f() { store.close(); } }\n");
        assert_eq!(found(&[ops, jobs]), [""; 0]);
    }
}
