//! Tests of the command in real processes on real stores: output streams, byte-exact round trips and exit statuses.

mod loads;
mod mistakes;
mod reports;

use drumlin::env::TempDir;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A temporary directory in which the command runs.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: TempDir::new("drumlin-cli").expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.path(name), contents).expect("a file in a temporary directory");
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drumlin"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the command runs")
    }

    /// Runs the command, checks that its exit status is `status`, and returns its stdout.
    fn ends(&self, status: i32, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {errors}");
        String::from_utf8(output.stdout).expect("stdout is UTF-8")
    }
}

/// Returns every byte as part of a key and as part of a value, with tsv escapes.
fn all_bytes_tsv() -> String {
    (0..=255u8).map(|byte| format!("k\\x{byte:02x}\t\\x{byte:02x}{}\n", "v".repeat(byte.into()))).collect()
}

#[test]
fn every_byte_goes_through_both_formats() {
    let bench = Bench::new();
    bench.file("all.tsv", all_bytes_tsv().as_bytes());
    bench.ends(0, "load a all.tsv --format tsv");
    let scanned = bench.ends(0, "scan a");
    assert_eq!(scanned.lines().count(), 256);
    bench.file("again.tsv", scanned.as_bytes());
    bench.ends(0, "load b again.tsv --format tsv");
    assert_eq!(bench.ends(0, "scan b"), scanned);
    let lines = bench.ends(0, "scan a --format jsonl");
    bench.file("again.jsonl", lines.as_bytes());
    bench.ends(0, "load c again.jsonl --format jsonl --durability none");
    assert_eq!(bench.ends(0, "scan c"), scanned);
    let backwards: Vec<_> = scanned.lines().rev().collect();
    assert_eq!(bench.ends(0, "scan c --reverse").lines().collect::<Vec<_>>(), backwards);
    assert_eq!(bench.ends(0, "count c --from k\\x10 --to k\\x20"), "16\n");
}

#[test]
fn stanzas_come_back_byte_for_byte() {
    let bench = Bench::new();
    let stanza = "Package: zoo\nVersion: 2:1.0\nArchitecture: amd64\nDescription: animals\n .\n\tmore\n";
    bench.file("Packages", format!("{stanza}\n\nPackage: a\nVersion: 1\nArchitecture: all\n").as_bytes());
    bench.ends(0, "load db Packages --format deb822");
    assert_eq!(bench.ends(0, "scan db --keys-only"), "a/1/all\nzoo/2:1.0/amd64\n");
    assert_eq!(bench.ends(0, "get db zoo/2:1.0/amd64 --raw"), stanza);
}

#[test]
fn keys_are_acknowledged_in_order() {
    let bench = Bench::new();
    bench.file("in.csv", b"key,value\nb,1\n\"a,\t\",2\nb,3\n");
    assert_eq!(bench.ends(0, "load db in.csv --format csv --ack --durability sync"), "b\na,\\t\nb\n");
    assert_eq!(bench.ends(0, "scan db"), "a,\\t\t2\nb\t3\n");
}

#[test]
fn the_exit_status_tells_what_happened() {
    let bench = Bench::new();
    bench.ends(1, "count db");
    assert!(!bench.path("db").exists(), "reading makes no store");
    bench.ends(1, "load db absent.tsv --format tsv");
    bench.ends(2, "put db k v --set no_such_option=1");
    assert!(!bench.path("db").exists(), "a command line that cannot work makes no store");
    bench.ends(0, "put db k v");
    assert_eq!(bench.ends(0, "get db k"), "v\n");
    assert_eq!(bench.ends(1, "get db absent"), "");
    bench.ends(1, "count db --keyspace absent");
    bench.ends(0, "delete db k");
    bench.ends(1, "get db k");
    bench.ends(2, "policy db no-such-policy");
    bench.ends(2, "get db \\q");
    bench.ends(2, "no-such-command");
    bench.ends(0, "--help");
    bench.file("bad.tsv", b"a\t1\nb\n");
    bench.ends(1, "load db bad.tsv --format tsv");
    assert_eq!(bench.ends(0, "count db"), "1\n");
}

#[test]
fn keyspaces_and_policies_last() {
    let bench = Bench::new();
    bench.ends(0, "put db k default");
    bench.ends(0, "put db k other --keyspace other --set compression=none");
    assert_eq!(bench.ends(0, "get db k"), "default\n");
    assert_eq!(bench.ends(0, "get db k --keyspace other"), "other\n");
    assert!(bench.ends(0, "keyspaces db").contains("other\n"));
    bench.ends(0, "policy db tiering --keyspace other");
    let (other, default) = (bench.ends(0, "policy db --keyspace other"), bench.ends(0, "policy db"));
    assert!(other.starts_with("tiering") && !default.starts_with("tiering"), "{other} {default}");
    bench.ends(0, "policy db --freeze");
    let first = |keyspace: &str| {
        bench.ends(0, &format!("policy db{keyspace}")).lines().next().map(str::to_owned).unwrap_or_default()
    };
    assert!(first("").ends_with(", frozen") && !first(" --keyspace other").contains("frozen"));
    assert!(bench.ends(0, "policy db --json").contains("\"frozen\": true"));
    bench.ends(2, "policy db --freeze --thaw");
    bench.ends(0, "policy db --thaw");
    assert!(!first("").contains("frozen"));
}

