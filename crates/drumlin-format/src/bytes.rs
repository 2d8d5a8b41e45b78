//! Reading and writing the primitives that every format is made of.
//!
//! [`Reader`] is the only place that cuts into raw bytes. It is checked: running out of input, an overlong or
//! overflowing varint, or a length beyond the rest is a [`Corruption`] that names the offset, never a panic. It
//! borrows and allocates nothing, so a hostile length cannot cost memory.
//!
//! ```text
//! u16 u32 u64     little endian, fixed width
//! varint          7 bits per byte, lowest first, high bit = more follow; the shortest form is the only valid one
//! slice           varint length | bytes
//! ```
//!
//! Invariant: each value has exactly one encoding, so equal bytes mean equal values and the other way round.

use crate::error::Corruption;
use alloc::vec::Vec;

/// Longest varint of 32 bits.
pub const MAX_VARINT_32_LEN: usize = 5;
/// Longest varint of 64 bits.
pub const MAX_VARINT_64_LEN: usize = 10;

/// A cursor over borrowed bytes; every read is checked.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of `rest` as errors name it.
    offset: u64,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, offset: 0 }
    }

    /// Reads `bytes`, which begin at `base` of their file; errors name offsets of the file.
    pub const fn at(bytes: &'a [u8], base: u64) -> Reader<'a> {
        Reader { rest: bytes, offset: base }
    }

    /// Where the next read begins.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are left.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is left, without taking it.
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Damage found where the next read would begin.
    pub const fn damage(&self, what: &'static str) -> Corruption {
        Corruption::new(what, self.offset)
    }

    /// Takes `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Corruption> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.damage("bytes end too early"));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(len as u64);
        Ok(taken)
    }

    /// Takes `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.damage("bytes end too early"));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(N as u64);
        Ok(*taken)
    }

    /// Takes everything that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        let taken = self.rest;
        self.rest = &[];
        self.offset = self.offset.saturating_add(taken.len() as u64);
        taken
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Corruption> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a byte that must be 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Corruption> {
        let at = self.offset;
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corruption::new("flag is neither 0 nor 1", at)),
        }
    }

    /// Reads 16 bits.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Corruption> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Corruption> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Corruption> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a 32-bit float; any bits are accepted.
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

    /// Reads a slice that is preceded by its length.
    #[inline]
    pub fn slice(&mut self) -> Result<&'a [u8], Corruption> {
        self.slice_up_to(usize::MAX)
    }

    /// Reads a slice that is preceded by its length, which must not exceed `limit`.
    #[inline]
    pub fn slice_up_to(&mut self, limit: usize) -> Result<&'a [u8], Corruption> {
        let at = self.offset;
        let len = usize::try_from(self.varint_u64()?).unwrap_or(usize::MAX);
        if len > limit {
            return Err(Corruption::new("length exceeds its limit", at));
        }
        self.bytes(len)
    }

    /// Reads an element count, which must be such that `count` elements of at least `min_len` bytes fit into
    /// the rest. A list may thus be reserved in advance.
    pub fn count(&mut self, min_len: usize) -> Result<usize, Corruption> {
        let at = self.offset;
        let count = usize::try_from(self.varint_u64()?).unwrap_or(usize::MAX);
        if count > self.rest.len() / min_len.max(1) {
            return Err(Corruption::new("count exceeds the bytes that are left", at));
        }
        Ok(count)
    }

    /// Accepts that everything was read; anything left is damage.
    pub fn finish(self) -> Result<(), Corruption> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damage("bytes left over")) }
    }
}

/// Appends 16 bits.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends 32 bits.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends 64 bits.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a 32-bit float.
pub fn put_f32(out: &mut Vec<u8>, value: f32) {
    put_u32(out, value.to_bits());
}

/// Appends a flag as one byte.
pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Appends a varint. Serves 32-bit values too: the encoding is the same.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that [`put_varint`] appends for `value`.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a slice preceded by its length.
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
