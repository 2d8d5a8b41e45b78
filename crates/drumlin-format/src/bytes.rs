//! The primitive encodings that all formats consist of.
//!
//! ```text
//! u8 u16 u32 u64  unsigned integer of fixed width, little endian
//! varint          unsigned integer, 7 bits per byte, lowest bits first; the high bit is set in all bytes but the last
//! slice           length varint | that many bytes
//! ```
//!
//! Only the shortest form of a varint is valid. Each value therefore has exactly one encoding: equal bytes mean equal
//! values, and equal values have equal bytes.
//!
//! [`Reader`] is the only code that cuts into raw bytes, and it checks every read. It returns a [`Corruption`] that
//! names the offset for missing bytes, for a varint that is too long or overflows, and for a length beyond the
//! remaining bytes. It never panics. It borrows its input and allocates nothing, so a hostile length cannot consume
//! memory.

use crate::error::Corruption;
use alloc::vec::Vec;

/// Maximum length of a varint of 32 bits.
pub const MAX_VARINT_32_LEN: usize = 5;
/// Maximum length of a varint of 64 bits.
pub const MAX_VARINT_64_LEN: usize = 10;

/// A cursor over borrowed bytes. Every read is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of `rest`, as errors report it.
    offset: u64,
}

impl<'a> Reader<'a> {
    /// Returns a reader of `bytes` from the start.
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, offset: 0 }
    }

    /// Returns a reader of `bytes`, which begin at offset `base` of their file. Errors report offsets of the file.
    pub const fn at(bytes: &'a [u8], base: u64) -> Reader<'a> {
        Reader { rest: bytes, offset: base }
    }

    /// Returns the offset of the next read.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of remaining bytes.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether no bytes remain.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the remaining bytes without consuming them.
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns a corruption error for the offset of the next read.
    pub const fn damage(&self, what: &'static str) -> Corruption {
        Corruption::new(what, self.offset)
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Corruption> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.damage("bytes end too early"));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(len as u64);
        Ok(taken)
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.damage("bytes end too early"));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(N as u64);
        Ok(*taken)
    }

    /// Reads all remaining bytes.
    pub fn take_rest(&mut self) -> &'a [u8] {
        let taken = self.rest;
        self.rest = &[];
        self.offset = self.offset.saturating_add(taken.len() as u64);
        taken
    }

    /// Reads a `u8`.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Corruption> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a flag: a byte that must be 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Corruption> {
        let at = self.offset;
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corruption::new("flag is neither 0 nor 1", at)),
        }
    }

    /// Reads a `u16`.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Corruption> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads a `u32`.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Corruption> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads a `u64`.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Corruption> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads an `f32`. Any bit pattern is accepted.
    pub fn f32(&mut self) -> Result<f32, Corruption> {
        Ok(f32::from_bits(self.u32()?))
    }

    /// Reads a varint of up to 32 bits.
    #[inline]
    pub fn varint_u32(&mut self) -> Result<u32, Corruption> {
        let at = self.offset;
        u32::try_from(self.varint_u64()?).map_err(|_| Corruption::new("varint exceeds 32 bits", at))
    }

    /// Reads a varint of up to 64 bits.
    #[inline]
    pub fn varint_u64(&mut self) -> Result<u64, Corruption> {
        // One byte is by far the most common length.
        if let Some((&first, rest)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = rest;
            self.offset = self.offset.saturating_add(1);
            return Ok(u64::from(first));
        }
        self.long_varint()
    }

    /// Reads a varint whose value must not exceed `most`.
    #[inline]
    pub fn varint_up_to(&mut self, most: u64) -> Result<u64, Corruption> {
        let at = self.offset;
        match self.varint_u64()? {
            number if number <= most => Ok(number),
            _ => Err(Corruption::new("number exceeds its limit", at)),
        }
    }

    /// Reads a `u64` whose value must not exceed `most`.
    pub fn u64_up_to(&mut self, most: u64) -> Result<u64, Corruption> {
        let at = self.offset;
        match self.u64()? {
            number if number <= most => Ok(number),
            _ => Err(Corruption::new("number exceeds its limit", at)),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Corruption> {
        let at = self.offset;
        let mut value = 0u64;
        for index in 0..MAX_VARINT_64_LEN as u32 {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if index == MAX_VARINT_64_LEN as u32 - 1 && bits > 1 {
                return Err(Corruption::new("varint exceeds 64 bits", at));
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                if byte == 0 && index > 0 {
                    return Err(Corruption::new("varint is not in its shortest form", at));
                }
                return Ok(value);
            }
        }
        Err(Corruption::new("varint has no end", at))
    }

    /// Reads a slice: its length as a varint, then its bytes.
    #[inline]
    pub fn slice(&mut self) -> Result<&'a [u8], Corruption> {
        self.slice_up_to(usize::MAX)
    }

    /// Reads a slice whose length must not exceed `limit`.
    #[inline]
    pub fn slice_up_to(&mut self, limit: usize) -> Result<&'a [u8], Corruption> {
        let at = self.offset;
        let len = usize::try_from(self.varint_u64()?).unwrap_or(usize::MAX);
        if len > limit {
            return Err(Corruption::new("length exceeds its limit", at));
        }
        self.bytes(len)
    }

    /// Reads an element count. Rejects a count whose elements, of at least `min_len` bytes each, exceed the remaining
    /// bytes.
    ///
    /// A caller may therefore reserve memory for the returned count.
    pub fn count(&mut self, min_len: usize) -> Result<usize, Corruption> {
        let at = self.offset;
        let count = usize::try_from(self.varint_u64()?).unwrap_or(usize::MAX);
        if count > self.rest.len() / min_len.max(1) {
            return Err(Corruption::new("count exceeds the bytes that are left", at));
        }
        Ok(count)
    }

    /// Checks that no bytes remain. Remaining bytes are corruption.
    pub fn finish(self) -> Result<(), Corruption> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damage("bytes left over")) }
    }
}

