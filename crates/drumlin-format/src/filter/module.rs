//! What all methods of filters have in common: hashes, lines and built modules.

use crate::checksum::hash64_seeded;
use alloc::vec::Vec;

/// Length of a line in bytes: one cache line. Modules consist of whole lines.
pub const LINE_BYTES: usize = 64;
/// Maximum number of modules of a filter.
pub const MAX_MODULES: usize = 4;
/// Maximum number of lines of a module, so that its length fits into 32 bits.
pub const MAX_LINES: u64 = (u32::MAX as u64 - 1024) / LINE_BYTES as u64;
pub(super) const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

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
pub(super) const fn module_hash(hash: u64, module: usize) -> u64 {
    if module == 0 { hash } else { mix(hash.wrapping_add(GOLDEN.wrapping_mul(module as u64))) }
}

/// Returns which of `count` equal parts of all hashes `hash` lies in.
#[inline]
pub(super) const fn part_of(hash: u64, count: u64) -> u64 {
    ((hash as u128 * count as u128) >> 64) as u64
}

/// Returns the number of lines for `bits_per_key` bits per key, rounded up.
pub(super) fn lines_for(keys: usize, bits_per_key: f64) -> u64 {
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
    /// Returns the number of lines.
    pub fn lines(&self) -> u64 {
        (self.bits.len() / LINE_BYTES) as u64
    }
}
