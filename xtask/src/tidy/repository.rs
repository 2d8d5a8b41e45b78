//! The files that the rules examine, read once.
//!
//! Build outputs, version control data and editor leftovers are skipped. Rust files in a `tests` or `benches` folder,
//! files named `tests.rs`, and modules declared under `#[cfg(test)]` count as test code.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// Folders without source code of this repository.
const PASSED_OVER: [&str; 4] = ["target", ".git", "corpus", "node_modules"];

#[derive(Debug, Default)]
pub(crate) struct Repository {
    /// Every file and folder, relative to the root, with `/`.
    pub(crate) paths: BTreeSet<String>,
    /// The `.rs` files.
    pub(crate) sources: Vec<Source>,
    /// Text of the `.md` files.
    pub(crate) documents: BTreeMap<String, String>,
    /// Text of the `Cargo.toml` files.
    pub(crate) manifests: BTreeMap<String, String>,
    /// Text of `ci/tidy-ratchet.txt`; `None` when there are no offenders.
    pub(crate) ratchet: Option<String>,
    /// Text of the ratchet before its last change, where version control has it.
    pub(crate) ratchet_before: Option<String>,
}

pub(crate) const RATCHET: &str = "ci/tidy-ratchet.txt";

impl Repository {
    pub(crate) fn read(root: &Path) -> io::Result<Repository> {
        let mut repository = Repository::default();
        repository.read_folder(root, "")?;
        repository.ratchet_before = ratchet_before(root, repository.ratchet.as_deref());
        repository.mark_tests();
        Ok(repository)
    }

    /// Creates a repository from strings, for the tests of the rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for (path, text) in files {
            let mut folder = *path;
            while let Some((parent, _)) = folder.rsplit_once('/') {
                repository.paths.insert(parent.to_string());
                folder = parent;
            }
            repository.add(path, text);
        }
        repository.mark_tests();
        repository
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && !PASSED_OVER.contains(&name.as_str()) {
                self.paths.insert(path.clone());
                self.read_folder(&entry.path(), &path)?;
            } else if kind.is_file() && is_text(&path) {
                let bytes = fs::read(entry.path())?;
                self.add(&path, &String::from_utf8_lossy(&bytes));
            } else {
                self.paths.insert(path);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, text: &str) {
        self.paths.insert(path.to_string());
        let name = path.rsplit('/').next().unwrap_or(path);
        if path == RATCHET {
            self.ratchet = Some(text.to_string());
        } else if name == "Cargo.toml" {
            self.manifests.insert(path.to_string(), text.to_string());
        } else if name.ends_with(".rs") {
            self.sources.push(Source::new(path, text));
        } else if name.ends_with(".md") {
            self.documents.insert(path.to_string(), text.to_string());
        }
    }

    fn mark_tests(&mut self) {
        let declared: Vec<String> = self
            .sources
            .iter()
            .flat_map(|source| source.test_modules.iter().map(|name| submodule(&source.path, name)))
            .collect();
        for source in &mut self.sources {
            let path = source.path.as_str();
            let by_place = path.split('/').rev().skip(1).any(|folder| matches!(folder, "tests" | "benches"));
            let by_name = path.ends_with("/tests.rs");
            let by_declaration = declared.iter().any(|module| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
            if by_place || by_name || by_declaration {
                source.mark_as_test();
            }
        }
    }
}

fn is_text(path: &str) -> bool {
    path == RATCHET || path.ends_with(".rs") || path.ends_with(".md") || path.ends_with("Cargo.toml")
}

/// Returns the path of module `name` of the file `parent`, without `.rs` or `/mod.rs`.
fn submodule(parent: &str, name: &str) -> String {
    let (folder, file) = parent.rsplit_once('/').unwrap_or(("", parent));
    match file {
        "mod.rs" | "lib.rs" | "main.rs" => format!("{folder}/{name}"),
        _ => format!("{folder}/{}/{name}", file.trim_end_matches(".rs")),
    }
}

/// Returns the ratchet file of the last commit if it has an uncommitted change, otherwise that of the commit before
/// its last change. Returns `None` without version control or an earlier file: then no shrinking can be required.
fn ratchet_before(root: &Path, now: Option<&str>) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let committed = git(&["show", &format!("HEAD:{RATCHET}")]);
    if committed.as_deref() != now {
        return committed;
    }
    let last_change = git(&["log", "-1", "--format=%H", "--", RATCHET])?;
    git(&["show", &format!("{}^:{RATCHET}", last_change.trim())])
}
