//! `cargo xtask structure`: prints metrics of the repository's structure.
//!
//! Prints one line per metric: import cycles between files, modules that may import everything, fields and methods of
//! the open store, functions and lines over their limits, lines per file and per design page, and type names with
//! more than one definition. `--circles` lists each cycle with its files. `--folders` lists the imports between the
//! folders of one crate. `--long` lists the functions over the limit.

use crate::tidy::architecture::{Architecture, Reach};
use crate::tidy::functions;
use crate::tidy::graph::{Graph, crate_folders};
use crate::tidy::repository::Repository;
use crate::tidy::size::COLUMNS_MAX;
use crate::tidy::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Type whose fields and methods are counted.
const HUB: &str = "Store";

/// Runs the command.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let repository = Repository::read(root).map_err(|error| format!("structure: {error}"))?;
    match arguments {
        [] => report(&repository),
        ["--circles"] => list_circles(&repository),
        ["--folders", folder] => list_folders(&repository, folder),
        ["--long"] => list_long(&repository),
        _ => {
            return Err(
                "usage: cargo xtask structure [--circles | --folders crates/NAME/src | --long]".into()
            );
        }
    }
    Ok(())
}

fn report(repository: &Repository) {
    let circles: Vec<(String, Vec<String>)> = circles(repository);
    let files: usize = circles.iter().map(|(_, files)| files.len()).sum();
    println!("circles of imports between files   {} ({files} files)", circles.len());
    let (architecture, _) = Architecture::read(repository);
    let everything = architecture.modules.iter().filter(|row| row.may_import == Reach::Everything);
    let everything: usize = everything.map(|row| row.modules.len()).sum();
    println!("modules that may import everything {everything}");
    let (fields, methods, spread) = hub(repository);
    println!("fields of `{HUB}`                    {fields}");
    println!("methods of `{HUB}`                   {methods} in {spread} files");
    let code: Vec<&Source> = repository.sources.iter().filter(|source| !is_test(source)).collect();
    let long = code.iter().map(|source| functions::over_limit(source).len()).sum::<usize>();
    println!("functions over {} lines            {long}", functions::LINES_MAX);
    println!("lines over {COLUMNS_MAX} columns             {}", wide_lines(repository));
    let mut lengths: Vec<usize> = code.iter().map(|source| source.text.lines().count()).collect();
    lengths.sort_unstable();
    let at = |share: usize| lengths.get(lengths.len() * share / 100).copied().unwrap_or_default();
    println!(
        "lines per file                     median {}, p90 {}, most {}",
        at(50),
        at(90),
        at(100).max(lengths.last().copied().unwrap_or_default())
    );
    for (path, text) in repository.documents.iter().filter(|(path, _)| path.starts_with("docs/design/")) {
        println!("{path:<34} {} lines", text.lines().count());
    }
    let several = names_of_several(&code);
    println!("type names with several meanings   {}", several.len());
    let worst: Vec<String> = several
        .iter()
        .filter(|(_, count)| *count > 2)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("  of more than two: {}", worst.join(", "));
}

fn is_test(source: &Source) -> bool {
    source.tokens.iter().all(|token| token.in_test)
}

fn circles(repository: &Repository) -> Vec<(String, Vec<String>)> {
    let of_crate = |folder: String| {
        let circles = Graph::of(repository, &folder).circles();
        circles.into_iter().map(move |files| (folder.clone(), files))
    };
    crate_folders(repository).into_iter().flat_map(of_crate).collect()
}

fn list_circles(repository: &Repository) {
    for (folder, files) in circles(repository) {
        println!("{folder}: {} files", files.len());
        let graph = Graph::of(repository, &folder);
        for file in &files {
            let inside = |name: &String| name.strip_prefix(&format!("{folder}/")).unwrap_or(name).to_string();
            let imports =
                graph.imports.get(file).into_iter().flatten().filter(|to| files.contains(to)).map(inside);
            println!("  {} -> {}", inside(file), imports.collect::<Vec<_>>().join(", "));
        }
    }
}

fn list_folders(repository: &Repository, folder: &str) {
    let graph = Graph::of(repository, folder);
    let top = |file: &str| {
        let inside = file.strip_prefix(folder)?.strip_prefix('/')?;
        Some(inside.split('/').next()?.trim_end_matches(".rs").to_string())
    };
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, imports) in &graph.imports {
        let Some(from) = top(file) else { continue };
        let to = imports.iter().filter_map(|to| top(to)).filter(|to| *to != from);
        folders.entry(from.clone()).or_default().extend(to);
    }
    for (from, to) in folders {
        println!("{from:<12} {}", to.into_iter().collect::<Vec<_>>().join(" "));
    }
}

fn list_long(repository: &Repository) {
    for source in repository.sources.iter().filter(|source| !is_test(source)) {
        for (name, line, lines) in functions::over_limit(source) {
            println!("{}:{line}: {name} has {lines} lines", source.path);
        }
    }
}

/// Returns the numbers of fields and methods of the hub, and the number of files that contain its methods.
fn hub(repository: &Repository) -> (usize, usize, usize) {
    let (mut fields, mut methods, mut files) = (0, 0, BTreeSet::new());
    for source in repository.sources.iter().filter(|source| source.path.starts_with("crates/drumlin/src/")) {
        fields += functions::fields_of(source, HUB);
        let found = functions::methods_of(source, HUB);
        if found > 0 {
            files.insert(source.path.as_str());
        }
        methods += found;
    }
    (fields, methods, files.len())
}

fn wide_lines(repository: &Repository) -> usize {
    let wide = |text: &str| text.lines().filter(|line| line.chars().count() > COLUMNS_MAX).count();
    repository.sources.iter().map(|source| wide(&source.text)).sum()
}

/// Returns the names of structs, enums and traits that more than one file defines.
fn names_of_several(sources: &[&Source]) -> Vec<(String, usize)> {
    let mut defined: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        for pair in source.tokens.windows(2) {
            let [keyword, name] = pair else { continue };
            if matches!(keyword.text.as_str(), "struct" | "enum" | "trait") && !keyword.in_test {
                defined.entry(name.text.clone()).or_default().insert(&source.path);
            }
        }
    }
    let mut several: Vec<(String, usize)> = defined
        .into_iter()
        .map(|(name, files)| (name, files.len()))
        .filter(|(_, count)| *count > 1)
        .collect();
    several.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    several
}
