//! Sequential output to a new file: bytes are buffered and written a megabyte at a time. Finishing syncs the data and
//! closes the file. The caller syncs the directory entry.

use drumlin_env::File;
use drumlin_format::table::Sink;
use std::io;

/// Largest size of the write buffer in bytes.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// Smallest size of the write buffer.
const WRITE_LEAST: usize = 64 << 10;

/// Output file with its write buffer.
pub(crate) struct FileSink {
    file: File,
    /// File offset at which the buffer starts.
    offset: u64,
    buffer: Vec<u8>,
    /// Largest size of the buffer.
    limit: usize,
}

impl FileSink {
    /// Returns a sink that writes to `file` from its start. The buffer has `limit` bytes, within 64 KiB to 1 MiB.
    pub(crate) fn new(file: File, limit: usize) -> FileSink {
        let limit = limit.clamp(WRITE_LEAST, WRITE_BYTES);
        FileSink { file, offset: 0, buffer: Vec::with_capacity(limit), limit }
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_at(self.offset, &self.buffer);
        if !(drumlin_types::bug!("write-error-ignored") && result.is_err()) {
            result?;
        }
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is buffered, syncs the data and closes the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if !drumlin_types::bug!("no-table-sync") {
            self.file.sync_data()?;
        }
        self.file.close()
    }
}

impl Sink for FileSink {
    type Error = io::Error;

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > self.limit && !self.buffer.is_empty() {
            self.flush()?;
        }
        if bytes.len() >= self.limit {
            self.file.write_at(self.offset, bytes)?;
            self.offset += bytes.len() as u64;
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}
