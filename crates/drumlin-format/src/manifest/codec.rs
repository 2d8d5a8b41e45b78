//! Encoding of a manifest edit.
//!
//! ```text
//! edit     change | change | ...
//! change   tag * 2 + critical  varint | body  slice
//!
//! name     slice of UTF-8, 1 to 255 bytes          key     slice
//! text     slice of UTF-8, up to 16 MiB            end     0 | key, or the byte 1 alone: unbounded
//! blob     slice, up to 16 MiB                     rate    f32, finite, not negative
//!
//! tag and name           body                      tag and name          body
//!  1 CreateKeyspace      id, name                  11 ClockMark          micros
//!  2 DropKeyspace        id                        12 Policy        (n)  keyspace, name, blob
//!  3 KeyspaceOption      id, name, text            13 StoreOption        name, text
//!  4 AddRun              keyspace, run, level u8,  14 Lookups       (n)  keyspace, table, key, 3 rates
//!                        tag slice                 15 ValueFile          value file
//!  5 AddFile             keyspace, file            16 ValueCounters (n)  value file number, dead bytes,
//!  6 RemoveFile          keyspace, table, key                            dead entries
//!  7 Flushed             keyspace, seq             17 NextRun            number
//!  8 LogFloor            number                    18 NextKeyspace       number
//!  9 NextFile            number                    19 MergeOperator      keyspace, name
//! 10 LastSeq             seq                       20 LogEnd             position
//!                                                  21 RenameKeyspace     id, name
//!                                                  22 KeyspaceLookups (n) keyspace, lookups
//!                                                  23 TableLives    (n)  keyspace, count of (level u8, tables,
//!                                                                        rate: lookups), levels increasing
//!                                                  24 ValueLifetimes (n) keyspace, blob
//!
//! file         table, key, end, level u8, run, file length, bytes, entries, keys, tombstones, range tombstones,
//!              table entries, smallest seq, largest seq, filter bits rate, false-positive rate, checksum u64,
//!              accounted u8, count of (value file, entries, bytes), 3 lookup rates
//! lookups      2 rates (all lookups, those that no memtable answered), number of keys, rate of the first bucket,
//!              count of (first key, rate) of each other bucket: at most 4096, increasing, none empty
//! value file   keyspace, file, state u8 (0 live, 1 moved, 2 moved with map, 3 gone),
//!              with a map: number, length, entries, checksum u64;
//!              class u8, length, entries, bytes, dead bytes, dead entries, created seq, end seq,
//!              smallest seq, largest seq, checksum u64
//! ```
//!
//! Numbers without a stated width are varints, bounded by `limits`. Changes marked (n) are not critical; all others
//! are. A reader must refuse a critical change with an unknown tag. It keeps other unknown changes as opaque bytes.
//!
//! A decoder must consume the whole body. A change therefore never gains fields; a new field needs a new tag.
//!
//! Rates are statistics: shares or counts. The encoder writes 0 for a rate that is not a finite positive number,
//! instead of rejecting the edit, so that a division by zero in the statistics cannot block an install.

use super::change::{
    Change, Edit, FileRecord, KeyspaceLookups, MAX_BLOB_LEN, MAX_BUCKETS, MAX_CHANGES, MAX_NAME_LEN,
    MAX_VALUE_REFS, MapRecord, TableLife, ValueFileRecord, ValueFileState, ValueRef, lives_fault,
};
use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_f32, put_slice, put_u64, put_varint};
use crate::error::{Corruption, DecodeError, EncodeError};
use crate::limits::{MAX_KEYSPACE, MAX_LEN, MAX_MICROS, MAX_NUMBER, MAX_POSITION, MAX_RATE, MAX_SEQ};
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::RunTag;
use drumlin_types::{Key, KeyspaceId, LogNumber, MAX_LEVEL, RunId, Seq, TableId, ValueFileId};

