//! Filters of tables. A filter tells that a key is absent from a table, without reading a data block.
//!
//! There are two methods. A *blocked Bloom filter* (format 1, `bloom`) costs one cache miss for each probe and is quickly
//! built. A *Ribbon filter* (format 2, `ribbon`) has the same false-positive rate with about two thirds of the bits.
//! Building it takes about twice as long, and a probe touches several lines.
//!
//! A filter is divided into up to four *modules*. Each module is a complete filter over all keys of the table. A key is
//! absent if any module says so. A module that is not in memory may be skipped; that only raises the false-positive
//! rate.
//!
//! ```text
//! h     XXH3-64(user key, seed)                     G = 0x9E3779B97F4A7C15; arithmetic wraps at 64 bits
//! h_0 = h;  h_j = mix(h + j G)                      for module j; mix is MurmurHash3's 64-bit finaliser
//! ```
//!
//! The stored false-positive rate is no estimate: it follows from the filter as built, and is exact for absent keys.
//!
//! Invariants: a filter never denies a key that was added. A malformed filter answers "may contain". The scalar code
//! here is the definition; faster code must agree bit for bit.

use crate::checksum::hash64_seeded;
use alloc::vec::Vec;

mod bloom;
mod ribbon;

pub use bloom::{MAX_PROBES, probes_for};

/// Length of a line in bytes: one cache line. Modules consist of whole lines.
pub const LINE_BYTES: usize = 64;
/// Maximum number of modules of a filter.
pub const MAX_MODULES: usize = 4;
/// Maximum number of lines of a module, so that its length fits into 32 bits.
pub const MAX_LINES: u64 = (u32::MAX as u64 - 1024) / LINE_BYTES as u64;
const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// How a filter represents its keys. The numbers are those of the formats on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Blocked Bloom filter.
    Bloom = 1,
    /// Ribbon filter.
    Ribbon = 2,
}

impl Method {
    /// Returns the method of format `number`, or `None` if this build does not know it.
    pub const fn from_u8(number: u8) -> Option<Method> {
        match number {
            1 => Some(Method::Bloom),
            2 => Some(Method::Ribbon),
            _ => None,
        }
    }
}

/// Returns the hash of `key` from which filters and block tags are derived.
#[inline]
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    hash64_seeded(key, seed)
}

/// Applies MurmurHash3's 64-bit finaliser.
#[inline]
pub const fn mix(value: u64) -> u64 {
    let mut v = value;
    v ^= v >> 33;
    v = v.wrapping_mul(0xff51_afd7_ed55_8ccd);
    v ^= v >> 33;
    v = v.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    v ^ (v >> 33)
}

/// Returns the key hash for module number `module`.
#[inline]
const fn module_hash(hash: u64, module: usize) -> u64 {
    if module == 0 { hash } else { mix(hash.wrapping_add(GOLDEN.wrapping_mul(module as u64))) }
}

/// Returns which of `count` equal parts of all hashes `hash` lies in.
#[inline]
const fn part_of(hash: u64, count: u64) -> u64 {
    ((hash as u128 * count as u128) >> 64) as u64
}

/// Returns the number of lines for `bits_per_key` bits per key, rounded up.
fn lines_for(keys: usize, bits_per_key: f64) -> u64 {
    let bits = keys.max(1) as f64 * bits_per_key;
    // The cast saturates, and NaN becomes 0.
    let whole = (bits / LINE_BITS as f64) as u64;
    let is_enough = (whole as f64) * LINE_BITS as f64 >= bits;
    (whole + u64::from(!is_enough)).clamp(1, MAX_LINES)
}

/// A built module.
#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// Method by which it was built.
    pub method: Method,
    /// The module: whole lines.
    pub bits: Vec<u8>,
    /// Number of probes per key; 1 in a Ribbon filter.
    pub probes: u8,
    /// False-positive rate: the share of absent keys that the module does not reject.
    pub false_positive_rate: f64,
}

impl Module {
    /// Builds module number `module` over the keys with these `hashes`, with about `bits_per_key` bits per key. With few
    /// keys, or in the unlikely case that no Ribbon filter is found, it is a Bloom filter whatever the `method`.
    pub fn build(method: Method, hashes: &[u64], module: usize, bits_per_key: f64) -> Module {
        let ribbon = match method {
            Method::Ribbon => ribbon::build(hashes, module, bits_per_key),
            Method::Bloom => None,
        };
        ribbon.unwrap_or_else(|| bloom::build(hashes, module, bits_per_key))
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> u64 {
        (self.bits.len() / LINE_BYTES) as u64
    }
}

/// Returns whether the key with this `hash` may be in the table, according to module number `module` with these `bits`.
#[inline]
pub fn may_contain(method: Method, bits: &[u8], module: usize, probes: u8, hash: u64) -> bool {
    match method {
        Method::Bloom => bloom::may_contain(bits, module, probes, hash),
        Method::Ribbon => ribbon::may_contain(bits, module, hash),
    }
}
