//! Mapping of ids to keys.
//!
//! Every form maps ids to keys one to one. `Hashed` keys are in random order and spread over the whole key space. So
//! writing ids in ascending order writes each key once in random order, without a list of keys.

use super::random::{fnv1a64, mix};
use serde::{Deserialize, Serialize};

/// Key format of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyForm {
    /// Big-endian `mix(id)`, then big-endian id; truncated, or padded with `0`.
    Hashed {
        /// Key length in bytes, at least 8.
        len: usize,
    },
    /// As in db_bench: the id as eight big-endian bytes, padded with `0`. Ascending ids give ascending keys.
    Dense {
        /// Key length in bytes, at least 8.
        len: usize,
    },
    /// As in YCSB: `user` and the decimal digits of the FNV-1a hash of the id.
    User,
    /// As used by the authors of ArceKV: eight `0` and the 16 hex digits of `mix(id)`.
    Hex,
    /// The id as 16 hex digits. Ids of a block trace are block numbers.
    Block,
}

/// Maximum key length of all forms except `Hashed` and `Dense`.
const LONGEST: usize = 24;

impl KeyForm {
    /// Appends the key of `id` to `out`.
    pub fn write(self, id: u64, out: &mut Vec<u8>) {
        match self {
            KeyForm::Hashed { len } => {
                let mut key = [0; 16];
                key[..8].copy_from_slice(&mix(id).to_be_bytes());
                key[8..].copy_from_slice(&id.to_be_bytes());
                fill(&key, len, out);
            }
            KeyForm::Dense { len } => fill(&id.to_be_bytes(), len, out),
            KeyForm::User => {
                out.extend_from_slice(b"user");
                decimal(fnv1a64(id), out);
            }
            KeyForm::Hex => {
                out.extend_from_slice(b"00000000");
                hex(mix(id), out);
            }
            KeyForm::Block => hex(id, out),
        }
    }

    /// Returns the key of `id`.
    pub fn key(self, id: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(LONGEST);
        self.write(id, &mut key);
        key
    }

    /// Returns the maximum key length. Keys of a trace may be longer.
    pub fn longest(self) -> usize {
        match self {
            KeyForm::Hashed { len } | KeyForm::Dense { len } => len,
            KeyForm::User | KeyForm::Hex | KeyForm::Block => LONGEST,
        }
    }

    /// Returns a typical key length, for estimates of space.
    pub fn typical_len(self) -> usize {
        match self {
            KeyForm::Hashed { len } | KeyForm::Dense { len } => len,
            KeyForm::User => 23,
            KeyForm::Hex => 24,
            KeyForm::Block => 16,
        }
    }
}

/// Appends `bytes`, truncated to `len` or padded to `len` with `0`.
fn fill(bytes: &[u8], len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    out.extend_from_slice(&bytes[..len.min(bytes.len())]);
    out.resize(end, b'0');
}

fn hex(x: u64, out: &mut Vec<u8>) {
    for shift in (0..16).rev() {
        out.push(b"0123456789abcdef"[(x >> (4 * shift)) as usize & 15]);
    }
}

fn decimal(mut x: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (x % 10) as u8;
        x /= 10;
        if x == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}
