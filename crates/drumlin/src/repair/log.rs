//! Reads everything that is readable in the log.
//!
//! If recovery accepts the log, repair saves what recovery replays. There are two exceptions: recovery refuses the log,
//! or sound commits follow its torn end. Such commits were never reported as durable, but they are data of the user.
//!
//! In both cases every segment that may be needed is read separately. After a place without a sound record, reading
//! goes on at the next sound record. That is safe because each record's checksum is bound to its segment and offset.
//!
//! Records that an earlier recovery dropped are left out: those after the base of a segment's successor, and all but
//! the newest of several successors with the segments that follow them.

use super::report::FileReports;
use super::source::{Destination, RepairSources};
use crate::base::error::Error;
use crate::base::rangedel::RangeTombstone;
use crate::base::slice::Slice;
use crate::recovery::{evidence, state};
use crate::table::Version;
use crate::write::segment::{log_numbers, path_in};
use drumlin_env::{DirEntry, Env, FileKind};
use drumlin_format::batch::{BatchReader, range_end};
use drumlin_format::limits::MAX_POSITION;
use drumlin_format::log::{
    LogDamage, Record, RecordKind, Replay, SEGMENT_HEADER_LEN, SegmentHeader, SegmentPrefix, SegmentScanner,
    Tail, next_record, recover,
};
use drumlin_format::names::FileName;
use drumlin_types::{KeyRange, Kind, LogNumber, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Content of the log.
#[derive(Default)]
pub(super) struct Logged {
    pub(super) versions: BTreeMap<Destination, Vec<Version>>,
    pub(super) tombstones: BTreeMap<Destination, Vec<RangeTombstone>>,
    pub(super) commits: u64,
    /// Whether the log ends with a close record that the manifest confirms.
    pub(super) was_closed: bool,
    /// Upper bound on the sequence numbers of lost commits; `None` if none are lost.
    pub(super) lost_up_to: Option<Seq>,
    pub(super) findings: Vec<String>,
    pub(super) bytes: u64,
}

/// Log segment that is read separately.
struct LoggedSegment {
    number: LogNumber,
    name: String,
    header: Option<SegmentHeader>,
    bytes: Vec<u8>,
}

/// Reader of the log of a store.
pub(super) struct LogReader<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a Path,
    pub(super) sources: &'a RepairSources,
    pub(super) files: &'a mut FileReports,
}

