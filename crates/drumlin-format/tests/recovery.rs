//! Log recovery compared with a model of a store that crashes repeatedly.
//!
//! The model writes records into segments, syncs, rotates, recycles and flushes like an engine. It loses power at
//! arbitrary points. After a power loss, each unsynced 512-byte sector holds either its new or its old contents.
//! Recovery must replay exactly the records written, up to a point at or after the last sync. The model then continues
//! from there, so that torn ends, dropped segments and recovered segments accumulate.

mod support;

use drumlin_format::error::DecodeError;
use drumlin_format::log::{
    LogDamage, RecordHeader, RecordKind, Recovered, SegmentHeader, encode_record, record_len,
};
use drumlin_types::LogNumber;
use std::collections::BTreeMap;
use support::{Files, Numbers, Written, read_log};

const SEGMENT_LEN: usize = 4096 + 2048;
const SECTOR: usize = 512;

/// A file: its durable contents, and its contents if everything written reaches the disk.
#[derive(Clone)]
struct Disk {
    durable: Vec<u8>,
    written: Vec<u8>,
}

struct Store {
    numbers: Numbers,
    files: BTreeMap<u64, Disk>,
    records: Vec<Written>,
    current: Option<SegmentHeader>,
    offset: u64,
    floor: LogNumber,
    next_number: u64,
    last_seq: u64,
    synced: u64,
}

impl Store {
    fn new(seed: u64) -> Store {
        let mut store = Store {
            numbers: Numbers(seed),
            files: BTreeMap::new(),
            records: Vec::new(),
            current: None,
            offset: 0,
            floor: LogNumber(0),
            next_number: 1,
            last_seq: 0,
            synced: 0,
        };
        store.begin(Recovered::default().next_header(LogNumber(1)));
        store
    }

    fn position(&self) -> u64 {
        self.current.map_or(0, |current| current.position(self.offset))
    }

    /// Begins a segment in a new or a recycled file.
    fn begin(&mut self, header: SegmentHeader) {
        let header = SegmentHeader { file_len: SEGMENT_LEN as u64, ..header };
        let old = self.files.keys().copied().find(|number| *number < self.floor.0);
        let mut disk = match old.filter(|_| self.numbers.once_in(2)) {
            Some(old) => self.files.remove(&old).expect("found"),
            None => Disk { durable: vec![0; SEGMENT_LEN], written: vec![0; SEGMENT_LEN] },
        };
        disk.written[..4096].copy_from_slice(&header.encode());
        self.files.insert(header.number.0, disk);
        self.next_number = header.number.0 + 1 + self.numbers.below(3);
        self.current = Some(header);
        self.offset = 4096;
    }

    fn write(&mut self, kind: RecordKind, payload: &[u8]) {
        let current = self.current.expect("begun");
        let position = self.position();
        let (first_seq, count) = match kind {
            RecordKind::Batch => (self.last_seq + 1, 1 + self.numbers.below(4) as u32),
            _ => (0, 0),
        };
        let header = RecordHeader { kind, synced_mark: self.synced, first_seq, count };
        let mut bytes = Vec::new();
        encode_record(&mut bytes, current.number, self.offset, &header, payload).expect("valid");
        let written = &mut self.files.get_mut(&current.number.0).expect("there").written;
        let (start, end) = (self.offset as usize, self.offset as usize + bytes.len());
        written.resize(written.len().max(end), 0);
        written[start..end].copy_from_slice(&bytes);
        self.offset = end as u64;
        if kind == RecordKind::Batch {
            self.last_seq += u64::from(count);
            let end = self.position();
            self.records.push(Written { position, end, first_seq, payload: payload.to_vec() });
        }
    }

    fn rotate(&mut self) {
        if self.numbers.once_in(2) {
            self.write(RecordKind::End, &[]);
        }
        let recovered = Recovered {
            end: self.position(),
            last_seq: self.last_seq,
            replayed: self.current.iter().map(|current| current.number).collect(),
            ..Recovered::default()
        };
        self.begin(recovered.next_header(LogNumber(self.next_number)));
    }

    /// Makes all segments durable, oldest first. Sometimes fails in between. Returns whether it completed.
    fn sync(&mut self) -> bool {
        let position = self.position();
        for disk in self.files.values_mut() {
            if self.numbers.once_in(20) {
                return false;
            }
            disk.durable = disk.written.clone();
        }
        self.synced = position;
        true
    }

    /// Records that all data before the current segment is in tables.
    fn flush(&mut self) {
        let current = self.current.expect("begun");
        if !self.sync() {
            return;
        }
        self.floor = current.number;
        let keep = self.numbers.once_in(2);
        self.files.retain(|number, _| *number >= current.number.0 || keep);
    }

