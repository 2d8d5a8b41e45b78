//! Output of data and messages: a sink that distinguishes a closed pipe from other errors, and entries as lines.
//!
//! Messages for people go to stderr through [`note`]. It ignores errors, because there is no place to report them.

use crate::args::TextFormat;
use crate::escape::{escape, to_hex};
use crate::failure::{Failure, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, ErrorKind, Write};

/// Stdout, or a buffer in a test.
pub(crate) struct Output<'a> {
    sink: &'a mut dyn Write,
    colour: bool,
    /// Whether nothing was written so far.
    untouched: bool,
}

impl<'a> Output<'a> {
    /// Creates an output to `sink`; `colour` says whether `sink` is a terminal that supports colours.
    pub(crate) fn new(sink: &'a mut dyn Write, colour: bool) -> Output<'a> {
        Output { sink, colour, untouched: true }
    }

    /// Returns whether colours may be used.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Returns whether nothing was written so far.
    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Writes `bytes` as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.untouched = false;
        self.sink.write_all(bytes).map_err(sink_failure)
    }

    /// Writes `text` and a newline.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a JSON document, indented.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(document).map_err(|e| Failure::failed("json", e))?;
        self.line(&text)
    }

    /// Writes an entry as one line; without `value`, writes only its key.
    pub(crate) fn entry(&mut self, format: TextFormat, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match format {
            TextFormat::Tsv => match value {
                Some(value) => self.line(&format!("{}\t{}", escape(key), escape(value))),
                None => self.line(&escape(key)),
            },
            TextFormat::Jsonl => {
                let mut object = Map::new();
                insert_bytes(&mut object, "key", key);
                if let Some(value) = value {
                    insert_bytes(&mut object, "value", value);
                }
                self.line(&Value::Object(object).to_string())
            }
        }
    }

    /// Flushes all output to the reader.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.sink.flush().map_err(sink_failure)
    }
}

/// Inserts bytes as a JSON string under `name`, or as hex digits under `name_hex` if they are not UTF-8.
fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), to_hex(bytes).into()),
    };
}

fn sink_failure(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::PipeClosed,
        _ => Failure::failed("writing to stdout", error),
    }
}

/// Writes a line to stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    fn entry_text(format: TextFormat, key: &[u8], value: Option<&[u8]>) -> String {
        let mut sink = Vec::new();
        Output::new(&mut sink, false).entry(format, key, value).expect("a Vec takes everything");
        String::from_utf8(sink).expect("lines are UTF-8")
    }

    #[test]
    fn entries_are_one_line_each() {
        assert_eq!(entry_text(TextFormat::Tsv, b"a\tb", Some(b"1\n2")), "a\\tb\t1\\n2\n");
        assert_eq!(entry_text(TextFormat::Tsv, b"a", None), "a\n");
        assert_eq!(
            entry_text(TextFormat::Jsonl, b"a\"b", Some(b"1\n2")),
            "{\"key\":\"a\\\"b\",\"value\":\"1\\n2\"}\n"
        );
        assert_eq!(entry_text(TextFormat::Jsonl, b"\xff", None), "{\"key_hex\":\"ff\"}\n");
    }

    #[test]
    fn a_reader_gone_away_is_told_from_a_full_disk() {
        let mut gone = Broken(ErrorKind::BrokenPipe);
        assert_eq!(Output::new(&mut gone, false).line("x"), Err(Failure::PipeClosed));
        let mut full = Broken(ErrorKind::StorageFull);
        assert!(matches!(Output::new(&mut full, false).flush(), Err(Failure::Failed(_))));
    }
}
