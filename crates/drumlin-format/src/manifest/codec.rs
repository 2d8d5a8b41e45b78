//! The bytes of an edit.
//!
//! ```text
//! edit     change | change | ...
//! change   tag * 2 + critical  varint | body  slice
//!
//! name     slice of UTF-8, 1 to 255 bytes          key     slice
//! text     slice of UTF-8, to 16 MiB               end     0 | key, or 1 alone: no end
//! blob     slice, to 16 MiB                        rate    f32, finite, not negative
//!
//!  1 CreateKeyspace   id, name                      10 LastSeq         seq
//!  2 DropKeyspace     id                            11 ClockMark       micros
//!  3 KeyspaceOption   id, name, text                12 Policy          keyspace, name, blob          advice
//!  4 AddRun           keyspace, run, level, slice   13 StoreOption     name, text
//!  5 AddFile          keyspace, file                14 Lookups         keyspace, table, key, 3 rates advice
//!  6 RemoveFile       keyspace, table, key          15 ValueFile       value file
//!  7 Flushed          keyspace, seq                 16 ValueCounters   file, bytes, entries          advice
//!  8 LogFloor         number
//!  9 NextFile         number     17 NextRun  number
//!
//! file         table, key, end, level u8, run, file length, bytes, entries, keys, tombstones, range tombstones,
//!              table entries, smallest seq, largest seq, bits rate, false positives rate, checksum u64,
//!              accounted u8, count of (value file, entries, bytes), 3 rates
//! value file   keyspace, file, state u8 (0 live, 1 moved, 2 moved with map, 3 gone),
//!              with a map: number, length, entries, checksum u64;
//!              class u8, length, entries, bytes, dead bytes, dead entries, created, end, smallest, largest seq,
//!              checksum u64
//! ```
//!
//! Numbers are varints where no width is given. A body is read to its last byte: a change never grows fields, it
//! gets a new tag. A tag that this version does not know is refused when it is critical, and kept otherwise.
//!
//! Rates are statistics: one that is not a finite positive number is written as 0 rather than refused, so that
//! no division by nothing can stop an install.

use super::change::{
    Change, Edit, FileRecord, MAX_BLOB_LEN, MAX_CHANGES, MAX_NAME_LEN, MAX_VALUE_REFS, MapRecord,
    ValueFileRecord, ValueFileState, ValueRef,
};
use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_f32, put_slice, put_u64, put_varint};
use crate::error::{Corruption, DecodeError, EncodeError};
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, LogNumber, MAX_LEVEL, RunId, TableId, ValueFileId};

/// The tags of the changes.
mod tag {
    pub(super) const CREATE_KEYSPACE: u16 = 1;
    pub(super) const DROP_KEYSPACE: u16 = 2;
    pub(super) const KEYSPACE_OPTION: u16 = 3;
    pub(super) const ADD_RUN: u16 = 4;
    pub(super) const ADD_FILE: u16 = 5;
    pub(super) const REMOVE_FILE: u16 = 6;
    pub(super) const FLUSHED: u16 = 7;
    pub(super) const LOG_FLOOR: u16 = 8;
    pub(super) const NEXT_FILE: u16 = 9;
    pub(super) const LAST_SEQ: u16 = 10;
    pub(super) const CLOCK_MARK: u16 = 11;
    pub(super) const POLICY: u16 = 12;
    pub(super) const STORE_OPTION: u16 = 13;
    pub(super) const LOOKUPS: u16 = 14;
    pub(super) const VALUE_FILE: u16 = 15;
    pub(super) const VALUE_COUNTERS: u16 = 16;
    pub(super) const NEXT_RUN: u16 = 17;
    /// The largest tag that this version knows.
    pub(super) const LAST: u16 = NEXT_RUN;

    /// Whether a version that does not know this change must refuse the store.
    pub(super) const fn is_critical(tag: u16) -> bool {
        !matches!(tag, POLICY | LOOKUPS | VALUE_COUNTERS)
    }
}

/// States of a value file.
mod state {
    pub(super) const LIVE: u8 = 0;
    pub(super) const MOVED: u8 = 1;
    pub(super) const MOVED_WITH_MAP: u8 = 2;
    pub(super) const GONE: u8 = 3;
}

