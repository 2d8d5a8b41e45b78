//! Compression of single blocks.
//!
//! A block is compressed only if that saves at least an eighth of its length. Otherwise it is stored uncompressed, and
//! reads skip decompression. Each block records its own method, so the blocks of one file may differ.
//!
//! The uncompressed length is stored outside the compressed bytes, in the index. A reader checks it before it allocates
//! memory: it may be at most [`EXPANSION_LIMIT`] times the stored length, or at most [`ALWAYS_ALLOWED`] bytes.
//! [`Compressor`] obeys the same rule and stores a block uncompressed if it would expand further. A valid block is
//! therefore never rejected. Decompression writes into a buffer of exactly the uncompressed length and must fill it.

use crate::error::Corruption;
use alloc::vec::Vec;
use core::fmt;
use zstd_safe::{CCtx, DCtx};

/// Maximum ratio of uncompressed to stored length.
pub const EXPANSION_LIMIT: u64 = 250;
/// Uncompressed length up to which the ratio is not checked.
pub const ALWAYS_ALLOWED: u64 = 1 << 20;
/// Maximum input length. Longer blocks are stored uncompressed, since LZ4 accepts at most about twice this length.
const LONGEST_INPUT: usize = 1 << 30;
/// Compression level of Zstandard: its own default, and the knee of its curve for blocks of a few kilobytes.
const ZSTD_LEVEL: i32 = 3;

/// A compression method. The numbers are part of the disk format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Stored uncompressed.
    #[default]
    None = 0,
    /// LZ4 block format: fast compression and decompression.
    Lz4 = 1,
    /// Zstandard frame, level 3, without a dictionary: better ratio, slower.
    Zstd = 2,
}

impl Compression {
    /// All methods, in the order of their numbers.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// Returns the method that `byte` encodes, or `None` when there is none.
    pub fn from_u8(byte: u8) -> Option<Compression> {
        Compression::ALL.get(usize::from(byte)).copied()
    }

    /// Returns the method's name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns whether a block of `raw_len` bytes may be stored in `stored_len` bytes by `method`.
pub fn is_plausible(method: Compression, stored_len: u64, raw_len: u64) -> bool {
    match method {
        Compression::None => stored_len == raw_len,
        _ => raw_len <= ALWAYS_ALLOWED || raw_len / EXPANSION_LIMIT <= stored_len,
    }
}

/// Compresses blocks with one method and reuses its buffers.
pub struct Compressor {
    method: Compression,
    out: Vec<u8>,
    zstd: Option<CCtx<'static>>,
}

impl Compressor {
    /// Returns a compressor for `method`.
    pub fn new(method: Compression) -> Compressor {
        Compressor { method, out: Vec::new(), zstd: None }
    }

    /// Compresses `raw`. Returns the method used and the bytes to store.
    pub fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (Compression, &'a [u8]) {
        let compressed = match self.method {
            _ if raw.len() > LONGEST_INPUT => None,
            Compression::None => None,
            Compression::Lz4 => self.lz4(raw),
            Compression::Zstd => self.zstd(raw),
        };
        match compressed {
            Some(len) if pays(len, raw.len()) && is_plausible(self.method, len as u64, raw.len() as u64) => {
                (self.method, &self.out[..len])
            }
            _ => (Compression::None, raw),
        }
    }

    fn lz4(&mut self, raw: &[u8]) -> Option<usize> {
        let bound = lz4_flex::block::get_maximum_output_size(raw.len());
        if self.out.len() < bound {
            self.out.resize(bound, 0);
        }
        lz4_flex::block::compress_into(raw, &mut self.out).ok()
    }

