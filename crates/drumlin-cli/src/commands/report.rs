//! Reporting commands: verify, tree, stats, explain, keyspaces, options.

use crate::args::{ExplainArgs, OptionsArgs, ReportArgs, TreeArgs};
use crate::escape::escape;
use crate::failure::{Failure, Outcome, Result, Verdict, fine};
use crate::figures::{counted, readable, size, utc, wrapped};
use crate::output::{Output, note};
use crate::picture::{self, Style};
use crate::progress::Progress;
use crate::store::{DecisionRecord, KeyspaceShape, Store, engine, no_keyspace};
use drumlin::Metrics;
use serde_json::{Map, json};
use std::collections::BTreeMap;

pub(super) fn verify(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let shown = Progress::start("verify", None);
    let report = store.verify();
    drop(shown);
    let report = report?;
    if args.json {
        out.json(&report)?;
    } else {
        for finding in &report.findings {
            let offset = finding.offset.map_or("-".to_owned(), |offset| offset.to_string());
            out.line(&format!("{}\t{offset}\t{}", finding.file, finding.what))?;
        }
    }
    out.flush()?;
    let undamaged = format!(
        "{}, {}, {}, {}, {}, {}",
        counted(report.tables, "table"),
        counted(report.blocks, "block"),
        counted(report.entries, "entry"),
        counted(report.values, "separated value"),
        size(report.bytes),
        counted(report.log_records, "log record"),
    );
    note(&match report.findings.len() {
        0 => format!("verify: no damage in {undamaged}"),
        damages => format!(
            "verify: {} found; undamaged: {undamaged}. Restore a checkpoint, or save what can be read with \
             `drumlin repair DB NEWDIR`",
            counted(damages as u64, "damage"),
        ),
    });
    Ok(if report.findings.is_empty() { Verdict::Fine } else { Verdict::Finding })
}

pub(super) fn tree(
    store: &dyn Store,
    args: &TreeArgs,
    keyspace: Option<&str>,
    out: &mut Output<'_>,
) -> Outcome {
    let mut shapes = store.tree()?;
    check_keyspace(&shapes, keyspace)?;
    shapes.retain(|shape| keyspace.is_none_or(|name| name == shape.name));
    if args.json {
        return fine(out.json(&shapes));
    }
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = if out.colour() { columns().unwrap_or(picture::USUAL_COLUMNS) } else { usize::MAX };
    let style = Style { ascii: args.ascii, colour: out.colour(), files: args.files, columns };
    for (i, shape) in shapes.iter().enumerate() {
        if i > 0 {
            out.line("")?;
        }
        out.bytes(picture::draw(shape, style).as_bytes())?;
    }
    Ok(Verdict::Fine)
}

/// Fails if the keyspace that was asked for is none of `shapes`.
fn check_keyspace(shapes: &[KeyspaceShape], keyspace: Option<&str>) -> Result<()> {
    match keyspace {
        Some(name) if shapes.iter().all(|shape| shape.name != name) => {
            Err(no_keyspace(name, shapes.iter().map(|shape| shape.name.as_str())))
        }
        _ => Ok(()),
    }
}

/// Columns of the list of options.
const OPTION_COLUMNS: usize = 100;
/// Gauges that describe the stored data. The other gauges describe this process.
const OF_THE_STORE: [&str; 5] = ["table_bytes", "filter_bytes", "log_bytes_live", "memtable_bytes", "runs"];

/// Counts of the trees' content, which are shown even if they are 0.
const HELD: [&str; 5] = ["keyspaces", "files", "entries", "tombstones", "last_seqno"];

