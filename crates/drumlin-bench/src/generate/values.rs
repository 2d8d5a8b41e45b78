//! Values that can be verified without being stored.
//!
//! A value starts with its id and its version, eight little-endian bytes each. The rest is a slice of a pool of at
//! least 1 MiB, at an offset that id and version determine. The pool is made as in db_bench, from pieces of 100
//! bytes, each of which repeats a random text. So it compresses to about the requested ratio. A value shorter than 16
//! bytes is truncated.

use super::random::{Random, mix};

/// Bytes of id and version that precede the slice of the pool.
pub const HEADER: usize = 16;
/// Bytes of the id at its beginning.
pub const ID_BYTES: usize = 8;
const POOL_BYTES: usize = 1 << 20;
const PIECE: usize = 100;

/// Generates and verifies values.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
}

/// Returns the id and the version in the header of a value; 0 for a truncated part.
pub fn read_header(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| {
        let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    (word(0), word(8))
}

impl Values {
    /// Creates values that compress to about `ratio` of their size and have at most `longest` bytes.
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

    /// Writes the value of `id` at `version`, with `len` bytes, into `out`.
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

    /// Returns whether `value` is exactly what was written for `id` at the version in its header.
    pub fn is_whole(&self, id: u64, value: &[u8]) -> bool {
        let id_bytes = id.to_le_bytes();
        let named = value.len().min(id_bytes.len());
        let (_, version) = read_header(value);
        let rest = value.get(HEADER..).unwrap_or_default();
        value[..named] == id_bytes[..named] && *rest == *self.slice(id, version, rest.len())
    }
}