    fn zstd(&mut self, raw: &[u8]) -> Option<usize> {
        let bound = zstd_safe::compress_bound(raw.len());
        if self.out.len() < bound {
            self.out.resize(bound, 0);
        }
        let context = self.zstd.get_or_insert_with(CCtx::create);
        context.compress(&mut self.out[..], raw, ZSTD_LEVEL).ok()
    }
}

/// Returns whether compression saves at least an eighth.
fn pays(stored_len: usize, raw_len: usize) -> bool {
    stored_len <= raw_len - raw_len / 8 && stored_len < raw_len
}

/// Decompresses `stored` without knowing the uncompressed length, for repair.
///
/// Returns `None` when the result would exceed `most` bytes or `stored` is corrupt.
pub fn expand(method: Compression, stored: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut len = stored.len().saturating_mul(4).max(1 << 12).min(most);
    loop {
        let mut raw = alloc::vec![0; len];
        let filled = match method {
            Compression::None => return Some(stored.into()),
            Compression::Lz4 => lz4_flex::block::decompress_into(stored, &mut raw).ok(),
            Compression::Zstd => DCtx::create().decompress(&mut raw[..], stored).ok(),
        };
        match filled {
            Some(filled) => {
                raw.truncate(filled);
                return Some(raw);
            }
            None if len < most => len = len.saturating_mul(4).min(most),
            None => return None,
        }
    }
}

/// Decompresses blocks and reuses its working memory.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    /// Returns a decompressor. It allocates nothing until it meets a method that needs memory.
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Decompresses `stored` into `raw`, whose length is the declared uncompressed length.
    pub fn decompress(
        &mut self,
        method: Compression,
        stored: &[u8],
        raw: &mut [u8],
    ) -> Result<(), Corruption> {
        let len = match method {
            Compression::None if stored.len() == raw.len() => {
                raw.copy_from_slice(stored);
                Some(raw.len())
            }
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::decompress_into(stored, raw).ok(),
            Compression::Zstd => {
                self.zstd.get_or_insert_with(DCtx::create).decompress(&mut raw[..], stored).ok()
            }
        };
        if len == Some(raw.len()) { Ok(()) } else { Err(Corruption::new("block does not decompress", 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn round_trip(method: Compression, raw: &[u8]) -> (Compression, usize) {
        let mut compressor = Compressor::new(method);
        let (used, stored) = compressor.compress(raw);
        assert!(is_plausible(used, stored.len() as u64, raw.len() as u64));
        let mut again = vec![0xee; raw.len()];
        Decompressor::new().decompress(used, stored, &mut again).expect("sound");
        assert_eq!(again, raw);
        (used, stored.len())
    }

    #[test]
    fn what_does_not_pay_is_stored_as_it_is() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        for method in Compression::ALL {
            assert_eq!(round_trip(method, &noise), (Compression::None, 4096));
            assert_eq!(round_trip(method, b""), (Compression::None, 0));
            assert_eq!(round_trip(method, b"x"), (Compression::None, 1));
        }
        assert!(pays(7, 8) && !pays(8, 8) && !pays(7, 7) && pays(0, 1) && !pays(15, 16));
    }

    #[test]
    fn text_is_compressed_and_a_bomb_is_not_made() {
        let text: Vec<u8> = b"the ice moves over the hill and the hill takes its shape ".repeat(60);
        for method in [Compression::Lz4, Compression::Zstd] {
            let (used, len) = round_trip(method, &text);
            assert_eq!(used, method);
            assert!(len < text.len() / 4);
            // Zstandard would store these zeros in a few hundred bytes, a ratio that readers reject.
            let zeros = vec![0; 5 << 20];
            let (used, len) = round_trip(method, &zeros);
            assert!(used == Compression::None || zeros.len() as u64 / EXPANSION_LIMIT <= len as u64);
        }
    }

    #[test]
    fn claims_are_checked_before_memory_is_spent() {
        assert!(!is_plausible(Compression::None, 10, 11));
        assert!(is_plausible(Compression::Lz4, 1, ALWAYS_ALLOWED));
        assert!(!is_plausible(Compression::Zstd, 1000, 1 << 30));
    }

    proptest! {
        #[test]
        fn all_methods_round_trip(
            pattern in proptest::collection::vec(any::<u8>(), 1..60),
            times in 1usize..80,
        ) {
            let raw = pattern.repeat(times);
            for method in Compression::ALL {
                round_trip(method, &raw);
            }
        }

        #[test]
        fn hostile_bytes_give_an_error_or_that_many_bytes(
            stored in proptest::collection::vec(any::<u8>(), 0..200),
            raw_len in 0usize..5000,
        ) {
            for method in Compression::ALL {
                let mut raw = vec![0; raw_len];
                let _ = Decompressor::new().decompress(method, &stored, &mut raw);
                prop_assert_eq!(raw.len(), raw_len);
            }
        }

        #[test]
        fn a_wrong_length_is_an_error(times in 2usize..80, wrong in 0usize..3000) {
            let raw = b"abcdefgh".repeat(times);
            prop_assume!(wrong != raw.len());
            for method in Compression::ALL {
                let mut compressor = Compressor::new(method);
                let (used, stored) = compressor.compress(&raw);
                prop_assert!(Decompressor::new().decompress(used, stored, &mut vec![0; wrong]).is_err());
            }
        }
    }
}
