//! How long merges took beside how long ARCE said that they would, from the engine's log of decisions.
//!
//! Plans say in their reasons in how many windows they are due, and the log says when flushes, merges and their ends were.
//! Between two flushes a window is as full as its time has passed. The log keeps the latest records alone, so it is read
//! now and then.

use drumlin::DecisionRecord;
use drumlin_policy::sim::foresight::{self, Due, Foresight};
use serde::Serialize;
use std::collections::BTreeSet;

/// Merges that were compared.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Missed {
    /// How many.
    pub merges: u64,
    /// By how many windows they missed the time that was foreseen, in the mean.
    pub mean: f64,
    /// The most that one of them did.
    pub most: f64,
}

impl From<foresight::Missed> for Missed {
    fn from(missed: foresight::Missed) -> Missed {
        Missed { merges: missed.merges, mean: missed.mean(), most: missed.most }
    }
}

/// Merges that ended in a phase, by what their plans went by.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Foreseen {
    /// The load of the phase.
    pub held: Missed,
    /// Another one.
    pub changed: Missed,
}

/// What the log says.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Flush,
    /// A ticket, and when it is due.
    Begun(u64, Option<Due>),
    /// A ticket, and whether all of it was merged.
    Ended(u64, bool),
}

/// Reads the log.
#[derive(Default)]
pub(super) struct Reader {
    last: Option<DecisionRecord>,
    /// Of the present phase, with their times.
    events: Vec<(u64, Event)>,
    /// Flushes of the phases before, and the time of the last one.
    flushes: (u64, u64),
    /// Tickets under way.
    open: BTreeSet<u64>,
    foresight: Foresight,
}

impl Reader {
    /// Takes the latest records, oldest first; those that it has seen already may be among them.
    pub(super) fn read(&mut self, records: &[DecisionRecord]) {
        let new =
            records.iter().rposition(|record| Some(record) == self.last.as_ref()).map_or(0, |at| at + 1);
        self.events.extend(records[new..].iter().filter_map(|record| Some((record.micros, event(record)?))));
        self.last = records.last().cloned().or(self.last.take());
    }

    /// A phase of so many operations ends.
    pub(super) fn end_phase(&mut self, operations: u64) -> Foreseen {
        let events = std::mem::take(&mut self.events);
        let is_flush = |(at, event): &(u64, Event)| (*event == Event::Flush).then_some(*at);
        let times: Vec<u64> = events.iter().filter_map(is_flush).collect();
        let (before, last) = self.flushes;
        let flushed = |micros: u64| {
            let done = times.partition_point(|at| *at <= micros);
            let begin = if done == 0 { last } else { times[done - 1] };
            // No flush ends the last window: it is never full.
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

/// What `record` tells of flushes and merges.
fn event(record: &DecisionRecord) -> Option<Event> {
    let what = &record.what;
    if what.starts_with("flush of ") {
        return Some(Event::Flush);
    }
    let (name, rest) = what.strip_prefix('#')?.split_once(' ')?;
    let ticket: u64 = name.parse().ok()?;
    if rest.contains(" tables -> ") {
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
            let what = format!("#{ticket} 5 tables -> L0 r9, 1000 bytes, 1 pieces, 0 moves");
            record(micros, &what, &format!("must: runs 1 to 5, t 9.000, due in {due} operations, gain 1 us"))
        };
        let ended =
            |micros, ticket: u64, how: &str| record(micros, &format!("#{ticket} {how}: 9 bytes in"), "");
        let mut log = vec![
            flush(100),
            begun(150, 1, "1.500 of 100"),
            record(160, "asked: 1 plans, 0 parked", "policy arce"),
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
        // From the middle of a window to a third of the next but two, instead of one and a half.
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
