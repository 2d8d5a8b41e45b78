//! Commands that look after a store: compact, checkpoint, repair, policy.

use super::fine;
use crate::args::{CheckpointArgs, PolicyArgs, RepairArgs};
use crate::failure::{Outcome, Verdict};
use crate::figures::counted;
use crate::output::{Output, note};
use crate::store::{RepairReport, Store, engine};
use serde_json::json;

pub(super) fn compact(store: &dyn Store) -> Outcome {
    fine(store.compact())
}

pub(super) fn checkpoint(store: &dyn Store, args: &CheckpointArgs) -> Outcome {
    fine(store.checkpoint(&args.new_path))
}

pub(super) fn repair(args: &RepairArgs, out: &mut Output<'_>) -> Outcome {
    print_repair(&engine::repair(&args.path, &args.new_path)?, args.json, out)
}

fn print_repair(report: &RepairReport, json: bool, out: &mut Output<'_>) -> Outcome {
    if json {
        out.json(report)?;
    } else {
        for lost in &report.lost {
            out.line(&format!("lost\t{lost}"))?;
        }
    }
    note(&format!(
        "repair: kept {} from {} and {} of the log, lost {}",
        counted(report.entries_kept, "entry"),
        counted(report.tables_kept, "table"),
        counted(report.commits_kept, "commit"),
        counted(report.lost.len() as u64, "thing"),
    ));
    Ok(if report.lost.is_empty() { Verdict::Fine } else { Verdict::Finding })
}

pub(super) fn policy(store: &dyn Store, args: &PolicyArgs, out: &mut Output<'_>) -> Outcome {
    if let Some(name) = &args.name {
        let before = store.policy()?;
        store.set_policy(name)?;
        note(&format!("policy: {before} -> {}", store.policy()?));
    }
    if args.freeze || args.thaw {
        store.freeze(args.freeze)?;
        note(if args.freeze { "policy: frozen" } else { "policy: no longer frozen" });
    }
    if args.name.is_some() || args.freeze || args.thaw {
        return Ok(Verdict::Fine);
    }
    let (name, state, frozen) = (store.policy()?, store.policy_state()?, store.is_frozen()?);
    if args.json {
        return fine(out.json(&json!({ "policy": name, "state": state, "frozen": frozen })));
    }
    let name = if frozen { format!("{name}, frozen") } else { name };
    fine(out.line(&name).and_then(|()| if state.is_empty() { Ok(()) } else { out.line(&state) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(report: &RepairReport, json: bool) -> (String, Outcome) {
        let mut sink = Vec::new();
        let outcome = print_repair(report, json, &mut Output::new(&mut sink, false));
        (String::from_utf8(sink).expect("UTF-8"), outcome)
    }

    #[test]
    fn a_repair_that_lost_something_is_a_finding() {
        let whole = RepairReport { tables_kept: 2, entries_kept: 10, commits_kept: 3, lost: vec![] };
        assert_eq!(printed(&whole, false), (String::new(), Ok(Verdict::Fine)));
        let partial = RepairReport { lost: vec!["table 7".to_owned()], ..whole };
        assert_eq!(printed(&partial, false), ("lost\ttable 7\n".to_owned(), Ok(Verdict::Finding)));
        let (text, outcome) = printed(&partial, true);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            json,
            json!({"tables_kept": 2, "entries_kept": 10, "commits_kept": 3, "lost": ["table 7"]})
        );
        assert_eq!(outcome, Ok(Verdict::Finding));
    }
}
