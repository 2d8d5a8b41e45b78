//! Tests of reports: JSON of every command that has it, also for failures, and the output of `stats`, `explain` and
//! `policy`.

use super::Bench;
use serde_json::Value;

/// Runs `line` and returns the JSON that it prints.
fn json(bench: &Bench, status: i32, line: &str) -> Value {
    let text = bench.ends(status, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
}

fn filled() -> Bench {
    let bench = Bench::new();
    let lines: String = (0..3000).map(|i| format!("key{i:05}\tvalue {i}\n")).collect();
    bench.file("in.tsv", lines.as_bytes());
    bench.ends(0, "load db in.tsv");
    bench
}

#[test]
fn every_report_prints_json_also_when_it_fails() {
    let bench = filled();
    bench.file("trace.csv", b"ts,op,key,size\n0,P,a,8\n1,G,a,0\n");
    for command in ["tree", "stats", "explain", "policy", "keyspaces", "verify"] {
        json(&bench, 0, &format!("{command} db --json"));
        let failed = json(&bench, 1, &format!("{command} none --json"));
        let what = "there is no store at none: no such directory";
        assert_eq!(failed["error"], what, "{command}");
    }
    json(&bench, 0, "options --json");
    assert_eq!(json(&bench, 0, "load again in.tsv --json")["entries"], 3000);
    assert_eq!(json(&bench, 0, "replay replayed trace.csv --json")["puts"], 1);
    assert_eq!(json(&bench, 0, "repair db saved --json")["nothing_lost"], true);
    assert!(json(&bench, 1, "repair none new --json")["error"].is_string());
    assert!(json(&bench, 1, "load again none.tsv --json")["error"].is_string());
    assert!(json(&bench, 2, "policy db tierng --json")["error"].is_string());
    assert_eq!(json(&bench, 0, "policy db tiering:4 --json")["policy"], "tiering:4");
}

#[test]
fn stats_tell_what_is_stored_from_what_this_process_did() {
    let bench = filled();
    let stats = json(&bench, 0, "stats db --json");
    assert_eq!((&stats["stored"]["entries"], &stats["since_open"]["commits"]), (&3000.into(), &0.into()));
    let text = bench.ends(0, "stats db");
    assert!(
        text.starts_with("stored in the store:\n")
            && text.contains("\ncounted since this command opened the store"),
        "{text}"
    );
}

#[test]
fn explain_and_policy_agree_and_history_outlives_short_opens() {
    let bench = filled();
    for _ in 0..12 {
        bench.ends(0, "stats db");
    }
    let told = bench.ends(0, "explain db");
    let is_dated = |line: &str| line.len() > 24 && line.as_bytes()[19] == b'.' && line.starts_with("20");
    assert!(is_dated(told.lines().next().unwrap_or("")), "{told}");
    // A short open may end before it calls the policy. A load calls it each time, before its flush.
    for _ in 0..3 {
        bench.ends(0, "load db in.tsv");
    }
    let told = bench.ends(0, "explain db");
    let idle = "policy call: 0 plans, 0 withdrawn";
    assert!(told.matches(idle).count() < bench.ends(0, "explain db --all").matches(idle).count());
    bench.ends(0, "policy db tiering:4");
    assert_eq!(bench.ends(0, "policy db").lines().next(), Some("tiering:4"));
    let output = bench.run("explain db");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("explain: the policy of default is tiering:4\n"), "{notes}");
}
