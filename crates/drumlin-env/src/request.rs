//! One read of a batch, which `batch` and `ring` run in different ways.

use crate::fs::File;
use std::io;

/// One read of a batch: `len` bytes from `offset`.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// File to read.
    pub file: File,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes to read; a shorter read is an error.
    pub len: usize,
}

impl ReadRequest {
    pub(crate) fn run(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        self.file.read_exact_at(self.offset, &mut bytes)?;
        Ok(bytes)
    }
}
