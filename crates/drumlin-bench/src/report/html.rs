//! The report as one HTML page: inline style and plots, no script, no font, no network access, light and dark mode.
//!
//! The same report gives the same bytes. Plots show the last usable round of each engine; the table shows medians
//! over all rounds. A collapsible table under each plot lists its numbers.

use super::model::{PhaseReport, Report, Sample};
use super::svg::{self, Band, Series, escape};
use super::table::result_cells;
use crate::compare::{compare, names};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A phase that ingests less than the heaviest phase divided by this is left out of the plot of write amplification.
const DRAWN_PART: u64 = 20;
/// Maximum number of decisions listed.
const DECISIONS_MOST: usize = 50;
/// Maximum number of decision marks in a plot.
const MARKS_MOST: usize = 400;
/// Maximum number of table rows under a plot over time.
const ROWS_MOST: usize = 200;

const STYLE: &str = "\
:root{color-scheme:light dark;--back:#fff;--ink:#1b1f24;--soft:#6a737d;--rule:#d8dee4;--band0:#f6f8fa;--band1:#eceff3;\
--c0:#1f6feb;--c1:#d9480f;--c2:#2b8a3e;--c3:#862e9c;--c4:#b08800;--c5:#0b7285;--c6:#a61e4d;--c7:#495057}\
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--ink:#e6edf3;--soft:#8b949e;--rule:#30363d;--band0:#151b23;\
--band1:#1c2430;--c0:#58a6ff;--c1:#ff8c42;--c2:#56d364;--c3:#d2a8ff;--c4:#e3b341;--c5:#39c5cf;--c6:#ff7b9c;\
--c7:#adbac7}}\
body{background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:960px;\
padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem;border-bottom:1px solid var(--rule)}\
table{border-collapse:collapse;max-width:100%;font-size:12px;font-variant-numeric:tabular-nums}\
th,td{padding:2px 5px;text-align:right;vertical-align:bottom;border-bottom:1px solid var(--rule);white-space:nowrap}\
th{font-weight:600}th,th:first-child,td:first-child,.words td,td.words{white-space:normal}\
th:first-child,td:first-child,.words td,td.words,th.words{text-align:left}.words td,td.words{overflow-wrap:anywhere;\
vertical-align:top}.scroll{overflow-x:auto}svg{width:100%;height:auto;display:block}\
svg.whisker{width:200px;display:inline}.label{fill:var(--soft);font-size:11px}.grid{stroke:var(--rule)}\
.band0{fill:var(--band0)}.band1{fill:var(--band1)}.line{fill:none;stroke-width:1.6}.line.dashed{stroke-dasharray:5 \
3}.mark{stroke:var(--soft)}\
.area{stroke:none;opacity:.85}.legend{margin:.2rem 0;font-size:13px}.key{margin-right:1rem}\
.key::before{content:\"\\25A0 \"}.key.dashed::before{content:\"\\25A8 \"}details{margin:.3rem \
0;color:var(--soft)}.warn{color:var(--c1)}\
";

/// Returns the HTML page of `report`.
pub fn page(report: &Report) -> String {
    let mut out = begin("drumlin bench");
    head(report, &mut out);
    results(report, &mut out);
    for engine in names(&report.phases, |phase| &phase.engine) {
        of_engine(report, &engine, &mut out);
    }
    circumstances(report, &mut out);
    end(out)
}

/// Returns the beginning of a page with its style; headings, tables and plots follow.
pub fn begin(title: &str) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out += "<meta name=\"viewport\" content=\"width=device-width\"><title>";
    out += &escape(title);
    out += "</title>\n<style>";
    out += &style();
    out += "</style></head><body>\n";
    out
}

/// Returns the style of pages and plots.
pub fn style() -> String {
    let mut out = STYLE.to_owned();
    for number in 0..8 {
        let _ = write!(
            out,
            ".line.s{number}{{stroke:var(--c{number})}}.area.s{number}{{fill:var(--c{number})}}\
             .c{number}::before{{color:var(--c{number})}}"
        );
    }
    out
}

