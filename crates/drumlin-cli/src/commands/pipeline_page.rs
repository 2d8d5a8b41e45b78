//! The HTML page of `drumlin sim pipeline`: inline SVG plots, no script, identical bytes for identical results.

use super::pipeline_course::Course;
use crate::args::PipelineArgs;
use drumlin_bench::report::html::{begin, end};
use drumlin_bench::report::svg::{self, Series, escape};
use std::fmt::Write;

/// Length of the plots over time in seconds, taken from the middle of a load.
const WINDOW: f64 = 50.0;

pub(super) fn page(courses: &[Course], args: &PipelineArgs) -> String {
    let mut out = begin("drumlin sim pipeline");
    let _ = writeln!(
        out,
        "<h1>Pipelined compactions</h1><p>{} MiB of new keys, written at up to {} MiB/s, in virtual time, on a \
         device of 8000 MiB/s with slots that read 200 MiB/s of input each. The scheduler and the policies are the \
         engine's own. <i>pipelined</i> is how Drumlin works; <i>split</i> is the same without the pipeline; \
         <i>unsplit</i> also runs each compaction on one thread.</p>",
        args.load, args.rate
    );
    let detail: Vec<&Course> = courses.iter().filter(|c| c.slots == args.detail).collect();
    throughput(courses, &mut out);
    distribution(&detail, args.detail, &mut out);
    levels(&detail, args.detail, &mut out);
    over_time(&detail, args.detail, &mut out);
    write_amplification(&detail, args.detail, &mut out);
    table(courses, &mut out);
    end(out)
}

/// Plots throughput by number of slots: figures 3a and 6.
fn throughput(courses: &[Course], out: &mut String) {
    let mut series: Vec<Series> = Vec::new();
    for course in courses {
        let point = (f64::from(course.slots), course.throughput());
        match series.iter_mut().find(|s| s.name == course.name()) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name: course.name(), points: vec![point] }),
        }
    }
    *out += "<h2>Throughput by number of slots (figures 3a and 6)</h2>\n";
    *out += &svg::lines("throughput by number of slots", "MiB/s", &series, &[], &[]);
}

/// Plots the distribution of busy slots: figures 3b and 7.
fn distribution(detail: &[&Course], slots: u32, out: &mut String) {
    let line = |course: &&Course| Series {
        name: course.name(),
        points: (0..=slots as usize)
            .map(|n| (n as f64, 100.0 * (1.0 - course.report.share_busy(n + 1))))
            .collect(),
    };
    let series: Vec<Series> = detail.iter().map(line).collect();
    let _ = writeln!(out, "<h2>Share of time with at most N of {slots} slots busy (figures 3b and 7)</h2>");
    *out += &svg::lines("cumulative distribution of busy slots", "% of the time", &series, &[], &[]);
}

/// Plots the mean number of busy slots by level: figure 8.
fn levels(detail: &[&Course], slots: u32, out: &mut String) {
    let names: Vec<String> = (0..deepest(detail)).map(|level| format!("from L{level}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let row = |course: &&Course| {
        let means = (0..names.len()).map(|level| course.report.mean_of_level(level)).collect();
        (course.name(), means)
    };
    let rows: Vec<(String, Vec<f64>)> = detail.iter().map(row).collect();
    let _ = writeln!(out, "<h2>Mean of busy slots by level, of {slots} (figure 8)</h2>");
    *out += &svg::bars("busy slots by level", "slots", &names, &rows);
}

/// Plots busy slots by level over time: figure 9.
fn over_time(detail: &[&Course], slots: u32, out: &mut String) {
    let _ = writeln!(out, "<h2>Busy slots by level over time, of {slots} (figure 9)</h2>");
    for course in detail {
        let all = &course.report.series;
        let count = ((WINDOW * 10.0) as usize).min(all.len());
        let first = (all.len() - count) / 2;
        let series: Vec<Series> = (0..deepest(detail))
            .map(|level| Series {
                name: format!("from L{level}"),
                points: all[first..first + count]
                    .iter()
                    .enumerate()
                    .map(|(at, levels)| ((first + at) as f64 / 10.0, f64::from(levels[level])))
                    .collect(),
            })
            .collect();
        let _ = writeln!(out, "<h3>{}</h3>", escape(&course.name()));
        *out += &svg::stacked(&course.name(), "slots", &series, &[]);
    }
}

/// Plots write amplification: table 3.
fn write_amplification(detail: &[&Course], slots: u32, out: &mut String) {
    let rows: Vec<(String, Vec<f64>)> =
        detail.iter().map(|c| (c.name(), vec![c.report.write_amp()])).collect();
    let _ = writeln!(out, "<h2>Bytes written per byte, {slots} slots (table 3)</h2>");
    *out += &svg::bars("write amplification", "bytes per byte", &["flushes and merges"], &rows);
}

/// Returns one more than the deepest level that any compaction read from.
fn deepest(detail: &[&Course]) -> usize {
    let used =
        |course: &&Course| course.report.by_level.iter().rposition(|time| *time > 0).map_or(0, |l| l + 1);
    detail.iter().map(used).max().unwrap_or(0)
}

fn table(courses: &[Course], out: &mut String) {
    *out += "<h2>All figures</h2><div class=\"scroll\"><table><tr><th>policy and mode</th><th>slots</th><th>MiB/s</th>\
             <th>write amplification</th><th>mean active</th><th>mean depth</th><th>most L0 runs</th><th>moved</th>\
             <th>folded</th></tr>\n";
    for course in courses {
        let report = &course.report;
        let part = |bytes: u64| bytes as f64 / report.ingested as f64;
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td>\
             <td>{:.2}</td><td>{:.2}</td></tr>",
            escape(&course.name()),
            course.slots,
            report.throughput(),
            report.write_amp(),
            report.mean_busy(),
            report.mean_depth(),
            report.most_level0,
            part(report.moved),
            part(report.folded),
        );
    }
    *out += "</table></div>\n";
}
