//! Closure of a plan: adds the files that must move with it.
//!
//! The sequence ranges of runs in one level may interleave. A plan that takes one file must therefore often take other
//! files too. [`close_plan`] computes the smallest legal plan around a given one.
//!
//! Each added part is clipped to the input that requires it, so to keys that the plan takes anyway. Closure adds files
//! and never widens the key range. An added part is itself an input, so closure repeats until no remaining file
//! conflicts with an input.

use super::illegal::{Conflict, Illegal};
use super::inputs::{Inputs, span};
use super::rules::{check_target, in_the_way, legal};
use crate::contract::plan::{Plan, Take};
use crate::contract::tree::TreeView;
use crate::{KeyRange, TableId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Returns `plan` with every part of a file added that must not stay behind.
///
/// Fails as [`legal`] does. Also fails when such a part cannot be taken, because its file is still being written.
pub fn close_plan(projected: &TreeView, plan: &Plan) -> Result<Plan, Illegal> {
    let mut inputs = Inputs::resolve(projected, plan)?;
    let mut joined: Vec<Take> = Vec::new();
    let mut next = 0;
    while let Some(input) = inputs.spans.get(next).cloned() {
        next += 1;
        for ((level, file), part) in in_the_way(&inputs, &input, plan.out) {
            if !file.is_takeable() {
                let other = span(level, file, file.bounds.clone());
                let conflict = Box::new(Conflict { input, other, overlap: part, out: plan.out });
                let is_between = level > conflict.input.level;
                return Err(if is_between {
                    Illegal::Between(conflict)
                } else {
                    Illegal::NotNewer(conflict)
                });
            }
            joined.push(Take { table: file.table, range: part.clone() });
            inputs.add(span(level, file, part));
        }
    }
    if joined.is_empty() {
        // No input has a conflict.
        check_target(projected, plan)?;
        return Ok(plan.clone());
    }
    let mut closed = plan.clone();
    closed.take.append(&mut joined);
    closed.take = joint(closed.take);
    // The closed plan reads the added parts anyway. Remove them from `may_fold`, so that none is named twice.
    let mut taken: BTreeMap<TableId, Vec<&KeyRange>> = BTreeMap::new();
    for take in &closed.take {
        taken.entry(take.table).or_default().push(&take.range);
    }
    let is_taken = |fold: &Take| {
        taken.get(&fold.table).is_some_and(|ranges| ranges.iter().any(|range| range.overlaps(&fold.range)))
    };
    closed.may_fold.retain(|fold| !is_taken(fold));
    legal(projected, &closed)?;
    Ok(closed)
}

/// Joins adjacent ranges of the same table. Tables keep the order of their first take.
fn joint(takes: Vec<Take>) -> Vec<Take> {
    let mut tables: Vec<(TableId, Vec<KeyRange>)> = Vec::new();
    let mut places: BTreeMap<TableId, usize> = BTreeMap::new();
    for take in takes {
        let at = *places.entry(take.table).or_insert(tables.len());
        match tables.get_mut(at) {
            Some((_, ranges)) => ranges.push(take.range),
            None => tables.push((take.table, Vec::from([take.range]))),
        }
    }
    let mut joint: Vec<Take> = Vec::new();
    for (table, mut ranges) in tables {
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        for range in ranges {
            match joint.last_mut() {
                Some(last) if last.table == table && last.range.end.as_ref() == Some(&range.start) => {
                    last.range.end = range.end;
                }
                _ => joint.push(Take { table, range }),
            }
        }
    }
    joint
}