/// Least bytes of a reference to a value file.
const MIN_VALUE_REF_LEN: usize = 3;

impl Edit {
    /// The bytes of the edit.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        let mut body = Vec::new();
        refuse((self.changes.len() > MAX_CHANGES).then_some("edit of too many changes"))?;
        for change in &self.changes {
            body.clear();
            let (tag, critical) = encode_change(change, &mut body)?;
            put_varint(&mut out, u64::from(tag) << 1 | u64::from(critical));
            put_slice(&mut out, &body);
        }
        Ok(out)
    }

    /// Reads an edit.
    pub fn decode(bytes: &[u8]) -> Result<Edit, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut changes = Vec::new();
        while !reader.is_empty() {
            if changes.len() == MAX_CHANGES {
                return Err(reader.damage("edit of too many changes").into());
            }
            changes.push(read_change(&mut reader)?);
        }
        Ok(Edit { changes })
    }
}

fn encode_change(change: &Change, out: &mut Vec<u8>) -> Result<(u16, bool), EncodeError> {
    let tag = match change {
        Change::CreateKeyspace { id, name } => {
            put_keyspace(out, *id);
            put_name(out, name)?;
            tag::CREATE_KEYSPACE
        }
        Change::DropKeyspace { id } => {
            put_keyspace(out, *id);
            tag::DROP_KEYSPACE
        }
        Change::KeyspaceOption { id, name, value } => {
            put_keyspace(out, *id);
            put_name(out, name)?;
            put_blob(out, value.as_bytes())?;
            tag::KEYSPACE_OPTION
        }
        Change::AddRun { keyspace, run, level, tag } => {
            refuse(run_fault(*level, &tag.0))?;
            put_keyspace(out, *keyspace);
            put_varint(out, run.0);
            out.push(*level);
            put_slice(out, &tag.0);
            tag::ADD_RUN
        }
        Change::AddFile { keyspace, file } => {
            put_keyspace(out, *keyspace);
            put_file(out, file)?;
            tag::ADD_FILE
        }
        Change::RemoveFile { keyspace, table, start } => {
            put_file_name(out, *keyspace, *table, start)?;
            tag::REMOVE_FILE
        }
        Change::Flushed { keyspace, seq } => {
            put_keyspace(out, *keyspace);
            put_varint(out, *seq);
            tag::FLUSHED
        }
        Change::Policy { keyspace, name, blob } => {
            put_keyspace(out, *keyspace);
            put_name(out, name)?;
            put_blob(out, blob)?;
            tag::POLICY
        }
        Change::StoreOption { name, value } => {
            put_name(out, name)?;
            put_blob(out, value.as_bytes())?;
            tag::STORE_OPTION
        }
        Change::Lookups { keyspace, table, start, lookups } => {
            put_file_name(out, *keyspace, *table, start)?;
            lookups.iter().for_each(|rate| put_rate(out, *rate));
            tag::LOOKUPS
        }
        Change::ValueFile(record) => {
            put_value_file(out, record)?;
            tag::VALUE_FILE
        }
        Change::ValueCounters { file, dead_bytes, dead_entries } => {
            [file.0, *dead_bytes, *dead_entries].iter().for_each(|number| put_varint(out, *number));
            tag::VALUE_COUNTERS
        }
        Change::Extension { tag, critical, bytes } => {
            refuse((*tag <= tag::LAST).then_some("extension with the tag of a known change"))?;
            out.extend_from_slice(bytes);
            return Ok((*tag, *critical));
        }
        Change::LogFloor(LogNumber(number)) => put_number(out, tag::LOG_FLOOR, *number),
        Change::NextFile(number) => put_number(out, tag::NEXT_FILE, *number),
        Change::NextRun(number) => put_number(out, tag::NEXT_RUN, *number),
        Change::LastSeq(seq) => put_number(out, tag::LAST_SEQ, *seq),
        Change::ClockMark(micros) => put_number(out, tag::CLOCK_MARK, *micros),
    };
    Ok((tag, tag::is_critical(tag)))
}

