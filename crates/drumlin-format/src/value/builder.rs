//! Builder of value files. The parent module describes the format.

use super::properties::ValueFileProperties;
use super::record::{RecordKey, encode_record_header, record_len};
use super::{Footer, KEY_BLOCK_BYTES, RecordPlace, VALUE_FOOTER, ValueFileHeader};
use crate::block::BlockBuilder;
use crate::checksum::FileHasher;
use crate::compression::{Compression, Compressor};
use crate::limits::MAX_LEN;
use crate::seal::{SEAL_LEN, seal};
use crate::table::{Handle, Sink};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use drumlin_types::{Key, Kind, MAX_KEY_LEN, Seq};

/// Settings of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueFileSettings {
    /// Header of the file.
    pub header: ValueFileHeader,
    /// Compression of the values.
    pub compression: Compression,
}

/// Reason why a value file could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError<E> {
    /// The sink failed.
    Sink(E),
    /// A record is not after the previous one.
    OutOfOrder,
    /// The key exceeds the maximum key length, or the value has 2^32 bytes or more.
    TooLong,
    /// The file exceeds its maximum length.
    FileTooLarge,
    /// The file has no records.
    Empty,
}

impl<E: fmt::Display> fmt::Display for BuildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Sink(error) => error.fmt(f),
            BuildError::OutOfOrder => f.write_str("records are added to a value file out of order"),
            BuildError::TooLong => f.write_str("a value is too long for a value file"),
            BuildError::FileTooLarge => f.write_str("a value file exceeds its maximum length"),
            BuildError::Empty => f.write_str("a value file has no records"),
        }
    }
}

/// Result of building a value file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueFileSummary {
    /// Length of the file.
    pub file_len: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
    /// Properties of the file.
    pub properties: ValueFileProperties,
}

/// Builds a value file. Add records in internal order, then call `finish`.
pub struct ValueFileBuilder<S> {
    sink: S,
    settings: ValueFileSettings,
    compressor: Compressor,
    written: u64,
    hasher: FileHasher,
    /// Start of the record that is being written.
    record: Vec<u8>,
    block: BlockBuilder,
    /// Finished key blocks, not sealed: their offsets are not known before the last record is written.
    key_blocks: Vec<u8>,
    /// End of each finished key block in `key_blocks`.
    key_block_ends: Vec<usize>,
    place: Vec<u8>,
    properties: ValueFileProperties,
    last_key: Vec<u8>,
    last_seq: Seq,
}

impl<S: Sink> ValueFileBuilder<S> {
    /// Writes the header of a value file to `sink` and returns the builder.
    pub fn new(sink: S, settings: ValueFileSettings) -> Result<ValueFileBuilder<S>, BuildError<S::Error>> {
        let mut builder = ValueFileBuilder {
            sink,
            settings,
            compressor: Compressor::new(settings.compression),
            written: 0,
            hasher: FileHasher::new(),
            record: Vec::new(),
            block: BlockBuilder::new(),
            key_blocks: Vec::new(),
            key_block_ends: Vec::new(),
            place: Vec::new(),
            properties: ValueFileProperties {
                records: 0,
                raw_bytes: 0,
                record_bytes: 0,
                min_seq: Seq::MAX,
                max_seq: 0,
                first_key: Key::empty(),
                last_key: Key::empty(),
                key_blocks_offset: 0,
                key_block_lens: Vec::new(),
            },
            last_key: Vec::new(),
            last_seq: 0,
        };
        builder.write(&settings.header.encode())?;
        Ok(builder)
    }

    /// Compresses `value` and appends its record. Returns the record's place.
    pub fn add(&mut self, key: &[u8], seq: Seq, value: &[u8]) -> Result<RecordPlace, BuildError<S::Error>> {
        let raw_len = u32::try_from(value.len()).map_err(|_| BuildError::TooLong)?;
        let mut compressor = core::mem::replace(&mut self.compressor, Compressor::new(Compression::None));
        let (codec, stored) = compressor.compress(value);
        let place = self.add_stored(key, seq, codec, raw_len, stored);
        self.compressor = compressor;
        place
    }

