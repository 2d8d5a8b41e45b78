//! Finds data blocks without an index, for repair.
//!
//! Data blocks lie next to each other from the start of the file, each followed by its seal. The seal is bound to table
//! and offset, so the length at which a seal is valid is the length of the block. Lengths are tried in ascending order.
//! A seal begins with a compression byte, so only places with a valid compression byte need a checksum. The
//! checksum of the bytes before is kept, so a megabyte takes milliseconds whatever it holds.

use crate::checksum::RunningChecksum;
use crate::compression::Compression;
use crate::seal::SEAL_LEN;

/// Returns the sealed length of the block at `offset` of table `file_id`. `bytes` hold the table from that offset on.
/// Returns `None` when no seal is valid.
#[must_use]
pub fn find_block(file_id: u64, offset: u64, bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(SEAL_LEN)?;
    let mut running = RunningChecksum::new(file_id, offset);
    let mut hashed = 0;
    for len in 1..=last {
        let Some(&[method, a, b, c, d]) = bytes.get(len..len + SEAL_LEN) else { break };
        if Compression::from_u8(method).is_none() {
            continue;
        }
        running.update(bytes.get(hashed..len).unwrap_or_default());
        hashed = len;
        if running.with(&[method]) == u32::from_le_bytes([a, b, c, d]) {
            return Some(len + SEAL_LEN);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::seal;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_found_one_behind_the_other() {
        let mut file: Vec<u8> = Vec::new();
        let mut lens = Vec::new();
        for len in [1usize, 16, 300, 4091, 17] {
            let stored: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let offset = file.len() as u64;
            file.extend_from_slice(&stored);
            file.extend_from_slice(&seal(7, offset, &stored, Compression::None));
            lens.push(len + SEAL_LEN);
        }
        let (mut at, mut found) = (0, Vec::new());
        while let Some(len) = find_block(7, at as u64, &file[at..]) {
            found.push(len);
            at += len;
        }
        assert_eq!(found, lens);
        assert_eq!(find_block(8, 0, &file), None);
        assert_eq!(find_block(7, 0, b"abc"), None);
        // Each zero names a compression method.
        assert_eq!(find_block(7, 0, &[0; 1 << 20]), None);
    }
}
