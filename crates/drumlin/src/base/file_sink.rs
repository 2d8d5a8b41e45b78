//! Sequential output to a new file: bytes are buffered and written a megabyte at a time. After each megabyte, the
//! system is asked to begin to write it to the device (RocksDB's `bytes_per_sync`). Otherwise it would begin with the
//! sync, and the job would wait for all of it. Finishing syncs the data and closes the file. The caller syncs the
//! directory entry.

use drumlin_env::File;
use drumlin_format::table::Sink;
use std::io;

/// Largest size of the write buffer in bytes.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// Bytes after which write-back begins.
const WRITE_BACK_BYTES: u64 = 1 << 20;
/// A multiple of the size of a page of the page cache.
const PAGE: u64 = 64 << 10;
/// Smallest size of the write buffer.
const WRITE_LEAST: usize = 64 << 10;

/// Output file with its write buffer.
pub(crate) struct FileSink {
    file: File,
    /// File offset at which the buffer starts.
    offset: u64,
    /// File offset up to which write-back has begun.
    begun: u64,
    buffer: Vec<u8>,
    /// Largest size of the buffer.
    limit: usize,
}

impl FileSink {
    /// Returns a sink that writes to `file` from its start. The buffer has `limit` bytes, within 64 KiB to 1 MiB.
    pub(crate) fn new(file: File, limit: usize) -> FileSink {
        let limit = limit.clamp(WRITE_LEAST, WRITE_BYTES);
        FileSink { file, offset: 0, begun: 0, buffer: Vec::with_capacity(limit), limit }
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
        self.advance(self.buffer.len());
        self.buffer.clear();
        Ok(())
    }

    /// Notes that `bytes` were written at the offset.
    fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        // A page that is not full yet would be written twice.
        let full = self.offset - self.offset % PAGE;
        if full - self.begun >= WRITE_BACK_BYTES {
            self.file.start_write_back(self.begun, full - self.begun);
            self.begun = full;
        }
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
            self.advance(bytes.len());
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}
