//! Tests of reports: the output conforms to the schema, and the HTML page equals the golden page.

use super::html;
use super::model::{Build, Calibration, METHOD, Machine, PhaseConfig, Report, SCHEMA};
use super::{table, tsv};
use crate::drumlin_engine::Drumlin;
use crate::engine::Decision;
use crate::report::model::{Bytes, Latency, OfKind, PhaseReport, Runs, Sample, SpaceAmp, Stalls};
use crate::workload::suites;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns a fixed report with invented round numbers.
pub(crate) fn made_up() -> Report {
    let phase = |name: &str, engine: &str, factor: f64| PhaseReport {
        name: format!("dynamic I {name}"),
        engine: engine.to_owned(),
        policy: Some("1-leveling".to_owned()),
        round: 1,
        stream: "00000000000000aa".to_owned(),
        threads: 1,
        usable: true,
        ops: 1000,
        seconds: 2.0 / factor,
        ops_per_s: 500.0 * factor,
        thread_cpu_us_per_op: 1500.0 / factor,
        process_cpu_us_per_op: 1800.0 / factor,
        latency_us: Latency { p99: Some(20.0), p99_9: Some(80.0), ..Latency::default() },
        by_op: BTreeMap::from([(
            "get".to_owned(),
            OfKind {
                ops: 1000,
                latency_us: Latency {
                    p50: Some(2.0),
                    p99: Some(20.0),
                    max: Some(4000.0),
                    ..Latency::default()
                },
            },
        )]),
        bytes: Bytes {
            ingested: 1 << 20,
            flush: Some(1 << 20),
            merge: Some(3 << 20),
            log: Some(1 << 20),
            ..Bytes::default()
        },
        write_amp: Some(4.0),
        space_amp: SpaceAmp { peak: Some(1.5), r#final: Some(1.2), live_bytes_final: 1 << 20 },
        runs: Runs { avg: Some(3.5), max: Some(5), r#final: Some(2), per_level_final: Some(vec![1, 1]) },
        stalls: Stalls { seconds: Some(0.25), count: Some(2), ..Stalls::default() },
        decisions: crate::report::model::Decisions {
            latest: vec![Decision {
                t: 0.5,
                what: "#1 2 tables -> L1, 4096 bytes".into(),
                reason: "level 0 <scores> 1".into(),
            }],
            ..Default::default()
        },
        timeline: (1..=4)
            .map(|t| Sample {
                t: f64::from(t) / 2.0,
                ops: 250 * t as u64,
                runs: Some(vec![t as u64, 1]),
                disk_bytes: Some((t as u64) << 20),
                live_bytes: (t as u64) << 19,
                ..Sample::default()
            })
            .collect(),
        ..PhaseReport::default()
    };
    Report {
        schema: SCHEMA.to_owned(),
        method: METHOD,
        command: vec!["drumlin".into(), "bench".into(), "dynamic".into()],
        started_utc: "2030-01-01T00:00:00Z".to_owned(),
        seed: 1,
        warnings: vec!["round 1: made up & <escaped>".to_owned()],
        config: BTreeMap::from([("drumlin".to_owned(), BTreeMap::from([("a".to_owned(), "1".to_owned())]))]),
        phase_config: BTreeMap::new(),
        machine: Machine {
            cores: 2,
            calibration: vec![Calibration {
                load_ns: 80.0,
                hash_gb_per_s: 10.0,
                write_mb_per_s: None,
                read_us: None,
            }],
            ..Machine::default()
        },
        build: Build { version: "0.1.0".into(), profile: "release".into(), ..Build::default() },
        phases: vec![
            phase("A", "drumlin", 2.0),
            phase("A", "rocksdb", 1.0),
            phase("B", "drumlin", 1.0),
            phase("B", "rocksdb", 4.0),
        ],
    }
}

/// Checks `value` against the subset of JSON Schema that the checked-in schema uses: `$ref` to `$defs`, `type`,
/// `const`, `properties`, `required`, `additionalProperties`, `items`.
fn check(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let definition = &root["$defs"][name.trim_start_matches("#/$defs/")];
        assert!(definition.is_object(), "{name} is not defined");
        return check(value, definition, root, at);
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return Err(format!("{at}: {value} and not {constant}"));
    }
    if let Some(types) = schema.get("type") {
        let types: Vec<&str> = match types {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let is = match value {
            Value::Null => &["null"][..],
            Value::Bool(_) => &["boolean"],
            Value::Number(n) if n.is_u64() => &["integer", "number"],
            Value::Number(_) => &["number"],
            Value::String(_) => &["string"],
            Value::Array(_) => &["array"],
            Value::Object(_) => &["object"],
        };
        if !types.iter().any(|wanted| is.contains(wanted)) {
            return Err(format!("{at}: {value} is none of {types:?}"));
        }
    }
    if let (Some(items), Value::Array(values)) = (schema.get("items"), value) {
        for (index, value) in values.iter().enumerate() {
            check(value, items, root, &format!("{at}[{index}]"))?;
        }
    }
    let Value::Object(fields) = value else { return Ok(()) };
    for name in
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            return Err(format!("{at}: no {name}"));
        }
    }
    for (name, value) in fields {
        let at = format!("{at}.{name}");
        match (
            schema.get("properties").and_then(|properties| properties.get(name)),
            schema.get("additionalProperties"),
        ) {
            (Some(known), _) => check(value, known, root, &at)?,
            (None, Some(Value::Bool(false))) => return Err(format!("{at}: not in the schema")),
            (None, Some(other)) if other.is_object() => check(value, other, root, &at)?,
            _ => {}
        }
    }
    Ok(())
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../../schema/report.json")).expect("the schema is JSON")
}

