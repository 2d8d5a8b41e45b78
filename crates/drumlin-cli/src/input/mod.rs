//! Input formats: entries in four formats, traces, and the values that a replay writes.
//!
//! Every reader is an iterator that holds one record at a time, so the longest record bounds its memory. Errors name
//! the line. Input is untrusted: no input makes a reader panic.

pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod deb822;
pub(crate) mod jsonl;
mod lines;
pub(crate) mod trace;
pub(crate) mod trace_value;
pub(crate) mod tsv;

use crate::failure::Failure;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// Size of the read buffer in bytes.
const READ_BUFFER_BYTES: usize = 256 << 10;
/// Base-2 logarithm of the largest window that a zstd frame may use. `zstd --long=27` writes such frames.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Magic number at the start of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// The value.
    pub(crate) value: Vec<u8>,
}

/// Error from reading a record.
#[derive(Debug)]
pub(crate) enum InputError {
    /// I/O error.
    Io(io::Error),
    /// The input violates its format.
    Bad {
        /// Unit in which positions are counted: `line` or `object`.
        unit: &'static str,
        /// Number of the unit at which the record starts, from 1.
        number: u64,
        /// Description of the violation.
        what: String,
    },
}

impl InputError {
    fn bad(line: u64, what: impl Into<String>) -> InputError {
        InputError::Bad { unit: "line", number: line, what: what.into() }
    }
}

impl From<io::Error> for InputError {
    fn from(error: io::Error) -> InputError {
        InputError::Io(error)
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::Io(error) => error.fmt(f),
            InputError::Bad { unit, number, what } => write!(f, "{unit} {number}: {what}"),
        }
    }
}

/// Reader of entries that counts the input bytes it has consumed.
pub(crate) trait EntryReader: Iterator<Item = Result<Entry, InputError>> {
    /// Returns the input bytes consumed by the entries returned so far.
    fn bytes_read(&self) -> u64;
}

/// A file, or stdin for `-`.
pub(crate) struct Source {
    /// Reader of the content.
    pub(crate) reader: Box<dyn BufRead>,
    /// Length in bytes, if known.
    pub(crate) bytes: Option<u64>,
}

impl Source {
    /// Opens the file `name`, or stdin for `-`.
    pub(crate) fn open(name: &str) -> Result<Source, Failure> {
        if name == "-" {
            let reader = BufReader::with_capacity(READ_BUFFER_BYTES, io::stdin());
            return Ok(Source { reader: Box::new(reader), bytes: None });
        }
        let file = File::open(name).map_err(|e| Failure::failed(name, e))?;
        let meta = file.metadata().map_err(|e| Failure::failed(name, e))?;
        if meta.is_dir() {
            return Err(Failure::Failed(format!("{name} is a directory, not a file")));
        }
        let reader = Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, file));
        Ok(Source { reader, bytes: meta.is_file().then_some(meta.len()) })
    }

    /// Decompresses the source if it is a zstd frame; otherwise returns it unchanged. The length of decompressed data
    /// is unknown.
    pub(crate) fn decompressed(mut self) -> io::Result<Source> {
        if !self.reader.fill_buf()?.starts_with(&ZSTD_MAGIC) {
            return Ok(self);
        }
        let mut decoder = zstd::Decoder::with_buffer(self.reader)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        let reader = Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, decoder));
        Ok(Source { reader, bytes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Read};

    fn text_of(bytes: Vec<u8>) -> String {
        let source = Source { reader: Box::new(Cursor::new(bytes)), bytes: None };
        let mut text = String::new();
        source.decompressed().expect("readable").reader.read_to_string(&mut text).expect("readable");
        text
    }

    #[test]
    fn compressed_and_plain_bytes_read_alike() {
        let text = "ts,op,key,size\n".repeat(100);
        assert_eq!(text_of(text.clone().into_bytes()), text);
        assert_eq!(text_of(zstd::encode_all(text.as_bytes(), 3).expect("compresses")), text);
        assert_eq!(text_of(Vec::new()), "");
    }
}
