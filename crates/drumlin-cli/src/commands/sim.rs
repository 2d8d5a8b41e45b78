//! `drumlin sim`: compares policies in virtual time, with one row per policy and one column per phase.
//!
//! It prints these tables: microseconds per operation, MiB compacted, covered runs (mean and maximum), the 99.9th
//! percentile of write waits, and how well ARCE predicted operation cost and compaction time. The results depend only
//! on the arguments.

use super::{growth, pipeline, value_files};
use crate::args::{SimArgs, SimKind};
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::output::Output;
use crate::progress::Progress;
use drumlin_sim::foresight::Missed;
use drumlin_sim::{PLANS, PhaseReport, Setup, phases};
use serde_json::json;

/// Policies that are compared by default.
const POLICIES: [&str; 12] = [
    "arce",
    "1-leveling:static",
    "1-leveling:dynamic",
    "leveling:10",
    "leveling:4",
    "tiering:10",
    "tiering:4",
    "lazy-leveling:10",
    "fluid:40,40,41/6,6,6",
    "universal",
    "ucs:0",
    "ucs:2",
];

const MIB: f64 = 1_048_576.0;

pub(super) fn sim(args: &SimArgs, out: &mut Output<'_>) -> Outcome {
    match &args.kind {
        Some(SimKind::Pipeline(args)) => return pipeline::pipeline(args, out),
        Some(SimKind::Growth(args)) => return growth::growth(args, out),
        Some(SimKind::Values(args)) => return value_files::values(args, out),
        None => {}
    }
    let known = PLANS.iter().find(|(name, ..)| *name == args.plan);
    let (letters, share) = known.map_or((args.plan.as_str(), 1.0), |(_, letters, share)| (*letters, *share));
    if letters != "gradient" && (letters.is_empty() || !letters.chars().all(|mix| ('A'..='J').contains(&mix)))
    {
        let known = "a plan is I, II, III, gradient, or letters A to J such as ABC";
        return Err(Failure::Usage(format!("there is no plan {}; {known}", args.plan)));
    }
    let setup = Setup {
        flush_bytes: args.flush_bytes,
        preload: args.entries.saturating_mul(1024),
        operations: args.entries as f64,
        clients: args.clients,
        slots: args.slots,
        interference: args.interference.clamp(0.0, 10.0),
        pieces: !args.whole,
        audit: false,
    };
    let named: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let names = if named.is_empty() { &POLICIES[..] } else { &named[..] };
    let mut courses = Vec::new();
    let shown = Progress::steps("sim", names.len() as u64);
    for (number, name) in names.iter().enumerate() {
        shown.step(number as u64, name);
        let mut policy = drumlin_policy::by_name(name).map_err(|e| Failure::Usage(e.to_string()))?;
        let reports = phases(&mut *policy, setup, letters, share)
            .map_err(|what| Failure::Usage(format!("{name} in {letters}: {what}")))?;
        courses.push((*name, reports));
    }
    drop(shown);
    if args.json {
        print_json(&courses, out)?
    } else {
        print_tables(&courses, out)?
    }
    Ok(Verdict::Fine)
}

fn missed(missed: &Missed) -> serde_json::Value {
    let Missed { merges, most, .. } = *missed;
    json!({ "merges": merges, "mean_windows_missed": missed.mean(), "most_windows_missed": most })
}

fn print_json(courses: &[(&str, Vec<PhaseReport>)], out: &mut Output<'_>) -> Result<()> {
    let phase = |report: &PhaseReport| {
        json!({
            "phase": report.name.to_string(),
            "operations": report.operations,
            "ns_per_operation": report.each,
            "bytes_flushed": report.flushed,
            "bytes_merged": report.merged,
            "bytes_merged_by_choice": report.elective,
            "mean_runs": report.runs.0,
            "most_runs": report.runs.1,
            "ns_stopped": report.stopped,
            "search_steps": report.steps,
            "ns_write_wait_p999": report.wait,
            "foreseen": missed(&report.foreseen.held),
            "foreseen_under_another_load": missed(&report.foreseen.changed),
            "ns_predicted": report.predicted,
        })
    };
    let course = |(name, reports): &(&str, Vec<PhaseReport>)| {
        let phases: Vec<_> = reports.iter().map(phase).collect();
        json!({ "policy": name, "phases": phases })
    };
    out.json(&json!(courses.iter().map(course).collect::<Vec<_>>()))
}

fn print_tables(courses: &[(&str, Vec<PhaseReport>)], out: &mut Output<'_>) -> Result<()> {
    let micros = |r: &PhaseReport| format!("{:.1}", r.each / 1000.0);
    let merged = |r: &PhaseReport| format!("{:.0}", r.merged as f64 / MIB);
    let runs = |r: &PhaseReport| format!("{:.1} {:.0}", r.runs.0, r.runs.1);
    let mean = |reports: &[PhaseReport]| {
        let time: f64 = reports.iter().map(|r| r.each * r.operations).sum();
        format!("{:.1}", time / reports.iter().map(|r| r.operations).sum::<f64>() / 1000.0)
    };
    let sum = |reports: &[PhaseReport]| {
        format!("{:.0}", reports.iter().map(|r| r.merged as f64).sum::<f64>() / MIB)
    };
    table("us per operation", "mean", courses, micros, mean, out)?;
    table("MiB compacted", "all", courses, merged, sum, out)?;
    table("covered runs: mean, most", "", courses, runs, |_| String::new(), out)?;
    let wait = |r: &PhaseReport| format!("{:.0}", r.wait / 1000.0);
    table("write wait p99.9, us", "", courses, wait, |_| String::new(), out)?;
    let said = |r: &PhaseReport| r.predicted.map_or("-".to_owned(), |nanos| format!("{:.1}", nanos / 1000.0));
    table("us per operation, predicted", "", courses, said, |_| String::new(), out)?;
    let missed = |missed: &Missed| format!("{:.2} {:.1}", missed.mean(), missed.most);
    let held = |r: &PhaseReport| missed(&r.foreseen.held);
    table("compactions end off by, intervals: mean, most", "", courses, held, |_| String::new(), out)?;
    let changed = |r: &PhaseReport| missed(&r.foreseen.changed);
    table("the same, if the load changed meanwhile", "", courses, changed, |_| String::new(), out)
}

fn table(
    title: &str,
    last: &str,
    courses: &[(&str, Vec<PhaseReport>)],
    cell: impl Fn(&PhaseReport) -> String,
    whole: impl Fn(&[PhaseReport]) -> String,
    out: &mut Output<'_>,
) -> Result<()> {
    let names =
        courses.first().map_or_else(Vec::new, |(_, reports)| reports.iter().map(|r| r.name).collect());
    let heads: String = names.iter().map(|name| format!("{name:>11}")).collect();
    out.line(&format!("{title:<46}{heads}{last:>11}"))?;
    for (name, reports) in courses {
        let cells: String = reports.iter().map(|report| format!("{:>11}", cell(report))).collect();
        out.line(&format!("{name:<46}{cells}{:>11}", whole(reports)))?;
    }
    out.line("")
}