#[test]
fn a_replay_under_changing_policies_is_the_trace() {
    let bench = Bench::new();
    let mut trace = String::from("ts,op,lba,bytes\n");
    for i in 0..3000u64 {
        let op = if i % 7 == 0 { 'D' } else { 'P' };
        trace.push_str(&format!("0,{op},{},1024\n", i * i % 4001));
    }
    bench.file("trace.csv", trace.as_bytes());
    bench.ends(0, "replay a trace.csv --expand-4k");
    bench.ends(0, "replay b trace.csv --expand-4k --switch-every 200 --set memtable_bytes=64KiB");
    let expected = bench.ends(0, "scan a");
    assert!(expected.lines().count() > 100);
    assert_eq!(bench.ends(0, "scan b"), expected);
    bench.ends(0, "verify b");
    bench.ends(2, "replay c trace.csv --values trace.csv");
}

/// Flips a bit in the middle of the largest table of the store in `folder`.
fn damage_a_table(folder: &Path) {
    let entries = std::fs::read_dir(folder).expect("a store").map(|entry| entry.expect("an entry"));
    let tables = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tbl"));
    let largest = tables.max_by_key(|entry| entry.metadata().map_or(0, |m| m.len())).expect("a table").path();
    let mut bytes = std::fs::read(&largest).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(&largest, bytes).expect("writable");
}

#[test]
fn a_store_is_looked_after() {
    let bench = Bench::new();
    let lines: String = (0..5000).map(|i| format!("key{i:05}\tvalue {i} {}\n", i * 7919 % 1000)).collect();
    bench.file("in.tsv", lines.as_bytes());
    bench.ends(0, "load db in.tsv --format tsv");
    let compacted = bench.ends(0, "compact db --json");
    let compacted: serde_json::Value = serde_json::from_str(&compacted).expect("JSON");
    assert_eq!(compacted["after"]["runs"], 1, "{compacted}");
    let tree = bench.ends(0, "tree db");
    assert!(tree.contains("5,000 entries") && !tree.contains('\x1b'), "{tree}");
    for line in
        ["tree db --json", "stats db --json", "explain db --json", "verify db --json", "options --json"]
    {
        let text = bench.ends(0, line);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{line}: {text}");
    }
    let explained = bench.ends(0, "explain db");
    assert!(explained.contains("flush of"), "decisions outlive the process: {explained}");
    bench.ends(0, "explain db --replay");
    let copied = bench.ends(0, "checkpoint db copy --json");
    let copied: serde_json::Value = serde_json::from_str(&copied).expect("JSON");
    assert_eq!((&copied["path"], &copied["copied"]), (&"copy".into(), &compacted["after"]), "{copied}");
    let expected = bench.ends(0, "scan db");
    assert_eq!(bench.ends(0, "scan copy"), expected);
    bench.ends(1, "checkpoint db copy");
}

#[test]
fn damage_is_found_and_the_rest_saved() {
    let bench = Bench::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:05}\tvalue {i} {}\n", i * 7919 % 1000)).collect();
    bench.file("in.tsv", lines.as_bytes());
    bench.ends(0, "load db in.tsv --format tsv --durability none --set compression=none");
    bench.ends(0, "verify db");
    damage_a_table(&bench.path("db"));
    let findings = bench.ends(1, "verify db");
    assert!(!findings.is_empty());
    bench.ends(1, "repair db saved");
    bench.ends(0, "verify saved");
    let saved = bench.ends(0, "scan saved");
    let original: std::collections::BTreeSet<_> = lines.lines().collect();
    assert!(saved.lines().all(|line| original.contains(line)), "a repair invents nothing");
    assert!(saved.lines().count() < 20_000);
}

