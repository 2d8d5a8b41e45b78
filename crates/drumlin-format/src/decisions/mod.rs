//! The decision log: what the policies decided and why, kept over restarts.
//!
//! ```text
//! file     header block, 32 bytes | entry | entry | ...
//!
//! header    0  magic, version, checksum           (`file_header`)
//!          16  number       u64   of this file
//!
//! entry     0  checksums, length                  (`frame`)
//!          12  tag          u32   0
//!          16  mark         u64   Unix time in microseconds
//!          24  index        u64   0, 1, 2, ...
//!          32  keyspace slice | what slice | reason slice | question (rest, perhaps empty)
//! ```
//!
//! `what` and `reason` are text for people and hold no user bytes. A *question* (`question`) holds what a policy was
//! asked, in full, and what it answered, so that the decision can be made again and compared. The bounds of files are
//! among it, as they are in the manifest. Its layout follows what policies see, so it changes more often than the rest:
//! entries of every older version are read, questions only of the present [`VERSION`]. Versions differ in the questions
//! alone: of 1 the layout grew several times, 3 adds the levels from which enough is ready.
//!
//! The log is advice: nothing depends on it. It is never synced, and reading ends silently at the first place that
//! holds no entry, whatever is behind. Damage can shorten it, and can neither change an entry nor stop a store from
//! opening.

mod question;

pub use question::{Answer, Picture, Question};

use crate::bytes::{Reader, put_slice, put_u64};
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::file_header::HeaderKind;
use crate::frame::{self, FrameFields};
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of the block that opens the file.
const HEADER_LEN: usize = 32;
/// The version of the log that this build writes, and the one whose questions it reads.
pub const VERSION: u32 = 3;
/// Longest payload of an entry; what is longer is not logged.
pub const MAX_ENTRY_LEN: usize = 256 << 10;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlDEC",
    len: HEADER_LEN,
    version: VERSION,
    too_short: "decision log shorter than its header",
    wrong_magic: "not a decision log",
    version_name: "decision log format",
};

/// One decision or its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Unix time in microseconds.
    pub micros: u64,
    /// The keyspace.
    pub keyspace: String,
    /// What was decided, or how it ended.
    pub what: String,
    /// Why, with the numbers that led to it.
    pub reason: String,
    /// The encoded [`Question`] that led to it; empty when there was none.
    pub question: Vec<u8>,
}

/// Makes the bytes of a decision log, entry by entry. It does no I/O.
#[derive(Clone, Debug)]
pub struct DecisionWriter {
    number: u64,
    offset: u64,
    index: u64,
}

impl DecisionWriter {
    /// Begins the file numbered `number`; returns the bytes that open it, too.
    #[must_use]
    pub fn create(number: u64) -> (DecisionWriter, Vec<u8>) {
        let mut fields = Vec::new();
        put_u64(&mut fields, number);
        let (block, _) = HEADER.encode(number, &fields);
        (DecisionWriter { number, offset: HEADER_LEN as u64, index: 0 }, block)
    }

    /// Length of the file so far: where the next entry belongs.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of `entry`, which belong at [`offset`](Self::offset) as it was before the call.
    pub fn append(&mut self, entry: &Entry) -> Result<Vec<u8>, EncodeError> {
        let mut payload = Vec::new();
        for text in [&entry.keyspace, &entry.what, &entry.reason] {
            put_slice(&mut payload, text.as_bytes());
        }
        payload.extend_from_slice(&entry.question);
        if payload.len() > MAX_ENTRY_LEN {
            return Err(EncodeError { what: "entry of the decision log over its limit" });
        }
        let fields = FrameFields { tag: 0, mark: entry.micros, word: self.index };
        let mut bytes = Vec::new();
        frame::put_frame(&mut bytes, self.number, self.offset, fields, &payload)?;
        self.offset += bytes.len() as u64;
        self.index += 1;
        Ok(bytes)
    }
}

/// What a file of the log holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// The version that wrote it, at most [`VERSION`]. Questions of another one are not to be decoded.
    pub version: u32,
    /// Its entries, oldest first.
    pub entries: Vec<Entry>,
}