/// Returns the completed page.
pub fn end(mut out: String) -> String {
    out += "</body></html>\n";
    out
}

fn section(title: &str, body: &str, out: &mut String) {
    if !body.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>\n{body}", escape(title));
    }
}

fn cells(rows: &[Vec<String>]) -> String {
    let mut text = String::from("<div class=\"scroll\"><table>\n");
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text + "</table></div>\n"
}

/// Returns a table of names and values, which may be long words.
fn pairs(heads: [&str; 2], rows: impl IntoIterator<Item = (impl AsRef<str>, String)>) -> String {
    let [name, value] = heads;
    let mut text =
        format!("<table class=\"words\">\n<tr><th>{name}</th><th class=\"words\">{value}</th></tr>\n");
    for (name, value) in rows {
        let _ = writeln!(text, "<tr><td>{}</td><td>{}</td></tr>", escape(name.as_ref()), escape(&value));
    }
    text + "</table>\n"
}

fn numbers(rows: &[Vec<String>]) -> String {
    format!("<details><summary>Numbers</summary>{}</details>\n", cells(rows))
}

fn head(report: &Report, out: &mut String) {
    let _ = writeln!(out, "<h1>drumlin bench</h1>\n<p>{}</p>", escape(&report.started_utc));
    let engines = names(&report.phases, |phase| &phase.engine);
    let ops: u64 = report.phases.iter().map(|phase| phase.ops).sum();
    let seconds: f64 = report.phases.iter().map(|phase| phase.seconds).sum();
    let mut verdict = format!(
        "{} operations in {seconds:.1} s over {} phases of {}; every answer was checked.",
        svg::short(ops as f64),
        names(&report.phases, |phase| &phase.name).len(),
        engines.join(", "),
    );
    if let Some(first) = engines.first().filter(|_| engines.len() > 1) {
        let comparisons = compare(&report.phases, first);
        let count = |what| comparisons.iter().filter(|c| c.verdict == what).count();
        let _ = write!(
            verdict,
            " {first} is better in {}, worse in {} and undecided or equal in {} comparisons.",
            count(crate::compare::Verdict::Better),
            count(crate::compare::Verdict::Worse),
            count(crate::compare::Verdict::Equal)
                + count(crate::compare::Verdict::Undecided)
                + count(crate::compare::Verdict::WithinNoise),
        );
    }
    let _ = writeln!(out, "<p>{}</p>", escape(&verdict));
    let warnings = report.warnings.iter().map(|w| format!("<li class=\"warn\">{}</li>", escape(w)));
    let warnings: String = warnings.collect();
    if !warnings.is_empty() {
        let _ = writeln!(out, "<ul>{warnings}</ul>");
    }
}

/// Writes what the results depend on: the machine, the program and the options.
fn circumstances(report: &Report, out: &mut String) {
    let machine = &report.machine;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mib = |value: Option<u64>| value.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let rows = [
        ("processor", text(&machine.processor_name())),
        ("threads", machine.cores.to_string()),
        ("memory", mib(machine.ram_bytes)),
        ("L2, L3", format!("{}, {}", mib(machine.l2_bytes), mib(machine.l3_bytes))),
        ("kernel", text(&machine.kernel)),
        ("file system", text(&machine.filesystem)),
        ("block device", text(&machine.device)),
        ("virtual", machine.virtual_machine.map_or("-".to_owned(), |yes| yes.to_string())),
        (
            "program",
            format!("{} {}, {}", report.build.version, report.build.profile, text(&report.build.commit)),
        ),
        ("compiler", text(&report.build.rustc)),
        ("compilers and linkers", report.build.tools.join("; ")),
        ("link-time optimization", text(&report.build.lto)),
        ("allocator", report.build.allocator.clone()),
        ("command", report.command.join(" ")),
    ];
    section("Machine", &pairs(["machine", ""], rows), out);
    let mut config = String::new();
    let mut add = |title: &str, options: &BTreeMap<String, String>| {
        let table = pairs(["option", "value"], options.iter().map(|(name, value)| (name, value.clone())));
        let _ = write!(config, "<details><summary>{}</summary>{table}</details>", escape(title));
    };
    for (engine, options) in &report.config {
        match report.phase_config.get(engine) {
            None => add(engine, options),
            Some(sets) => {
                sets.iter()
                    .for_each(|set| add(&format!("{engine}: {}", set.phases.join(", ")), &set.options));
            }
        }
    }
    section("Options in effect", &config, out);
}

