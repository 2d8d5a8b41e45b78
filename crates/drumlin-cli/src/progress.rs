//! Progress of a long command on stderr: a bar with a rate on a terminal, otherwise a plain line every ten seconds.

use crate::figures::{grouped, rate, size};
use crate::output::note;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Instant;

/// Interval between plain progress lines, in seconds.
const PLAIN_SECONDS: u64 = 10;
/// Records between two reads of the clock.
const RECORDS_PER_LOOK: u64 = 64;

/// Counts records and bytes, and displays them.
pub(crate) struct Progress {
    doing: &'static str,
    bar: Option<ProgressBar>,
    started: Instant,
    /// Index of the latest period of [`PLAIN_SECONDS`] for which a line was printed.
    told: u64,
    records: u64,
    bytes: u64,
}

impl Progress {
    /// Starts counting. `total_bytes` is the size of the input, if known.
    pub(crate) fn start(doing: &'static str, total_bytes: Option<u64>) -> Progress {
        let bar = io::stderr().is_terminal().then(|| bar(doing, total_bytes));
        Progress { doing, bar, started: Instant::now(), told: 0, records: 0, bytes: 0 }
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

    fn show(&mut self) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.bytes);
                bar.set_message(self.text());
            }
            None => {
                let period = self.started.elapsed().as_secs() / PLAIN_SECONDS;
                if std::mem::replace(&mut self.told, period) != period {
                    note(&format!("{}: {}", self.doing, self.text()));
                }
            }
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
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        note(&format!("{}: {summary}", self.doing));
    }

    fn text(&self) -> String {
        let per_second = rate(self.records, self.seconds());
        format!("{} records, {}, {} records/s", grouped(self.records), size(self.bytes), grouped(per_second))
    }
}

fn bar(doing: &'static str, total_bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match total_bytes {
        Some(total) => (ProgressBar::new(total), "{prefix} [{bar:32}] {percent:>3} %, {msg}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(doing)
}
