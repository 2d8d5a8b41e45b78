//! Writes a value file. Finishing syncs the data and closes the file. The caller syncs the directory entry, once for
//! all files of a job. A writer that is dropped unfinished removes its file.

use super::reader::StoredValue;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::file_sink::FileSink;
use drumlin_env::{Env, FileKind, Fs};
use drumlin_format::value::{
    BuildError, Place, VALUE_HEADER_LEN, ValueFileBuilder, ValueFileSettings, ValueFileSummary,
};
use drumlin_types::{Seq, ValueFileId};
use std::io;
use std::path::{Path, PathBuf};

/// Size at which a value file is full.
const VALUE_FILE_BYTES: u64 = 64 << 20;

/// Writer of one value file.
pub(super) struct ValueWriter {
    fs: Fs,
    path: PathBuf,
    id: ValueFileId,
    /// Bytes of keys from which on the file ends: they are in memory until it does.
    most_key_bytes: usize,
    /// `None` after `seal`.
    builder: Option<ValueFileBuilder<FileSink>>,
    /// The file between `seal` and `finish`.
    sealed: Option<(ValueFileSummary, FileSink)>,
    finished: bool,
}

impl ValueWriter {
    /// Starts a value file at `path`, which is full with `most_key_bytes` of keys.
    pub(super) fn create(
        env: &Env,
        path: &Path,
        settings: ValueFileSettings,
        write_bytes: usize,
        most_key_bytes: usize,
    ) -> Result<ValueWriter> {
        let file = env.fs().create(path, FileKind::Value);
        let file = file.map_err(|e| Error::io(path, "cannot create a value file", e))?;
        let mut writer = ValueWriter {
            fs: env.fs().clone(),
            path: path.to_owned(),
            id: settings.header.file,
            most_key_bytes,
            builder: None,
            sealed: None,
            finished: false,
        };
        let builder = ValueFileBuilder::new(FileSink::new(file, write_bytes), settings);
        writer.builder = Some(builder.map_err(|error| writer.error(error))?);
        Ok(writer)
    }

    /// Appends a value. Values arrive in internal order of their versions.
    pub(super) fn add(&mut self, key: &[u8], seq: Seq, value: &[u8]) -> Result<Place> {
        let Some(builder) = self.builder.as_mut() else {
            return Err(Error::new(ErrorKind::Bug, "value file is already finished"));
        };
        let added = builder.add(key, seq, value);
        let record = added.map_err(|error| self.error(error))?;
        Ok(Place { file: self.id, record })
    }

    /// Appends a value of another value file, as it is stored there.
    pub(super) fn copy(&mut self, key: &[u8], seq: Seq, old: &StoredValue) -> Result<Place> {
        let Some(builder) = self.builder.as_mut() else {
            return Err(Error::new(ErrorKind::Bug, "value file is already finished"));
        };
        let added = builder.add_stored(key, seq, old.codec, old.raw_len, &old.stored);
        let record = added.map_err(|error| self.error(error))?;
        Ok(Place { file: self.id, record })
    }

    pub(super) fn id(&self) -> ValueFileId {
        self.id
    }

    /// Returns whether the file should end.
    pub(super) fn is_full(&self) -> bool {
        let key_bytes = self.builder.as_ref().map_or(0, ValueFileBuilder::key_bytes);
        self.size() >= VALUE_FILE_BYTES || key_bytes >= self.most_key_bytes
    }

    /// Returns the bytes written so far.
    pub(super) fn size(&self) -> u64 {
        let sealed = || self.sealed.as_ref().map(|(summary, _)| summary.file_len);
        let open = self.builder.as_ref().map(ValueFileBuilder::written);
        open.or_else(sealed).unwrap_or(VALUE_HEADER_LEN as u64)
    }

    /// Writes the rest of the file, and syncs nothing. Several files are sealed before the first of them is finished,
    /// so that the system can write their data together. Each is synced nevertheless.
    pub(super) fn seal(&mut self) -> Result<()> {
        let Some(builder) = self.builder.take() else {
            return Err(Error::new(ErrorKind::Bug, "value file is already finished"));
        };
        let (summary, mut sink) = builder.finish().map_err(|error| self.error(error))?;
        sink.flush().map_err(|e| Error::io(&self.path, "cannot write a value file", e))?;
        self.sealed = Some((summary, sink));
        Ok(())
    }

    /// Writes the rest, syncs the data and closes the file.
    pub(super) fn finish(&mut self) -> Result<ValueFileSummary> {
        if self.sealed.is_none() {
            self.seal()?;
        }
        let Some((summary, sink)) = self.sealed.take() else {
            return Err(Error::new(ErrorKind::Bug, "value file is already finished"));
        };
        sink.finish().map_err(|e| Error::io(&self.path, "cannot finish a value file", e))?;
        self.finished = true;
        Ok(summary)
    }

    fn error(&self, error: BuildError<io::Error>) -> Error {
        match error {
            BuildError::Sink(error) => Error::io(&self.path, "cannot write a value file", error),
            BuildError::TooLong => Error::new(ErrorKind::InvalidArgument, error.to_string()),
            BuildError::OutOfOrder | BuildError::FileTooLarge | BuildError::Empty => {
                Error::new(ErrorKind::Bug, format!("{error} ({})", self.path.display()))
            }
        }
    }
}

impl Drop for ValueWriter {
    fn drop(&mut self) {
        (self.builder, self.sealed) = (None, None);
        if !self.finished {
            // If this fails, recovery removes the file as an orphan.
            let _ = self.fs.unlink(&self.path, FileKind::Value);
        }
    }
}
