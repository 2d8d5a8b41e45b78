//! `drumlin sim growth`: what vertical and horizontal growth schemes write and read, computed exactly.
//!
//! The schedules are those of the policies. `--html` writes a page with the counterpart of the paper's figure 10a.

use crate::args::GrowthArgs;
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::output::Output;
use crate::progress::Progress;
use drumlin_bench::report::html::{begin, end};
use drumlin_bench::report::svg::{self, Series, escape};
use drumlin_sim::{Scheme, least_writes, trade_off};
use serde_json::json;
use std::fmt::Write;

pub(super) fn growth(args: &GrowthArgs, out: &mut Output<'_>) -> Outcome {
    let shown = Progress::steps("sim growth", 1);
    shown.step(0, "schedules");
    let schemes = trade_off(args.units);
    drop(shown);
    if let Some(file) = &args.html {
        std::fs::write(file, page(&schemes, args))
            .map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
    }
    match args.json {
        true => print_json(&schemes, out)?,
        false => print_table(&schemes, out)?,
    }
    Ok(Verdict::Fine)
}

/// Returns by what share `scheme` writes more than the best schedules with the same mean number of runs.
fn excess(schemes: &[Scheme], scheme: &Scheme) -> Option<f64> {
    least_writes(schemes, scheme.runs).map(|least| scheme.writes / least - 1.0)
}

fn print_json(schemes: &[Scheme], out: &mut Output<'_>) -> Result<()> {
    let row = |scheme: &Scheme| {
        json!({
            "family": scheme.family,
            "setting": scheme.setting,
            "writes": scheme.writes,
            "writes_joined": scheme.writes_joined,
            "mean_runs": scheme.runs,
            "most_runs": scheme.most_runs,
            "excess": excess(schemes, scheme),
        })
    };
    out.json(&json!(schemes.iter().map(row).collect::<Vec<_>>()))
}

fn print_table(schemes: &[Scheme], out: &mut Output<'_>) -> Result<()> {
    out.line(&format!(
        "{:<22}{:<16}{:>8}{:>8}{:>8}{:>6}{:>9}",
        "family", "setting", "writes", "joined", "runs", "most", "excess"
    ))?;
    for scheme in schemes {
        let excess =
            excess(schemes, scheme).map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let Scheme { family, setting, writes, writes_joined, runs, most_runs } = scheme;
        out.line(&format!(
            "{family:<22}{setting:<16}{writes:>8.2}{writes_joined:>8.2}{runs:>8.2}{most_runs:>6}{excess:>9}"
        ))?;
    }
    Ok(())
}

fn page(schemes: &[Scheme], args: &GrowthArgs) -> String {
    let mut out = begin("drumlin sim growth");
    let _ = writeln!(
        out,
        "<h1>Growth schemes</h1><p>{} flushes. Each point is a scheme with one setting: units written per flushed \
         unit, over the mean number of runs. A scheme is better if it is lower and further \
         left. The plot leaves out schemes with more than 20 runs or 30 writes.</p>",
        args.units
    );
    let mut series: Vec<Series> = Vec::new();
    for scheme in schemes {
        let point = (scheme.runs, scheme.writes);
        match series.iter_mut().find(|line| line.name == scheme.family) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name: scheme.family.to_owned(), points: vec![point] }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Omits settings with more runs or writes, which no store would choose.
        line.points.retain(|(runs, writes)| *runs <= 20.0 && *writes <= 30.0);
    }
    out += "<h2>Writes by mean number of runs (figure 10a)</h2>\n";
    out += &svg::lines("writes by mean number of runs", "units written", &series, &[], &[]);
    let heads =
        ["family", "setting", "writes", "joined", "runs", "most"].map(|head| format!("<th>{head}</th>"));
    let _ = writeln!(out, "<table><tr>{}</tr>", heads.concat());
    for scheme in schemes {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{}</td></tr>",
            escape(scheme.family),
            escape(&scheme.setting),
            scheme.writes,
            scheme.writes_joined,
            scheme.runs,
            scheme.most_runs
        );
    }
    out += "</table>\n";
    end(out)
}