fn read_change(reader: &mut Reader<'_>) -> Result<Change, DecodeError> {
    let at = reader.offset();
    let tag_and_critical = reader.varint_u32()?;
    let critical = tag_and_critical & 1 == 1;
    let tag =
        u16::try_from(tag_and_critical >> 1).map_err(|_| Corruption::new("change of impossible kind", at))?;
    let body_end = reader.slice()?;
    let mut body = Reader::at(body_end, reader.offset().saturating_sub(body_end.len() as u64));
    if tag > tag::LAST {
        return if critical {
            Err(DecodeError::NewerFormat {
                what: "change of the manifest",
                found: u32::from(tag),
                known: u32::from(tag::LAST),
            })
        } else {
            Ok(Change::Extension { tag, critical, bytes: body.take_rest().into() })
        };
    }
    if critical != tag::is_critical(tag) {
        return Err(Corruption::new("change with the wrong weight", at).into());
    }
    let change = read_body(tag, &mut body).and_then(|change| body.finish().map(|()| change))?;
    Ok(change)
}

fn read_body(tag: u16, body: &mut Reader<'_>) -> Result<Change, Corruption> {
    Ok(match tag {
        tag::CREATE_KEYSPACE => Change::CreateKeyspace { id: keyspace(body)?, name: name(body)? },
        tag::DROP_KEYSPACE => Change::DropKeyspace { id: keyspace(body)? },
        tag::KEYSPACE_OPTION => {
            Change::KeyspaceOption { id: keyspace(body)?, name: name(body)?, value: text(body)? }
        }
        tag::ADD_RUN => {
            let at = body.offset();
            let (keyspace, run, level) = (keyspace(body)?, RunId(body.varint_u64()?), body.u8()?);
            let tag = body.slice_up_to(RunTag::MAX)?;
            accept(run_fault(level, tag), at)?;
            Change::AddRun { keyspace, run, level, tag: RunTag(tag.into()) }
        }
        tag::ADD_FILE => Change::AddFile { keyspace: keyspace(body)?, file: file(body)? },
        tag::REMOVE_FILE => Change::RemoveFile {
            keyspace: keyspace(body)?,
            table: TableId(body.varint_u64()?),
            start: key(body)?,
        },
        tag::FLUSHED => Change::Flushed { keyspace: keyspace(body)?, seq: body.varint_u64()? },
        tag::LOG_FLOOR => Change::LogFloor(LogNumber(body.varint_u64()?)),
        tag::NEXT_FILE => Change::NextFile(body.varint_u64()?),
        tag::NEXT_RUN => Change::NextRun(body.varint_u64()?),
        tag::LAST_SEQ => Change::LastSeq(body.varint_u64()?),
        tag::CLOCK_MARK => Change::ClockMark(body.varint_u64()?),
        tag::POLICY => Change::Policy {
            keyspace: keyspace(body)?,
            name: name(body)?,
            blob: body.slice_up_to(MAX_BLOB_LEN)?.into(),
        },
        tag::STORE_OPTION => Change::StoreOption { name: name(body)?, value: text(body)? },
        tag::LOOKUPS => Change::Lookups {
            keyspace: keyspace(body)?,
            table: TableId(body.varint_u64()?),
            start: key(body)?,
            lookups: rates(body)?,
        },
        tag::VALUE_FILE => Change::ValueFile(value_file(body)?),
        tag::VALUE_COUNTERS => Change::ValueCounters {
            file: ValueFileId(body.varint_u64()?),
            dead_bytes: body.varint_u64()?,
            dead_entries: body.varint_u64()?,
        },
        _ => return Err(body.damage("change of impossible kind")),
    })
}

