//! Debian package indexes (deb822): stanzas of `Field: value` lines, separated by blank lines.
//!
//! The key of a stanza is `Package/Version/Architecture`. Its value is the exact bytes of the stanza with line ends,
//! but without the blank line that ends it. A line that starts with a space or tab continues the field above it. A
//! line that consists only of spaces and tabs is blank. Field names are case-insensitive.

use super::lines::Lines;
use super::{Entry, EntryReader, InputError};
use std::io::BufRead;

/// Fields that form the key, in order.
const KEY_FIELDS: [&str; 3] = ["Package", "Version", "Architecture"];

/// Reads entries from stanzas.
pub(crate) struct Deb822Reader<R> {
    lines: Lines<R>,
}

/// Stanza read so far.
#[derive(Default)]
struct Stanza {
    text: Vec<u8>,
    fields: [Option<Vec<u8>>; 3],
}

impl<R: BufRead> Deb822Reader<R> {
    /// Creates a reader of the entries of `input`.
    pub(crate) fn new(input: R) -> Deb822Reader<R> {
        Deb822Reader { lines: Lines::new(input) }
    }

    fn read(&mut self) -> Result<Option<Entry>, InputError> {
        let mut stanza = Stanza::default();
        let mut start = 0;
        loop {
            let number = self.lines.number() + 1;
            match self.lines.next_raw()? {
                Some(line) if line.trim_ascii().is_empty() => {
                    if !stanza.text.is_empty() {
                        break;
                    }
                }
                Some(line) => {
                    if stanza.text.is_empty() {
                        start = number;
                    }
                    stanza.add(line).map_err(|what| InputError::bad(number, what))?;
                }
                None if stanza.text.is_empty() => return Ok(None),
                None => break,
            }
        }
        stanza.finish().map(Some).map_err(|what| InputError::bad(start, what))
    }
}

impl Stanza {
    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let continues = matches!(line.first(), Some(b' ' | b'\t'));
        if continues && self.text.is_empty() {
            return Err("a stanza begins with a continued line".to_owned());
        }
        self.text.extend_from_slice(line);
        if continues {
            return Ok(());
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            return Err("a line is neither a field nor the continuation of one".to_owned());
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        for (field, slot) in KEY_FIELDS.iter().zip(&mut self.fields) {
            if name.eq_ignore_ascii_case(field.as_bytes())
                && slot.replace(value.trim_ascii().to_vec()).is_some()
            {
                return Err(format!("a stanza names its {field} twice"));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Entry, String> {
        let mut key = Vec::new();
        for (i, (field, value)) in KEY_FIELDS.iter().zip(self.fields).enumerate() {
            let value = value.ok_or_else(|| format!("a stanza does not name its {field}"))?;
            if i > 0 {
                key.push(b'/');
            }
            key.extend_from_slice(&value);
        }
        Ok(Entry { key, value: self.text })
    }
}

impl<R: BufRead> Iterator for Deb822Reader<R> {
    type Item = Result<Entry, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<R: BufRead> EntryReader for Deb822Reader<R> {
    fn bytes_read(&self) -> u64 {
        self.lines.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let string = |bytes| String::from_utf8(bytes).expect("UTF-8 in, UTF-8 out");
        Deb822Reader::new(text.as_bytes())
            .map(|r| r.map(|e| (string(e.key), string(e.value))).map_err(|e| e.to_string()))
            .collect()
    }

    #[test]
    fn stanzas_keep_their_bytes() {
        let zoo = "Package: zoo\nversion:  2.10-1\t\nArchitecture: amd64\nDescription: x\n .\n more: y\n";
        let ant = "Architecture: all\nPackage: ant\nVersion: 1:3";
        assert_eq!(
            read(&format!("\n{zoo}\n \t\n\n{ant}")),
            Ok(vec![
                ("zoo/2.10-1/amd64".to_owned(), zoo.to_owned()),
                ("ant/1:3/all".to_owned(), ant.to_owned()),
            ])
        );
        assert_eq!(read("\n\n"), Ok(vec![]));
    }

    #[test]
    fn trouble_names_the_line() {
        for (text, what) in [
            ("\nPackage: a\nVersion: 1\n\n", "line 2: a stanza does not name its Architecture"),
            ("Package: a\nVersion: 1\nPackage: b\n", "line 3: a stanza names its Package twice"),
            ("Package: a\nwhat\n", "line 2: a line is neither a field nor the continuation of one"),
            ("\n x\n", "line 2: a stanza begins with a continued line"),
        ] {
            assert_eq!(read(text), Err(what.to_owned()), "{text:?}");
        }
    }
}
