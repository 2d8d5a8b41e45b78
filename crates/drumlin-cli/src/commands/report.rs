//! Reporting commands: verify, tree, stats, explain, keyspaces, options.

use crate::args::{ExplainArgs, OptionsArgs, ReportArgs, TreeArgs};
use crate::failure::{Outcome, Verdict, fine};
use crate::figures::{counted, size};
use crate::output::{Output, note};
use crate::picture::{self, Style};
use crate::store::{DecisionRecord, Store, engine};
use serde_json::Map;

/// Microseconds per second.
const MICROS_PER_SECOND: u64 = 1_000_000;

pub(super) fn verify(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let report = store.verify()?;
    if args.json {
        out.json(&report)?;
    } else {
        for finding in &report.findings {
            let offset = finding.offset.map_or("-".to_owned(), |offset| offset.to_string());
            out.line(&format!("{}\t{offset}\t{}", finding.file, finding.what))?;
        }
    }
    note(&format!(
        "verify: {}, {}, {}, {}: {}",
        counted(report.tables, "table"),
        counted(report.blocks, "block"),
        counted(report.entries, "entry"),
        size(report.bytes),
        counted(report.findings.len() as u64, "finding"),
    ));
    Ok(if report.findings.is_empty() { Verdict::Fine } else { Verdict::Finding })
}

pub(super) fn tree(
    store: &dyn Store,
    args: &TreeArgs,
    keyspace: Option<&str>,
    out: &mut Output<'_>,
) -> Outcome {
    let mut shapes = store.tree()?;
    shapes.retain(|shape| keyspace.is_none_or(|name| name == shape.name));
    if shapes.is_empty()
        && let Some(name) = keyspace
    {
        note(&format!("drumlin: keyspace not found: {name}"));
        return Ok(Verdict::Finding);
    }
    if args.json {
        return fine(out.json(&shapes));
    }
    let style = Style { ascii: args.ascii, colour: out.colour(), files: args.files };
    for (i, shape) in shapes.iter().enumerate() {
        if i > 0 {
            out.line("")?;
        }
        out.bytes(picture::draw(shape, style).as_bytes())?;
    }
    Ok(Verdict::Fine)
}

pub(super) fn stats(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let metrics = store.metrics()?;
    if args.json {
        let object: Map<_, _> = metrics.into_iter().map(|(name, value)| (name, value.into())).collect();
        return fine(out.json(&object));
    }
    let width = metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &metrics {
        out.line(&format!("{name:width$}  {}", value))?;
    }
    Ok(Verdict::Fine)
}

pub(super) fn explain(
    store: &dyn Store,
    args: &ExplainArgs,
    keyspace: Option<&str>,
    out: &mut Output<'_>,
) -> Outcome {
    if args.replay {
        return replay(store, args.json, out);
    }
    let mut decisions = store.explain()?;
    decisions.retain(|decision| keyspace.is_none_or(|name| name == decision.keyspace));
    if let Some(last) = args.last {
        decisions.drain(..decisions.len().saturating_sub(last));
    }
    if args.json {
        return fine(out.json(&decisions));
    }
    decisions.iter().try_for_each(|decision| out.line(&decision_line(decision)))?;
    Ok(Verdict::Fine)
}

fn replay(store: &dyn Store, json: bool, out: &mut Output<'_>) -> Outcome {
    let report = store.replay_decisions()?;
    if json {
        out.json(&report)?;
    } else {
        report.differing.iter().try_for_each(|decision| out.line(decision))?;
    }
    report.left_out.iter().for_each(|what| note(&format!("replay: {what}")));
    let (decisions, differing) = (report.decisions, report.differing.len());
    note(&format!("replay: {}, {differing} differ from the log", counted(decisions, "decision")));
    Ok(if differing == 0 { Verdict::Fine } else { Verdict::Finding })
}

fn decision_line(decision: &DecisionRecord) -> String {
    let (seconds, micros) = (decision.micros / MICROS_PER_SECOND, decision.micros % MICROS_PER_SECOND);
    format!("{seconds}.{micros:06}  {}  {}: {}", decision.keyspace, decision.what, decision.reason)
}

pub(super) fn keyspaces(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let names = store.keyspaces()?;
    if args.json {
        return fine(out.json(&names));
    }
    fine(names.iter().try_for_each(|name| out.line(name)))
}