impl LogReader<'_> {
    /// Reads the log segments among `entries`.
    pub(super) fn read(&mut self, entries: &[DirEntry]) -> Logged {
        let numbers = log_numbers(entries);
        let mut logged = Logged::default();
        let Some(manifest) = self.sources.manifest.as_ref().filter(|_| self.sources.is_sound) else {
            self.salvage(&numbers, LogNumber(0), &mut logged);
            return logged;
        };
        let mut whole = Whole { reader: self, logged: Logged::default() };
        let recovered = recover(&numbers, manifest.marks.floor, &mut whole).map_err(|LogFailure(what)| what);
        let Whole { logged: found, .. } = whole;
        let checked = recovered.and_then(|recovered| {
            let checked = evidence::check_log(self.dir, manifest, &recovered);
            checked.map(|()| recovered).map_err(|error| error.to_string())
        });
        match checked {
            Ok(recovered) if !recovered.torn => {
                let was_closed = recovered.closed && manifest.marks.log_end == recovered.end;
                return Logged { was_closed, ..found };
            }
            Ok(_) => {}
            Err(what) => {
                logged.findings.push(format!("the log: {what}"));
                logged.lost_up_to = Some(Seq::MAX);
            }
        }
        self.files.forget(".log");
        let is_refused = logged.lost_up_to.is_some();
        self.salvage(&numbers, manifest.marks.floor, &mut logged);
        if !is_refused && logged.commits <= found.commits {
            // The end is torn, as after a crash, and no commit follows it.
            return found;
        }
        logged
    }

    fn load(&self, number: LogNumber) -> Result<Vec<u8>, Error> {
        state::read_file(self.env, &path_in(self.dir, number), FileKind::Log)
    }

    /// Reads all segments from `floor` on separately.
    fn salvage(&mut self, numbers: &[LogNumber], floor: LogNumber, logged: &mut Logged) {
        let mut segments = self.segments(numbers, floor, logged);
        segments.sort_by_key(|segment| segment.number);
        let headers: Vec<SegmentHeader> = segments.iter().filter_map(|segment| segment.header).collect();
        let successor = |number: LogNumber| {
            headers
                .iter()
                .rev()
                .find(|header| header.predecessor.is_some_and(|before| before.number == number))
        };
        let mut last_seq = 0;
        let mut dropped: BTreeSet<LogNumber> = BTreeSet::new();
        for segment in &segments {
            let follows = segment.header.and_then(|header| header.predecessor).map(|before| before.number);
            let is_superseded =
                follows.and_then(successor).is_some_and(|newest| newest.number > segment.number);
            // A segment that follows a dropped one is dropped too.
            if is_superseded || follows.is_some_and(|before| dropped.contains(&before)) {
                dropped.insert(segment.number);
                continue;
            }
            if let Some(before) = follows
                && before >= floor
                && self.sources.is_sound
                && !segments.iter().any(|other| other.number == before)
            {
                let name = FileName::Log(before);
                logged.lose(
                    format!("{name}: the segment is missing"),
                    segment.header.map(|h| h.last_seq_before()),
                );
            }
            let limit = successor(segment.number).zip(segment.header);
            let limit =
                limit.map(|(next, header)| header.offset(next.base).unwrap_or(SEGMENT_HEADER_LEN as u64));
            self.segment(segment, limit, &mut last_seq, logged);
        }
    }

    /// Returns the segments that may hold needed records, each with the number that its records are bound to.
    fn segments(
        &mut self,
        numbers: &[LogNumber],
        floor: LogNumber,
        logged: &mut Logged,
    ) -> Vec<LoggedSegment> {
        let mut segments = Vec::new();
        for number in numbers.iter().copied().filter(|number| *number >= floor) {
            let name = FileName::Log(number).to_string();
            let bytes = match self.load(number) {
                Ok(bytes) => bytes,
                Err(error) => {
                    logged.lose(error.to_string(), None);
                    continue;
                }
            };
            logged.bytes += bytes.len() as u64;
            let header = SegmentHeader::decode(&bytes, number).ok();
            let other = SegmentHeader::named(&bytes)
                .filter(|other| header.is_none() && SegmentHeader::decode(&bytes, *other).is_ok());
            match other {
                // The file was recycled, and its new segment was not begun. Only segments below the floor are
                // recycled, so under a sound manifest any other was renamed. If the file of that name is not segment
                // `other`, the two files were exchanged.
                Some(other) if other < floor || !self.sources.is_sound && !numbers.contains(&other) => {}
                Some(other)
                    if self.load(other).is_ok_and(|own| SegmentHeader::decode(&own, other).is_ok()) => {}
                Some(other) => {
                    logged.findings.push(format!("{name} is segment {} under another name", other.0));
                    let header = SegmentHeader::decode(&bytes, other).ok();
                    segments.push(LoggedSegment { number: other, name, header, bytes });
                }
                None if header.is_none()
                    && bytes.iter().take(SEGMENT_HEADER_LEN).all(|byte| *byte == 0)
                    && next_record(&bytes, number, 0).is_none() =>
                {
                    if bytes.len() < SEGMENT_HEADER_LEN {
                        logged.lose(format!("{name} was cut"), None);
                    }
                }
                None => {
                    if header.is_none() {
                        logged.lose(format!("{name}: the header is damaged"), None);
                    }
                    if header.is_some_and(|header| (bytes.len() as u64) < header.file_len) {
                        logged.lose(format!("{name} was cut to {} bytes", bytes.len()), None);
                    }
                    segments.push(LoggedSegment { number, name, header, bytes });
                }
            }
        }
        segments
    }

    /// Reads the records of `segment` that are newer than `last_seq`, up to offset `limit`.
    fn segment(
        &mut self,
        segment: &LoggedSegment,
        limit: Option<u64>,
        last_seq: &mut Seq,
        logged: &mut Logged,
    ) {
        let LoggedSegment { number, name, header, bytes } = segment;
        // Without its header the segment's position in the log is unknown. The position only bounds the sync marks of
        // its records.
        let unknown = SegmentHeader { number: *number, base: MAX_POSITION, predecessor: None, file_len: 0 };
        let mut scanner = SegmentScanner::new(bytes, header.unwrap_or(unknown));
        let end = limit.unwrap_or(u64::MAX);
        loop {
            while scanner.offset() < end
                && let Some(record) = scanner.next()
                && scanner.offset() <= end
            {
                if record.header.kind == RecordKind::Batch && record.header.first_seq > *last_seq {
                    *last_seq = record.header.last_seq();
                    if let Err(what) = self.record(&record, name, logged) {
                        logged.lose(format!("{name}: {what} at {}", record.offset), Some(*last_seq));
                    }
                }
            }
            let at = scanner.offset();
            let is_over = at >= end || matches!(scanner.tail(), Some(Tail::Ended { .. }) | None);
            let next = next_record(bytes, *number, at + 8).filter(|next| *next < end);
            match next {
                _ if is_over => return,
                Some(next) => {
                    self.files.of(name).damages += 1;
                    logged.lose(format!("{name}: no sound record from {at} to {next}"), None);
                    scanner.resume(next);
                }
                None => {
                    if limit.is_some() {
                        self.files.of(name).damages += 1;
                        logged.lose(format!("{name}: no sound record from {at} to {end}"), None);
                    }
                    return;
                }
            }
        }
    }

    /// Keeps the operations of `record`, except those of dropped keyspaces and those that are in tables.
    fn record(&mut self, record: &Record<'_>, name: &str, logged: &mut Logged) -> Result<(), String> {
        let operations = BatchReader::new(record.payload, record.header.count);
        logged.commits += 1;
        for (seq, operation) in (record.header.first_seq..).zip(operations) {
            let operation = operation.map_err(|damage| damage.to_string())?;
            let id = operation.keyspace;
            if self.sources.was_dropped(id) || seq <= self.sources.flushed(id) {
                continue;
            }
            self.files.of(name).entries += 1;
            let destination = Destination::Keyspace(id);
            if operation.kind == Kind::DeleteRange {
                let end = range_end(operation.value).map_err(|damage| damage.to_string())?;
                let range = KeyRange::new(operation.key.into(), end.map(Into::into));
                logged.tombstones.entry(destination).or_default().push(RangeTombstone { range, seq });
            } else {
                let (key, value) = (operation.key.to_vec(), Slice::from(operation.value));
                let version = Version { key, seq, kind: operation.kind, value };
                logged.versions.entry(destination).or_default().push(version);
            }
        }
        Ok(())
    }
}

