//! Progress of a run: one line on stderr, redrawn at most 10 times a second. It is shown on a terminal only.

use super::model::{PhaseReport, Sample};
use crate::workload::Phase;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of redraws per second.
const REDRAWS: u8 = 10;

/// State of the current phase.
struct Present {
    title: String,
    goal: Goal,
    started: Instant,
    last: Sample,
}

/// What ends a phase.
#[derive(Clone, Copy)]
enum Goal {
    Operations(u64),
    Seconds(f64),
}

impl Goal {
    /// Returns the length of the bar: operations, or milliseconds.
    fn steps(self) -> u64 {
        let steps = match self {
            Goal::Operations(ops) => ops,
            Goal::Seconds(seconds) => (seconds * 1e3) as u64,
        };
        steps.max(1)
    }
}

/// The progress line.
pub struct Progress {
    bar: Option<ProgressBar>,
    present: Mutex<Present>,
}

impl Progress {
    /// Creates a progress line on stderr; with `quiet`, or if stderr is no terminal, nothing is printed.
    pub fn new(quiet: bool) -> Progress {
        let (title, started) = (String::new(), Instant::now());
        let present = Present { title, goal: Goal::Operations(0), started, last: Sample::default() };
        Progress { bar: is_shown(quiet).then(bar), present: Mutex::new(present) }
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
            goal: match phase.seconds {
                Some(seconds) => Goal::Seconds(seconds),
                None => Goal::Operations(phase.ops),
            },
            started: Instant::now(),
            last: Sample::default(),
        };
        if let Some(bar) = &self.bar {
            bar.set_length(present.goal.steps());
            bar.set_position(0);
            bar.set_prefix(present.title.clone());
            bar.set_message(String::new());
        }
    }

    /// Shows the sample of a second.
    pub fn show(&self, sample: &Sample) {
        let Some(bar) = &self.bar else { return };
        let mut present = self.present();
        bar.set_position(match present.goal {
            Goal::Operations(_) => sample.ops,
            Goal::Seconds(_) => (sample.t * 1e3) as u64,
        });
        bar.set_message(text(&present, sample));
        present.last = sample.clone();
    }

    /// Ends the phase and prints its throughput.
    pub fn end(&self, report: &PhaseReport) {
        let Some(bar) = &self.bar else { return };
        bar.suspend(|| {
            let PhaseReport { engine, name, ops_per_s, .. } = report;
            let _ = writeln!(io::stderr(), "{engine} {name}: {ops_per_s:.0} operations/s");
        });
    }

    /// Removes the line.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn is_shown(quiet: bool) -> bool {
    !quiet && io::stderr().is_terminal()
}

/// A spinner on stderr for work that reports no progress. Dropping it removes it.
pub struct Spinner(Option<ProgressBar>);

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Returns a spinner with the elapsed time and the text `doing`; with `quiet`, or if stderr is no terminal, nothing is
/// printed.
pub fn spinner(doing: &str, quiet: bool) -> Spinner {
    Spinner(is_shown(quiet).then(|| {
        let style = ProgressStyle::with_template("{prefix} {spinner} {elapsed}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS));
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let bar = bar.with_prefix(doing.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }))
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS));
    let style = ProgressStyle::with_template("{prefix} [{bar:20}] {percent:>3} % {msg}, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn text(present: &Present, sample: &Sample) -> String {
    let now = (sample.ops.saturating_sub(present.last.ops)) as f64 / (sample.t - present.last.t).max(1e-9);
    let mean = sample.ops as f64 / present.started.elapsed().as_secs_f64().max(1e-9);
    let goal = match present.goal {
        Goal::Operations(ops) => ops.to_string(),
        Goal::Seconds(seconds) => format!("{seconds:.0} s"),
    };
    let mut text = format!("of {goal}, {now:.0}/s now, {mean:.0}/s mean");
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