/// The entries of the file numbered `number`, whose bytes are `bytes`, up to the first place that holds none.
///
/// # Errors
/// When the header is damaged or newer: then there is nothing to show.
pub fn read(bytes: &[u8], number: u64) -> Result<Log, DecodeError> {
    let (mut fields, _) = HEADER.decode(bytes, number)?;
    let version = HEADER.version_of(bytes)?;
    if fields.u64()? != number {
        return Err(Corruption::new("decision log header names another file", 16).into());
    }
    let mut entries = Vec::new();
    let mut offset = HEADER_LEN as u64;
    while let frame::Found::Frame(found) = frame::read_frame(bytes, number, offset) {
        let FrameFields { mark, word, .. } = found.fields;
        let Some(entry) = entry(mark, found.payload).filter(|_| word == entries.len() as u64) else { break };
        entries.push(entry);
        offset = found.end;
    }
    Ok(Log { version, entries })
}

fn entry(micros: u64, payload: &[u8]) -> Option<Entry> {
    let mut reader = Reader::new(payload);
    let mut text = || {
        let bytes = reader.slice_up_to(MAX_ENTRY_LEN).ok()?;
        core::str::from_utf8(bytes).ok().map(String::from)
    };
    let (keyspace, what, reason) = (text()?, text()?, text()?);
    Some(Entry { micros, keyspace, what, reason, question: reader.take_rest().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;

    fn entries(count: u64) -> Vec<Entry> {
        let of = |n: u64| Entry {
            micros: 1_000 + n,
            keyspace: format!("k{}", n % 3),
            what: format!("ticket {n}"),
            reason: "runs 9 > 8".to_string(),
            question: vec![n as u8; n as usize % 5],
        };
        (0..count).map(of).collect()
    }

    fn file(number: u64, entries: &[Entry]) -> Vec<u8> {
        let (mut writer, mut bytes) = DecisionWriter::create(number);
        for entry in entries {
            assert_eq!(writer.offset(), bytes.len() as u64);
            bytes.extend(writer.append(entry).expect("short"));
        }
        bytes
    }

    #[test]
    fn entries_read_back_only_from_their_own_file() {
        let wanted = entries(9);
        let bytes = file(7, &wanted);
        assert_eq!(read(&bytes, 7), Ok(Log { version: VERSION, entries: wanted }));
        assert!(read(&bytes, 8).is_err());
        assert!(read(&[], 7).is_err());
    }

    #[test]
    fn any_damage_leaves_a_prefix() {
        let wanted = entries(9);
        let bytes = file(7, &wanted);
        let is_prefix = |found: Vec<Entry>| wanted.starts_with(&found) && found.len() < wanted.len();
        for at in 0..bytes.len() {
            let found = read(&bytes[..at], 7).map(|log| log.entries);
            assert!(found.map_or(at < HEADER_LEN, is_prefix), "cut at {at}");
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                let found = read(&damaged, 7).map(|log| log.entries);
                assert!(found.map_or(at < HEADER_LEN, is_prefix), "byte {at} mask {mask}");
            }
        }
    }

    /// `bytes` with another version in their header.
    fn of_version(bytes: &[u8], version: u32) -> Vec<u8> {
        let kind = HeaderKind { version, ..HEADER };
        let mut fields = Vec::new();
        put_u64(&mut fields, 7);
        [&kind.encode(7, &fields).0, &bytes[HEADER_LEN..]].concat()
    }

    #[test]
    fn entries_of_older_versions_are_read_and_newer_ones_are_refused() {
        let wanted = entries(3);
        let bytes = file(7, &wanted);
        assert_eq!(read(&of_version(&bytes, 1), 7), Ok(Log { version: 1, entries: wanted }));
        let newer = VERSION + 1;
        let refused = DecodeError::NewerFormat { what: "decision log format", found: newer, known: VERSION };
        assert_eq!(read(&of_version(&bytes, newer), 7), Err(refused));
    }

    #[test]
    fn an_entry_over_the_limit_is_refused() {
        let (mut writer, _) = DecisionWriter::create(7);
        let large = Entry { question: vec![0; MAX_ENTRY_LEN], ..entries(1).remove(0) };
        assert!(writer.append(&large).is_err());
        assert_eq!(writer.offset(), HEADER_LEN as u64);
    }
}
