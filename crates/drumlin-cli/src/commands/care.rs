//! Maintenance commands: compact, checkpoint, repair, policy.

use crate::args::{CheckpointArgs, PolicyArgs, RepairArgs, ReportArgs};
use crate::escape::escape;
use crate::failure::{Failure, Outcome, Result, Verdict, fine};
use crate::figures::{counted, size};
use crate::output::{Output, note};
use crate::progress::Progress;
use crate::store::{RepairReport, RepairedFile, RepairedKeyspace, Store, engine};
use serde::Serialize;
use serde_json::json;
use std::fmt;

pub(super) fn compact(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let before = Totals::of(store)?;
    let shown = Progress::start("compact", None);
    store.compact()?;
    let (seconds, after) = (shown.seconds(), Totals::of(store)?);
    shown.finish(&format!("{before} -> {after}"));
    if args.json {
        out.json(&json!({ "before": before, "after": after, "seconds": seconds }))?;
    }
    Ok(Verdict::Fine)
}

/// Size of all trees.
#[derive(Serialize)]
struct Totals {
    runs: u64,
    bytes: u64,
}

impl Totals {
    fn of(store: &dyn Store) -> Result<Totals> {
        let shapes = store.tree()?;
        let runs = || shapes.iter().flat_map(|shape| shape.levels.iter().flat_map(|level| &level.runs));
        let bytes = runs().flat_map(|run| &run.files).map(|file| file.bytes).sum();
        Ok(Totals { runs: runs().count() as u64, bytes })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", counted(self.runs, "run"), size(self.bytes))
    }
}

pub(super) fn checkpoint(store: &dyn Store, args: &CheckpointArgs, out: &mut Output<'_>) -> Outcome {
    let shown = Progress::start("checkpoint", None);
    store.checkpoint(&args.new_path)?;
    let (seconds, copied) = (shown.seconds(), Totals::of(store)?);
    shown.finish(&format!("{copied} in {}", args.new_path.display()));
    if args.json {
        out.json(&json!({ "path": args.new_path.to_string_lossy(), "copied": copied, "seconds": seconds }))?;
    }
    Ok(Verdict::Fine)
}

pub(super) fn repair(args: &RepairArgs, out: &mut Output<'_>) -> Outcome {
    let mut shown = Progress::start("repair", None);
    let report = engine::repair(&args.path, &args.new_path, |entries, bytes| shown.come_to(entries, bytes))?;
    shown.finish(&summary(&report));
    note(&format!(
        "repair: {} is unchanged; the new store is {}",
        args.path.display(),
        args.new_path.display()
    ));
    print_repair(&report, args.json, out)
}

/// A repair report as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    nothing_lost: bool,
    #[serde(flatten)]
    report: &'a RepairReport,
}

fn print_repair(report: &RepairReport, json: bool, out: &mut Output<'_>) -> Outcome {
    if json {
        out.json(&Printed { nothing_lost: report.nothing_lost(), report })?;
    } else {
        for RepairedKeyspace { name, certain, doubtful, lost, lost_more } in &report.keyspaces {
            let more = if *lost_more { ", perhaps more" } else { "" };
            let name = escape(name.as_bytes());
            let figures = format!("certain {certain}\tdoubtful {doubtful}\tlost {lost}{more}");
            out.line(&format!("keyspace\t{name}\t{figures}"))?;
        }
        for RepairedFile { name, entries, lost, damages } in report.files.iter().filter(|f| f.damages > 0) {
            out.line(&format!("file\t{name}\tread {entries}\tlost {lost}\tdamages {damages}"))?;
        }
        for finding in &report.findings {
            out.line(&format!("finding\t{finding}"))?;
        }
        for note in &report.notes {
            out.line(&format!("note\t{note}"))?;
        }
        if !report.findings.is_empty() {
            note(
                "repair: certain = proven to be the newest versions; doubtful = a newer version or a deletion may \
                 be lost; lost = entries in blocks that cannot be read",
            );
        }
    }
    Ok(if report.findings.is_empty() { Verdict::Fine } else { Verdict::Finding })
}

fn summary(report: &RepairReport) -> String {
    let sum = |figure: fn(&RepairedKeyspace) -> u64| report.keyspaces.iter().map(figure).sum::<u64>();
    let kept = sum(|keyspace| keyspace.certain + keyspace.doubtful);
    let kept =
        format!("kept {} and {} of the log", counted(kept, "entry"), counted(report.commits, "commit"));
    if report.nothing_lost() {
        return format!("{kept}; nothing lost");
    }
    if report.findings.is_empty() {
        let unproven = "the store was not closed, so the end of its log may be missing without a trace";
        return format!("{kept}; no damage found; {unproven}");
    }
    let more = if report.keyspaces.iter().any(|keyspace| keyspace.lost_more) { ", perhaps more" } else { "" };
    let (doubtful, lost) = (sum(|keyspace| keyspace.doubtful), sum(|keyspace| keyspace.lost));
    let findings = counted(report.findings.len() as u64, "finding");
    format!(
        "{kept}; {} in doubt; lost {}{more}; {findings}",
        counted(doubtful, "entry"),
        counted(lost, "entry")
    )
}

pub(super) fn policy(store: &dyn Store, args: &PolicyArgs, out: &mut Output<'_>) -> Outcome {
    if let Some(name @ ("freeze" | "thaw")) = args.name.as_deref() {
        return Err(Failure::Usage(format!("{name} is no policy but an option: --{name}")));
    }
    if let Some(name) = &args.name {
        let before = store.policy()?;
        store.set_policy(name)?;
        note(&format!("policy: {before} -> {}", store.policy()?));
    }
    if args.freeze || args.thaw {
        store.freeze(args.freeze)?;
        note(if args.freeze { "policy: frozen" } else { "policy: no longer frozen" });
    }
    if (args.name.is_some() || args.freeze || args.thaw) && !args.json {
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
        let kept = RepairedKeyspace { name: "k".to_owned(), certain: 10, ..RepairedKeyspace::default() };
        let keyspaces = vec![kept.clone()];
        let whole = RepairReport { was_closed: true, commits: 3, keyspaces, ..RepairReport::default() };
        let line = "keyspace\tk\tcertain 10\tdoubtful 0\tlost 0\n".to_owned();
        assert_eq!(printed(&whole, false), (line, Ok(Verdict::Fine)));
        assert_eq!(summary(&whole), "kept 10 entries and 3 commits of the log; nothing lost");
        let crashed = RepairReport { was_closed: false, ..whole.clone() };
        assert_eq!(printed(&crashed, false).1, Ok(Verdict::Fine));
        assert!(summary(&crashed).contains("no damage found; the store was not closed"));
        let partial = RepairReport {
            keyspaces: vec![RepairedKeyspace { doubtful: 2, lost: 1, lost_more: true, ..kept }],
            files: vec![RepairedFile { name: "000007.tbl".to_owned(), entries: 9, lost: 1, damages: 1 }],
            findings: vec!["table 7".to_owned()],
            ..whole
        };
        let (text, outcome) = printed(&partial, false);
        assert_eq!(
            text,
            "keyspace\tk\tcertain 10\tdoubtful 2\tlost 1, perhaps more\n\
             file\t000007.tbl\tread 9\tlost 1\tdamages 1\nfinding\ttable 7\n"
        );
        assert_eq!(outcome, Ok(Verdict::Finding));
        let (text, outcome) = printed(&partial, true);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&json["nothing_lost"], &json["keyspaces"][0]["doubtful"]), (&json!(false), &json!(2)));
        assert_eq!(outcome, Ok(Verdict::Finding));
    }
}
