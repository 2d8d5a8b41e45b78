//! Writes a table to its file.
//!
//! Bytes are gathered and written a megabyte at a time. Finishing syncs the data and closes the file; the name
//! is the caller's to sync, once for all tables of a job. A writer that is dropped unfinished removes its file, as
//! no one can refer to it. A file that could not be synced is removed the same way: nothing is tried twice on it.

use crate::error::{Error, ErrorKind, Result};
use drumlin_env::{Env, File, FileKind, Fs};
use drumlin_format::compression::Compression;
use drumlin_format::table::{BuildError, FilterSpec, Sink, TableBuilder, TableSettings, TableSummary};
use drumlin_types::{KeyRange, Kind, Seq, TableId};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// How to write a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions {
    /// Target length of data blocks.
    pub(crate) block_bytes: usize,
    /// Compression of data blocks.
    pub(crate) compression: Compression,
    /// The store's seed for filter hashes.
    pub(crate) seed: u64,
    /// The store's newest sequence number now.
    pub(crate) created_seq: Seq,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions { block_bytes: 4096, compression: Compression::None, seed: 0, created_seq: 0 }
    }
}

/// Writes one table.
pub(crate) struct TableWriter {
    fs: Fs,
    path: PathBuf,
    /// Taken when the table is finished.
    builder: Option<TableBuilder<FileSink>>,
    finished: bool,
}

impl TableWriter {
    /// Begins the table `id` in a new file at `path`.
    pub(crate) fn create(env: &Env, path: &Path, id: TableId, options: TableOptions) -> Result<TableWriter> {
        let file =
            env.fs().create(path, FileKind::Table).map_err(|e| Error::io(path, "cannot create table", e))?;
        let settings = TableSettings {
            file_id: id.0,
            block_bytes: options.block_bytes,
            compression: options.compression,
            seed: options.seed,
            created_seq: options.created_seq,
        };
        let sink = FileSink { file, offset: 0, buffer: Vec::with_capacity(WRITE_BYTES) };
        Ok(TableWriter {
            fs: env.fs().clone(),
            path: path.to_owned(),
            builder: Some(TableBuilder::new(sink, settings)),
            finished: false,
        })
    }

    fn builder(&mut self) -> Result<&mut TableBuilder<FileSink>> {
        self.builder.as_mut().ok_or_else(|| Error::new(ErrorKind::Bug, "table is already finished"))
    }

    /// Appends an entry; entries come in internal order.
    pub(crate) fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        let outcome = self.builder()?.add(key, seq, kind, value);
        outcome.map_err(|error| self.error(error))
    }

    /// Adds a range tombstone, in any order.
    pub(crate) fn add_range_tombstone(&mut self, range: KeyRange, seq: Seq) -> Result<()> {
        self.builder()?.add_range_tombstone(range, seq);
        Ok(())
    }

    /// About how long the file would be, without filter, if finished now.
    pub(crate) fn size(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::file_len_estimate)
    }

    #[cfg(test)]
    /// Entries so far.
    pub(crate) fn entries(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::entries)
    }

    #[cfg(test)]
    /// Distinct keys so far.
    pub(crate) fn keys(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::keys)
    }

    #[cfg(test)]
    /// Whether there are neither entries nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.as_ref().is_none_or(TableBuilder::is_empty)
    }

    #[cfg(test)]
    /// Bytes of memory held for the filter to come.
    pub(crate) fn hash_bytes(&self) -> usize {
        self.builder.as_ref().map_or(0, TableBuilder::hash_bytes)
    }

    /// Builds the filter, writes the rest, syncs the data and closes the file.
    pub(crate) fn finish(mut self, filter: impl Into<FilterSpec>) -> Result<TableSummary> {
        let Some(builder) = self.builder.take() else {
            return Err(Error::new(ErrorKind::Bug, "table is already finished"));
        };
        let (summary, sink) = builder.finish(filter).map_err(|error| self.error(error))?;
        sink.finish().map_err(|e| Error::io(&self.path, "cannot finish table", e))?;
        self.finished = true;
        Ok(summary)
    }

    fn error(&self, error: BuildError<io::Error>) -> Error {
        match error {
            BuildError::Sink(error) => Error::io(&self.path, "cannot write table", error),
            BuildError::EntryTooLong => Error::new(ErrorKind::InvalidArgument, error.to_string()),
            BuildError::OutOfOrder
            | BuildError::TableTooLarge
            | BuildError::Empty
            | BuildError::FilterLies => {
                Error::new(ErrorKind::Bug, format!("{error} ({})", self.path.display()))
            }
        }
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        // Close before removing.
        self.builder = None;
        if !self.finished {
            // Whatever remains is an orphan, which recovery removes.
            let _ = self.fs.unlink(&self.path, FileKind::Table);
        }
    }
}

/// The file being written.
struct FileSink {
    file: File,
    /// Where the buffer begins in the file.
    offset: u64,
    buffer: Vec<u8>,
}

impl FileSink {
    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if !drumlin_types::bug!("B10") {
            self.file.sync_data()?;
        }
        self.file.close()
    }
}

impl Sink for FileSink {
    type Error = io::Error;

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > WRITE_BYTES && !self.buffer.is_empty() {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BYTES {
            self.file.write_at(self.offset, bytes)?;
            self.offset += bytes.len() as u64;
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}
