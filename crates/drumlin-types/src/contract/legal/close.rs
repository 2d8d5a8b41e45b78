//! Closure: the smallest legal plan around a given one.
//!
//! Ages of runs in one level may interleave, so a plan that takes a file must often take others with
//! it. What joins is clipped to the input that needs it, hence to the keys that the plan takes anyway:
//! closure adds files and never widens the key range. Each joined part is an input itself and is closed
//! in its turn, until nothing that stays behind is in the way.

use super::illegal::{Conflict, Illegal};
use super::inputs::{Inputs, span};
use super::rules::{check_target, in_the_way, legal};
use crate::contract::plan::{Plan, Take};
use crate::contract::tree::TreeView;
use crate::{KeyRange, TableId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// `plan` with every part of a file added that must not stay behind. Fails as [`legal`] does, and when
/// such a part is not free: a file yet to come cannot join.
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
        // Each input was looked at, and nothing is in its way.
        check_target(projected, plan)?;
        return Ok(plan.clone());
    }
    let mut closed = plan.clone();
    closed.take.append(&mut joined);
    closed.take = joint(closed.take);
    // What joined is read anyway; folding it as well would name it twice.
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

/// The takes with neighbouring ranges of a table made one, tables in the order of their first take.
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
