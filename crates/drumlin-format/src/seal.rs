//! Seal: the 5-byte trailer of every block of a table.
//!
//! ```text
//! stored bytes | compression u8 | checksum u32
//! ```
//!
//! The checksum covers the file's number, the block's offset, the stored bytes and the compression byte. A block with
//! its trailer is called *sealed*. A reader verifies the seal before it uses any byte of the block. Verification fails
//! for intact bytes in the wrong file or at the wrong offset.

use crate::checksum::checksum;
use crate::compression::{Compression, is_plausible};
use crate::error::Corruption;

/// Length of a seal.
pub const SEAL_LEN: usize = 5;

/// Returns the seal for `stored` bytes at `offset` of file `file_id`.
pub fn seal(file_id: u64, offset: u64, stored: &[u8], method: Compression) -> [u8; SEAL_LEN] {
    let [a, b, c, d] = checksum(file_id, offset, &[stored, &[method as u8]]).to_le_bytes();
    [method as u8, a, b, c, d]
}

/// Verifies the seal of the block `sealed` at `offset` of file `file_id`. Returns its compression and stored bytes.
pub fn unseal(file_id: u64, offset: u64, sealed: &[u8]) -> Result<(Compression, &[u8]), Corruption> {
    let Some((stored, &[method, a, b, c, d])) = sealed.split_last_chunk::<SEAL_LEN>() else {
        return Err(Corruption::new("block is shorter than its seal", offset));
    };
    if checksum(file_id, offset, &[stored, &[method]]) != u32::from_le_bytes([a, b, c, d]) {
        return Err(Corruption::new("block: checksum mismatch", offset));
    }
    let method = Compression::from_u8(method).ok_or(Corruption::new("unknown compression", offset))?;
    Ok((method, stored))
}

/// Verifies the seal of a block that decompresses to `raw_len` bytes, and checks that this length is plausible.
pub fn unseal_block(
    file_id: u64,
    offset: u64,
    sealed: &[u8],
    raw_len: u64,
) -> Result<(Compression, &[u8]), Corruption> {
    let (method, stored) = unseal(file_id, offset, sealed)?;
    if !is_plausible(method, stored.len() as u64, raw_len) {
        return Err(Corruption::new("block has an impossible raw length", offset));
    }
    Ok((method, stored))
}

/// Verifies the seal of a block that is never compressed.
pub fn unseal_plain(file_id: u64, offset: u64, sealed: &[u8]) -> Result<&[u8], Corruption> {
    match unseal(file_id, offset, sealed)? {
        (Compression::None, stored) => Ok(stored),
        _ => Err(Corruption::new("block should not be compressed", offset)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sealed(file_id: u64, offset: u64, stored: &[u8], method: Compression) -> Vec<u8> {
        [stored, &seal(file_id, offset, stored, method)].concat()
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(sealed(7, 4096, b"hill", Compression::Lz4), b"hill\x01\x28\x7a\x9f\x6b");
    }

    #[test]
    fn only_the_sealed_bytes_at_their_place_pass() {
        let good = sealed(7, 4096, b"hill", Compression::None);
        assert_eq!(unseal(7, 4096, &good), Ok((Compression::None, &b"hill"[..])));
        assert_eq!(unseal_plain(7, 4096, &good), Ok(&b"hill"[..]));
        assert!(unseal(8, 4096, &good).is_err());
        assert!(unseal(7, 4097, &good).is_err());
        for len in 0..good.len() {
            assert!(unseal(7, 4096, &good[..len]).is_err());
        }
        for place in 0..good.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[place] ^= mask;
                assert!(unseal(7, 4096, &bad).is_err());
            }
        }
    }

    #[test]
    fn claims_are_checked() {
        let plain = sealed(1, 0, b"hill", Compression::None);
        assert!(unseal_block(1, 0, &plain, 4).is_ok());
        assert!(unseal_block(1, 0, &plain, 5).is_err());
        let lz4 = sealed(1, 0, b"hill", Compression::Lz4);
        assert!(unseal_block(1, 0, &lz4, 500).is_ok());
        assert!(unseal_block(1, 0, &lz4, 1 << 31).is_err());
        assert!(unseal_plain(1, 0, &lz4).is_err());
    }
}
