//! Leveling without the pipeline: compactions that wait for each other.
//!
//! When a plan may fold files of a level of one run, it must be compacted with all of them, or wait. Such a plan is
//! made only when a slot is free. An early plan would claim files of the next level, which that level could then not
//! pass on. Files that overlap a busy file below are shown as unavailable, so that policies propose other files.

use alloc::rc::Rc;
use alloc::vec::Vec;
use drumlin_types::KeyRange;
use drumlin_types::contract::{FileState, FileView, LevelDesign, Plan, TreeView};

/// Returns `view` as a policy of this `design` sees it.
pub(super) fn marked(view: Rc<TreeView>, design: &[LevelDesign]) -> Rc<TreeView> {
    let mut marked: Option<TreeView> = None;
    let leveled = design.iter().zip(&view.levels).enumerate().skip(1).filter(|(_, (d, _))| d.runs == 1.0);
    for (level, (_, below)) in leveled {
        let is_busy = |f: &&FileView| !f.is_takeable();
        let busy: Vec<&KeyRange> = below.files().filter(is_busy).map(|f| &f.bounds).collect();
        let waits = |f: &FileView| f.is_takeable() && busy.iter().any(|range| range.overlaps(&f.bounds));
        if view.levels[level - 1].files().any(waits) {
            let tree = marked.get_or_insert_with(|| TreeView::clone(&view));
            let files = tree.levels[level - 1].runs.iter_mut().flat_map(|run| &mut run.files);
            files.filter(|f| waits(f)).for_each(|f| f.state = FileState::Unavailable);
        }
    }
    marked.map_or(view, Rc::new)
}

/// Returns whether a file that `plan` would be compacted with is busy or does not exist yet.
pub(super) fn is_busy(view: &TreeView, plan: &Plan) -> bool {
    plan.may_fold.iter().any(|fold| {
        let mut parts = view.files().map(|(_, _, f)| f).filter(|f| f.table == fold.table).peekable();
        parts.peek().is_none() || parts.any(|f| f.bounds.overlaps(&fold.range) && !f.is_takeable())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::Take;
    use drumlin_types::contract::draw::parse_tree;

    #[test]
    fn files_above_a_busy_one_are_shown_as_coming() {
        let tree = "L1: [a..f #50-60 1M][k..p #50-60 1M]  L2: [a..c #1-20 8M ~1][m..z #1-20 6M]";
        let view = Rc::new(parse_tree(tree).unwrap());
        let leveled = [1.0; 3].map(|runs| LevelDesign { bytes: f64::INFINITY, runs });
        let states =
            |tree: &TreeView| -> Vec<bool> { tree.levels[1].files().map(|f| f.is_takeable()).collect() };
        assert_eq!(states(&marked(view.clone(), &leveled)), [false, true]);
        assert_eq!(states(&marked(view.clone(), &[LevelDesign::FREE; 3])), [true, true]);

        let take = |at: usize| {
            let file = view.levels[2].files().nth(at).unwrap();
            Take { table: file.table, range: file.bounds.clone() }
        };
        let plan = |at| {
            let mut plan = Plan::new(Vec::new(), 2, alloc::string::String::new());
            plan.may_fold = Vec::from([take(at)]);
            plan
        };
        assert_eq!([0, 1].map(|at| is_busy(&view, &plan(at))), [true, false]);
    }
}