fn put_file(out: &mut Vec<u8>, file: &FileRecord) -> Result<(), EncodeError> {
    refuse(file.fault())?;
    put_varint(out, file.table.0);
    put_slice(out, &file.start);
    put_bool(out, file.end.is_none());
    if let Some(end) = &file.end {
        put_slice(out, end);
    }
    out.push(file.level);
    for number in [
        file.run.0,
        file.file_len,
        file.bytes,
        file.entries,
        file.keys,
        file.tombstones,
        file.range_tombstones,
        file.table_entries,
        file.min_seq,
        file.max_seq,
    ] {
        put_varint(out, number);
    }
    put_rate(out, file.filter_bits);
    put_rate(out, file.fp_rate);
    put_u64(out, file.checksum);
    put_bool(out, file.accounted);
    put_varint(out, file.value_refs.len() as u64);
    for value_ref in &file.value_refs {
        [value_ref.file.0, value_ref.entries, value_ref.bytes]
            .iter()
            .for_each(|number| put_varint(out, *number));
    }
    file.lookups.iter().for_each(|rate| put_rate(out, *rate));
    Ok(())
}

fn file(body: &mut Reader<'_>) -> Result<FileRecord, Corruption> {
    let at = body.offset();
    let file = FileRecord {
        table: TableId(body.varint_u64()?),
        start: key(body)?,
        end: if body.bool()? { None } else { Some(key(body)?) },
        level: body.u8()?,
        run: RunId(body.varint_u64()?),
        file_len: body.varint_u64()?,
        bytes: body.varint_u64()?,
        entries: body.varint_u64()?,
        keys: body.varint_u64()?,
        tombstones: body.varint_u64()?,
        range_tombstones: body.varint_u64()?,
        table_entries: body.varint_u64()?,
        min_seq: body.varint_u64()?,
        max_seq: body.varint_u64()?,
        filter_bits: rate(body)?,
        fp_rate: rate(body)?,
        checksum: body.u64()?,
        accounted: body.bool()?,
        value_refs: value_refs(body)?,
        lookups: rates(body)?,
    };
    accept(file.fault(), at)?;
    Ok(file)
}

fn value_refs(body: &mut Reader<'_>) -> Result<Vec<ValueRef>, Corruption> {
    let at = body.offset();
    let count = body.count(MIN_VALUE_REF_LEN)?;
    accept((count > MAX_VALUE_REFS).then_some("table that points to too many value files"), at)?;
    let mut refs = Vec::with_capacity(count);
    for _ in 0..count {
        refs.push(ValueRef {
            file: ValueFileId(body.varint_u64()?),
            entries: body.varint_u64()?,
            bytes: body.varint_u64()?,
        });
    }
    Ok(refs)
}

fn put_value_file(out: &mut Vec<u8>, record: &ValueFileRecord) -> Result<(), EncodeError> {
    refuse(record.fault())?;
    put_keyspace(out, record.keyspace);
    put_varint(out, record.file.0);
    match record.state {
        ValueFileState::Live => out.push(state::LIVE),
        ValueFileState::Moved(None) => out.push(state::MOVED),
        ValueFileState::Moved(Some(map)) => {
            out.push(state::MOVED_WITH_MAP);
            [map.number, map.file_len, map.entries].iter().for_each(|number| put_varint(out, *number));
            put_u64(out, map.checksum);
        }
        ValueFileState::Gone => out.push(state::GONE),
    }
    out.push(record.class);
    for number in [
        record.file_len,
        record.entries,
        record.total_bytes,
        record.dead_bytes,
        record.dead_entries,
        record.created_seq,
        record.end_seq,
        record.min_seq,
        record.max_seq,
    ] {
        put_varint(out, number);
    }
    put_u64(out, record.checksum);
    Ok(())
}

fn value_file(body: &mut Reader<'_>) -> Result<ValueFileRecord, Corruption> {
    let at = body.offset();
    let record = ValueFileRecord {
        keyspace: keyspace(body)?,
        file: ValueFileId(body.varint_u64()?),
        state: value_file_state(body)?,
        class: body.u8()?,
        file_len: body.varint_u64()?,
        entries: body.varint_u64()?,
        total_bytes: body.varint_u64()?,
        dead_bytes: body.varint_u64()?,
        dead_entries: body.varint_u64()?,
        created_seq: body.varint_u64()?,
        end_seq: body.varint_u64()?,
        min_seq: body.varint_u64()?,
        max_seq: body.varint_u64()?,
        checksum: body.u64()?,
    };
    accept(record.fault(), at)?;
    Ok(record)
}

