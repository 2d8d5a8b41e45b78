//! `drumlin sim pipeline`: the load of the Downforce paper in virtual time, with and without pipelining, with several
//! numbers of compaction slots.
//!
//! The scheduler and the policies are the code of the engine. The device, the flush thread and the slots are
//! simulated. The results depend only on the arguments. Simulated loads ("courses") are independent of each other, so
//! they run in parallel, one per core, and are printed in the order of the arguments. `--html` writes a page with
//! counterparts of the paper's figures.

use super::pipeline_course::{Course, Wanted, courses};
use super::{pipeline_engine, pipeline_page};
use crate::args::PipelineArgs;
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::output::Output;
use drumlin_policy::schedule::{Concurrency, Settings};
use drumlin_sim::pipeline::{Report, Setup};
use serde_json::json;

const POLICIES: [&str; 4] = ["1-leveling:5", "tiering:4", "leveling:5", "universal"];
const MIB: u64 = 1 << 20;

pub(super) fn pipeline(args: &PipelineArgs, out: &mut Output<'_>) -> Outcome {
    let mut slots = args.slots.clone();
    slots.push(args.detail);
    slots.sort_unstable();
    slots.dedup();
    let policies: Vec<String> = match args.policies.is_empty() {
        true => POLICIES.map(str::to_owned).to_vec(),
        false => args.policies.clone(),
    };
    let mut wanted = Vec::new();
    for policy in &policies {
        for (name, mode) in Concurrency::NAMES.into_iter().rev() {
            if args.scheduler.modes.iter().any(|wanted| wanted == name) {
                let setup = |slots: &u32| setup(args, mode, *slots);
                let course =
                    |setup| Wanted { policy: policy.clone(), mode: name, setup, engine: args.engine };
                wanted.extend(slots.iter().map(setup).map(course));
            }
        }
    }
    if let (Some(scale), Some(first)) = (args.engine, wanted.first()) {
        pipeline_engine::check(&first.setup, scale)?;
    }
    let courses = courses(wanted)?;
    if let Some(file) = &args.html {
        let page = pipeline_page::page(&courses, args);
        std::fs::write(file, page).map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
    }
    match args.json {
        true => print_json(&courses, out)?,
        false => print_table(&courses, out)?,
    }
    Ok(Verdict::Fine)
}

fn setup(args: &PipelineArgs, mode: Concurrency, slots: u32) -> Setup {
    let mut setup = Setup::downforce(slots);
    setup.total = args.load * MIB;
    setup.write_rate = args.rate * MIB;
    setup.flush_rate = setup.flush_rate.max(setup.write_rate);
    setup.universe = args.universe.map(|mib| mib * MIB);
    (setup.memtable, setup.file) = (args.memtable << 10, args.memtable << 10);
    setup.reads = (args.gets.max(0.0), 0.0);
    setup.flush_first = !args.scheduler.flush_alike;
    let most = args.scheduler.piece * MIB;
    setup.settings = Settings {
        mode,
        depth_cap: args.scheduler.cap,
        fold_every: args.scheduler.fold_every,
        back_pressure: args.scheduler.back_pressure,
        piece: (setup.settings.piece.0.min(most), most),
        ..setup.settings
    };
    setup
}

fn print_table(courses: &[Course], out: &mut Output<'_>) -> Result<()> {
    out.line(&format!(
        "{:<28}{:>8}{:>8}{:>11}{:>7}{:>8}{:>7}{:>7}{:>8}{:>8}{:>8}",
        "", "slots", "MiB/s", "write amp", "busy", ">=3/4 %", "depth", "L0", "moved", "folded", "held"
    ))?;
    for course in courses {
        let Report { most_level0, moved, folded, pieces, ingested, .. } = &course.report;
        let part = |bytes: &u64| format!("{:.2}", *bytes as f64 / *ingested as f64);
        out.line(&format!(
            "{:<28}{:>8}{:>8.0}{:>11.2}{:>7.1}{:>8.0}{:>7.1}{:>7}{:>8}{:>8}{:>8}",
            course.name(),
            course.slots,
            course.throughput(),
            course.report.write_amp(),
            course.report.mean_busy(),
            100.0 * course.report.share_busy((course.slots * 3 / 4).max(1) as usize),
            course.report.mean_depth(),
            most_level0,
            part(moved),
            part(folded),
            pieces.1,
        ))?;
        if let Some((measured, scale)) = &course.engine {
            out.line(&pipeline_engine::row(measured, &course.report, *scale))?;
        }
    }
    Ok(())
}

fn print_json(courses: &[Course], out: &mut Output<'_>) -> Result<()> {
    let course = |course: &Course| {
        let report = &course.report;
        json!({
            "policy": course.policy,
            "mode": course.mode,
            "slots": course.slots,
            "mib_per_s": course.throughput(),
            "write_amp": report.write_amp(),
            "mean_busy": report.mean_busy(),
            "busy_ns": report.busy[..=course.slots as usize],
            "mean_busy_by_level": (0..report.by_level.len()).map(|l| report.mean_of_level(l)).collect::<Vec<_>>(),
            "busy_by_level_each_100ms": report.series,
            "mean_depth": report.mean_depth(),
            "most_level0_runs": report.most_level0,
            "seconds": report.nanos as f64 / 1e9,
            "bytes": {
                "ingested": report.ingested, "flushed": report.flushed, "merged": report.merged,
                "moved": report.moved, "folded": report.folded,
            },
            "pieces": report.pieces.0,
            "held": report.pieces.1,
            "landed": report.pieces.2,
            "plans": report.plans.0,
            "engine": course.engine.as_ref().map(|(measured, scale)| json!({
                "divided_by": scale,
                "mib_per_s": measured.throughput() * *scale as f64,
                "bytes": {
                    "ingested": measured.ingested, "flushed": measured.flushed, "merged": measured.merged,
                },
                "bytes_per_flushed": measured.per_flushed(),
                "bytes_against_simulated": measured.against(report),
                "mean_depth": measured.mean_depth,
                "most_level0_runs": measured.most_level0,
                "moves": measured.moves,
                "seconds": measured.nanos as f64 / 1e9,
                "content": format!("{:016x}", measured.content),
            })),
        })
    };
    out.json(&json!(courses.iter().map(course).collect::<Vec<_>>()))
}