fn results(report: &Report, out: &mut String) {
    section("Results", &cells(&result_cells(report)), out);
    let engines = names(&report.phases, |phase| &phase.engine);
    let comparisons = engines.first().map(|first| compare(&report.phases, first)).unwrap_or_default();
    if comparisons.is_empty() {
        return;
    }
    let mut body =
        String::from("<div class=\"scroll\"><table>\n<tr><th>phase</th><th>of</th><th>to</th><th>ratio</th>");
    body += "<th>min</th><th>max</th><th>verdict</th><th></th></tr>\n";
    for c in comparisons {
        let t = c.throughput;
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{}</td>\
             <td>{}</td></tr>",
            escape(&c.name),
            escape(&c.engine),
            escape(&c.base),
            t.median,
            t.min,
            t.max,
            c.verdict.text(),
            svg::whisker(t.median, t.min, t.max),
        );
    }
    section("Ratios of throughput, the worst first", &(body + "</table></div>\n"), out);
}

/// Returns the phases of `engine` in its last usable round, each with its start on a common time axis.
fn timeline<'a>(report: &'a Report, engine: &str) -> Vec<(f64, &'a PhaseReport)> {
    let of_engine: Vec<_> = report.phases.iter().filter(|phase| phase.engine == engine).collect();
    let round = of_engine.iter().filter(|phase| phase.usable).map(|phase| phase.round).max();
    let round = round.or(of_engine.first().map(|phase| phase.round));
    let mut start = 0.0;
    let mut phases: Vec<(f64, &PhaseReport)> = Vec::new();
    for phase in of_engine.into_iter().filter(|phase| Some(phase.round) == round) {
        if let Some(known) = phases.iter_mut().find(|(_, known)| known.name == phase.name) {
            // For a repeated noisy run, the later one counts.
            known.1 = phase;
            continue;
        }
        phases.push((start, phase));
        start += length(phase);
    }
    phases
}

/// Returns the length of a phase on the time axis.
fn length(phase: &PhaseReport) -> f64 {
    phase.timeline.last().map_or(phase.seconds, |last| last.t).max(1e-3)
}

/// Returns the name of a phase without the name of its workload.
fn short_name(phase: &PhaseReport) -> String {
    phase.name.rsplit(' ').next().unwrap_or(&phase.name).to_owned()
}

fn of_engine(report: &Report, engine: &str, out: &mut String) {
    let phases = timeline(report, engine);
    let bands: Vec<Band> = phases
        .iter()
        .map(|(start, phase)| Band { name: short_name(phase), from: *start, to: start + length(phase) })
        .collect();
    throughput(engine, &phases, &bands, out);
    runs(engine, &phases, &bands, out);
    latencies(engine, &phases, out);
    write_amp(engine, &phases, out);
    space(engine, &phases, &bands, out);
    stalls(engine, &phases, out);
    decisions(engine, &phases, out);
}

/// Returns one value of every sample of all phases, where it is known.
fn over_time(phases: &[(f64, &PhaseReport)], of: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let samples =
        phases.iter().flat_map(|(start, phase)| phase.timeline.iter().map(move |s| (start + s.t, s)));
    samples.filter_map(|(t, sample)| Some((t, of(sample)?))).collect()
}

fn rows_of(series: &[Series]) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["seconds".to_owned()]];
    rows[0].extend(series.iter().map(|series| series.name.clone()));
    let count = series.iter().map(|series| series.points.len()).max().unwrap_or(0);
    for index in (0..count).step_by(count.div_ceil(ROWS_MOST).max(1)) {
        let t = series.iter().find_map(|series| series.points.get(index)).map_or(0.0, |point| point.0);
        let values = series
            .iter()
            .map(|s| s.points.get(index).map_or("-".to_owned(), |point| format!("{:.1}", point.1)));
        rows.push(std::iter::once(format!("{t:.1}")).chain(values).collect());
    }
    rows
}

