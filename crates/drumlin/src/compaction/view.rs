//! The tree as policies and the scheduler see it: plain data, with the states of its files.

use super::claims::Flight;
use crate::version::{Level, Tree};
use drumlin_policy::schedule::project;
use drumlin_types::contract::{FileState, LevelView, RunView, TreeView};

/// The picture of `tree` as it is installed, all files free.
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

/// The picture of `tree` with the plans of `flight` under way.
pub(crate) fn tree_view(tree: &Tree, flight: &Flight) -> TreeView {
    project::view(&installed(tree), flight)
}
