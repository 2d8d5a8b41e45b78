//! Import graph between the files of one crate.
//!
//! 1. Each file is a module; `module_of` derives its path from its place in the folder.
//! 2. Each path named in a file (`paths::named`) resolves to the file that defines the item: module by module, then
//!    through `use` declarations, so that a re-export in a folder's `mod.rs` leads to the defining file.
//! 3. The edges come from code outside tests. `pub use` in a folder's own file is a re-export, not an edge.
//!
//! A cycle is a strongly connected component of more than one file (Tarjan 1972).
//!
//! Limits: the search does not follow methods and does not see names made by macros.

use super::finding::Finding;
use super::paths;
use super::repository::Repository;
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Finds circles in every crate.
pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let circles =
        crate_folders(repository).into_iter().flat_map(|folder| Graph::of(repository, &folder).circles());
    let finding = |files: Vec<String>| {
        let message = format!(
            "{} files import each other in a circle: {}; split what both need into a file below them",
            files.len(),
            files.join(", ")
        );
        Finding::new(files.first().map_or("", String::as_str), 1, "circles", message)
    };
    circles.map(finding).collect()
}

/// Maximum length of a chain of re-exports to follow.
const ALIASES_MAX: usize = 8;
/// Keywords that define a name at the top of a module.
const DEFINES: [&str; 9] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union", "mod"];

/// A module with a file of its own.
struct Module<'a> {
    source: &'a Source,
    path: Vec<String>,
    items: BTreeSet<String>,
    /// Names imported by `use`, with the absolute path of each.
    aliases: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// Imports of each file of a crate, by path from the repository's root.
pub(crate) struct Graph {
    pub(crate) imports: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the source folders of crates, such as `crates/drumlin/src`.
pub(crate) fn crate_folders(repository: &Repository) -> BTreeSet<String> {
    let lib = |source: &Source| {
        let folder = source.path.strip_suffix("/lib.rs").or_else(|| source.path.strip_suffix("/main.rs"))?;
        folder.ends_with("src").then(|| folder.to_string())
    };
    repository.sources.iter().filter_map(lib).collect()
}

impl Graph {
    /// Returns the graph of the crate whose source is in `folder`.
    pub(crate) fn of(repository: &Repository, folder: &str) -> Graph {
        let modules = modules(repository, folder);
        let mut imports = BTreeMap::new();
        for module in modules.values() {
            let mut named = BTreeSet::new();
            for path in named_by(module, &modules) {
                if let Some(file) = resolve(&path, &modules, 0)
                    && file != module.source.path
                {
                    named.insert(file.to_string());
                }
            }
            imports.insert(module.source.path.clone(), named);
        }
        Graph { imports }
    }

    /// Returns the cycles, largest first, each with its files in order.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let mut search = Search {
            graph: self,
            order: BTreeMap::new(),
            low: BTreeMap::new(),
            stack: Vec::new(),
            found: Vec::new(),
        };
        for file in self.imports.keys() {
            if !search.order.contains_key(file.as_str()) {
                search.visit(file);
            }
        }
        let mut found = search.found;
        found.retain(|circle| circle.len() > 1);
        found.iter_mut().for_each(|circle| circle.sort());
        found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        found
    }
}

/// State of Tarjan's search.
struct Search<'a> {
    graph: &'a Graph,
    order: BTreeMap<&'a str, usize>,
    low: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<Vec<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str) {
        let number = self.order.len();
        self.order.insert(file, number);
        self.low.insert(file, number);
        self.stack.push(file);
        let graph = self.graph;
        for next in graph.imports.get(file).into_iter().flatten() {
            let reached = match self.order.get(next.as_str()) {
                None => {
                    self.visit(next);
                    self.low.get(next.as_str()).copied()
                }
                Some(order) => self.stack.contains(&next.as_str()).then_some(*order),
            };
            if let (Some(reached), Some(low)) = (reached, self.low.get_mut(file)) {
                *low = reached.min(*low);
            }
        }
        if self.low.get(file) == Some(&number) {
            let start = self.stack.iter().position(|on| *on == file).unwrap_or_default();
            self.found.push(self.stack.split_off(start).into_iter().map(str::to_string).collect());
        }
    }
}