fn value_file_state(body: &mut Reader<'_>) -> Result<ValueFileState, Corruption> {
    let at = body.offset();
    Ok(match body.u8()? {
        state::LIVE => ValueFileState::Live,
        state::MOVED => ValueFileState::Moved(None),
        state::MOVED_WITH_MAP => ValueFileState::Moved(Some(MapRecord {
            number: body.varint_u64()?,
            file_len: body.varint_u64()?,
            entries: body.varint_u64()?,
            checksum: body.u64()?,
        })),
        state::GONE => ValueFileState::Gone,
        _ => return Err(Corruption::new("value file in an unknown state", at)),
    })
}

fn refuse(fault: Option<&'static str>) -> Result<(), EncodeError> {
    fault.map_or(Ok(()), |what| Err(EncodeError { what }))
}

fn accept(fault: Option<&'static str>, at: u64) -> Result<(), Corruption> {
    fault.map_or(Ok(()), |what| Err(Corruption::new(what, at)))
}

fn run_fault(level: u8, tag: &[u8]) -> Option<&'static str> {
    if level > MAX_LEVEL {
        Some("run below the deepest level")
    } else {
        (tag.len() > RunTag::MAX).then_some("run tag longer than 32 bytes")
    }
}

fn put_keyspace(out: &mut Vec<u8>, id: KeyspaceId) {
    put_varint(out, u64::from(id.0));
}

fn keyspace(body: &mut Reader<'_>) -> Result<KeyspaceId, Corruption> {
    Ok(KeyspaceId(body.varint_u32()?))
}

fn put_number(out: &mut Vec<u8>, tag: u16, number: u64) -> u16 {
    put_varint(out, number);
    tag
}

fn put_file_name(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    table: TableId,
    start: &Key,
) -> Result<(), EncodeError> {
    refuse((start.len() > MAX_BOUND_LEN).then_some("bound longer than a key can be"))?;
    put_keyspace(out, keyspace);
    put_varint(out, table.0);
    put_slice(out, start);
    Ok(())
}

fn key(body: &mut Reader<'_>) -> Result<Key, Corruption> {
    Ok(Key::new(body.slice_up_to(MAX_BOUND_LEN)?))
}

fn put_name(out: &mut Vec<u8>, name: &str) -> Result<(), EncodeError> {
    refuse(name.is_empty().then_some("empty name"))?;
    refuse((name.len() > MAX_NAME_LEN).then_some("name longer than 255 bytes"))?;
    put_slice(out, name.as_bytes());
    Ok(())
}

fn name(body: &mut Reader<'_>) -> Result<String, Corruption> {
    let at = body.offset();
    let name = utf8(body.slice_up_to(MAX_NAME_LEN)?, at)?;
    accept(name.is_empty().then_some("empty name"), at)?;
    Ok(name)
}

fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), EncodeError> {
    refuse((bytes.len() > MAX_BLOB_LEN).then_some("option or policy state longer than 16 MiB"))?;
    put_slice(out, bytes);
    Ok(())
}

fn text(body: &mut Reader<'_>) -> Result<String, Corruption> {
    let at = body.offset();
    utf8(body.slice_up_to(MAX_BLOB_LEN)?, at)
}

fn utf8(bytes: &[u8], at: u64) -> Result<String, Corruption> {
    core::str::from_utf8(bytes).map(String::from).map_err(|_| Corruption::new("text is not UTF-8", at))
}

fn put_rate(out: &mut Vec<u8>, rate: f32) {
    put_f32(out, if rate.is_finite() && rate > 0.0 { rate } else { 0.0 });
}

fn rate(body: &mut Reader<'_>) -> Result<f32, Corruption> {
    let at = body.offset();
    let rate = body.f32()?;
    let sound = rate.is_finite() && rate.is_sign_positive();
    accept((!sound).then_some("rate is not a finite positive number"), at)?;
    Ok(rate)
}

fn rates(body: &mut Reader<'_>) -> Result<[f32; 3], Corruption> {
    Ok([rate(body)?, rate(body)?, rate(body)?])
}
