//! Entries as JSON objects, one per line: `{"key": ..., "value": ...}`.
//!
//! A key is a string. A value is either a string, stored as its text, or another JSON value except null, stored as
//! its JSON text exactly as in the line. Bytes that are not UTF-8 are given as hex digits in `key_hex` or `value_hex`
//! instead. Empty lines are skipped. Objects with other members are rejected.
//!
//! If members are chosen by name, a line is any object. The key is the text of its member, a string or a number. The
//! value is that of its member, or else the whole object as it stands in the line.

use super::columns::Named;
use super::lines::Lines;
use super::{Entry, EntryReader, InputError};
use crate::escape::from_hex;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::BufRead;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    key: Option<String>,
    key_hex: Option<String>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    value_hex: Option<String>,
}

/// Reads entries from lines of JSON.
pub(crate) struct JsonlReader<R> {
    lines: Lines<R>,
    named: Option<Named>,
}

impl<R: BufRead> JsonlReader<R> {
    /// Creates a reader of the entries of `input`, whose members have the names `named` if they are given.
    pub(crate) fn new(input: R, named: Option<Named>) -> JsonlReader<R> {
        JsonlReader { lines: Lines::new(input), named }
    }

    fn read(&mut self) -> Result<Option<Entry>, InputError> {
        loop {
            let number = self.lines.number() + 1;
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            if !line.trim_ascii().is_empty() {
                let entry = match &self.named {
                    None => parse(line),
                    Some(named) => members(line.trim_ascii(), named),
                };
                return entry.map(Some).map_err(|what| InputError::bad(number, what));
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Entry, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(json_error)?;
    let key = one_of("key", line.key.map(String::into_bytes), line.key_hex)?;
    let value = one_of("value", line.value.map(text_of).transpose()?, line.value_hex)?;
    Ok(Entry { key, value })
}

/// Returns the entry of an object with the members `named`.
fn members(line: &[u8], named: &Named) -> Result<Entry, String> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_slice(line).map_err(json_error)?;
    let member = |name: &str| match object.get(name) {
        Some(value) if value.get() != "null" => text_of(value),
        _ => Err(format!("no {name}")),
    };
    let key = member(&named.key)?;
    let value = named.value.as_deref().map_or_else(|| Ok(line.to_vec()), member)?;
    Ok(Entry { key, value })
}

fn text_of(value: &RawValue) -> Result<Vec<u8>, String> {
    let raw = value.get();
    if !raw.starts_with('"') {
        return Ok(raw.as_bytes().to_vec());
    }
    serde_json::from_str::<String>(raw).map(String::into_bytes).map_err(json_error)
}

/// Returns the text of `error` without the line number, since the document is one line. The caller adds its own.
fn json_error(error: serde_json::Error) -> String {
    let text = error.to_string().replace(" at line 1 column ", " at column ");
    match text.starts_with("unknown field") {
        true => format!("{text}; choose the key among other members with --key"),
        false => text,
    }
}

fn one_of(name: &str, text: Option<Vec<u8>>, hex: Option<String>) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(bytes), None) => Ok(bytes),
        (None, Some(hex)) => from_hex(&hex).ok_or_else(|| format!("{name}_hex is not pairs of hex digits")),
        (None, None) => Err(format!("no {name}")),
        (Some(_), Some(_)) => Err(format!("both {name} and {name}_hex")),
    }
}

impl<R: BufRead> Iterator for JsonlReader<R> {
    type Item = Result<Entry, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<R: BufRead> EntryReader for JsonlReader<R> {
    fn bytes_read(&self) -> u64 {
        self.lines.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::TextFormat;
    use crate::output::Output;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(text: &str) -> Result<Pairs, String> {
        JsonlReader::new(text.as_bytes(), None)
            .map(|r| r.map(|e| (e.key, e.value)).map_err(|e| e.to_string()))
            .collect()
    }

    #[test]
    fn strings_are_text_and_other_values_keep_their_json() {
        assert_eq!(
            read(
                "{\"key\":\"a\\u00e9\",\"value\":\"x\\ny\"}\n\n{\"value\": {\"n\": [1, 2.50]},\"key\":\"b\"}\r\n"
            ),
            Ok(vec![
                ("aé".as_bytes().to_vec(), b"x\ny".to_vec()),
                (b"b".to_vec(), b"{\"n\": [1, 2.50]}".to_vec()),
            ])
        );
    }

    #[test]
    fn members_are_chosen_by_name() {
        let read = |text: &str, value: Option<&str>| {
            let named = Named { key: "id".to_owned(), value: value.map(str::to_owned) };
            let mut entries = JsonlReader::new(text.as_bytes(), Some(named));
            let entry = entries.next().expect("a line").map_err(|e| e.to_string());
            entry.map(|e| {
                (String::from_utf8_lossy(&e.key).into_owned(), String::from_utf8_lossy(&e.value).into_owned())
            })
        };
        let line = r#"{"id": 7, "name": "ada", "tags": [1, 2]}"#;
        assert_eq!(read(line, None), Ok(("7".to_owned(), line.to_owned())));
        assert_eq!(read(line, Some("name")), Ok(("7".to_owned(), "ada".to_owned())));
        assert_eq!(read(line, Some("tags")), Ok(("7".to_owned(), "[1, 2]".to_owned())));
        assert_eq!(read(line, Some("age")), Err("line 1: no age".to_owned()));
        assert_eq!(read("{\"id\": ", None).map_err(|e| e.contains("line 1 column")), Err(false));
    }

    #[test]
    fn what_scan_prints_is_read_back() {
        for value in [&b"plain"[..], b"\xff\x00\"", b"", "é\u{1}".as_bytes()] {
            let mut sink = Vec::new();
            Output::new(&mut sink, false).entry(TextFormat::Jsonl, b"k\xfe", Some(value)).expect("a Vec");
            let text = String::from_utf8(sink).expect("JSON is UTF-8");
            assert_eq!(read(&text), Ok(vec![(b"k\xfe".to_vec(), value.to_vec())]), "{text}");
        }
    }

    #[test]
    fn other_shapes_are_refused_by_line() {
        for text in [
            "{\"key\":\"a\"}",
            "{\"value\":\"a\"}",
            "{\"key\":1,\"value\":\"a\"}",
            "{\"key\":\"a\",\"value\":null}",
            "{\"key\":\"a\",\"value\":\"b\",\"more\":1}",
            "{\"key\":\"a\",\"key_hex\":\"00\",\"value\":\"b\"}",
            "{\"key_hex\":\"0\",\"value\":\"b\"}",
            "[\"a\",\"b\"]",
            "{\"key\":\"a\",",
            "\u{1}",
        ] {
            let refused = read(&format!("\n{text}\n")).expect_err(text);
            assert!(refused.starts_with("line 2: "), "{text}: {refused}");
        }
    }
}
