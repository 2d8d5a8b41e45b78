//! Tab-separated entries: `key TAB value`, one per line, escaped as in [`crate::escape`].
//!
//! Each line has exactly one tab. A line with no tab or several tabs is rejected, because it is more likely a mistake
//! than data. A carriage return before the line end is part of the value.

use super::columns::Rows;
use super::lines::Lines;
use super::{Entry, EntryReader, InputError};
use crate::escape::unescape;
use std::io::BufRead;

/// What is wrong with a line that has no tab, or several.
const NOT_A_PAIR: &str = "expected a key, one tab and a value";

/// Reads entries from tab-separated lines.
pub(crate) struct TsvReader<R> {
    lines: Lines<R>,
}

impl<R: BufRead> TsvReader<R> {
    /// Creates a reader of the entries of `input`.
    pub(crate) fn new(input: R) -> TsvReader<R> {
        TsvReader { lines: Lines::new(input) }
    }

    fn read(&mut self) -> Result<Option<Entry>, InputError> {
        let number = self.lines.number() + 1;
        let Some(line) = self.lines.next_line()? else { return Ok(None) };
        let mut fields = line.split(|&b| b == b'\t');
        let (Some(key), Some(value), None) = (fields.next(), fields.next(), fields.next()) else {
            return Err(InputError::bad(number, NOT_A_PAIR));
        };
        let unescaped = |name: &str, text: &[u8]| {
            unescape(text).map_err(|e| InputError::bad(number, format!("{name}: {e}")))
        };
        Ok(Some(Entry { key: unescaped("key", key)?, value: unescaped("value", value)? }))
    }
}

/// Reads rows of any number of tab-separated, escaped fields.
pub(crate) struct TsvRows<R> {
    lines: Lines<R>,
}

impl<R: BufRead> TsvRows<R> {
    /// Creates a reader of the rows of `input`.
    pub(crate) fn new(input: R) -> TsvRows<R> {
        TsvRows { lines: Lines::new(input) }
    }
}

impl<R: BufRead> Rows for TsvRows<R> {
    fn next_row(&mut self) -> Result<Option<Vec<Vec<u8>>>, InputError> {
        let number = self.lines.number() + 1;
        let Some(line) = self.lines.next_line()? else { return Ok(None) };
        let fields = line.split(|&b| b == b'\t').enumerate().map(|(at, field)| {
            unescape(field).map_err(|e| InputError::bad(number, format!("field {}: {e}", at + 1)))
        });
        fields.collect::<Result<_, _>>().map(Some)
    }
    fn line(&self) -> u64 {
        self.lines.number()
    }
    fn bytes(&self) -> u64 {
        self.lines.bytes()
    }
}

impl<R: BufRead> Iterator for TsvReader<R> {
    type Item = Result<Entry, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<R: BufRead> EntryReader for TsvReader<R> {
    fn bytes_read(&self) -> u64 {
        self.lines.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(text: &str) -> Result<Pairs, String> {
        TsvReader::new(text.as_bytes())
            .map(|r| r.map(|e| (e.key, e.value)).map_err(|e| e.to_string()))
            .collect()
    }

    #[test]
    fn fields_are_unescaped_and_may_be_empty() {
        assert_eq!(
            read("a\\tb\t1\\n2\nk\t\n\tv\r\nz\tlast"),
            Ok(vec![
                (b"a\tb".to_vec(), b"1\n2".to_vec()),
                (b"k".to_vec(), vec![]),
                (vec![], b"v\r".to_vec()),
                (b"z".to_vec(), b"last".to_vec()),
            ])
        );
        assert_eq!(read(""), Ok(vec![]));
    }

    #[test]
    fn a_line_of_another_shape_is_refused_by_number() {
        assert_eq!(read("a\tb\nc\n"), Err(format!("line 2: {NOT_A_PAIR}")));
        assert_eq!(read("a\tb\tc\n"), Err(format!("line 1: {NOT_A_PAIR}")));
        let refused = read("a\t1\n\nb\t2\n").expect_err("an empty line holds no tab");
        assert!(refused.starts_with("line 2:"), "{refused}");
        let refused = read("a\t\\q\n").expect_err("a bad escape");
        assert!(refused.starts_with("line 1: value: bad escape at byte 0"), "{refused}");
    }
}
