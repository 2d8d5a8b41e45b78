//! `cargo xtask tidy`: the habits of the repository, kept by a machine.
//!
//! How:
//! 1. `repository` reads every file once; `source` turns each Rust file into lines and tokens;
//! 2. `architecture` reads the tables of ARCHITECTURE.md: crates, modules, doors, the `unsafe` fence. The document is
//!    the rule, so it cannot rot;
//! 3. each rule is a function from both to findings. A finding says where, which rule, and what to do instead.
//!
//! | rule | module | what it keeps |
//! |---|---|---|
//! | imports | `imports` | modules of the engine import only what the import table allows |
//! | crates | `crates` | crates depend only in the directions of the crate table |
//! | size | `size` | files, and inline test modules, stay short; old offenders only shrink |
//! | unsafe | `fence` | `unsafe` stands only in fenced files, each with its SAFETY note |
//! | door | `door` | files, threads and time come from the environment; pure crates stay `no_std` |
//! | essay, names, unfinished | `words` | every file says what it is; one word per role; nothing half done |
//! | links | `links` | relative links in documents lead somewhere |
//!
//! Invariant: the rules see only the `Repository` value. Tests hand them one made of strings.

mod architecture;
mod crates;
mod door;
mod fence;
mod imports;
mod links;
mod paths;
mod repository;
mod size;
mod source;
mod words;

use architecture::Architecture;
use repository::Repository;
use std::fmt;
use std::path::Path;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    /// What is wrong, and what to do instead.
    pub(crate) message: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// The command.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root).map_err(|error| format!("tidy: {error}"))?;
    let findings = check(&repository);
    if findings.is_empty() {
        println!(
            "tidy: {} Rust files, {} documents, clean",
            repository.sources.len(),
            repository.documents.len()
        );
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(format!("{}\ntidy: {} findings", lines.join("\n"), findings.len()))
}

/// Every rule over the whole repository; the findings by place.
fn check(repository: &Repository) -> Vec<Finding> {
    let (architecture, mut findings) = Architecture::read(repository);
    findings.extend(imports::check(repository, &architecture));
    findings.extend(crates::check(repository, &architecture));
    findings.extend(size::check(repository));
    findings.extend(fence::check(repository, &architecture));
    findings.extend(door::check(repository, &architecture));
    findings.extend(words::check(repository));
    findings.extend(links::check(repository));
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests;
