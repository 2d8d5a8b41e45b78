//! The decision log: the decisions of the policies and their reasons, kept across restarts.
//!
//! ```text
//! file     header block, 32 bytes | entry | entry | ...
//!
//! header    0  magic "drumlDEC", version, checksum  (`file_header`)
//!          16  number       u64   of this file
//!          24  zeros
//!
//! entry     0  checksums, length                  (`frame`)
//!          12  tag          u32   0
//!          16  mark         u64   Unix time in microseconds
//!          24  index        u64   0, 1, 2, ...
//!          32  keyspace slice | what slice | reason slice | policy call (the rest, may be empty),
//!              then zeros up to a multiple of 8
//! ```
//!
//! `keyspace`, `what` and `reason` are UTF-8. `what` and `reason` are text for people and contain no user data.
//!
//! A recorded *policy call* (`policy_call`) holds the complete input of the policy and its decision. The call can be
//! repeated from it and the decisions compared. It contains the bounds of files, as the manifest does. Its layout
//! follows the input types of policies and changes more often than the rest. A build reads entries of every older
//! version, but policy calls of its own [`VERSION`] only. Versions differ only in the layout of policy calls: it grew
//! several times within version 1, version 3 adds the levels that have enough ready compactions, version 4 the
//! number of cores, and version 5 the share of runs that lookups search in vain.
//!
//! The log is advisory: nothing depends on it. It is never synced. Reading ends silently at the first place without a
//! valid entry, whatever follows. Corruption can shorten the log. It cannot alter an entry or prevent a store from
//! opening.

mod policy_call;

pub use policy_call::{DecisionCopy, InputCopy, PolicyCall};

use crate::bytes::{Reader, put_slice, put_u64};
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::file_header::HeaderKind;
use crate::frame::{self, FrameFields};
use alloc::string::String;
use alloc::vec::Vec;

/// Length of the header block.
const HEADER_LEN: usize = 32;
/// Version of the log that this build writes, and the only one whose policy calls it decodes.
pub const VERSION: u32 = 5;
/// Maximum length of an entry's payload. Longer entries are not logged.
pub const MAX_ENTRY_LEN: usize = 256 << 10;

const HEADER: HeaderKind = HeaderKind {
    magic: *b"drumlDEC",
    len: HEADER_LEN,
    version: VERSION,
    too_short: "decision log shorter than its header",
    wrong_magic: "not a decision log",
    version_name: "decision log format",
};

/// A decision, or its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionEntry {
    /// Unix time in microseconds.
    pub micros: u64,
    /// Name of the keyspace.
    pub keyspace: String,
    /// The decision, or its outcome.
    pub what: String,
    /// Reason, with the numbers behind it.
    pub reason: String,
    /// The encoded [`PolicyCall`] that led to the decision; empty when there was none.
    pub policy_call: Vec<u8>,
}

/// Encodes a decision log entry by entry. It does no I/O.
#[derive(Clone, Debug)]
pub struct DecisionWriter {
    number: u64,
    offset: u64,
    index: u64,
}

impl DecisionWriter {
    /// Begins the file numbered `number`. Also returns its header block.
    #[must_use]
    pub fn create(number: u64) -> (DecisionWriter, Vec<u8>) {
        let mut fields = Vec::new();
        put_u64(&mut fields, number);
        let (block, _) = HEADER.encode(number, &fields);
        (DecisionWriter { number, offset: HEADER_LEN as u64, index: 0 }, block)
    }

    /// Returns the length of the file so far: the offset of the next entry.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Encodes `entry`. The returned bytes belong at the [`offset`](Self::offset) before the call.
    pub fn append(&mut self, entry: &DecisionEntry) -> Result<Vec<u8>, EncodeError> {
        let mut payload = Vec::new();
        for text in [&entry.keyspace, &entry.what, &entry.reason] {
            put_slice(&mut payload, text.as_bytes());
        }
        payload.extend_from_slice(&entry.policy_call);
        if payload.len() > MAX_ENTRY_LEN {
            return Err(EncodeError { what: "decision log entry exceeds the maximum length" });
        }
        let fields = FrameFields { tag: 0, mark: entry.micros, word: self.index };
        let mut bytes = Vec::new();
        frame::put_frame(&mut bytes, self.number, self.offset, fields, &payload)?;
        self.offset += bytes.len() as u64;
        self.index += 1;
        Ok(bytes)
    }
}

/// Contents of a decision log file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// Version that wrote the file, at most [`VERSION`]. Policy calls of another version must not be decoded.
    pub version: u32,
    /// Entries, oldest first.
    pub entries: Vec<DecisionEntry>,
}

/// Decodes the entries of the file numbered `number` from `bytes`, up to the first place without a valid entry.
///
/// # Errors
/// Fails when the header is corrupt or of a newer version.
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

fn entry(micros: u64, payload: &[u8]) -> Option<DecisionEntry> {
    let mut reader = Reader::new(payload);
    let mut text = || {
        let bytes = reader.slice_up_to(MAX_ENTRY_LEN).ok()?;
        core::str::from_utf8(bytes).ok().map(String::from)
    };
    let (keyspace, what, reason) = (text()?, text()?, text()?);
    Some(DecisionEntry { micros, keyspace, what, reason, policy_call: reader.take_rest().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;

    fn entries(count: u64) -> Vec<DecisionEntry> {
        let of = |n: u64| DecisionEntry {
            micros: 1_000 + n,
            keyspace: format!("k{}", n % 3),
            what: format!("ticket {n}"),
            reason: "runs 9 > 8".to_string(),
            policy_call: vec![n as u8; n as usize % 5],
        };
        (0..count).map(of).collect()
    }

    fn file(number: u64, entries: &[DecisionEntry]) -> Vec<u8> {
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
        let is_prefix = |found: Vec<DecisionEntry>| wanted.starts_with(&found) && found.len() < wanted.len();
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

    /// Returns `bytes` with another version in their header.
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
        let large = DecisionEntry { policy_call: vec![0; MAX_ENTRY_LEN], ..entries(1).remove(0) };
        assert!(writer.append(&large).is_err());
        assert_eq!(writer.offset(), HEADER_LEN as u64);
    }
}