/// Appends a `u16`.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u32`.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `u64`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends an `f32`.
pub fn put_f32(out: &mut Vec<u8>, value: f32) {
    put_u32(out, value.to_bits());
}

/// Appends a flag as one byte.
pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Appends a varint. 32-bit values have the same encoding.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns the number of bytes that [`put_varint`] appends for `value`.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a slice: its length as a varint, then its bytes.
#[inline]
pub fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fixed_width_values_are_little_endian() {
        let mut out = Vec::new();
        put_u16(&mut out, 0x0102);
        put_u32(&mut out, 0x0304_0506);
        put_u64(&mut out, 0x0708_090a_0b0c_0d0e);
        put_f32(&mut out, 1.5);
        put_bool(&mut out, true);
        assert_eq!(out, [2, 1, 6, 5, 4, 3, 14, 13, 12, 11, 10, 9, 8, 7, 0, 0, 0xc0, 0x3f, 1]);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.u32(), Ok(0x0304_0506));
        assert_eq!(reader.u64(), Ok(0x0708_090a_0b0c_0d0e));
        assert_eq!(reader.f32(), Ok(1.5));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn damage_names_its_place() {
        let what = |bytes: &[u8], read: fn(&mut Reader<'_>) -> Option<Corruption>| {
            let damage = read(&mut Reader::at(bytes, 100)).expect("damage");
            (damage.what, damage.offset)
        };
        assert_eq!(what(&[1, 2], |r| r.u32().err()), ("bytes end too early", 100));
        assert_eq!(what(&[1, 2], |r| r.bytes(3).err()), ("bytes end too early", 100));
        assert_eq!(what(&[2], |r| r.bool().err()), ("flag is neither 0 nor 1", 100));
        assert_eq!(what(&[0x80], |r| r.varint_u64().err()), ("bytes end too early", 101));
        assert_eq!(what(&[0x80, 0], |r| r.varint_u64().err()), ("varint is not in its shortest form", 100));
        assert_eq!(what(&[0xff; 10], |r| r.varint_u64().err()), ("varint exceeds 64 bits", 100));
        assert_eq!(what(&[5, 1], |r| r.slice().err()), ("bytes end too early", 101));
        assert_eq!(what(&[5, 1], |r| r.slice_up_to(4).err()), ("length exceeds its limit", 100));
        assert_eq!(what(&[3, 1, 2, 3], |r| r.count(2).err()), ("count exceeds the bytes that are left", 100));
        assert_eq!(what(&[1, 9], |r| r.clone().finish().err()), ("bytes left over", 100));
        let large = [0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(what(&large, |r| r.varint_u32().err()), ("varint exceeds 32 bits", 100));
    }

    proptest! {
        #[test]
        fn varints_round_trip(bits in 0u32..=64, noise in any::<u64>()) {
            let value = if bits == 0 { 0 } else { noise >> (64 - bits) };
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint_u64(), Ok(value));
            prop_assert!(reader.is_empty());
            for len in 0..out.len() {
                prop_assert!(Reader::new(&out[..len]).varint_u64().is_err());
            }
        }

        #[test]
        fn each_varint_has_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.varint_u64() {
                let mut again = Vec::new();
                put_varint(&mut again, value);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - reader.remaining()]);
            }
        }
    }
}
