//! Duration of compactions compared with ARCE's prediction, from the engine's decision log.
//!
//! The reason of a plan states in how many flush intervals ("windows") it is due. The log records flushes and the
//! starts and ends of compactions. Progress within a flush interval is interpolated by time. The log keeps only the
//! latest records, so it is read periodically.

use drumlin::DecisionRecord;
use drumlin_sim::foresight::{self, Due, Foresight};
use serde::Serialize;
use std::collections::BTreeSet;

/// Prediction error over a set of compactions.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Missed {
    /// Number of compactions compared.
    pub merges: u64,
    /// Mean error in flush intervals.
    pub mean: f64,
    /// Maximum error in flush intervals.
    pub most: f64,
}

impl From<foresight::Missed> for Missed {
    fn from(missed: foresight::Missed) -> Missed {
        Missed { merges: missed.merges, mean: missed.mean(), most: missed.most }
    }
}

/// Compactions that ended in a phase, by the load on which their predictions were based.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Foreseen {
    /// Predictions based on the load of this phase.
    pub held: Missed,
    /// Predictions based on another load.
    pub changed: Missed,
}

/// Event in the decision log.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Flush,
    /// Start of a ticket (a scheduled compaction), with its due time.
    Begun(u64, Option<Due>),
    /// End of a ticket, and whether it completed in full.
    Ended(u64, bool),
}

/// Reader of the decision log.
#[derive(Default)]
pub(super) struct Reader {
    last: Option<DecisionRecord>,
    /// Events of the current phase, with their times.
    events: Vec<(u64, Event)>,
    /// Number of flushes in earlier phases, and the time of the last one.
    flushes: (u64, u64),
    /// Tickets in progress.
    open: BTreeSet<u64>,
    foresight: Foresight,
}

impl Reader {
    /// Processes the latest records, oldest first. Records from earlier calls are skipped.
    pub(super) fn read(&mut self, records: &[DecisionRecord]) {
        let new =
            records.iter().rposition(|record| Some(record) == self.last.as_ref()).map_or(0, |at| at + 1);
        self.events.extend(records[new..].iter().filter_map(|record| Some((record.micros, event(record)?))));
        self.last = records.last().cloned().or(self.last.take());
    }

    /// Ends a phase of `operations` operations. Returns its prediction errors.
    pub(super) fn end_phase(&mut self, operations: u64) -> Foreseen {
        let events = std::mem::take(&mut self.events);
        let is_flush = |(at, event): &(u64, Event)| (*event == Event::Flush).then_some(*at);
        let times: Vec<u64> = events.iter().filter_map(is_flush).collect();
        let (before, last) = self.flushes;
        let flushed = |micros: u64| {
            let done = times.partition_point(|at| *at <= micros);
            let begin = if done == 0 { last } else { times[done - 1] };
            // The last interval is never full, because no flush ends it.
            let end = times.get(done).copied().unwrap_or(u64::MAX);
            let fill = (micros - begin.min(micros)) as f64 / (end - begin.min(end)).max(1) as f64;
            (before + done as u64) as f64 + fill
        };
        let each = operations as f64 / times.len().max(1) as f64;
        for (at, event) in &events {
            let flushes = flushed(*at);
            match *event {
                Event::Flush => {}
                Event::Begun(ticket, due) => {
                    self.foresight.began(ticket, due, flushes, self.open.is_empty());
                    self.open.insert(ticket);
                }
                Event::Ended(ticket, is_whole) => {
                    self.open.remove(&ticket);
                    if is_whole {
                        self.foresight.ended(ticket, flushes, each);
                    }
                }
            }
        }
        self.flushes = (before + times.len() as u64, times.last().copied().unwrap_or(last));
        let foresight::Foreseen { held, changed } = self.foresight.take();
        Foreseen { held: held.into(), changed: changed.into() }
    }
}

/// Returns the event that `record` describes, if it is about a flush or a compaction.
fn event(record: &DecisionRecord) -> Option<Event> {
    let what = &record.what;
    if what.starts_with("flush of ") {
        return Some(Event::Flush);
    }
    let (name, rest) = what.strip_prefix('#')?.split_once(' ')?;
    let ticket: u64 = name.parse().ok()?;
    if rest.contains(" -> L") {
        return Some(Event::Begun(ticket, Due::parse(&record.reason)));
    }
    let is_whole = rest.starts_with("done: ");
    (is_whole || rest.starts_with("cut short: ")).then_some(Event::Ended(ticket, is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(micros: u64, what: &str, reason: &str) -> DecisionRecord {
        let (what, reason) = (what.to_owned(), reason.to_owned());
        DecisionRecord { micros, keyspace: "k".to_owned(), what, reason }
    }

    #[test]
    fn merges_are_read_from_the_log() {
        let flush = |micros| record(micros, "flush of 60 entries, 64000 bytes -> L0 r9", "sealed");
        let begun = |micros, ticket: u64, due: &str| {
            let what = format!("#{ticket} 5 tables -> L0 r9, 1000 bytes, 1 piece, 0 trivial moves");
            record(micros, &what, &format!("must: compacts runs 1 to 5, due in {due} operations, gain 1 us"))
        };
        let ended =
            |micros, ticket: u64, how: &str| record(micros, &format!("#{ticket} {how}: read 9 bytes"), "");
        let mut log = vec![
            flush(100),
            begun(150, 1, "1.500 of 100"),
            record(160, "policy call: 1 plan, 0 withdrawn", "policy arce"),
            flush(200),
            flush(300),
            flush(400),
            ended(450, 1, "done"),
            begun(500, 2, "9.000 of 100"),
            flush(550),
        ];
        let mut reader = Reader::default();
        reader.read(&log[..4]);
        reader.read(&log[..7]);
        reader.read(&log);
        let Foreseen { held, changed } = reader.end_phase(500);
        // The compaction runs from the middle of one interval to a third of the third one after it, instead of 1.5
        // intervals.
        let most = 3.0 - 0.5 + 50.0 / 150.0 - 1.5;
        assert_eq!((held.merges, changed.merges), (1, 0));
        assert!((held.most - most).abs() < 1e-9 && held.mean == held.most, "{held:?}");
        log.drain(..5);
        log.extend([
            flush(600),
            ended(600, 2, "done"),
            begun(610, 3, "1.0 of 100"),
            ended(620, 3, "cut short"),
        ]);
        log.extend([
            begun(630, 4, "1.0 of 100"),
            begun(631, 5, "1.0 of 100"),
            ended(640, 4, "done"),
            ended(650, 5, "done"),
        ]);
        reader.read(&log);
        let Foreseen { held, changed } = reader.end_phase(20);
        assert_eq!((held.merges, changed.merges), (0, 1));
        assert!(changed.most > 0.0, "{changed:?}");
    }
}
