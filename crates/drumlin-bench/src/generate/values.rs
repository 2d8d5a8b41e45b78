//! Value bytes that can be checked without being kept.
//!
//! A value starts with its id and its version, eight little-endian bytes each. The rest is a slice of a pool of
//! 1 MiB, at a place that id and version determine. The pool is made as in db_bench: pieces of 100 bytes, each a
//! random text repeated, so that it shrinks to about the wanted share. A value shorter than 16 bytes is cut.

use super::random::{Random, mix};

/// Bytes before the slice of the pool.
pub const HEADER: usize = 16;
const POOL_BYTES: usize = 1 << 20;
const PIECE: usize = 100;

/// Makes and checks values.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
}

/// What a value says it is: the id and the version it was written with; 0 for what is cut off.
pub fn read_header(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    (word(0), word(8))
}

impl Values {
    /// Values whose bytes shrink to about `ratio` of their size, none longer than `longest`.
    pub fn new(seed: u64, ratio: f64, longest: usize) -> Values {
        let mut random = Random::new(seed, "values", 0);
        let unique = ((PIECE as f64 * ratio) as usize).clamp(1, PIECE);
        let bytes = POOL_BYTES.max(4 * longest);
        let mut pool = Vec::with_capacity(bytes + PIECE);
        while pool.len() < bytes {
            let piece: Vec<u8> = (0..unique).map(|_| b' ' + random.below(95) as u8).collect();
            pool.extend(piece.iter().cycle().take(PIECE));
        }
        Values { pool }
    }

    fn slice(&self, id: u64, version: u64, len: usize) -> &[u8] {
        let room = self.pool.len() - len;
        let place = mix(id ^ version.rotate_left(40)) % (room as u64 + 1);
        &self.pool[place as usize..place as usize + len]
    }

    /// Puts the value of `id` at `version`, `len` bytes long, into `out`.
    pub fn write(&self, id: u64, version: u64, len: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        if len > HEADER {
            out.extend_from_slice(self.slice(id, version, len - HEADER));
        } else {
            out.truncate(len);
        }
    }

    /// Whether `value` is, byte by byte, what was written for `id` at the version that it names.
    pub fn is_whole(&self, id: u64, value: &[u8]) -> bool {
        let id_bytes = id.to_le_bytes();
        let named = value.len().min(id_bytes.len());
        let (_, version) = read_header(value);
        let rest = value.get(HEADER..).unwrap_or_default();
        value[..named] == id_bytes[..named] && *rest == *self.slice(id, version, rest.len())
    }
}