/// Prints metrics: those of the stored data, then the gauges and counters of this process.
pub(super) fn stats(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let (gauges, since_open): (Vec<_>, Vec<_>) =
        store.metrics()?.into_iter().partition(|(name, _)| Metrics::is_gauge(name));
    let (mut stored, now): (Vec<_>, Vec<_>) =
        gauges.into_iter().partition(|(name, _)| OF_THE_STORE.contains(&&**name));
    stored.splice(0..0, held(&store.tree()?));
    if args.json {
        let object = |metrics: Vec<(String, u64)>| {
            metrics.into_iter().map(|(name, value)| (name, value.into())).collect::<Map<_, _>>()
        };
        let document = json!({
            "stored": object(stored),
            "now": object(now),
            "since_open": object(since_open),
        });
        return fine(out.json(&document));
    }
    let groups = [
        ("stored in the store:", stored),
        ("held by this command now:", now),
        ("counted since this command opened the store:", since_open),
    ];
    let is_shown = |(name, value): &&(String, u64)| *value > 0 || HELD.contains(&name.as_str());
    let shown = groups.iter().flat_map(|(_, metrics)| metrics.iter().filter(is_shown));
    let width = shown.map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut hidden = 0;
    for (title, metrics) in &groups {
        let shown: Vec<_> = metrics.iter().filter(is_shown).collect();
        hidden += metrics.len() - shown.len();
        if !shown.is_empty() {
            out.line(title)?;
        }
        shown.iter().try_for_each(|metric| out.line(&metric_line(metric, width)))?;
    }
    out.flush()?;
    if hidden > 0 {
        note(&format!("stats: {hidden} metrics are 0 and not shown (--json prints all)"));
    }
    Ok(Verdict::Fine)
}

fn metric_line((name, value): &(String, u64), width: usize) -> String {
    match name.contains("bytes") && *value >= 1024 {
        true => format!("  {name:width$}  {value}  ({})", size(*value)),
        false => format!("  {name:width$}  {value}"),
    }
}

/// Returns the counts of the content of the trees `shapes`.
fn held(shapes: &[KeyspaceShape]) -> Vec<(String, u64)> {
    let files = || picture::files_of(shapes);
    let counts = [
        shapes.len() as u64,
        files().count() as u64,
        files().map(|file| file.entries).sum(),
        files().map(|file| file.tombstones).sum(),
        files().map(|file| file.max_seq).max().unwrap_or(0),
    ];
    HELD.into_iter().map(str::to_owned).zip(counts).collect()
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
    let (mut decisions, shapes) = (store.explain()?, store.tree()?);
    if decisions.iter().all(|decision| Some(&*decision.keyspace) != keyspace) {
        check_keyspace(&shapes, keyspace)?;
    }
    decisions.retain(|decision| keyspace.is_none_or(|name| name == decision.keyspace));
    let all = decisions.len();
    if !args.all {
        leave_out_idle(&mut decisions);
    }
    let idle = (all - decisions.len()) as u64;
    if let Some(last) = args.last {
        decisions.drain(..decisions.len().saturating_sub(last));
    }
    if args.json {
        return fine(out.json(&decisions));
    }
    decisions.iter().try_for_each(|decision| out.line(&decision_line(decision)))?;
    out.flush()?;
    if idle > 0 {
        note(&format!(
            "explain: {} left out, which changed nothing besides the plans that are shown (--all prints them)",
            counted(idle, "policy call")
        ));
    }
    for shape in shapes.iter().filter(|shape| keyspace.is_none_or(|name| name == shape.name)) {
        note(&format!("explain: the policy of {} is {}", escape(shape.name.as_bytes()), shape.policy));
    }
    Ok(Verdict::Fine)
}