impl Logged {
    /// Records the loss `what` of commits up to `seq`, or up to an unknown sequence number.
    fn lose(&mut self, what: String, seq: Option<Seq>) {
        self.findings.push(what);
        self.lost_up_to = self.lost_up_to.max(Some(seq.unwrap_or(Seq::MAX)));
    }
}

/// Collects the records that recovery replays.
struct Whole<'a, 'b> {
    reader: &'a mut LogReader<'b>,
    logged: Logged,
}

struct LogFailure(String);

impl From<LogDamage> for LogFailure {
    fn from(damage: LogDamage) -> LogFailure {
        LogFailure(damage.to_string())
    }
}

impl Replay for Whole<'_, '_> {
    type Error = LogFailure;

    fn read(&mut self, number: LogNumber, begun: Vec<u8>, most: u64) -> Result<SegmentPrefix, LogFailure> {
        let bytes = self.reader.load(number).map_err(|error| LogFailure(error.to_string()))?;
        let prefix = SegmentPrefix::of(&bytes, most);
        if most > SEGMENT_HEADER_LEN as u64 {
            self.logged.bytes += prefix.bytes.len().saturating_sub(begun.len()) as u64;
        }
        Ok(prefix)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), LogFailure> {
        if record.header.kind != RecordKind::Batch {
            return Ok(());
        }
        let name = FileName::Log(record.segment).to_string();
        self.reader.record(record, &name, &mut self.logged).map_err(LogFailure)
    }
}