fn modules<'a>(repository: &'a Repository, folder: &str) -> BTreeMap<Vec<String>, Module<'a>> {
    let mut modules = BTreeMap::new();
    for source in &repository.sources {
        let Some(inside) = source.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        if source.tokens.iter().all(|token| token.in_test) {
            continue;
        }
        let path = module_of(inside);
        let items = items(source);
        modules.insert(
            path.clone(),
            Module { source, path, items, aliases: BTreeMap::new(), globs: Vec::new() },
        );
    }
    let names: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
    for module in modules.values_mut() {
        let children = children(&module.path, &names);
        (module.aliases, module.globs) = aliases(module.source, &module.path, &children);
    }
    modules
}

/// Returns `compaction/merge.rs` as `[compaction, merge]`, and `lib.rs` as an empty path.
pub(crate) fn module_of(inside: &str) -> Vec<String> {
    let stem = inside.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if matches!(stem, "lib" | "main") { Vec::new() } else { stem.split('/').map(str::to_string).collect() }
}

fn children(path: &[String], names: &BTreeSet<Vec<String>>) -> BTreeSet<String> {
    let below = names.iter().filter(|name| name.len() == path.len() + 1 && name.starts_with(path));
    below.filter_map(|name| name.last().cloned()).collect()
}

/// Returns the names defined at the top of the file.
fn items(source: &Source) -> BTreeSet<String> {
    let (mut items, mut depth) = (BTreeSet::new(), 0usize);
    for pair in source.tokens.windows(2) {
        let [token, next] = pair else { continue };
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            word if depth == 0 && !token.in_test && DEFINES.contains(&word) => {
                items.insert(next.text.clone());
            }
            _ => {}
        }
    }
    items
}

type Aliases = (BTreeMap<String, Vec<String>>, Vec<Vec<String>>);

/// Returns the imports of a file's `use` declarations: names, and globs.
fn aliases(source: &Source, path: &[String], children: &BTreeSet<String>) -> Aliases {
    let (mut names, mut globs) = (BTreeMap::new(), Vec::new());
    let tokens = &source.tokens;
    for (at, token) in tokens.iter().enumerate() {
        if token.text != "use" || token.in_test {
            continue;
        }
        let end = tokens
            .iter()
            .skip(at)
            .position(|token| token.text == ";")
            .map_or(tokens.len(), |found| at + found);
        let declaration = Source::of_tokens(tokens.get(at..end).unwrap_or_default());
        for found in paths::named(&declaration, path, |name| children.contains(name)) {
            let mut segments = absolute(found.segments, path, children);
            match segments.last().map(String::as_str) {
                Some("*") => {
                    segments.pop();
                    globs.push(segments);
                }
                Some(name) => {
                    names.insert(name.to_string(), segments);
                }
                None => {}
            }
        }
    }
    (names, globs)
}

/// Returns the segments below the crate's root.
fn absolute(segments: Vec<String>, path: &[String], children: &BTreeSet<String>) -> Vec<String> {
    match segments.split_first() {
        Some((first, rest)) if first == "crate" => rest.to_vec(),
        Some((first, _)) if children.contains(first) => path.iter().cloned().chain(segments).collect(),
        _ => segments,
    }
}

/// Returns the paths below the crate's root that the code of `module` names.
fn named_by(module: &Module<'_>, modules: &BTreeMap<Vec<String>, Module<'_>>) -> Vec<Vec<String>> {
    let names: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
    let children = children(&module.path, &names);
    // A folder's own file may re-export its modules.
    let shown: BTreeSet<usize> = shown_lines(module.source);
    let imported = |name: &str| module.aliases.get(name).is_some_and(|path| modules.contains_key(path));
    let is_root = |name: &str| children.contains(name) || imported(name);
    paths::named(module.source, &module.path, is_root)
        .into_iter()
        .filter(|path| !path.in_test && !shown.contains(&path.line))
        .map(|path| {
            let through = path
                .segments
                .first()
                .filter(|first| imported(first))
                .and_then(|first| module.aliases.get(first));
            match through {
                Some(base) => base.iter().cloned().chain(path.segments.iter().skip(1).cloned()).collect(),
                None => absolute(path.segments, &module.path, &children),
            }
        })
        .collect()
}

