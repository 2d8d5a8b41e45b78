//! Escaping of keys and values as text, for tsv files, the command line and all output.
//!
//! There are four escapes: `\t`, `\n`, `\\` and `\xHH` (two hex digits of either case). When text is unescaped, every
//! other byte stands for itself. When bytes are escaped, printable UTF-8 stays as it is. Control characters and bytes
//! that are not UTF-8 become `\xHH`. The result is one line of valid UTF-8 without a tab, so stored data cannot send
//! control sequences to the terminal.
//!
//! Invariant: `unescape(escape(bytes)) == bytes` for all bytes.

use std::fmt;

/// Error for a backslash that starts none of the four escapes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BadEscape {
    /// Offset of the backslash in bytes from the start of the text.
    pub(crate) at: usize,
}

impl fmt::Display for BadEscape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad escape at byte {}: only \\t, \\n, \\\\ and \\xHH are supported", self.at)
    }
}

impl std::error::Error for BadEscape {}

/// Unescaped bytes of a command-line argument.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

/// Returns `bytes` as escaped text.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => push_hex(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

/// Returns the bytes that the escaped `text` stands for.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, BadEscape> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, width) = match (text[at], text.get(at + 1)) {
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (b'\\', Some(b'x')) => {
                let digits = text.get(at + 2..at + 4).map(|pair| (pair[0], pair[1]));
                let byte = digits.and_then(|(high, low)| hex_byte(high, low)).ok_or(BadEscape { at })?;
                (byte, 4)
            }
            (b'\\', _) => return Err(BadEscape { at }),
            (byte, _) => (byte, 1),
        };
        bytes.push(byte);
        at += width;
    }
    Ok(bytes)
}

/// Decodes a string of hex digit pairs; `None` if it is not one.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| hex_byte(high, low)).collect()
}

/// Returns `bytes` as pairs of lower-case hex digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        push_digits(&mut text, byte);
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        text.push_str("\\x");
        push_digits(text, byte);
    }
}

fn push_digits(text: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    text.push(DIGITS[usize::from(byte >> 4)]);
    text.push(DIGITS[usize::from(byte & 15)]);
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |c: u8| char::from(c).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_pair_survives_the_round_trip() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let bytes = [b'k', a, b, b'9'];
                let text = escape(&bytes);
                assert!(!text.chars().any(char::is_control), "{bytes:?} gave {text:?}");
                assert_eq!(unescape(text.as_bytes()), Ok(bytes.to_vec()));
            }
        }
    }

    #[test]
    fn printable_text_is_left_alone_and_the_rest_is_escaped() {
        assert_eq!(escape("naïve – 日本".as_bytes()), "naïve – 日本");
        assert_eq!(escape(b"a\tb\nc\\d\re\0\x7f"), "a\\tb\\nc\\\\d\\x0de\\x00\\x7f");
        assert_eq!(escape(b"\xff\xc3"), "\\xff\\xc3");
        // A C1 control character takes two bytes in UTF-8; both are escaped.
        assert_eq!(escape("\u{9b}31m".as_bytes()), "\\xc2\\x9b31m");
        assert_eq!(escape(b"\\x41"), "\\\\x41");
    }

    #[test]
    fn reading_takes_raw_bytes_and_either_case() {
        assert_eq!(unescape(b"\\xfF\\xAb\xff"), Ok(vec![0xff, 0xab, 0xff]));
        assert_eq!(unescape(b""), Ok(vec![]));
    }

    #[test]
    fn a_bad_escape_is_refused_where_it_stands() {
        for (text, at) in
            [("ab\\", 2), ("\\r", 0), ("a\\x4", 1), ("a\\x4g", 1), ("\\\\\\q", 2), ("\\X41", 0), ("\\x+1", 0)]
        {
            assert_eq!(unescape(text.as_bytes()), Err(BadEscape { at }), "{text}");
        }
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(from_hex("00fFa1"), Some(vec![0, 255, 0xa1]));
        assert_eq!(to_hex(&[0, 255, 0xa1]), "00ffa1");
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