fn throughput(engine: &str, phases: &[(f64, &PhaseReport)], bands: &[Band], out: &mut String) {
    let mut points = Vec::new();
    for (start, phase) in phases {
        let (mut t_before, mut ops_before) = (0.0, 0);
        for sample in &phase.timeline {
            let rate = sample.ops.saturating_sub(ops_before) as f64 / (sample.t - t_before).max(1e-3);
            points.push((start + sample.t, rate));
            (t_before, ops_before) = (sample.t, sample.ops);
        }
    }
    let series = [Series { name: "operations/s".to_owned(), points }];
    let marks: Vec<(f64, String)> = phases
        .iter()
        .flat_map(|(start, phase)| phase.decisions.latest.iter().map(move |d| (start + d.t, d)))
        .filter(|(t, _)| bands.last().is_some_and(|last| *t <= last.to))
        .map(|(t, decision)| (t, format!("{}: {}", decision.what, decision.reason)))
        .collect();
    let step = marks.len().div_ceil(MARKS_MOST).max(1);
    let marks: Vec<_> = marks.into_iter().step_by(step).collect();
    let title = format!("{engine}: throughput over time");
    let plot = svg::lines(&title, "operations/s", &series, bands, &marks);
    section(&title, &(plot + &numbers(&rows_of(&series))), out);
}

fn runs(engine: &str, phases: &[(f64, &PhaseReport)], bands: &[Band], out: &mut String) {
    let samples = || phases.iter().flat_map(|(_, phase)| &phase.timeline);
    let levels = samples().filter_map(|s| s.runs.as_ref()).map(Vec::len).max().unwrap_or(0);
    let of_level = |level: usize| Series {
        name: format!("level {level}"),
        points: over_time(phases, |s| {
            s.runs.as_ref().map(|runs| runs.get(level).copied().unwrap_or(0) as f64)
        }),
    };
    let series: Vec<Series> =
        (0..levels).map(of_level).filter(|series| series.points.iter().any(|point| point.1 > 0.0)).collect();
    if series.is_empty() {
        return;
    }
    let title = format!("{engine}: runs per level over time");
    let plot = svg::stacked(&title, "runs", &series, bands);
    section(&title, &(plot + &numbers(&rows_of(&series))), out);
}

fn latencies(engine: &str, phases: &[(f64, &PhaseReport)], out: &mut String) {
    let quantiles = ["p50", "p99", "p99.9", "p99.99", "max"];
    let mut rows = Vec::new();
    for (_, phase) in phases {
        for (kind, of_kind) in &phase.by_op {
            let l = &of_kind.latency_us;
            let values = [l.p50, l.p99, l.p99_9, l.p99_99, l.max].map(|value| value.unwrap_or(0.0));
            rows.push((format!("{} {kind}", short_name(phase)), values.to_vec()));
        }
    }
    let title = format!("{engine}: latency percentiles");
    let mut table =
        vec![std::iter::once("us".to_owned()).chain(quantiles.map(str::to_owned)).collect::<Vec<_>>()];
    table.extend(rows.iter().map(|(name, values)| {
        std::iter::once(name.clone()).chain(values.iter().map(|value| format!("{value:.2}"))).collect()
    }));
    let plot = svg::columns_log(&title, "us, logarithmic", &quantiles, &rows);
    section(&title, &if plot.is_empty() { plot } else { plot + &numbers(&table) }, out);
}