/// Removes policy calls that withdrew no plan and did not change the write rate limit. Plans that they made have
/// lines of their own.
fn leave_out_idle(decisions: &mut Vec<DecisionRecord>) {
    let mut limits: BTreeMap<String, String> = BTreeMap::new();
    decisions.retain(|decision| {
        let Some(call) = decision.what.strip_prefix("policy call: ") else { return true };
        let (counts, limit) = call.split_once(", writes slowed at ").unwrap_or((call, ""));
        let is_new = limits.insert(decision.keyspace.clone(), limit.to_owned()).as_deref() != Some(limit);
        is_new || !counts.ends_with(", 0 withdrawn")
    });
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

/// Returns a decision as a line. Further lines of its reason are indented.
fn decision_line(decision: &DecisionRecord) -> String {
    let DecisionRecord { micros, keyspace, what, reason } = decision;
    let keyspace = if keyspace.is_empty() { "(store)".to_owned() } else { escape(keyspace.as_bytes()) };
    let text = format!("{}  {keyspace}  {}", utc(*micros), readable(what));
    match reason.is_empty() {
        true => text,
        false => format!("{text}: {}", readable(&reason.replace('\n', "\n    "))),
    }
}

pub(super) fn keyspaces(store: &dyn Store, args: &ReportArgs, out: &mut Output<'_>) -> Outcome {
    let names = store.keyspaces()?;
    if args.json {
        return fine(out.json(&names));
    }
    fine(names.iter().try_for_each(|name| out.line(&escape(name.as_bytes()))))
}

pub(super) fn options(args: &OptionsArgs, out: &mut Output<'_>) -> Outcome {
    let mut rows = engine::options()?;
    if let Some(name) = &args.name {
        let nearest = drumlin_types::nearest(rows.iter().map(|row| row.name), name);
        let nearest = nearest.map_or_else(String::new, |known| format!("; the nearest is {known}"));
        rows.retain(|row| row.name == name);
        if rows.is_empty() {
            return Err(Failure::Usage(format!("there is no option {name}{nearest}")));
        }
    }
    if args.json {
        return fine(out.json(&rows));
    }
    if let (Some(_), [row]) = (&args.name, &rows[..]) {
        return fine(out.bytes(wrapped(&row.text(), OPTION_COLUMNS).as_bytes()));
    }
    let text = match args.markdown {
        true => engine::options_page(),
        false => wrapped(&engine::options_text(), OPTION_COLUMNS),
    };
    fine(out.bytes(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::store::fake::FakeStore;
    use crate::store::{ReplayReport, VerifyReport};
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
        let stored = "stored in the store:\n  keyspaces          0\n  files              0\n  entries            0\n  \
            tombstones         0\n  last_seqno         0\n";
        let since = "counted since this command opened the store:\n  gets               12\n  \
            log_bytes_written  2500  (2.4 KiB)\n";
        assert_eq!(run(&store, &["stats", "db"]).0, format!("{stored}{since}"));
        let expected = serde_json::json!({
            "stored": {"keyspaces": 0, "files": 0, "entries": 0, "tombstones": 0, "last_seqno": 0},
            "now": {},
            "since_open": {"gets": 12, "log_bytes_written": 2500},
        });
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
            Some("1970-01-01 00:00:02.000  default  merge L0 into L1: 4 runs")
        );
        assert_eq!(
            told(&["--last", "1", "--keyspace", "users"]),
            "1970-01-01 00:00:00.000  users  merge L0 into L1: 4 runs\n"
        );
        assert_eq!(json(&told(&["--json"]))[1]["micros"], 2_000_003);
    }

    #[test]
    fn policy_calls_that_changed_nothing_are_left_out() {
        let call = |keyspace: &str, what: &str| DecisionRecord {
            micros: 0,
            keyspace: keyspace.to_owned(),
            what: format!("policy call: {what}"),
            reason: "policy arce".to_owned(),
        };
        let idle = "0 plans, 0 withdrawn, writes slowed at 24 runs, stopped at 72";
        let decisions = vec![
            call("a", idle),
            call("a", idle),
            call("b", idle),
            call("a", "1 plan, 1 withdrawn, writes slowed at 24 runs, stopped at 72"),
            call("a", "0 plans, 0 withdrawn, writes slowed at 48 runs, stopped at 72"),
            call("a", "2 plans, 0 withdrawn, writes slowed at 48 runs, stopped at 72"),
        ];
        let store = FakeStore { decisions, ..FakeStore::default() };
        assert_eq!(run(&store, &["explain", "db"]).0.lines().count(), 4);
        assert_eq!(run(&store, &["explain", "db", "--all"]).0.lines().count(), 6);
        assert_eq!(json(&run(&store, &["explain", "db", "--json"]).0).as_array().map(Vec::len), Some(4));
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
        let what = "the store has no keyspace named user; the nearest is users".to_owned();
        let refused = (String::new(), Err(Failure::Failed(what)));
        for command in ["tree", "explain"] {
            assert_eq!(run(&store, &[command, "db", "--keyspace", "user"]), refused);
        }
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
            // The page lists the options of every build, but `arce_pin` exists only for experiments.
            let is_on_page = page.contains(name) || name == "arce_pin";
            assert!(text.contains(name) && is_on_page, "{name}");
        }
    }
}
