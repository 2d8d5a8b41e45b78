//! Filters of tables. A filter tells that a key is absent from a table, without reading a data block.
//!
//! There are two methods. A *blocked Bloom filter* (format 1, `bloom`) costs one cache miss for each probe and is
//! quickly built. A *Ribbon filter* (format 2, `ribbon`) needs 70 to 75 % of the bits for the same false-positive rate
//! (2 to 10 bits per key). It takes 10 to 30 times as long to build, and a probe touches several cache lines.
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
//! The stored false-positive rate is computed from the filter as built: the expected share of absent keys that pass.
//!
//! Invariants: a filter never denies a key that was added. A malformed filter answers "may contain". The scalar code
//! here is the definition; faster code must agree bit for bit.

mod bloom;
mod module;
mod ribbon;

pub use bloom::{MAX_PROBES, probes_for};
pub use module::{LINE_BYTES, MAX_LINES, MAX_MODULES, Method, Module, key_hash, mix};

impl Module {
    /// Builds module number `module` over the keys with these `hashes`, with about `bits_per_key` bits per key. With
    /// few keys, or in the unlikely case that no Ribbon filter is found, it is a Bloom filter whatever the `method`.
    pub fn build(method: Method, hashes: &[u64], module: usize, bits_per_key: f64) -> Module {
        let ribbon = match method {
            Method::Ribbon => ribbon::build(hashes, module, bits_per_key),
            Method::Bloom => None,
        };
        ribbon.unwrap_or_else(|| bloom::build(hashes, module, bits_per_key))
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

/// Returns the offset of what [`may_contain`] reads first of a module of `len` bytes, to prefetch it. `None` if it is
/// not known beforehand.
#[inline]
pub fn first_read(method: Method, len: usize, module: usize, hash: u64) -> Option<usize> {
    match method {
        Method::Bloom => Some(bloom::first_read(len, module, hash)),
        Method::Ribbon => None,
    }
}
