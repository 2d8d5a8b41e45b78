//! Verification of a whole data block. Readers of checksummed blocks do not need it.

use super::view::{BlockView, is_before};
use super::{EntryCursor, GROUP, common_prefix};
use crate::error::Corruption;
use alloc::vec::Vec;

impl BlockView<'_> {
    /// Verifies the whole block: entries fill it without gaps, decode, share as many bytes as possible, and are in
    /// order.
    pub fn validate(&self) -> Result<(), Corruption> {
        let mut expected = self.layout.directory_len();
        let mut cursor = EntryCursor::default();
        let mut previous = (Vec::new(), 0);
        for index in 0..self.count() {
            let start = self.start(index)?;
            let at = |what| Corruption::new(what, start as u64);
            if start != expected {
                return Err(at("entries are not next to each other"));
            }
            let entry = self.entry(index)?;
            expected = entry.value_offset + entry.value.len();
            cursor.load(*self, index)?;
            if entry.shared > 0 || !index.is_multiple_of(GROUP) {
                let most = common_prefix(self.head(index)?, cursor.key());
                if entry.shared != most {
                    return Err(at("entry shares less than its common prefix"));
                }
            }
            if index == 0 && cursor.seq() != self.layout.base_seq {
                return Err(at("base is not the first entry's sequence number"));
            }
            if index > 0 && !is_before(&previous.0, previous.1, cursor.key(), cursor.seq()) {
                return Err(at("entries are out of order"));
            }
            previous.0.clear();
            previous.0.extend_from_slice(cursor.key());
            previous.1 = cursor.seq();
        }
        if expected != self.bytes.len() {
            return Err(Corruption::new("bytes after the last entry", expected as u64));
        }
        let last_offset = self.start(self.count() - 1)? - self.layout.directory_len();
        if self.layout.wide != (last_offset > usize::from(u16::MAX)) {
            return Err(Corruption::new("offsets have the wrong width", 4));
        }
        Ok(())
    }
}
