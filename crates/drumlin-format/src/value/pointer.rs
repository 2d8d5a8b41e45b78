//! The pointer of a tree entry to its value in a value file.
//!
//! ```text
//! tag u8 | place (unless tag 2) | history (if tag 1)
//!
//! tag      sum of: 1 the key has a history, 2 the place is gone; all other bits are 0
//! place    number of the value file varint | record offset varint | raw length varint | stored length varint
//! history  writes varint | gap varint, per gap
//!          | if there are more than 8 writes: oldest varint | remainder u16, ten times
//! ```
//!
//! A pointer names its file by number, not by an index into a list of its table. So compactions copy it unchanged,
//! and a reader needs nothing else.
//!
//! Values that expire stay in the tree.
//!
//! Reserved, not written by this version: places that are *gone*. The place of an entry is gone when its value file was
//! collected and no reader can see the entry, which remains for the order and the history of its key.

use super::RecordPlace;
use crate::bytes::{Reader, put_u16, put_varint};
use crate::error::Corruption;
use crate::limits::{MAX_LEN, MAX_NUMBER, MAX_SEQ};
use alloc::vec::Vec;
use drumlin_types::ValueFileId;
use drumlin_types::history::History;

const HAS_HISTORY: u8 = 1;
const IS_GONE: u8 = 2;
/// Smallest half-precision number that is not finite.
const HALF_INFINITY: u16 = 0x7c00;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The value file.
    pub file: ValueFileId,
    /// Place of the record in the file, as it was when the pointer was written.
    pub record: RecordPlace,
}

/// A decoded pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePointer {
    /// Place of the value; `None` when it is gone.
    pub place: Option<Place>,
    /// Past writes of the key.
    pub history: Option<History>,
}

impl ValuePointer {
    /// Appends the encoded pointer.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
        out.push(flag(self.history.is_some(), HAS_HISTORY) | flag(self.place.is_none(), IS_GONE));
        if let Some(place) = &self.place {
            put_varint(out, place.file.0);
            place.record.encode_into(out);
        }
        if let Some(history) = &self.history {
            encode_history(history, out);
        }
    }

    /// Decodes the pointer that fills `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<ValuePointer, Corruption> {
        let mut reader = Reader::new(bytes);
        let (mut pointer, has_history) = decode_front(&mut reader)?;
        if has_history {
            pointer.history = Some(decode_history(&mut reader)?);
        }
        reader.finish()?;
        Ok(pointer)
    }

    /// Decodes a pointer without its history, which is not verified. For reads, which do not use it.
    pub fn decode_without_history(bytes: &[u8]) -> Result<ValuePointer, Corruption> {
        Ok(decode_front(&mut Reader::new(bytes))?.0)
    }
}

/// Decodes a pointer up to its history. Also returns whether a history follows.
fn decode_front(reader: &mut Reader<'_>) -> Result<(ValuePointer, bool), Corruption> {
    let tag = reader.u8()?;
    if tag & !(HAS_HISTORY | IS_GONE) != 0 {
        return Err(Corruption::new("value pointer has an unknown tag", 0));
    }
    let place = if tag & IS_GONE == 0 { Some(decode_place(reader)?) } else { None };
    Ok((ValuePointer { place, history: None }, tag & HAS_HISTORY != 0))
}

fn decode_place(reader: &mut Reader<'_>) -> Result<Place, Corruption> {
    let file = ValueFileId(reader.varint_up_to(MAX_NUMBER)?);
    Ok(Place { file, record: RecordPlace::decode_from(reader)? })
}

fn encode_history(history: &History, out: &mut Vec<u8>) {
    put_varint(out, history.writes);
    history.gaps.iter().take(history.kept()).for_each(|&gap| put_varint(out, gap));
    if history.has_remainder() {
        put_varint(out, history.oldest);
        history.remainders.iter().for_each(|&remainder| put_u16(out, remainder));
    }
}

fn decode_history(reader: &mut Reader<'_>) -> Result<History, Corruption> {
    let mut history = History { writes: reader.varint_up_to(MAX_LEN)?, ..History::default() };
    if history.writes == 0 {
        return Err(reader.damage("history of no writes"));
    }
    let kept = history.kept();
    for gap in history.gaps.iter_mut().take(kept) {
        *gap = distance(reader)?;
    }
    if history.has_remainder() {
        history.oldest = distance(reader)?;
        for remainder in &mut history.remainders {
            *remainder = reader.u16()?;
            if *remainder >= HALF_INFINITY {
                return Err(reader.damage("decayed writes of a history are not a number"));
            }
        }
    }
    Ok(history)
}

fn distance(reader: &mut Reader<'_>) -> Result<u64, Corruption> {
    match reader.varint_up_to(MAX_SEQ)? {
        0 => Err(reader.damage("two writes of a history at one place")),
        distance => Ok(distance),
    }
}
