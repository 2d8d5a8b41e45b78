//! A decoded entry with its whole key, for iteration over a block.

use super::{BlockView, GROUP};
use crate::error::Corruption;
use alloc::vec::Vec;
use core::ops::Range;
use drumlin_types::{Kind, Seq};

/// Holds one entry: its key, assembled in a reused buffer, and the place of its value.
///
/// Moving forward within a group replaces only the end of the key. Shared lengths never increase within a group, so the
/// start of the buffer still holds the start of the head's key.
#[derive(Clone, Debug)]
pub struct EntryCursor {
    key: Vec<u8>,
    /// Number of bytes at the start of `key` that equal those of the head of `group`.
    from_head: usize,
    /// Index of the head; `usize::MAX` when the buffer belongs to no group.
    group: usize,
    seq: Seq,
    kind: Kind,
    value: Range<usize>,
}

impl Default for EntryCursor {
    fn default() -> EntryCursor {
        EntryCursor {
            key: Vec::new(),
            from_head: 0,
            group: usize::MAX,
            seq: 0,
            kind: Kind::Delete,
            value: 0..0,
        }
    }
}

impl EntryCursor {
    /// Detaches the cursor from its block. Must be called before loading from another block.
    pub fn leave_block(&mut self) {
        self.group = usize::MAX;
    }

    /// Decodes entry `index` of `block`. After an error the cursor is detached and its entry is undefined.
    #[inline]
    pub fn load(&mut self, block: BlockView<'_>, index: usize) -> Result<(), Corruption> {
        let group = index - index % GROUP;
        let entry = block.entry_inline(index).inspect_err(|_| self.group = usize::MAX)?;
        if self.group == group && entry.shared <= self.from_head {
            self.key.truncate(entry.shared);
        } else {
            self.group = usize::MAX;
            let shared = block.shared(index, &entry)?;
            self.key.clear();
            self.key.extend_from_slice(shared);
            self.group = group;
        }
        self.key.extend_from_slice(entry.suffix);
        self.from_head = if index == group { entry.suffix.len() } else { entry.shared };
        self.seq = entry.seq;
        self.kind = entry.kind;
        self.value = entry.value_offset..entry.value_offset + entry.value.len();
        Ok(())
    }

    /// Returns the user key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the sequence number.
    #[inline]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the range of the value in the block.
    #[inline]
    pub fn value(&self) -> Range<usize> {
        self.value.clone()
    }
}
