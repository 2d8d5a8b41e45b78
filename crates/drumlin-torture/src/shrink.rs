//! Reduces a failing workload while its verdict stays the same.
//!
//! Delta debugging: omit ever smaller chunks of the operations, then options, as long as the same verdict results.
//! Any operation can be omitted, because operations on missing objects do nothing.

use crate::failure::Failure;
use crate::workload::Workload;

/// Returns the smallest workload found that fails under `run` with the verdict of `failure`, and its failure. `tries`
/// limits the number of runs.
pub fn shrink(
    workload: &Workload,
    failure: &Failure,
    mut tries: usize,
    run: impl Fn(&Workload) -> Result<(), Failure>,
) -> (Workload, Failure) {
    let mut best = (workload.clone(), failure.clone());
    if let Some(at) = failure.at {
        best.0.ops.truncate(at + 1);
    }
    let mut attempt = |candidate: Workload, best: &mut (Workload, Failure)| {
        if tries == 0 {
            return false;
        }
        tries -= 1;
        match run(&candidate) {
            Err(new) if new.verdict == failure.verdict => {
                *best = (candidate, new);
                true
            }
            _ => false,
        }
    };
    if !attempt(best.0.clone(), &mut best) {
        best = (workload.clone(), failure.clone());
    }
    let mut chunk = best.0.ops.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        let mut removed = false;
        while start < best.0.ops.len() {
            let mut candidate = best.0.clone();
            candidate.ops.drain(start..(start + chunk).min(candidate.ops.len()));
            if attempt(candidate, &mut best) {
                removed = true;
            } else {
                start += chunk;
            }
        }
        if chunk == 1 && !removed {
            break;
        }
        chunk = if removed && chunk == 1 { 1 } else { chunk / 2 };
    }
    for keyspace in 0..best.0.keyspaces.len() {
        for option in (0..best.0.keyspaces[keyspace].options.len()).rev() {
            let mut candidate = best.0.clone();
            candidate.keyspaces[keyspace].options.remove(option);
            attempt(candidate, &mut best);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Verdict;
    use crate::ops::Op;
    use crate::workload::Taste;

    #[test]
    fn finds_the_two_operations_that_matter() {
        let taste = Taste {
            operations: 300,
            unlogged: false,
            kills: true,
            swaps: true,
            lifetimes: false,
            renames: false,
        };
        let mut workload = Workload::generate("model", 3, &taste);
        workload.ops.insert(40, Op::Snap("mine".into()));
        workload.ops.insert(200, Op::Drop("mine".into()));
        let run = |workload: &Workload| {
            let at = |op: &Op| workload.ops.iter().position(|other| other == op);
            match (at(&Op::Snap("mine".into())), at(&Op::Drop("mine".into()))) {
                (Some(snap), Some(drop)) if snap < drop => Err(Verdict::Wrong.of("both").at(drop)),
                _ => Ok(()),
            }
        };
        let failure = run(&workload).expect_err("the workload has both");
        let (small, _) = shrink(&workload, &failure, 10_000, run);
        assert_eq!(small.ops, [Op::Snap("mine".into()), Op::Drop("mine".into())]);
        assert!(small.keyspaces.iter().all(|keyspace| keyspace.options.is_empty()));
    }
}