/// Returns the lines of `pub use` and `pub(..) use` declarations.
fn shown_lines(source: &Source) -> BTreeSet<usize> {
    let tokens = &source.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut lines = BTreeSet::new();
    for at in 0..tokens.len() {
        let is_shown = text(at) == "use" && at > 0 && matches!(text(at - 1), "pub" | ")");
        if is_shown {
            let end = (at..tokens.len()).find(|end| text(*end) == ";").unwrap_or(at);
            lines.extend(tokens.get(at..end).into_iter().flatten().map(|token| token.line));
        }
    }
    lines
}

/// Returns the file that defines what `path` names; `None` for paths outside the crate.
fn resolve<'a>(
    path: &[String],
    modules: &'a BTreeMap<Vec<String>, Module<'a>>,
    depth: usize,
) -> Option<&'a str> {
    let length =
        (0..=path.len()).rev().find(|length| path.get(..*length).is_some_and(|p| modules.contains_key(p)))?;
    let (inside, rest) = path.split_at(length);
    let module = modules.get(inside)?;
    let Some(name) = rest.first() else { return Some(&module.source.path) };
    if module.items.contains(name) || depth > ALIASES_MAX {
        return Some(&module.source.path);
    }
    if let Some(alias) = module.aliases.get(name) {
        let further: Vec<String> = alias.iter().chain(rest.iter().skip(1)).cloned().collect();
        return resolve(&further, modules, depth + 1);
    }
    let through_glob = module.globs.iter().find_map(|glob| {
        let target = modules.get(glob)?;
        let holds = target.items.contains(name) || target.aliases.contains_key(name);
        let further: Vec<String> = glob.iter().chain(rest).cloned().collect();
        holds.then(|| resolve(&further, modules, depth + 1)).flatten()
    });
    // The root's names are reached only through its definitions and re-exports.
    through_glob.or_else(|| (!inside.is_empty()).then_some(module.source.path.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let repository = Repository::of(files);
        Graph::of(&repository, "crates/a/src").circles()
    }

    const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod b; mod c; pub use b::B;");

    #[test]
    fn two_files_that_import_each_other() {
        let b = ("crates/a/src/b.rs", "use crate::c::C; pub struct B;");
        let c = ("crates/a/src/c.rs", "pub struct C; fn f(_: super::b::B) {}");
        assert_eq!(circles(&[LIB, b, c]), [["crates/a/src/b.rs", "crates/a/src/c.rs"]]);
    }

    #[test]
    fn a_reexport_leads_to_the_file_behind_it() {
        let b = ("crates/a/src/b/mod.rs", "mod d; mod e; pub use d::D; pub use e::E;");
        let d = ("crates/a/src/b/d.rs", "use super::E; pub struct D;");
        let one_way = ("crates/a/src/b/e.rs", "pub struct E;");
        assert!(circles(&[LIB, b, d, one_way]).is_empty());
        let back = ("crates/a/src/b/e.rs", "pub struct E(crate::b::D);");
        assert_eq!(circles(&[LIB, b, d, back]).len(), 1);
    }

    #[test]
    fn an_imported_module_counts_by_what_is_taken_from_it() {
        let b = ("crates/a/src/b.rs", "use crate::c; pub struct B; fn f() { c::g() }");
        let c = ("crates/a/src/c.rs", "pub fn g() {} pub struct C(crate::B);");
        assert_eq!(circles(&[LIB, b, c]).len(), 1);
    }

    #[test]
    fn tests_make_no_edge() {
        let b = ("crates/a/src/b.rs", "use crate::c::C; pub struct B;");
        let c = ("crates/a/src/c.rs", "pub struct C; #[cfg(test)] mod tests { use crate::b::B; }");
        assert!(circles(&[LIB, b, c]).is_empty());
    }
}