/// Tags of the changes.
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
    pub(super) const NEXT_KEYSPACE: u16 = 18;
    pub(super) const MERGE_OPERATOR: u16 = 19;
    pub(super) const LOG_END: u16 = 20;
    pub(super) const RENAME_KEYSPACE: u16 = 21;
    pub(super) const KEYSPACE_LOOKUPS: u16 = 22;
    pub(super) const TABLE_LIVES: u16 = 23;
    pub(super) const VALUE_LIFETIMES: u16 = 24;
    /// Largest tag that this version understands.
    pub(super) const LAST: u16 = VALUE_LIFETIMES;

    /// Returns whether a version that does not understand this change must refuse to open the store.
    pub(super) const fn is_critical(tag: u16) -> bool {
        !matches!(tag, POLICY | LOOKUPS | VALUE_COUNTERS | KEYSPACE_LOOKUPS | TABLE_LIVES | VALUE_LIFETIMES)
    }
}

/// States of a value file, as encoded.
mod state {
    pub(super) const LIVE: u8 = 0;
    pub(super) const MOVED: u8 = 1;
    pub(super) const MOVED_WITH_MAP: u8 = 2;
    pub(super) const GONE: u8 = 3;
}

/// Minimum length of an encoded bucket of lookups.
const MIN_BUCKET_LEN: usize = 5;
/// Minimum length of an encoded life of a level's tables.
const MIN_LIFE_LEN: usize = 6;
/// Minimum length of an encoded reference to a value file.
const MIN_VALUE_REF_LEN: usize = 3;

impl Edit {
    /// Encodes the edit.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        let mut body = Vec::new();
        refuse((self.changes.len() > MAX_CHANGES).then_some("edit of too many changes"))?;
        for change in &self.changes {
            body.clear();
            let (tag, critical) = encode_change(change, &mut body)?;
            if tag <= tag::LAST {
                // The decoder checks all limits. Reject what it would reject.
                let mut reader = Reader::new(&body);
                let read = read_body(tag, &mut reader).and_then(|_| reader.finish());
                read.map_err(|damage| EncodeError { what: damage.what })?;
            }
            put_varint(&mut out, u64::from(tag) << 1 | u64::from(critical));
            put_slice(&mut out, &body);
        }
        Ok(out)
    }

    /// Decodes an edit.
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

/// Appends the body of `change`. Returns its tag, and whether it is critical.
fn encode_change(change: &Change, out: &mut Vec<u8>) -> Result<(u16, bool), EncodeError> {
    put_body(change, out)?;
    let tag = tag_of(change);
    let critical = match change {
        Change::Extension { critical, .. } => *critical,
        _ => tag::is_critical(tag),
    };
    Ok((tag, critical))
}

fn tag_of(change: &Change) -> u16 {
    match change {
        Change::CreateKeyspace { .. } => tag::CREATE_KEYSPACE,
        Change::RenameKeyspace { .. } => tag::RENAME_KEYSPACE,
        Change::DropKeyspace { .. } => tag::DROP_KEYSPACE,
        Change::KeyspaceOption { .. } => tag::KEYSPACE_OPTION,
        Change::AddRun { .. } => tag::ADD_RUN,
        Change::AddFile { .. } => tag::ADD_FILE,
        Change::RemoveFile { .. } => tag::REMOVE_FILE,
        Change::Flushed { .. } => tag::FLUSHED,
        Change::LogFloor(_) => tag::LOG_FLOOR,
        Change::NextFile(_) => tag::NEXT_FILE,
        Change::LastSeq(_) => tag::LAST_SEQ,
        Change::ClockMark(_) => tag::CLOCK_MARK,
        Change::Policy { .. } => tag::POLICY,
        Change::StoreOption { .. } => tag::STORE_OPTION,
        Change::Lookups { .. } => tag::LOOKUPS,
        Change::KeyspaceLookups { .. } => tag::KEYSPACE_LOOKUPS,
        Change::TableLives { .. } => tag::TABLE_LIVES,
        Change::ValueLifetimes { .. } => tag::VALUE_LIFETIMES,
        Change::ValueFile(_) => tag::VALUE_FILE,
        Change::ValueCounters { .. } => tag::VALUE_COUNTERS,
        Change::NextRun(_) => tag::NEXT_RUN,
        Change::NextKeyspace(_) => tag::NEXT_KEYSPACE,
        Change::MergeOperator { .. } => tag::MERGE_OPERATOR,
        Change::LogEnd(_) => tag::LOG_END,
        Change::Extension { tag, .. } => *tag,
    }
}