    fn step(&mut self) {
        match self.numbers.below(12) {
            0 | 1 => {
                self.sync();
            }
            2 => self.rotate(),
            3 if self.numbers.once_in(3) => self.flush(),
            _ => {
                let len = self.numbers.below(700) as usize;
                let payload =
                    if self.numbers.once_in(3) { self.old_bytes(len) } else { self.numbers.bytes(len) };
                if self.offset + record_len(len) > SEGMENT_LEN as u64 && !self.numbers.once_in(4) {
                    self.rotate();
                }
                self.write(RecordKind::Batch, &payload);
            }
        }
    }

    /// Returns bytes that contain records of the log itself, as a user's value might.
    fn old_bytes(&mut self, len: usize) -> Vec<u8> {
        let from = 4096 + 8 * self.numbers.below(100) as usize;
        let disk = self.files.values().next().expect("one");
        disk.written[from..].iter().copied().chain(core::iter::repeat(0)).take(len).collect()
    }

    /// Returns the files after a power loss or a process crash, and whether it was only a process crash.
    fn crash(&mut self) -> (Files, bool) {
        let killed = self.numbers.once_in(4);
        let mut image = BTreeMap::new();
        for (number, disk) in &self.files {
            let mut bytes = disk.written.clone();
            for start in (0..bytes.len()).step_by(SECTOR).filter(|_| !killed) {
                if self.numbers.once_in(2) {
                    let end = (start + SECTOR).min(bytes.len());
                    let old = disk.durable.iter().copied().chain(core::iter::repeat(0)).skip(start);
                    bytes[start..end].iter_mut().zip(old).for_each(|(byte, old)| *byte = old);
                }
            }
            image.insert(*number, bytes);
        }
        (image, killed)
    }

    /// Crashes, recovers, compares with the model, and continues from the recovered state.
    fn crash_and_recover(&mut self) -> Recovered {
        let (image, killed) = self.crash();
        let (recovered, records) = read_log(&image, self.floor).expect("no damage, only a crash");
        assert!(recovered.end >= self.synced, "lost: {} < {}", recovered.end, self.synced);
        let base = recovered
            .replayed
            .first()
            .map_or(0, |first| SegmentHeader::decode(&image[&first.0], *first).expect("replayed").base);
        self.records.retain(|record| record.end <= recovered.end);
        let expected: Vec<_> =
            self.records.iter().filter(|record| record.position >= base).cloned().collect();
        assert_eq!(records, expected);
        assert_eq!(read_log(&image, self.floor), Ok((recovered.clone(), records)));
        for (number, written) in image {
            let disk = self.files.get_mut(&number).expect("same files");
            // After a power loss, what was read is on the disk. After a process crash it may exist in memory only.
            if !killed {
                disk.durable.clone_from(&written);
            }
            disk.written = written;
        }
        self.last_seq = recovered.last_seq;
        self.synced = self.synced.min(recovered.end);
        if !self.numbers.once_in(3) {
            for number in &recovered.replayed {
                let disk = self.files.get_mut(&number.0).expect("replayed");
                disk.durable = disk.written.clone();
            }
            self.begin(recovered.next_header(LogNumber(self.next_number)));
            let fresh = self.files.get_mut(&self.current.expect("begun").number.0).expect("begun");
            if self.numbers.once_in(3) {
                return self.crash_and_recover();
            }
            fresh.durable = fresh.written.clone();
            if !self.numbers.once_in(3) {
                self.files.retain(|number, _| !recovered.dropped.contains(&LogNumber(*number)));
            }
            recovered
        } else {
            self.crash_and_recover()
        }
    }
}

#[test]
fn crashes_lose_nothing_synced_and_leave_no_hole() {
    for seed in 0..600 {
        let mut store = Store::new(seed);
        for _ in 0..8 {
            for _ in 0..store.numbers.below(40) {
                store.step();
            }
            store.crash_and_recover();
        }
    }
}

#[test]
fn the_model_reaches_what_it_is_meant_to() {
    let (mut torn, mut dropped, mut chained, mut recycled) = (0, 0, 0, 0);
    for seed in 0..100 {
        let mut store = Store::new(seed);
        for _ in 0..6 {
            for _ in 0..30 {
                store.step();
            }
            let recovered = store.crash_and_recover();
            torn += usize::from(recovered.torn);
            dropped += usize::from(recovered.dropped.len() > 1);
            chained += usize::from(recovered.replayed.len() > 1);
            recycled +=
                usize::from(store.floor.0 > 0 && store.files.keys().all(|number| *number >= store.floor.0));
        }
    }
    assert!(
        torn > 100 && dropped > 20 && chained > 100 && recycled > 100,
        "{torn} {dropped} {chained} {recycled}"
    );
}

/// Returns the fixture as files, and its batches.
fn fixture() -> (Files, Vec<Written>) {
    let files: Files = support::log().into_iter().map(|(number, bytes)| (number.0, bytes)).collect();
    let (recovered, records) = read_log(&files, LogNumber(3)).expect("sound");
    assert_eq!((recovered.records, records.len(), recovered.closed, recovered.torn), (12, 9, true, false));
    (files, records)
}

