//! Progress of a long command on stderr: a bar with a rate, or a spinner with the elapsed time. It is shown on a
//! terminal only; elsewhere a command prints its summary and nothing before it.

use crate::figures::{grouped, rate, size};
use crate::output::note;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Records between two updates of the bar.
const RECORDS_PER_LOOK: u64 = 64;
/// Interval of redraws while a command reports nothing.
const TICK: Duration = Duration::from_millis(200);

/// Counts records and bytes, and displays them. Dropping it removes the display.
pub(crate) struct Progress {
    doing: &'static str,
    bar: Option<ProgressBar>,
    started: Instant,
    records: u64,
    bytes: u64,
}

impl Progress {
    /// Starts counting. `total_bytes` is the size of the input, if known.
    pub(crate) fn start(doing: &'static str, total_bytes: Option<u64>) -> Progress {
        let template = match total_bytes {
            Some(_) => "{prefix} [{bar:32}] {percent:>3} %, {msg}, {eta} left",
            None => "{prefix} {spinner} {elapsed} {msg}",
        };
        Progress::shown(doing, total_bytes, template)
    }

    /// Starts a command of `count` steps, each of which calls [`Progress::step`].
    pub(crate) fn steps(doing: &'static str, count: u64) -> Progress {
        Progress::shown(doing, Some(count), "{prefix} [{bar:32}] {pos} of {len} done, {elapsed}, {msg}")
    }

    fn shown(doing: &'static str, length: Option<u64>, template: &str) -> Progress {
        let show = || {
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let bar = bar.with_style(style).with_prefix(doing);
            bar.enable_steady_tick(TICK);
            bar
        };
        let bar = io::stderr().is_terminal().then(show);
        Progress { doing, bar, started: Instant::now(), records: 0, bytes: 0 }
    }

    /// Counts one more record; `bytes` is the total of input bytes consumed so far.
    pub(crate) fn record(&mut self, bytes: u64) {
        self.records += 1;
        self.bytes = bytes;
        if self.records.is_multiple_of(RECORDS_PER_LOOK) {
            self.show();
        }
    }

    /// Sets the totals of records and input bytes.
    pub(crate) fn come_to(&mut self, records: u64, bytes: u64) {
        (self.records, self.bytes) = (records, bytes);
        self.show();
    }

    /// Shows that `done` steps are done and that `doing` is under way.
    pub(crate) fn step(&self, done: u64, doing: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(doing.to_owned());
        }
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.bytes);
            bar.set_message(self.text());
        }
    }

    /// Returns the number of records so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Returns the seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Removes the bar and prints `summary`.
    pub(crate) fn finish(self, summary: &str) {
        let doing = self.doing;
        drop(self);
        note(&format!("{doing}: {summary}"));
    }

    fn text(&self) -> String {
        let per_second = rate(self.records, self.seconds());
        format!("{} records, {}, {} records/s", grouped(self.records), size(self.bytes), grouped(per_second))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
