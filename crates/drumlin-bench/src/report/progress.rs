//! Progress of a run: one line on stderr.
//!
//! On a terminal the line is redrawn at most 10 times a second. Otherwise a plain line is printed every 10 seconds.

use super::model::{PhaseReport, Sample};
use crate::workload::Phase;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Maximum number of redraws per second.
const REDRAWS: u8 = 10;
/// Number of samples, one per second, between two plain lines.
const PLAIN_SAMPLES: u64 = 10;

/// State of the current phase.
struct Present {
    title: String,
    ops: u64,
    started: Instant,
    /// Number of samples of the phase so far.
    samples: u64,
    last: Sample,
}

/// The progress line.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    present: Mutex<Present>,
}

impl Progress {
    /// Creates a progress line on stderr; with `quiet`, nothing is printed.
    pub fn new(quiet: bool) -> Progress {
        let on_terminal = !quiet && io::stderr().is_terminal();
        let (title, started) = (String::new(), Instant::now());
        let present = Present { title, ops: 0, started, samples: 0, last: Sample::default() };
        Progress { bar: on_terminal.then(bar), quiet, present: Mutex::new(present) }
    }

    fn present(&self) -> std::sync::MutexGuard<'_, Present> {
        // The state is plain numbers, so it remains usable after a panic of another thread.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the phase at `position` of `count`.
    pub fn begin(&self, engine: &str, phase: &Phase, position: usize, count: usize) {
        let mut present = self.present();
        *present = Present {
            title: format!("{engine} {}/{count} {}", position + 1, phase.name),
            ops: phase.ops,
            started: Instant::now(),
            samples: 0,
            last: Sample::default(),
        };
        if let Some(bar) = &self.bar {
            bar.set_length(phase.ops.max(1));
            bar.set_position(0);
            bar.set_prefix(present.title.clone());
            bar.set_message(String::new());
        }
    }

    /// Shows the sample of a second.
    pub fn show(&self, sample: &Sample) {
        if self.quiet {
            return;
        }
        let mut present = self.present();
        let text = text(&present, sample);
        present.last = sample.clone();
        if let Some(bar) = &self.bar {
            bar.set_position(sample.ops);
            bar.set_message(text);
            return;
        }
        present.samples += 1;
        if present.samples.is_multiple_of(PLAIN_SAMPLES) {
            let _ = writeln!(io::stderr(), "{}: {text}", present.title);
        }
    }

    /// Ends the phase and prints its throughput.
    pub fn end(&self, report: &PhaseReport) {
        let text = format!("{} {}: {:.0} operations/s", report.engine, report.name, report.ops_per_s);
        match &self.bar {
            Some(bar) => bar.suspend(|| {
                let _ = writeln!(io::stderr(), "{text}");
            }),
            None if !self.quiet => {
                let _ = writeln!(io::stderr(), "{text}");
            }
            None => {}
        }
    }

    /// Removes the line.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS));
    let style = ProgressStyle::with_template("{prefix} [{bar:20}] {percent:>3} % {msg}, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn text(present: &Present, sample: &Sample) -> String {
    let now = (sample.ops.saturating_sub(present.last.ops)) as f64 / (sample.t - present.last.t).max(1e-9);
    let mean = sample.ops as f64 / present.started.elapsed().as_secs_f64().max(1e-9);
    let mut text = format!("of {}, {now:.0}/s now, {mean:.0}/s mean", present.ops);
    if let Some(p99) = sample.p99_us {
        text += &format!(", p99 {p99:.1} us");
    }
    if let Some(runs) = &sample.runs {
        let levels = runs.iter().enumerate().filter(|(_, runs)| **runs > 0);
        let levels: Vec<String> = levels.map(|(level, runs)| format!("L{level} {runs}")).collect();
        text += &format!(", {}", levels.join(" | "));
    }
    if let Some(written) = sample.written_bytes {
        text += &format!(", {} MB written", written >> 20);
    }
    if let Some(stalled) = sample.stall_ms.filter(|ms| *ms > 0.0) {
        text += &format!(", stalled {:.0} %", stalled / 10.0 / sample.t.max(1e-9));
    }
    text
}