#[test]
fn reports_fit_the_schema() {
    let schema = schema();
    let mut report = made_up();
    let workload =
        suites::smoke().expect("the suite").into_iter().find(|w| w.name == "dynamic I").expect("it is in it");
    report.phases.extend(crate::tests::run(&Drumlin, &workload).expect("it runs").phases);
    let set = PhaseConfig { phases: vec!["A".to_owned()], options: report.config["drumlin"].clone() };
    report.phase_config.insert("drumlin".to_owned(), vec![set]);
    let value = serde_json::to_value(&report).expect("a report is JSON");
    check(&value, &schema, &schema, "$").expect("it fits");
    let back: Report = serde_json::from_value(value.clone()).expect("a report is read back");
    assert_eq!(back, report);
    let mut older = value.clone();
    let fields = older.as_object_mut().expect("an object");
    assert!(fields.remove("method").is_some() && fields.remove("phase_config").is_some());
    check(&older, &schema, &schema, "$").expect("it fits");
    let older: Report = serde_json::from_value(older).expect("an older report is read");
    assert!(older.method == 0 && older.phase_config.is_empty() && older.phases == report.phases);
    for spoil in [
        |v: &mut Value| v["schema"] = "other/1".into(),
        |v: &mut Value| v["phases"][0]["ops"] = (-1).into(),
        |v: &mut Value| v["phases"][0]["extra"] = 1.into(),
        |v: &mut Value| drop(v["phases"][0].as_object_mut().expect("an object").remove("write_amp")),
    ] {
        let mut spoiled = value.clone();
        spoil(&mut spoiled);
        assert!(check(&spoiled, &schema, &schema, "$").is_err());
    }
}

#[test]
fn the_page_is_the_golden_one() {
    let page = html::page(&made_up());
    assert_eq!(page, html::page(&made_up()));
    for forbidden in ["<script", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.len() < 2_000_000);
    assert!(page.contains("made up &amp; &lt;escaped&gt;") && page.contains("level 0 &lt;scores&gt; 1"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/report.html");
    if std::env::var_os("DRUMLIN_BLESS").is_some() {
        std::fs::write(path, &page).expect("the golden page is written");
    }
    let golden = std::fs::read_to_string(path).expect("there is a golden page; DRUMLIN_BLESS=1 makes it");
    assert!(golden == page, "the page changed: look at it, then bless it with DRUMLIN_BLESS=1");
}

#[test]
fn the_answer_stands_first_and_little_written_is_not_drawn() {
    let mut report = made_up();
    let whole = html::page(&report);
    let place = |text: &str| whole.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("every answer was checked") < place("<h2>Results</h2>"));
    assert!(place("<h2>Results</h2>") < place("throughput over time"));
    assert!(place("decisions</h2>") < place("<h2>Machine</h2>"));
    assert!(!whole.contains("Not drawn"));
    // The second phase of the first engine writes a thousandth of the first, beside the compactions of the first.
    report.phases[2].bytes.ingested = 1 << 10;
    let page = html::page(&report);
    assert!(page.contains("compactions of earlier data prevail: B</p>"));
    assert!(page.contains("<td>3072.000</td>") && !page.contains("B, merge: 3.07 k"));
}

#[test]
fn the_table_shows_ratios_worst_first() {
    let text = table::text(&made_up());
    let ratios: Vec<&str> =
        text.lines().filter(|line| line.contains("rocksdb") && line.contains("drumlin")).collect();
    let worst = ratios.iter().position(|line| line.contains("0.25") && line.contains("too few rounds"));
    let best = ratios.iter().position(|line| line.contains("2.00") && line.contains("too few rounds"));
    assert!(worst.is_some() && worst < best, "{text}");
    let tsv = tsv::text(&made_up());
    assert!(tsv.lines().all(|line| line.split('\t').count() == 30), "{tsv}");
}

#[test]
fn a_page_without_any_ratio_has_its_results() {
    let mut report = made_up();
    report.phases.iter_mut().for_each(|phase| phase.usable = false);
    let page = html::page(&report);
    assert!(page.contains("Results") && !page.contains("Ratios of throughput"));
    let empty = Report { phases: Vec::new(), ..report };
    assert!(html::page(&empty).contains("Results"));
}
