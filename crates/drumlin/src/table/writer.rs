//! Writes a table to its file.
//!
//! The writer buffers bytes and writes a megabyte at a time. Finishing syncs the data and closes the file. The caller
//! syncs the directory entry, once for all tables of a job.
//!
//! A writer that is dropped unfinished removes its file, since nothing can refer to it. It also removes a file whose
//! sync failed: after a failure it retries nothing on that file.

use super::BlockCache;
use super::carry::Carry;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::file_sink::{FileSink, WRITE_BYTES};
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind, Fs};
use drumlin_format::compression::Compression;
use drumlin_format::table::{
    BuildError, FilterSpec, Owner, TableBuilder, TableSettings, TableSummary, ValueReference,
};
use drumlin_types::{KeyRange, Kind, Seq, TableId};
use std::io;
use std::path::{Path, PathBuf};

/// Options for writing a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions {
    /// Target length of data blocks in bytes.
    pub(crate) block_bytes: usize,
    /// Compression of data blocks.
    pub(crate) compression: Compression,
    /// The store's seed for filter hashes.
    pub(crate) seed: u64,
    /// The store's newest sequence number when the table is created.
    pub(crate) created_seq: Seq,
    /// Memory for the write buffer in bytes. The buffer has 64 KiB to 1 MiB.
    pub(crate) write_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4096,
            compression: Compression::None,
            seed: 0,
            created_seq: 0,
            write_bytes: WRITE_BYTES,
        }
    }
}

/// Writer of one table.
pub(crate) struct TableWriter {
    fs: Fs,
    path: PathBuf,
    /// `None` after `finish`.
    builder: Option<TableBuilder<FileSink>>,
    carry: Option<Carry>,
    finished: bool,
}

impl TableWriter {
    /// Starts table `id` in a new file at `path`.
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
        let sink = FileSink::new(file, options.write_bytes);
        Ok(TableWriter {
            fs: env.fs().clone(),
            path: path.to_owned(),
            builder: Some(TableBuilder::new(sink, settings)),
            carry: None,
            finished: false,
        })
    }

    /// Lets blocks of warm entries enter `cache` as they are written.
    pub(crate) fn carry_to(&mut self, cache: Arc<BlockCache>, id: TableId) {
        self.carry = Some(Carry::new(cache, id));
    }

    fn builder(&mut self) -> Result<&mut TableBuilder<FileSink>> {
        self.builder.as_mut().ok_or_else(|| Error::new(ErrorKind::Bug, "table is already finished"))
    }

    /// Sets the keyspace that owns the table.
    pub(crate) fn set_owner(&mut self, owner: Option<Owner>) -> Result<()> {
        self.builder()?.set_owner(owner);
        Ok(())
    }

    /// Sets the list of value files that the entries point to.
    pub(crate) fn set_value_files(&mut self, files: Vec<ValueReference>) -> Result<()> {
        self.builder()?.set_value_files(files);
        Ok(())
    }

    /// Appends an entry. Entries must arrive in internal order. `is_warm` tells whether it comes from a warm block.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
        is_warm: bool,
    ) -> Result<()> {
        let outcome = self.builder()?.add(key, seq, kind, value);
        outcome.map_err(|error| self.error(error))?;
        self.end_block();
        if let Some(carry) = &mut self.carry {
            carry.add(key.len() + value.len(), is_warm);
        }
        Ok(())
    }

    /// Passes the data block that was written last to the cache, if there is a new one. Adding an entry may write the
    /// block before it, so this comes before the entry counts.
    #[inline]
    fn end_block(&mut self) {
        if let (Some(carry), Some(builder)) = (&mut self.carry, &mut self.builder)
            && let Some((offset, raw)) = builder.take_closed()
        {
            carry.end_block(offset, raw);
        }
    }

    /// Adds a range tombstone. They may arrive in any order.
    pub(crate) fn add_range_tombstone(&mut self, range: KeyRange, seq: Seq) -> Result<()> {
        self.builder()?.add_range_tombstone(range, seq);
        Ok(())
    }

    /// Estimates the file length in bytes, without filter, if the table were finished now.
    pub(crate) fn size(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::file_len_estimate)
    }

    #[cfg(test)]
    /// Returns the number of entries so far.
    pub(crate) fn entries(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::entries)
    }

    /// Returns the number of distinct keys so far.
    pub(crate) fn keys(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::keys)
    }

    #[cfg(test)]
    /// Returns whether the table has neither entries nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.as_ref().is_none_or(TableBuilder::is_empty)
    }

    #[cfg(test)]
    /// Returns the memory held for building the filter, in bytes.
    pub(crate) fn hash_bytes(&self) -> usize {
        self.builder.as_ref().map_or(0, TableBuilder::hash_bytes)
    }

    /// Builds the filter, writes the remaining blocks, syncs the data and closes the file.
    pub(crate) fn finish(&mut self, filter: impl Into<FilterSpec>) -> Result<TableSummary> {
        let ended = self.builder()?.end_block();
        ended.map_err(|error| self.error(error))?;
        self.end_block();
        let Some(builder) = self.builder.take() else {
            return Err(Error::new(ErrorKind::Bug, "table is already finished"));
        };
        let (summary, sink) = builder.finish(filter).map_err(|error| self.error(error))?;
        sink.finish().map_err(|e| Error::io(&self.path, "cannot finish table", e))?;
        self.finished = true;
        Ok(summary)
    }

    /// Closes and unlinks an unfinished table.
    pub(crate) fn abandon(mut self) -> Result<()> {
        self.unlink().map_err(|e| Error::io(&self.path, "cannot remove an unfinished table", e))
    }

    fn unlink(&mut self) -> io::Result<()> {
        self.builder = None;
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        if let Some(carry) = &self.carry {
            carry.abandon();
        }
        self.fs.unlink(&self.path, FileKind::Table)
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
        // If this fails, recovery removes the file as an orphan.
        let _ = self.unlink();
    }
}