fn write_amp(engine: &str, phases: &[(f64, &PhaseReport)], out: &mut String) {
    let parts = ["flush", "merge", "gc", "log"];
    let rows: Vec<(String, Vec<f64>)> = phases
        .iter()
        .filter(|(_, phase)| phase.bytes.ingested > 0 && phase.bytes.flush.is_some())
        .map(|(_, phase)| {
            let b = &phase.bytes;
            let amp = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / b.ingested as f64;
            (short_name(phase), vec![amp(b.flush), amp(b.merge), amp(b.gc), amp(b.log)])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let title = format!("{engine}: bytes written for a byte ingested");
    let mut table =
        vec![std::iter::once("phase".to_owned()).chain(parts.map(str::to_owned)).collect::<Vec<_>>()];
    table.extend(rows.iter().map(|(name, values)| {
        std::iter::once(name.clone()).chain(values.iter().map(|value| format!("{value:.3}"))).collect()
    }));
    let most = phases.iter().map(|(_, phase)| phase.bytes.ingested).max().unwrap_or(0);
    let writes_little = |name: &str| {
        let phase = phases.iter().find(|(_, phase)| short_name(phase) == name);
        phase.is_some_and(|(_, phase)| phase.bytes.ingested < most / DRAWN_PART)
    };
    let (little, drawn): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(name, _)| writes_little(name));
    let mut plot = svg::bars(&title, "bytes for a byte", &parts, &drawn);
    if !little.is_empty() {
        let names: Vec<String> = little.into_iter().map(|(name, _)| name).collect();
        let _ = writeln!(
            plot,
            "<p class=\"legend\">Not drawn, since they write less than a twentieth of what the heaviest phase \
             writes, so that compactions of earlier data prevail: {}</p>",
            escape(&names.join(", "))
        );
    }
    section(&title, &(plot + &numbers(&table)), out);
}

fn space(engine: &str, phases: &[(f64, &PhaseReport)], bands: &[Band], out: &mut String) {
    const MIB: f64 = 1048576.0;
    let series = [
        Series {
            name: "disk MiB".to_owned(),
            points: over_time(phases, |sample| sample.disk_bytes.map(|bytes| bytes as f64 / MIB)),
        },
        Series {
            name: "live MiB".to_owned(),
            points: over_time(phases, |sample| Some(sample.live_bytes as f64 / MIB)),
        },
    ];
    let title = format!("{engine}: disk and live bytes over time");
    let plot = svg::lines(&title, "MiB", &series, bands, &[]);
    section(&title, &(plot + &numbers(&rows_of(&series))), out);
}

fn stalls(engine: &str, phases: &[(f64, &PhaseReport)], out: &mut String) {
    let mut rows = vec![["phase", "reason", "count", "seconds"].map(str::to_owned).to_vec()];
    for (_, phase) in phases {
        for (reason, stall) in phase.stalls.by_reason.iter().flatten().filter(|(_, stall)| stall.count > 0) {
            let seconds = format!("{:.3}", stall.seconds);
            rows.push(vec![short_name(phase), reason.clone(), stall.count.to_string(), seconds]);
        }
    }
    let body = if rows.len() > 1 { cells(&rows) } else { String::new() };
    section(&format!("{engine}: stalls"), &body, out);
}

/// Returns the number before the word `bytes`; 0 if there is none.
fn bytes_named(what: &str) -> u64 {
    let words: Vec<&str> = what.split([' ', ',']).collect();
    let pair = words.windows(2).find(|pair| pair[1] == "bytes");
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

fn decisions(engine: &str, phases: &[(f64, &PhaseReport)], out: &mut String) {
    let all = phases
        .iter()
        .flat_map(|(_, phase)| phase.decisions.latest.iter().map(move |d| (short_name(phase), d)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, decision)| std::cmp::Reverse(bytes_named(&decision.what)));
    let mut body = String::new();
    if !all.is_empty() {
        body += "<div class=\"scroll\"><table>\n<tr><th>phase</th><th>t</th><th \
            class=\"words\">decision</th><th class=\"words\">reason</th></tr>\n";
        for (phase, decision) in all.into_iter().take(DECISIONS_MOST) {
            let _ = writeln!(
                body,
                "<tr><td>{}</td><td>{:.1}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
                escape(&phase),
                decision.t,
                escape(&decision.what),
                escape(&decision.reason),
            );
        }
        body += "</table></div>\n";
    }
    section(&format!("{engine}: decisions"), &body, out);
}
