//! Checks rules L1 and L2, and the validity of a plan's output level, run and tag.
//!
//! Files of a run are sorted and disjoint. A binary search finds the files that overlap an input, in each run from the
//! input's level down to the level above the output. Runs that the plan takes whole are skipped.

use super::illegal::{Conflict, Illegal};
use super::inputs::{Inputs, is_leaving, span};
use crate::contract::flight::FileSpan;
use crate::contract::plan::{Place, Plan};
use crate::contract::tree::{FileView, RunTag, RunView, TreeView};
use crate::{KeyRange, Seq};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Checks whether `plan` may be admitted on `projected`, the tree after all unfinished plans.
///
/// Rule L1 is checked for all inputs before rule L2. A named output run that no longer exists, or has no gap for the
/// output, is no error: the output then becomes a new run.
pub fn legal(projected: &TreeView, plan: &Plan) -> Result<(), Illegal> {
    let inputs = Inputs::resolve(projected, plan)?;
    check_target(projected, plan)?;
    let mut not_newer = None;
    for input in &inputs.spans {
        for (other, overlap) in in_the_way(&inputs, input, plan.out) {
            let conflict = || {
                let other = span(other.0, other.1, other.1.bounds.clone());
                Box::new(Conflict { input: input.clone(), other, overlap, out: plan.out })
            };
            if other.0 > input.level {
                return Err(Illegal::Between(conflict()));
            }
            not_newer.get_or_insert_with(conflict);
        }
    }
    not_newer.map_or(Ok(()), |conflict| Err(Illegal::NotNewer(conflict)))
}

/// Returns the files that must not stay behind when `input` moves to level `out`.
///
/// Each result is a file with its level, and a part of it that overlaps `input` and is no input itself.
pub(super) fn in_the_way<'a>(
    inputs: &Inputs<'a>,
    input: &FileSpan,
    out: u8,
) -> Vec<((u8, &'a FileView), KeyRange)> {
    let mut found = Vec::new();
    for level in input.level..out {
        let is_newer = |min_seq: Seq| level == input.level && min_seq > input.max_seq;
        for staying in inputs.staying[usize::from(level)].iter().filter(|run| !is_newer(run.min_seq)) {
            for file in overlapping(staying.run, &input.range) {
                if is_newer(file.min_seq) || is_leaving(file) || crate::bug!("intra-level-order-unchecked") {
                    continue;
                }
                if let Some(part) = file.bounds.intersect(&input.range) {
                    found.extend(inputs.taken().rests(file, &part).map(|rest| ((level, file), rest)));
                }
            }
        }
    }
    found
}

fn overlapping<'a>(run: &'a RunView, range: &KeyRange) -> impl Iterator<Item = &'a FileView> + use<'a> {
    let first = run.files.partition_point(|f| f.bounds.end.as_ref().is_some_and(|end| *end <= range.start));
    let past = run.files.partition_point(|f| range.is_before_end(&f.bounds.start));
    run.files.get(first..past).into_iter().flatten()
}

/// Checks the tag, the output run and the `may_fold` files of `plan`.
pub(super) fn check_target(tree: &TreeView, plan: &Plan) -> Result<(), Illegal> {
    if plan.tag.0.len() > RunTag::MAX {
        return Err(Illegal::Tag { length: plan.tag.0.len() });
    }
    if let Place::Run(wanted) = plan.place {
        let home = tree.levels.iter().position(|level| level.runs.iter().any(|run| run.id == wanted));
        if let Some(level) = home.filter(|&level| level != usize::from(plan.out)) {
            return Err(Illegal::Place { run: wanted, level: level as u8, out: plan.out });
        }
    }
    for file in super::spans(tree, &plan.may_fold) {
        if file.level != plan.out {
            return Err(Illegal::Fold { file, out: plan.out });
        }
    }
    Ok(())
}
