//! CSV records as in RFC 4180, and entries of two fields.
//!
//! A field in double quotes may contain commas, line ends and doubled quotes. A record ends with a line feed,
//! optionally after a carriage return. Empty lines are skipped. In an entry file, a first record that is exactly
//! `key,value` is a header. There are no escapes: every byte stands for itself, except a byte order mark at the start,
//! which is skipped.

use super::columns::Rows;
use super::lines::Lines;
use super::{Entry, EntryReader, InputError};
use std::io::BufRead;

/// Spreadsheets begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Parser state: the position of the next byte in its record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the start of a field.
    Start,
    /// In an unquoted field.
    Bare,
    /// Between quotes.
    Quoted,
    /// After a quote that closed the field or is the first half of a doubled quote.
    Closed,
    /// After a carriage return that only a line feed may follow.
    Return,
}

/// Reads records with any number of fields.
pub(crate) struct Records<R> {
    lines: Lines<R>,
    start: u64,
}

impl<R: BufRead> Records<R> {
    /// Creates a reader of the records of `input`.
    pub(crate) fn new(input: R) -> Records<R> {
        Records { lines: Lines::new(input), start: 0 }
    }

    /// Returns the next record that is not an empty line; `None` at the end.
    pub(crate) fn next_record(&mut self) -> Result<Option<Vec<Vec<u8>>>, InputError> {
        loop {
            self.start = self.lines.number() + 1;
            match self.read()? {
                Some(fields) if fields.len() == 1 && fields[0].is_empty() => continue,
                Some(mut fields) => {
                    if self.start == 1 && fields[0].starts_with(BYTE_ORDER_MARK) {
                        fields[0].drain(..BYTE_ORDER_MARK.len());
                    }
                    return Ok(Some(fields));
                }
                None => return Ok(None),
            }
        }
    }

    /// Returns the line number at which the last returned record starts.
    pub(crate) fn line(&self) -> u64 {
        self.start
    }

    /// Returns the bytes consumed by the records returned so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    fn read(&mut self) -> Result<Option<Vec<Vec<u8>>>, InputError> {
        let start = self.start;
        let mut fields = vec![Vec::new()];
        let mut place = Place::Start;
        let mut any = false;
        while let Some(line) = self.lines.next_raw()? {
            any = true;
            for &byte in line {
                place = step(&mut fields, place, byte).map_err(|what| InputError::bad(start, what))?;
            }
            if place != Place::Quoted {
                break;
            }
        }
        if place == Place::Quoted {
            return Err(InputError::bad(start, "a quoted field is never closed"));
        }
        Ok(any.then_some(fields))
    }
}

impl<R: BufRead> Rows for Records<R> {
    fn next_row(&mut self) -> Result<Option<Vec<Vec<u8>>>, InputError> {
        self.next_record()
    }
    fn line(&self) -> u64 {
        self.start
    }
    fn bytes(&self) -> u64 {
        self.lines.bytes()
    }
}

/// Processes one byte of a record. Line feeds outside quotes end the record and are dropped.
fn step(fields: &mut Vec<Vec<u8>>, place: Place, byte: u8) -> Result<Place, &'static str> {
    let last = fields.len() - 1;
    match (place, byte) {
        (Place::Quoted, b'"') => Ok(Place::Closed),
        (Place::Quoted, _) => {
            fields[last].push(byte);
            Ok(Place::Quoted)
        }
        (Place::Closed, b'"') => {
            fields[last].push(b'"');
            Ok(Place::Quoted)
        }
        (Place::Start, b'"') => Ok(Place::Quoted),
        (_, b'\n') => Ok(Place::Start),
        (Place::Return, _) => Err("a carriage return outside quotes is not followed by a line feed"),
        (_, b'\r') => Ok(Place::Return),
        (_, b',') => {
            fields.push(Vec::new());
            Ok(Place::Start)
        }
        (Place::Closed, _) => Err("a closing quote is followed by something other than a comma"),
        (_, b'"') => Err("an unquoted field contains a quote"),
        _ => {
            fields[last].push(byte);
            Ok(Place::Bare)
        }
    }
}

/// Reads entries from records of two fields.
pub(crate) struct CsvReader<R> {
    records: Records<R>,
    first: bool,
}

impl<R: BufRead> CsvReader<R> {
    /// Creates a reader of the entries of `input`.
    pub(crate) fn new(input: R) -> CsvReader<R> {
        CsvReader { records: Records::new(input), first: true }
    }

    fn read(&mut self) -> Result<Option<Entry>, InputError> {
        loop {
            let Some(fields) = self.records.next_record()? else { return Ok(None) };
            let first = std::mem::replace(&mut self.first, false);
            let [key, value] = <[Vec<u8>; 2]>::try_from(fields).map_err(|fields| {
                let hint = match first {
                    true => "; name the key's column of a header with --key",
                    false => "",
                };
                let what = format!("a record is a key and a value, not {} fields{hint}", fields.len());
                InputError::bad(self.records.line(), what)
            })?;
            if !(first && key == b"key" && value == b"value") {
                return Ok(Some(Entry { key, value }));
            }
        }
    }
}

impl<R: BufRead> Iterator for CsvReader<R> {
    type Item = Result<Entry, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<R: BufRead> EntryReader for CsvReader<R> {
    fn bytes_read(&self) -> u64 {
        self.records.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let string = |bytes| String::from_utf8(bytes).expect("UTF-8 in, UTF-8 out");
        CsvReader::new(text.as_bytes())
            .map(|r| r.map(|e| (string(e.key), string(e.value))).map_err(|e| e.to_string()))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(expected.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn quotes_hold_commas_line_ends_and_quotes() {
        assert_eq!(
            read("a,1\r\n\"b,c\",\"say \"\"hi\"\"\nand \r\n go\"\n\"\",\n"),
            pairs(&[("a", "1"), ("b,c", "say \"hi\"\nand \r\n go"), ("", "")])
        );
    }

    #[test]
    fn only_a_first_record_can_be_a_header() {
        assert_eq!(read("key,value\na,1\nkey,value\n"), pairs(&[("a", "1"), ("key", "value")]));
        assert_eq!(read("\n\"key\",value\r\na,1"), pairs(&[("a", "1")]));
        assert_eq!(read("Key,value\n"), pairs(&[("Key", "value")]));
    }

    #[test]
    fn empty_lines_are_skipped() {
        assert_eq!(read("\n\r\na,1\n\n"), pairs(&[("a", "1")]));
    }

    #[test]
    fn trouble_names_the_line_the_record_starts_at() {
        for (text, what) in [
            ("a,1\nb\n", "line 2: a record is a key and a value, not 1 fields"),
            (
                "a,b,c",
                "line 1: a record is a key and a value, not 3 fields; name the key's column of a header with --key",
            ),
            ("a,\"1\n2\"\nb,\"x\ny", "line 3: a quoted field is never closed"),
            ("a\"b,1\n", "line 1: an unquoted field contains a quote"),
            ("\"a\"b,1\n", "line 1: a closing quote is followed by something other than a comma"),
            ("a,1\rb\n", "line 1: a carriage return outside quotes is not followed by a line feed"),
        ] {
            assert_eq!(read(text), Err(what.to_owned()), "{text:?}");
        }
    }
}