fn put_body(change: &Change, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match change {
        Change::CreateKeyspace { id: keyspace, name }
        | Change::RenameKeyspace { id: keyspace, name }
        | Change::MergeOperator { keyspace, name } => {
            put_keyspace(out, *keyspace);
            put_name(out, name)?;
        }
        Change::DropKeyspace { id } => put_keyspace(out, *id),
        Change::KeyspaceOption { id, name, value } => {
            put_keyspace(out, *id);
            put_name(out, name)?;
            put_blob(out, value.as_bytes())?;
        }
        Change::AddRun { keyspace, run, level, tag } => {
            refuse(run_fault(*level, &tag.0))?;
            put_keyspace(out, *keyspace);
            put_varint(out, run.0);
            out.push(*level);
            put_slice(out, &tag.0);
        }
        Change::AddFile { keyspace, file } => {
            put_keyspace(out, *keyspace);
            put_file(out, file)?;
        }
        Change::RemoveFile { keyspace, table, start } => put_file_name(out, *keyspace, *table, start)?,
        Change::Flushed { keyspace, seq } => {
            put_keyspace(out, *keyspace);
            put_varint(out, *seq);
        }
        Change::Policy { keyspace, name, blob } => {
            put_keyspace(out, *keyspace);
            put_name(out, name)?;
            put_blob(out, blob)?;
        }
        Change::StoreOption { name, value } => {
            put_name(out, name)?;
            put_blob(out, value.as_bytes())?;
        }
        Change::Lookups { keyspace, table, start, lookups } => {
            put_file_name(out, *keyspace, *table, start)?;
            lookups.iter().for_each(|rate| put_rate(out, *rate));
        }
        Change::KeyspaceLookups { keyspace, lookups } => {
            put_keyspace(out, *keyspace);
            put_keyspace_lookups(out, lookups)?;
        }
        Change::TableLives { keyspace, lives } => {
            put_keyspace(out, *keyspace);
            put_lives(out, lives)?;
        }
        Change::ValueLifetimes { keyspace, blob } => put_keyspace_blob(out, *keyspace, blob)?,
        Change::ValueFile(record) => put_value_file(out, record)?,
        Change::ValueCounters { file, dead_bytes, dead_entries } => {
            [file.0, *dead_bytes, *dead_entries].iter().for_each(|number| put_varint(out, *number));
        }
        Change::Extension { tag, bytes, .. } => {
            refuse((*tag <= tag::LAST).then_some("extension with the tag of a known change"))?;
            out.extend_from_slice(bytes);
        }
        Change::LogFloor(LogNumber(number))
        | Change::NextFile(number)
        | Change::NextRun(number)
        | Change::NextKeyspace(number)
        | Change::LogEnd(number)
        | Change::LastSeq(number)
        | Change::ClockMark(number) => put_varint(out, *number),
    }
    Ok(())
}

fn read_change(reader: &mut Reader<'_>) -> Result<Change, DecodeError> {
    let at = reader.offset();
    let tag_and_critical = reader.varint_u32()?;
    let critical = tag_and_critical & 1 == 1;
    let tag =
        u16::try_from(tag_and_critical >> 1).map_err(|_| Corruption::new("change has an invalid tag", at))?;
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
        return Err(Corruption::new("change has the wrong critical flag", at).into());
    }
    let change = read_body(tag, &mut body).and_then(|change| body.finish().map(|()| change))?;
    Ok(change)
}

