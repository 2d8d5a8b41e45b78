//! The report as tab-separated values, with the columns of RocksDB's `benchmark.sh`. A cell without a value is empty.

use super::model::{PhaseReport, Report};

const COLUMNS: [&str; 30] = [
    "ops_sec", "mb_sec", "lsm_sz", "blob_sz", "c_wgb", "w_amp", "c_mbps", "c_wsecs", "c_csecs", "b_rgb",
    "b_wgb", "usec_op", "p50", "p99", "p99.9", "p99.99", "pmax", "uptime", "stall%", "Nstall", "u_cpu",
    "s_cpu", "rss", "test", "date", "version", "job_id", "githash", "engine", "round",
];

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.digits$}"))
}

/// Returns a heading and a row per phase, engine and round.
pub fn text(report: &Report) -> String {
    let mut text = COLUMNS.join("\t");
    text.push('\n');
    for phase in &report.phases {
        text += &row(report, phase).join("\t");
        text.push('\n');
    }
    text
}

fn row(report: &Report, phase: &PhaseReport) -> [String; 30] {
    let giga = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / (1u64 << 30) as f64);
    let seconds = phase.seconds.max(f64::MIN_POSITIVE);
    let written = phase.bytes.flush.zip(phase.bytes.merge).map(|(flush, merge)| flush + merge);
    let space = phase.space_amp.r#final.map(|amp| amp * phase.space_amp.live_bytes_final as f64);
    let latency = &phase.latency_us;
    let cpu = phase.process_cpu_us_per_op * phase.ops as f64 / 1e6;
    [
        format!("{:.0}", phase.ops_per_s),
        number(Some(phase.bytes.ingested as f64 / seconds / 1048576.0), 1),
        number(space.map(|bytes| bytes / 1e9), 3),
        String::new(),
        number(giga(written), 3),
        number(phase.write_amp, 2),
        number(written.map(|bytes| bytes as f64 / seconds / 1048576.0), 1),
        String::new(),
        String::new(),
        number(giga(phase.bytes.read_merge), 3),
        number(giga(phase.bytes.merge), 3),
        number(Some(seconds * 1e6 / phase.ops.max(1) as f64), 3),
        number(latency.p50, 2),
        number(latency.p99, 2),
        number(latency.p99_9, 2),
        number(latency.p99_99, 2),
        number(latency.max, 1),
        number(Some(seconds), 3),
        number(phase.stalls.seconds.map(|stalled| stalled * 100.0 / seconds), 1),
        phase.stalls.count.map_or(String::new(), |count| count.to_string()),
        number(Some(cpu), 2),
        String::new(),
        number(giga(phase.rss_peak_bytes), 3),
        phase.name.clone(),
        report.started_utc.clone(),
        report.build.version.clone(),
        String::new(),
        report.build.commit.clone().unwrap_or_default(),
        phase.engine.clone(),
        phase.round.to_string(),
    ]
}