pub(super) fn options(args: &OptionsArgs, out: &mut Output<'_>) -> Outcome {
    if args.json {
        return fine(out.json(&engine::options()?));
    }
    let text = if args.markdown { engine::options_page() } else { engine::options_text() };
    fine(out.bytes(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::store::fake::FakeStore;
    use crate::store::{KeyspaceShape, ReplayReport, VerifyReport};
    use clap::Parser;
    use drumlin::Finding;
    use serde_json::Value;

    /// Runs a command line on `store`. Returns its output and its outcome.
    fn run(store: &FakeStore, line: &[&str]) -> (String, Outcome) {
        let cli = Cli::try_parse_from([&["drumlin"], line].concat()).expect("good usage");
        let mut sink = Vec::new();
        let mut out = Output::new(&mut sink, false);
        let keyspace = cli.keyspace.as_deref();
        let outcome = match &cli.command {
            Command::Verify(args) => verify(store, args, &mut out),
            Command::Tree(args) => tree(store, args, keyspace, &mut out),
            Command::Stats(args) => stats(store, args, &mut out),
            Command::Explain(args) => explain(store, args, keyspace, &mut out),
            Command::Keyspaces(args) => keyspaces(store, args, &mut out),
            Command::Options(args) => options(args, &mut out),
            other => panic!("not a report: {other:?}"),
        };
        (String::from_utf8(sink).expect("UTF-8"), outcome)
    }

    fn json(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn damage_is_a_finding() {
        let mut store = FakeStore::default();
        assert_eq!(run(&store, &["verify", "db"]), (String::new(), Ok(Verdict::Fine)));
        let finding = |offset| Finding { file: "7.table".to_owned(), offset, what: "checksum".to_owned() };
        store.verification =
            VerifyReport { findings: vec![finding(Some(9)), finding(None)], ..Default::default() };
        let expected = "7.table\t9\tchecksum\n7.table\t-\tchecksum\n".to_owned();
        assert_eq!(run(&store, &["verify", "db"]), (expected, Ok(Verdict::Finding)));
        let (text, outcome) = run(&store, &["verify", "db", "--json"]);
        assert_eq!(json(&text)["findings"][0]["offset"], 9);
        assert_eq!(outcome, Ok(Verdict::Finding));
    }

    #[test]
    fn metrics_are_aligned_or_numbers() {
        let store = FakeStore::default();
        let expected = "gets               12\nlog_bytes_written  2500\n";
        assert_eq!(run(&store, &["stats", "db"]).0, expected);
        let expected = serde_json::json!({"gets": 12, "log_bytes_written": 2500});
        assert_eq!(json(&run(&store, &["stats", "db", "--json"]).0), expected);
    }

    #[test]
    fn decisions_are_told_by_keyspace_and_number() {
        let record = |micros, keyspace: &str| DecisionRecord {
            micros,
            keyspace: keyspace.to_owned(),
            what: "merge L0 into L1".to_owned(),
            reason: "4 runs".to_owned(),
        };
        let decisions = vec![record(1, "users"), record(2_000_003, "default"), record(4, "users")];
        let store = FakeStore { decisions, ..FakeStore::default() };
        let told = |line: &[&str]| run(&store, &[&["explain", "db"], line].concat()).0;
        assert_eq!(told(&[]).lines().count(), 3);
        assert_eq!(
            told(&["--last", "2"]).lines().next(),
            Some("2.000003  default  merge L0 into L1: 4 runs")
        );
        assert_eq!(
            told(&["--last", "1", "--keyspace", "users"]),
            "0.000004  users  merge L0 into L1: 4 runs\n"
        );
        assert_eq!(json(&told(&["--json"]))[1]["micros"], 2_000_003);
    }

    #[test]
    fn a_decision_that_does_not_repeat_itself_is_a_finding() {
        let mut store = FakeStore::default();
        assert_eq!(run(&store, &["explain", "db", "--replay"]), (String::new(), Ok(Verdict::Fine)));
        store.replayed = ReplayReport {
            decisions: 3,
            differing: vec!["users: at 7".to_owned()],
            left_out: vec!["2 left out: version 1".to_owned()],
        };
        let expected = ("users: at 7\n".to_owned(), Ok(Verdict::Finding));
        assert_eq!(run(&store, &["explain", "db", "--replay"]), expected);
        assert_eq!(json(&run(&store, &["explain", "db", "--replay", "--json"]).0)["decisions"], 3);
    }

    #[test]
    fn trees_are_drawn_for_all_keyspaces_or_the_one_named() {
        let shape = |name: &str| KeyspaceShape { name: name.to_owned(), ..KeyspaceShape::default() };
        let store = FakeStore { shapes: vec![shape("default"), shape("users")], ..FakeStore::default() };
        let (both, _) = run(&store, &["tree", "db"]);
        assert!(both.starts_with("default: ") && both.contains("\n\nusers: "), "{both}");
        let (one, _) = run(&store, &["tree", "db", "--keyspace", "users"]);
        assert!(one.starts_with("users: ") && one.lines().count() == 1, "{one}");
        assert_eq!(run(&store, &["tree", "db", "--keyspace", "x"]), (String::new(), Ok(Verdict::Finding)));
        assert_eq!(json(&run(&store, &["tree", "db", "--json"]).0)[1]["name"], "users");
    }

    #[test]
    fn keyspaces_are_listed() {
        assert_eq!(run(&FakeStore::default(), &["keyspaces", "db"]).0, "default\nusers\n");
        assert_eq!(json(&run(&FakeStore::default(), &["keyspaces", "db", "--json"]).0)[0], "default");
    }

    #[test]
    fn options_are_told_as_text_page_and_data() {
        let store = FakeStore::default();
        let (text, page) = (run(&store, &["options"]).0, run(&store, &["options", "--markdown"]).0);
        let rows = json(&run(&store, &["options", "--json"]).0);
        let rows = rows.as_array().expect("a list");
        assert!(rows.iter().any(|row| row["name"] == "memory_budget" && row["scope"] == "store"));
        for row in rows {
            let name = row["name"].as_str().expect("a name");
            assert!(text.contains(name) && page.contains(name), "{name}");
        }
    }
}