fn read_body(tag: u16, body: &mut Reader<'_>) -> Result<Change, Corruption> {
    Ok(match tag {
        tag::CREATE_KEYSPACE => Change::CreateKeyspace { id: keyspace(body)?, name: name(body)? },
        tag::RENAME_KEYSPACE => Change::RenameKeyspace { id: keyspace(body)?, name: name(body)? },
        tag::DROP_KEYSPACE => Change::DropKeyspace { id: keyspace(body)? },
        tag::KEYSPACE_OPTION => {
            Change::KeyspaceOption { id: keyspace(body)?, name: name(body)?, value: text(body)? }
        }
        tag::ADD_RUN => {
            let at = body.offset();
            let (keyspace, run, level) = (keyspace(body)?, RunId(body.varint_up_to(MAX_NUMBER)?), body.u8()?);
            let tag = body.slice_up_to(RunTag::MAX)?;
            accept(run_fault(level, tag), at)?;
            Change::AddRun { keyspace, run, level, tag: RunTag(tag.into()) }
        }
        tag::ADD_FILE => Change::AddFile { keyspace: keyspace(body)?, file: file(body)? },
        tag::REMOVE_FILE => Change::RemoveFile {
            keyspace: keyspace(body)?,
            table: TableId(body.varint_up_to(MAX_NUMBER)?),
            start: key(body)?,
        },
        tag::FLUSHED => Change::Flushed { keyspace: keyspace(body)?, seq: body.varint_up_to(MAX_SEQ)? },
        tag::MERGE_OPERATOR => Change::MergeOperator { keyspace: keyspace(body)?, name: name(body)? },
        tag::LOG_FLOOR => Change::LogFloor(LogNumber(body.varint_up_to(MAX_NUMBER)?)),
        tag::NEXT_FILE => Change::NextFile(body.varint_up_to(MAX_NUMBER)?),
        tag::NEXT_RUN => Change::NextRun(body.varint_up_to(MAX_NUMBER)?),
        tag::NEXT_KEYSPACE => Change::NextKeyspace(body.varint_up_to(u64::from(MAX_KEYSPACE) + 1)?),
        tag::LOG_END => Change::LogEnd(body.varint_up_to(MAX_POSITION)?),
        tag::LAST_SEQ => Change::LastSeq(body.varint_up_to(MAX_SEQ)?),
        tag::CLOCK_MARK => Change::ClockMark(body.varint_up_to(MAX_MICROS)?),
        tag::POLICY => Change::Policy {
            keyspace: keyspace(body)?,
            name: name(body)?,
            blob: body.slice_up_to(MAX_BLOB_LEN)?.into(),
        },
        tag::STORE_OPTION => Change::StoreOption { name: name(body)?, value: text(body)? },
        tag::LOOKUPS => Change::Lookups {
            keyspace: keyspace(body)?,
            table: TableId(body.varint_up_to(MAX_NUMBER)?),
            start: key(body)?,
            lookups: rates(body)?,
        },
        tag::KEYSPACE_LOOKUPS => {
            Change::KeyspaceLookups { keyspace: keyspace(body)?, lookups: keyspace_lookups(body)? }
        }
        tag::TABLE_LIVES => Change::TableLives { keyspace: keyspace(body)?, lives: lives(body)? },
        tag::VALUE_LIFETIMES => {
            Change::ValueLifetimes { keyspace: keyspace(body)?, blob: body.slice_up_to(MAX_BLOB_LEN)?.into() }
        }
        tag::VALUE_FILE => Change::ValueFile(value_file(body)?),
        tag::VALUE_COUNTERS => Change::ValueCounters {
            file: ValueFileId(body.varint_up_to(MAX_NUMBER)?),
            dead_bytes: body.varint_up_to(MAX_LEN)?,
            dead_entries: body.varint_up_to(MAX_LEN)?,
        },
        _ => return Err(body.damage("change has an invalid tag")),
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
        table: TableId(body.varint_up_to(MAX_NUMBER)?),
        start: key(body)?,
        end: if body.bool()? { None } else { Some(key(body)?) },
        level: body.u8()?,
        run: RunId(body.varint_up_to(MAX_NUMBER)?),
        file_len: body.varint_up_to(MAX_LEN)?,
        bytes: body.varint_up_to(MAX_LEN)?,
        entries: body.varint_up_to(MAX_LEN)?,
        keys: body.varint_up_to(MAX_LEN)?,
        tombstones: body.varint_up_to(MAX_LEN)?,
        range_tombstones: body.varint_up_to(MAX_LEN)?,
        table_entries: body.varint_up_to(MAX_LEN)?,
        min_seq: body.varint_up_to(MAX_SEQ)?,
        max_seq: body.varint_up_to(MAX_SEQ)?,
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
            file: ValueFileId(body.varint_up_to(MAX_NUMBER)?),
            entries: body.varint_up_to(MAX_LEN)?,
            bytes: body.varint_up_to(MAX_LEN)?,
        });
    }
    Ok(refs)
}

fn put_keyspace_lookups(out: &mut Vec<u8>, lookups: &KeyspaceLookups) -> Result<(), EncodeError> {
    refuse(lookups.fault())?;
    lookups.totals.iter().for_each(|rate| put_rate(out, *rate));
    put_varint(out, lookups.keys);
    put_rate(out, lookups.first);
    put_varint(out, lookups.buckets.len() as u64);
    for (start, rate) in &lookups.buckets {
        put_slice(out, start);
        put_rate(out, *rate);
    }
    Ok(())
}