    /// Appends a record with bytes that are already compressed, as garbage collection does. `stored` has at most
    /// `raw_len` bytes.
    pub fn add_stored(
        &mut self,
        key: &[u8],
        seq: Seq,
        codec: Compression,
        raw_len: u32,
        stored: &[u8],
    ) -> Result<RecordPlace, BuildError<S::Error>> {
        let stored_len = u32::try_from(stored.len()).map_err(|_| BuildError::TooLong)?;
        if key.len() > MAX_KEY_LEN || stored_len > raw_len {
            return Err(BuildError::TooLong);
        }
        if self.properties.records > 0 {
            match key.cmp(&self.last_key) {
                Ordering::Greater => {}
                Ordering::Equal if seq < self.last_seq => {}
                Ordering::Equal | Ordering::Less => return Err(BuildError::OutOfOrder),
            }
        }
        let place = RecordPlace { offset: self.written, raw_len, stored_len };
        let raw_bytes = self.properties.raw_bytes + u64::from(raw_len);
        // Decoders bound the sums by the maximum length of a file. The key blocks need room too.
        let end = place.end() + self.key_blocks.len() as u64 + self.block.len() as u64;
        if end + (MAX_KEY_LEN as u64) * 4 > MAX_LEN || raw_bytes > MAX_LEN {
            return Err(BuildError::FileTooLarge);
        }
        let version = RecordKey { file_id: self.settings.header.file.0, offset: place.offset, key, seq };
        let mut header = core::mem::take(&mut self.record);
        encode_record_header(&mut header, &version, codec, raw_len, stored);
        let written = self.write(&header).and_then(|()| self.write(stored));
        self.record = header;
        written?;
        self.add_to_key_block(key, seq, &place);
        self.properties.raw_bytes = raw_bytes;
        Ok(place)
    }

    fn add_to_key_block(&mut self, key: &[u8], seq: Seq, place: &RecordPlace) {
        self.place.clear();
        place.encode_into(&mut self.place);
        let target = KEY_BLOCK_BYTES - SEAL_LEN;
        if !self.block.is_empty() && self.block.len_with(key.len(), self.place.len()) > target {
            self.close_key_block();
        }
        self.block.add(key, 0, seq, Kind::PutPointer, &self.place);
        let properties = &mut self.properties;
        if properties.records == 0 {
            properties.first_key = Key::new(key);
        }
        properties.records += 1;
        properties.record_bytes += record_len(place.raw_len, place.stored_len);
        properties.min_seq = properties.min_seq.min(seq);
        properties.max_seq = properties.max_seq.max(seq);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_seq = seq;
    }

    fn close_key_block(&mut self) {
        self.block.finish_into(&mut self.key_blocks);
        self.key_block_ends.push(self.key_blocks.len());
        self.block.clear();
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.properties.records
    }

    /// Returns the bytes of key blocks, which are in memory until the file ends.
    pub fn key_bytes(&self) -> usize {
        self.key_blocks.len() + self.block.len()
    }

    /// Returns the length of the file if it ended after the last record.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes key blocks, properties and footer. Also returns the sink.
    pub fn finish(mut self) -> Result<(ValueFileSummary, S), BuildError<S::Error>> {
        if self.properties.records == 0 {
            return Err(BuildError::Empty);
        }
        self.close_key_block();
        self.properties.last_key = Key::new(&self.last_key);
        self.properties.key_blocks_offset = self.written;
        let blocks = core::mem::take(&mut self.key_blocks);
        let mut start = 0;
        for end in core::mem::take(&mut self.key_block_ends) {
            let handle = self.write_sealed(blocks.get(start..end).unwrap_or_default())?;
            self.properties.key_block_lens.push(handle.sealed_len);
            start = end;
        }
        let root = self.write_sealed(&self.properties.encode())?;
        let footer = Footer { root }.encode(VALUE_FOOTER, self.settings.header.file.0, self.written);
        self.write(&footer)?;
        let summary = ValueFileSummary {
            file_len: self.written,
            checksum: self.hasher.finish(),
            properties: self.properties,
        };
        Ok((summary, self.sink))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError<S::Error>> {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        self.sink.append(bytes).map_err(BuildError::Sink)
    }

    fn write_sealed(&mut self, stored: &[u8]) -> Result<Handle, BuildError<S::Error>> {
        let offset = self.written;
        let sealed_len = u32::try_from(stored.len() + SEAL_LEN).map_err(|_| BuildError::FileTooLarge)?;
        self.write(stored)?;
        self.write(&seal(self.settings.header.file.0, offset, stored, Compression::None))?;
        Ok(Handle { offset, sealed_len })
    }
}
