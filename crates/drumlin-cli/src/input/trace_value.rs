//! Values that a replay writes.
//!
//! Without a file of real values, the value of a put is a pure function of its key, its write number and its size.
//! The write number is the number of puts before it in the replay, from 0; deletes and gets do not count.
//!
//! 1. `seed` is the 64-bit FNV-1a hash of the key (offset basis `cbf29ce484222325`, prime `100000001b3`), xor the
//!    write number.
//! 2. Word `i` = 0, 1, 2, ... is the splitmix64 finalizer of `z = seed + (i + 1) * 9e3779b97f4a7c15`, all modulo
//!    2^64: `z = (z ^ z >> 30) * bf58476d1ce4e5b9`, `z = (z ^ z >> 27) * 94d049bb133111eb`, `z ^ z >> 31`.
//! 3. The value is the concatenation of the words in little-endian byte order, truncated to the size.
//!
//! `scripts/replay_oracle.py` implements the same function from this description alone.
//!
//! A file of real values has the output format of `git cat-file --batch`, with one object per put, in the order of
//! the puts: a line `ID TYPE SIZE`, `SIZE` bytes, a line feed.

use super::InputError;
use std::io::{self, BufRead, Read};

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
const SPLITMIX_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum length of an object's header line; an id, a type and a size take far less.
const HEADER_BYTES_MAX: u64 = 256;

/// Writes the generated value of a put into `value`.
pub(crate) fn generate(key: &[u8], write_number: u64, size: usize, value: &mut Vec<u8>) {
    let seed = fnv1a(key) ^ write_number;
    value.clear();
    value.reserve(size + 8);
    let mut state = seed;
    while value.len() < size {
        state = state.wrapping_add(SPLITMIX_GAMMA);
        value.extend_from_slice(&mix(state).to_le_bytes());
    }
    value.truncate(size);
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Reads real values in the order of the puts.
pub(crate) struct Values<R> {
    input: R,
    objects: u64,
}

impl<R: BufRead> Values<R> {
    /// Creates a reader of the objects of `input`.
    pub(crate) fn new(input: R) -> Values<R> {
        Values { input, objects: 0 }
    }

    /// Reads the next object into `value`. The object must have `size` bytes.
    pub(crate) fn next_into(&mut self, size: usize, value: &mut Vec<u8>) -> Result<(), InputError> {
        self.objects += 1;
        let number = self.objects;
        let bad = |what: String| InputError::Bad { unit: "object", number, what };
        let mut header = Vec::new();
        self.input.by_ref().take(HEADER_BYTES_MAX).read_until(b'\n', &mut header)?;
        if header.is_empty() {
            return Err(bad("the values end before the trace".to_owned()));
        }
        let stored = object_size(&header).ok_or_else(|| bad("not a header ID TYPE SIZE".to_owned()))?;
        if stored != size as u64 {
            return Err(bad(format!("the object has {stored} bytes, the trace says {size}")));
        }
        value.clear();
        self.input.by_ref().take(stored).read_to_end(value)?;
        let mut end = [0];
        match self.input.read_exact(&mut end) {
            Ok(()) if value.len() == size && end == *b"\n" => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.into()),
            _ => Err(bad("the object is cut short, or no line feed follows it".to_owned())),
        }
    }
}

fn object_size(header: &[u8]) -> Option<u64> {
    let header = std::str::from_utf8(header.strip_suffix(b"\n")?).ok()?;
    let mut words = header.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(_), Some(_), Some(size), None) => size.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::to_hex;

    fn hex_of(key: &[u8], write_number: u64, size: usize) -> String {
        let mut value = vec![1, 2, 3];
        generate(key, write_number, size, &mut value);
        to_hex(&value)
    }

    #[test]
    fn the_hash_and_the_generator_are_the_published_ones() {
        // Test vectors of FNV-1a, and the first outputs of splitmix64 for seed 0.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(SPLITMIX_GAMMA), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(SPLITMIX_GAMMA.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn values_are_fixed_for_ever() {
        assert_eq!(hex_of(b"", 0, 8), "30ffa46b017c81c3");
        assert_eq!(hex_of(b"runat.json", 0, 16), "e7bda61ee00c75a16021095e4bd964fa");
        assert_eq!(hex_of(b"runat.json", 1, 16), "e3dbc86799fb0f635720ae18397839fd");
        assert_eq!(hex_of(b"00000000028f1a09", 82220, 13), "59d49516f41806fb06dc517559");
        assert_eq!(hex_of(b"\xff\x00", u64::MAX, 3), "668e24");
    }

    #[test]
    fn a_shorter_value_is_the_start_of_a_longer_one() {
        let long = hex_of(b"k", 7, 64);
        for size in 0..64 {
            assert_eq!(hex_of(b"k", 7, size), long[..size * 2]);
        }
    }

    #[test]
    fn real_values_come_in_order() {
        let mut values = Values::new(&b"aa blob 3\nx\ny\nbb blob 0\n\ncc blob 1\nz\n"[..]);
        let mut value = Vec::new();
        for expected in [&b"x\ny"[..], b"", b"z"] {
            values.next_into(expected.len(), &mut value).expect("framed as it should be");
            assert_eq!(value, expected);
        }
        let error = values.next_into(1, &mut value).expect_err("nothing is left");
        assert_eq!(error.to_string(), "object 4: the values end before the trace");
    }

    #[test]
    fn bad_framing_is_refused() {
        let long = "x".repeat(1000);
        for text in
            ["aa missing\n", "aa blob 4\nwxyz\n", "aa blob 3\nab", "aa blob 3\nabcd\n", "aa blob 3", &long]
        {
            assert!(Values::new(text.as_bytes()).next_into(3, &mut Vec::new()).is_err(), "{text}");
        }
    }
}