fn keyspace_lookups(body: &mut Reader<'_>) -> Result<KeyspaceLookups, Corruption> {
    let at = body.offset();
    let (totals, keys, first) = ([rate(body)?, rate(body)?], body.varint_up_to(MAX_LEN)?, rate(body)?);
    let count = body.count(MIN_BUCKET_LEN)?;
    accept((count > MAX_BUCKETS).then_some("lookup statistics of too many buckets"), at)?;
    let mut buckets = Vec::with_capacity(count);
    for _ in 0..count {
        buckets.push((key(body)?, rate(body)?));
    }
    let lookups = KeyspaceLookups { totals, keys, first, buckets };
    accept(lookups.fault(), at)?;
    Ok(lookups)
}

fn put_lives(out: &mut Vec<u8>, lives: &[TableLife]) -> Result<(), EncodeError> {
    refuse(lives_fault(lives))?;
    put_varint(out, lives.len() as u64);
    for life in lives {
        out.push(life.level);
        put_varint(out, u64::from(life.tables));
        put_rate(out, life.lookups);
    }
    Ok(())
}

fn lives(body: &mut Reader<'_>) -> Result<Vec<TableLife>, Corruption> {
    let at = body.offset();
    let count = body.count(MIN_LIFE_LEN)?;
    let mut lives = Vec::with_capacity(count);
    for _ in 0..count {
        lives.push(TableLife { level: body.u8()?, tables: body.varint_u32()?, lookups: rate(body)? });
    }
    accept(lives_fault(&lives), at)?;
    Ok(lives)
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
        file: ValueFileId(body.varint_up_to(MAX_NUMBER)?),
        state: value_file_state(body)?,
        class: body.u8()?,
        file_len: body.varint_up_to(MAX_LEN)?,
        entries: body.varint_up_to(MAX_LEN)?,
        total_bytes: body.varint_up_to(MAX_LEN)?,
        dead_bytes: body.varint_up_to(MAX_LEN)?,
        dead_entries: body.varint_up_to(MAX_LEN)?,
        created_seq: body.varint_up_to(MAX_SEQ)?,
        end_seq: end_seq(body)?,
        min_seq: body.varint_up_to(MAX_SEQ)?,
        max_seq: body.varint_up_to(MAX_SEQ)?,
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
            number: body.varint_up_to(MAX_NUMBER)?,
            file_len: body.varint_up_to(MAX_LEN)?,
            entries: body.varint_up_to(MAX_LEN)?,
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
    Ok(KeyspaceId(body.varint_up_to(MAX_KEYSPACE.into())? as u32))
}

/// Decodes a sequence number or `Seq::MAX`, which means never.
fn end_seq(body: &mut Reader<'_>) -> Result<Seq, Corruption> {
    let at = body.offset();
    let seq = body.varint_u64()?;
    accept((seq > MAX_SEQ && seq != Seq::MAX).then_some("number exceeds its limit"), at)?;
    Ok(seq)
}

fn put_file_name(
    out: &mut Vec<u8>,
    keyspace: KeyspaceId,
    table: TableId,
    start: &Key,
) -> Result<(), EncodeError> {
    refuse((start.len() > MAX_BOUND_LEN).then_some("key bound exceeds the maximum length"))?;
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

fn put_keyspace_blob(out: &mut Vec<u8>, keyspace: KeyspaceId, blob: &[u8]) -> Result<(), EncodeError> {
    put_keyspace(out, keyspace);
    put_blob(out, blob)
}

fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), EncodeError> {
    refuse((bytes.len() > MAX_BLOB_LEN).then_some("option or state longer than 16 MiB"))?;
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
    put_f32(out, if rate.is_finite() && rate > 0.0 { rate.min(MAX_RATE) } else { 0.0 });
}

fn rate(body: &mut Reader<'_>) -> Result<f32, Corruption> {
    let at = body.offset();
    let rate = body.f32()?;
    let sound = rate.is_sign_positive() && rate <= MAX_RATE;
    accept((!sound).then_some("rate is negative, too large or not a number"), at)?;
    Ok(rate)
}

fn rates(body: &mut Reader<'_>) -> Result<[f32; 3], Corruption> {
    Ok([rate(body)?, rate(body)?, rate(body)?])
}
