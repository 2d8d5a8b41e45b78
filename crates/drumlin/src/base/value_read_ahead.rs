//! Read-ahead of a scan in value files: which bytes it reads together, and which of them it keeps.
//!
//! A flush or compaction writes values in key order, so a scan meets the values of one value file at ascending offsets,
//! between values of other files. For each file that it has met lately, a scan keeps a *stream*: where its last record
//! ended, and bytes that were read in advance. The scan reads the first record of a stream alone. From the next one on,
//! if it starts at most [`GAP`] after the end of the last one, the scan reads a window: [`LEAST`] bytes, then twice as
//! much each time. A jump starts anew, so a scan that meets a value of each file here and there reads only the values
//! that it returns. Records of a backward scan do not follow the last one, so it reads each alone.
//!
//! Invariants: at most [`STREAMS`] streams. All kept bytes together are at most [`WINDOWS`] times the largest window. A
//! record that was read alone is not kept. Read-ahead changes no result: a record is verified when the scan meets it,
//! and if a window cannot be read, the record is read alone.

use super::slice::Slice;
use drumlin_types::ValueFileId;

/// Maximum number of streams of a scan.
const STREAMS: usize = 32;
/// All windows of a scan together take at most this many times the largest one.
const WINDOWS: usize = 4;
/// Records after which a stream that was not met again no longer counts when the windows are divided.
const ACTIVE: u64 = 64;
/// Maximum number of bytes between two records of a stream.
const GAP: u64 = 16 << 10;
/// First window, and bounds on the largest one, as for blocks of tables.
const LEAST: usize = 32 << 10;
const MOST: usize = 256 << 10;
/// A record of less than this part of its window, as a divisor, is copied, so that a program that keeps the value does
/// not keep the window.
const SHARES: usize = 4;

struct Stream {
    file: ValueFileId,
    /// End of the last record that the scan met.
    end: u64,
    /// Size of the last window; 0 if the last read was of a record alone.
    window: usize,
    /// Bytes of the file from `start` on.
    bytes: Slice,
    start: u64,
    /// Number of records that the scan had met when it met the last one of this file.
    met: u64,
    /// End of a window that could not be read. Before it, records are read alone.
    bad_until: u64,
}

/// A record in a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordAt {
    pub(crate) file: ValueFileId,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Length of the file.
    pub(crate) file_len: u64,
}

/// The streams of one scan.
pub(crate) struct ValueReadAhead {
    streams: Vec<Stream>,
    /// Largest window.
    most: usize,
    /// Number of records that the scan has met.
    met: u64,
}

impl Default for ValueReadAhead {
    fn default() -> ValueReadAhead {
        ValueReadAhead::new(0)
    }
}

impl ValueReadAhead {
    /// Creates the streams of a scan whose windows have at most about `window` bytes.
    pub(crate) fn new(window: usize) -> ValueReadAhead {
        ValueReadAhead { streams: Vec::new(), most: window.clamp(LEAST, MOST), met: 0 }
    }

    /// Returns the bytes of the record `at`, from a window that was read before or by `read`, which reads a number of
    /// bytes from the start of the record on.
    pub(crate) fn record<E>(
        &mut self,
        at: RecordAt,
        mut read: impl FnMut(usize) -> Result<Slice, E>,
    ) -> Result<Slice, E> {
        let index = self.meet(at.file);
        let active = self.streams.iter().filter(|stream| self.met - stream.met < ACTIVE).count();
        let most = self.most.min(WINDOWS * self.most / active.max(1));
        let stream = &mut self.streams[index];
        let follows =
            stream.end > 0 && at.offset >= stream.end.max(stream.bad_until) && at.offset - stream.end <= GAP;
        stream.end = at.offset + at.len as u64;
        if let Some(record) = stream.part(at.offset, at.len) {
            return Ok(record);
        }
        stream.bytes = Slice::default();
        stream.window = if follows { (2 * stream.window).max(LEAST).min(most) } else { 0 };
        let rest = usize::try_from(at.file_len.saturating_sub(at.offset)).unwrap_or(usize::MAX);
        let window = stream.window.min(rest);
        if window > at.len {
            self.make_room(window);
            let bytes = read(window);
            let stream = &mut self.streams[index];
            match bytes {
                Ok(bytes) => (stream.start, stream.bytes) = (at.offset, bytes),
                // What follows the record may be unreadable.
                Err(_) => (stream.window, stream.bad_until) = (0, at.offset + window as u64),
            }
            if let Some(record) = stream.part(at.offset, at.len) {
                return Ok(record);
            }
        }
        read(at.len)
    }

    /// Notes that the scan took the value of a record from the cache.
    pub(crate) fn skip(&mut self, file: ValueFileId, end: u64) {
        let index = self.meet(file);
        self.streams[index].end = end;
    }

    /// Returns the index of the stream of `file`. A new one takes the place of the one that was met longest ago.
    fn meet(&mut self, file: ValueFileId) -> usize {
        self.met += 1;
        let found = self.streams.iter().position(|stream| stream.file == file);
        let index = found.unwrap_or_else(|| {
            if self.streams.len() >= STREAMS
                && let Some(oldest) = (0..self.streams.len()).min_by_key(|index| self.streams[*index].met)
            {
                self.streams.swap_remove(oldest);
            }
            self.streams.push(Stream {
                file,
                end: 0,
                window: 0,
                bytes: Slice::default(),
                start: 0,
                met: 0,
                bad_until: 0,
            });
            self.streams.len() - 1
        });
        self.streams[index].met = self.met;
        index
    }