/// Checks a log in which only segment `damaged` is corrupt: recovery returns a prefix of the truth, or an error that
/// names that segment. Returns the number of batches read.
fn judge(files: &Files, truth: &[Written], damaged: u64) -> Result<usize, LogDamage> {
    match read_log(files, LogNumber(3)) {
        Ok((_, records)) => {
            assert_eq!(records, truth[..records.len()], "silent damage in {damaged}");
            Ok(records.len())
        }
        Err(damage) => {
            assert_eq!(damage.segment.0, damaged, "misnamed: {damage}");
            assert!(matches!(damage.error, DecodeError::Corruption(_)), "{damage}");
            Err(damage)
        }
    }
}

#[test]
fn each_changed_byte_is_an_error_or_changes_nothing() {
    let (files, truth) = fixture();
    let mut errors = 0;
    for (number, bytes) in &files {
        let mut changed = files.clone();
        support::each_changed_byte(bytes, |copy, index| {
            changed.insert(*number, copy.to_vec());
            match judge(&changed, &truth, *number) {
                Ok(read) => assert_eq!(read, truth.len(), "segment {number} byte {index}"),
                Err(_) => errors += 1,
            }
        });
    }
    // All bytes except the last segment's close record and the zeros after the last records.
    let quiet = 3 * 64 + 32;
    let all: usize = files.values().map(Vec::len).sum();
    assert_eq!(errors, 3 * (all - quiet));
}

#[test]
fn each_truncation_is_an_error() {
    let (files, truth) = fixture();
    for (number, bytes) in &files {
        let mut changed = files.clone();
        support::each_truncation(bytes, |copy| {
            changed.insert(*number, copy.to_vec());
            let outcome = judge(&changed, &truth, *number);
            assert!(outcome.is_err(), "{number} at {}", copy.len());
        });
    }
}

#[test]
fn files_in_the_wrong_place_are_noticed() {
    let (files, _) = fixture();
    let named = |files: &Files| read_log(files, LogNumber(3)).expect_err("damage").segment.0;
    for (a, b) in [(3, 4), (4, 9), (3, 9)] {
        let mut swapped = files.clone();
        swapped.insert(a, files[&b].clone());
        swapped.insert(b, files[&a].clone());
        assert!([a, b].contains(&named(&swapped)), "{a} {b}");
    }
    for missing in [3, 4] {
        let mut fewer = files.clone();
        fewer.remove(&missing);
        assert_eq!(named(&fewer), missing);
    }
    // An older version of a segment is restored.
    let mut older = files.clone();
    older.insert(4, files[&4][..4096 + 300].to_vec());
    assert_eq!(named(&older), 4);
    assert_eq!(named(&BTreeMap::new()), 3);
}

#[test]
fn an_older_log_below_the_floor_is_not_looked_at() {
    let (mut files, truth) = fixture();
    files.insert(3, vec![0xaa; 100]);
    let (recovered, records) = read_log(&files, LogNumber(4)).expect("3 is not needed");
    assert_eq!(records, truth[3..]);
    assert_eq!(recovered.replayed, [LogNumber(4), LogNumber(9)]);
}

#[test]
fn a_store_that_never_got_its_first_segment_opens_empty() {
    let files = BTreeMap::from([(1, vec![0; 4096]), (2, vec![0; 4096])]);
    let (recovered, records) = read_log(&files, LogNumber(0)).expect("nothing was promised");
    assert_eq!((recovered.end, records.len(), recovered.dropped.len()), (0, 0, 2));
    assert_eq!(recovered.next_header(LogNumber(3)).predecessor, None);
}

#[test]
fn a_newer_log_is_refused_by_name() {
    let (mut files, _) = fixture();
    let bytes = files.get_mut(&9).expect("there");
    bytes[8] = 2;
    let sum = drumlin_format::checksum::checksum(9, 0, &[&bytes[..12], &bytes[16..4096]]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let damage = read_log(&files, LogNumber(3)).expect_err("newer");
    assert_eq!(damage.error, DecodeError::NewerFormat { what: "log format", found: 2, known: 1 });
}

#[test]
fn random_bytes_are_no_log() {
    let mut numbers = Numbers(7);
    for _ in 0..2000 {
        let files: Files = (1..3)
            .map(|number| {
                (number, {
                    let len = 4096 + numbers.below(6000) as usize;
                    numbers.bytes(len)
                })
            })
            .collect();
        assert_eq!(read_log(&files, LogNumber(0)).map(|(_, records)| records.len()), Ok(0));
        assert!(read_log(&files, LogNumber(1)).is_err());
    }
}

/// A segment numbered 0 is rejected. The number 0 means "no predecessor", so no segment could follow it.
#[test]
fn a_segment_numbered_zero_is_none() {
    let header = SegmentHeader { number: LogNumber(0), base: 0, predecessor: None, file_len: 0 };
    assert!(SegmentHeader::decode(&header.encode(), LogNumber(0)).is_err());
}
