//! `cargo xtask tidy`: checks the rules of the repository.
//!
//! 1. `repository` reads every file once; `source` splits each Rust file into lines and tokens.
//! 2. `architecture` reads the tables of ARCHITECTURE.md: crates, modules, doors, the `unsafe` fence. The document is
//!    the rule, so it cannot become outdated.
//! 3. Each rule is a function from both to findings. A finding names the place, the rule, and what to do instead.
//!
//! | rule | module | what it checks |
//! |---|---|---|
//! | imports | `imports` | modules of the engine import only what the import table permits |
//! | calls | `calls` | calls of methods of the open store obey the same table |
//! | circles | `graph` | no circle of imports between the files of a crate |
//! | crates | `crates` | crates depend only in the directions of the crate table |
//! | experiments | `experiments` | programs get nothing that only tests and experiments need |
//! | size | `size` | files, inline test modules, functions and lines stay short; listed offenders only shrink |
//! | unsafe | `fence` | `unsafe` appears only in fenced files, each with its SAFETY note |
//! | door | `door` | files, threads and time come from the environment; pure crates stay `no_std` |
//! | essay, names, words, unfinished | `words` | each file has an essay; one word per role; no idioms; finished code |
//! | links | `links` | relative links in documents have existing targets |
//! | tables | `tables` | documents hold no measured tables that were typed by hand |
//!
//! Invariant: the rules see only the `Repository` value. Tests pass one made of strings.

pub(crate) mod architecture;
mod calls;
mod crates;
mod door;
mod experiments;
mod fence;
mod finding;
pub(crate) mod functions;
pub(crate) mod graph;
mod imports;
mod links;
mod paths;
pub(crate) mod repository;
pub(crate) mod size;
pub(crate) mod source;
mod tables;
mod words;

use architecture::Architecture;
use finding::Finding;
use repository::Repository;
use std::path::Path;

/// Runs the command.
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

/// Runs every rule on the whole repository; returns the findings sorted by place.
fn check(repository: &Repository) -> Vec<Finding> {
    let (architecture, mut findings) = Architecture::read(repository);
    findings.extend(imports::check(repository, &architecture));
    findings.extend(calls::check(repository, &architecture));
    findings.extend(graph::check(repository));
    findings.extend(crates::check(repository, &architecture));
    findings.extend(experiments::check(repository, &architecture));
    findings.extend(size::check(repository));
    findings.extend(fence::check(repository, &architecture));
    findings.extend(door::check(repository, &architecture));
    findings.extend(words::check(repository));
    findings.extend(links::check(repository));
    findings.extend(tables::check(repository));
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests;