    /// Drops kept bytes, of the streams that were met longest ago first, until a window of `bytes` has room.
    fn make_room(&mut self, bytes: usize) {
        while self.kept_bytes() + bytes > WINDOWS * self.most {
            let kept = self.streams.iter_mut().filter(|stream| stream.bytes.held_bytes() > 0);
            let Some(oldest) = kept.min_by_key(|stream| stream.met) else { return };
            oldest.bytes = Slice::default();
        }
    }

    fn kept_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.bytes.held_bytes()).sum()
    }
}

impl Stream {
    /// Returns the record of `len` bytes at `offset` if its bytes are kept.
    fn part(&self, offset: u64, len: usize) -> Option<Slice> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let part = self.bytes.part(start..start.checked_add(len)?).filter(|_| len > 0)?;
        Some(if SHARES * len >= part.held_bytes() { part } else { Slice::from(&*part) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::Random;
    use std::convert::Infallible;

    const FILE_LEN: u64 = 1 << 20;

    fn at(file: u64, offset: u64, len: usize) -> RecordAt {
        RecordAt { file: ValueFileId(file), offset, len, file_len: FILE_LEN }
    }

    /// Returns `len` bytes of a file.
    fn bytes(file: u64, offset: u64, len: usize) -> Slice {
        assert!(offset + len as u64 <= FILE_LEN, "a read behind the end");
        Slice::from((offset..).take(len).map(|at| (file * 31 + at * 7 + at / 256) as u8).collect::<Vec<u8>>())
    }

    /// Reads a record. Returns the number of bytes that were read from the file.
    fn read(ahead: &mut ValueReadAhead, file: u64, offset: u64, len: usize) -> usize {
        let mut done = 0;
        let record = ahead.record(at(file, offset, len), |want| {
            done += want;
            Ok::<_, Infallible>(bytes(file, offset, want))
        });
        assert!(record.is_ok_and(|record| record == bytes(file, offset, len)), "other bytes");
        assert!(ahead.streams.len() <= STREAMS && ahead.kept_bytes() <= WINDOWS * ahead.most);
        done
    }

    #[test]
    fn a_scan_of_one_file_reads_ahead() {
        let mut ahead = ValueReadAhead::new(256 << 10);
        let reads: Vec<usize> = (0..200u64).map(|n| read(&mut ahead, 1, n * 5000, 4096)).collect();
        let calls: Vec<usize> = reads.into_iter().filter(|read| *read > 0).collect();
        assert_eq!(calls[..5], [4096, 32 << 10, 64 << 10, 128 << 10, 256 << 10]);
        assert!(calls.len() < 10, "{calls:?}");
    }

    #[test]
    fn a_jump_starts_anew() {
        let mut ahead = ValueReadAhead::new(64 << 10);
        let mut at = |offset| read(&mut ahead, 1, offset, 1000);
        assert_eq!([at(0), at(1000), at(500_000), at(501_000)], [1000, 32 << 10, 1000, 32 << 10]);
        assert_eq!([at(502_000), at(100_000), at(90_000)], [0, 1000, 1000], "backward");
        assert_eq!([at(91_000), at(FILE_LEN - 30_000), at(FILE_LEN - 29_000)], [32 << 10, 1000, 29_000]);
    }

    #[test]
    fn kept_bytes_are_bounded_with_many_files_and_large_records() {
        let mut random = Random::new(1, "streams");
        for (files, largest) in [(3, 5000), (8, 5000), (60, 5000), (40, 400_000)] {
            let mut ahead = ValueReadAhead::new(128 << 10);
            let mut next = vec![0u64; files];
            for _ in 0..2000 {
                let file = random.index(files);
                let len = 100 + random.index(largest);
                if next[file] + len as u64 > FILE_LEN {
                    next[file] = 0;
                }
                read(&mut ahead, file as u64, next[file], len);
                next[file] += len as u64 + random.index(3) as u64 * 100;
            }
        }
    }

    #[test]
    fn small_records_do_not_hold_the_window() {
        let mut ahead = ValueReadAhead::new(256 << 10);
        let reads: usize = (0..20).map(|n| read(&mut ahead, 1, n * 4096, 4096)).sum();
        assert!(reads > 21 * 4096);
        let none = |_| -> Result<Slice, &str> { Err("its bytes are kept") };
        let record = ahead.record(at(1, 20 * 4096, 4096), none).expect("kept bytes");
        assert_eq!(record.held_bytes(), 4096);
    }

    #[test]
    fn a_record_is_read_alone_if_its_window_cannot_be_read() {
        let mut ahead = ValueReadAhead::new(256 << 10);
        read(&mut ahead, 1, 0, 4096);
        let mut wanted = Vec::new();
        let record = ahead.record(at(1, 4096, 4096), |want| {
            wanted.push(want);
            if want > 4096 { Err("a bad sector") } else { Ok(bytes(1, 4096, want)) }
        });
        assert_eq!((record, wanted), (Ok(bytes(1, 4096, 4096)), vec![32 << 10, 4096]));
        assert_eq!(ahead.kept_bytes(), 0);
        let mut calls = 0;
        let failed = ahead.record(at(1, 8192, 4096), |_| {
            calls += 1;
            Err("all bad")
        });
        assert_eq!((failed, calls), (Err("all bad"), 1), "no other window before the end of the bad one");
        assert_eq!(read(&mut ahead, 1, 12_288, 30_000), 30_000);
        assert_eq!(read(&mut ahead, 1, 42_288, 4096), 32 << 10);
    }

    /// Files that a scan has left behind do not make its windows smaller.
    #[test]
    fn windows_grow_again_after_many_files() {
        let mut ahead = ValueReadAhead::new(256 << 10);
        for file in 0..40 {
            (0..250).for_each(|n| assert!(read(&mut ahead, file, n * 4096, 4096) <= 256 << 10));
            assert!(ahead.streams.iter().any(|stream| stream.window == 256 << 10), "file {file}");
        }
    }
}