#[test]
fn a_reader_that_goes_away_ends_a_scan_quietly() {
    let bench = Bench::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(20))).collect();
    let mut load =
        bench.command("load db - --format tsv").stdin(Stdio::piped()).spawn().expect("the command runs");
    load.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    assert!(load.wait().expect("it ends").success());
    let mut scan =
        bench.command("scan db").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(scan.stdout.take());
    let output = scan.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn the_pipeline_is_simulated_into_a_table_a_page_and_json() {
    let bench = Bench::new();
    let line = "sim pipeline --load 1024 --slots 2 --detail 4 --policy 1-leveling:5";
    let table = bench.ends(0, &format!("{line} --html page.html"));
    assert_eq!(table.lines().count(), 7, "a head, three modes, two numbers of slots:\n{table}");
    let page = std::fs::read_to_string(bench.path("page.html")).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n") && !page.contains("<script"));
    for figure in ["figures 3a and 6", "figures 3b and 7", "figure 8", "figure 9", "table 3"] {
        assert!(page.contains(figure), "{figure}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&bench.ends(0, &format!("{line} --json"))).expect("JSON");
    let rate = |mode: &str| {
        let rows = json.as_array().expect("rows").iter();
        let mut rates =
            rows.filter(|r| r["mode"] == mode && r["slots"] == 4).map(|r| r["mib_per_s"].as_f64());
        rates.next().flatten().expect("a rate")
    };
    assert!(rate("pipelined") >= rate("unsplit"));
    bench.ends(2, "sim pipeline --policy none-such");
}

#[test]
fn collectors_of_value_files_are_compared() {
    let bench = Bench::new();
    bench.file("trace.csv", b"ts,op,key,size\n1,P,a,70000\n2,G,a,0\n3,P,b,70000\n4,D,a,0\n5,P,b,70000\n");
    let small = "sim values --keys 2000 --memtable 256 --target 1.5";
    let table = bench.ends(0, &format!("{small} --load zipf:0.9 --trace trace.csv"));
    assert_eq!(table.lines().count(), 9, "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&bench.ends(0, &format!("{small} --load zipf:0.9,mixed --json"))).expect("JSON");
    let rows = json.as_array().expect("rows");
    let copies = |load: &str, collector: &str| {
        let row = rows.iter().find(|row| row["load"] == load && row["collector"] == collector);
        row.and_then(|row| row["copies"].as_f64()).expect("a row")
    };
    assert!(copies("zipf:0.9", "mean-interval") < copies("zipf:0.9", "garbage-ratio"), "{rows:?}");
    for row in rows {
        assert!(
            row["copies"].as_f64().expect("a number") <= 2.0
                && row["mean_space"].as_f64().expect("a number") <= 1.6
        );
    }
    let table = bench.ends(0, &format!("{small} --load zipf:0.9 --published"));
    // A heading, a line for each of five collectors with a target, and two lines for each of three without: one for
    // the published setting, one interpolated at an equal mean space.
    assert_eq!(table.lines().count(), 1 + 5 + 6, "{table}");
    assert!(table.contains("garbage 0.2") && table.contains("factor 1"), "{table}");
    let interpolated = |line: &&str| line.contains("  ratio ") && line.contains(" space ");
    let line = table.lines().find(interpolated).expect("an interpolated line");
    let copies = line.split_whitespace().nth(4).and_then(|copies| copies.parse::<f64>().ok());
    assert!(copies.is_some_and(|copies| (0.1..2.0).contains(&copies)), "{line}");
    assert!(bench.ends(2, "sim values --load zipf:7").is_empty());
    bench.ends(2, "sim values --target 1.0");
    bench.ends(1, "sim values --trace none.csv");
    bench.ends(2, "sim values --keys 10000000 --updates 100");
    bench.file("large.csv", b"op,key,size\nP,a,18446744073709551615\n");
    bench.ends(1, "sim values --trace large.csv");
}

#[test]
fn growth_schemes_are_computed_into_a_table_a_page_and_json() {
    let bench = Bench::new();
    let table = bench.ends(0, "sim growth --units 100 --html page.html");
    assert!(table.lines().count() > 40, "{table}");
    let page = std::fs::read_to_string(bench.path("page.html")).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n") && !page.contains("<script"));
    assert!(page.contains("figure 10a"));
    let json: serde_json::Value =
        serde_json::from_str(&bench.ends(0, "sim growth --units 100 --json")).expect("JSON");
    let excess = |family: &str| -> Vec<f64> {
        let rows = json.as_array().expect("rows").iter().filter(|row| row["family"] == family);
        rows.filter_map(|row| row["excess"].as_f64()).collect()
    };
    for family in ["vertical leveling", "vertical tiering", "Algorithm 1", "Algorithm 2"] {
        let found = excess(family);
        assert!(!found.is_empty() && found.iter().all(|share| *share > -0.01), "{family}: {found:?}");
    }
    bench.ends(2, "sim growth --units 2");
}

#[test]
fn a_simulated_load_runs_on_the_engine_too() {
    let bench = Bench::new();
    let line = "sim pipeline --load 2048 --slots 1 --detail 2 --policy tiering:4 --modes split --engine 1024";
    let table = bench.ends(0, line);
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 5, "a head, and two rows for each number of slots:\n{table}");
    for row in [rows[2], rows[4]] {
        assert!(row.starts_with("  on the engine ") && row.ends_with(" % bytes"), "{row}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&bench.ends(0, &format!("{line} --json"))).expect("JSON");
    let engine = |row: usize| &json[row]["engine"];
    assert_eq!(
        (&engine(0)["divided_by"], &engine(0)["bytes"]["ingested"]),
        (&1024.into(), &(2 << 20).into())
    );
    assert_eq!(engine(0)["content"], engine(1)["content"]);
    let against = engine(0)["bytes_against_simulated"].as_f64().expect("a ratio");
    assert!(against > 0.5 && against < 2.0, "{against}");
    for other in ["--gets 5", "--cap 4", "--universe 64", "--piece 8", "--back-pressure 2", "--flush-alike"] {
        bench.ends(2, &format!("{line} {other}"));
    }
    bench.ends(2, &format!("{line} --memtable 64"));
    bench.ends(2, "sim pipeline --engine 8");
}
