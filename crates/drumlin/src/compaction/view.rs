//! The tree as policies and the scheduler see it: plain data, with the states of its files.

use crate::version::{Level, Tree};
use drumlin_policy::schedule::Flight;
use drumlin_policy::schedule::project;
use drumlin_types::contract::{FileState, LevelView, RunView, TreeView};

/// Returns the installed tree with all files free.
pub(crate) fn installed(tree: &Tree) -> TreeView {
    let level = |level: &Level| {
        let runs = level.runs.iter().map(|run| RunView {
            id: run.id,
            tag: run.tag.clone(),
            files: run.files.iter().map(|f| f.view(f.bounds.clone(), f.counts, FileState::Free)).collect(),
        });
        LevelView { runs: runs.collect() }
    };
    TreeView { levels: tree.levels.iter().map(level).collect() }
}

/// Returns the tree with the compactions of `flight` in flight.
pub(crate) fn tree_view(tree: &Tree, flight: &Flight) -> TreeView {
    project::view(&installed(tree), flight)
}
