//! Writing the manifest: edits are appended and synced. A new manifest that starts with a snapshot of the whole state
//! replaces the file when it has grown, and each time the store is opened.
//!
//! The writer keeps the state that its manifest describes ([`ManifestState`]). It checks each edit by applying it to
//! that state, as recovery will. An edit that is refused, or cannot be encoded, is an error before anything is written.
//!
//! Order rule O3: a new manifest and its directory entry are durable before `CURRENT` points to it, and the directory
//! is synced again afterwards. O10: after a failed write or sync nothing more is written to the manifest.
//!
//! A full disk does not make the store fail. An edit that found no disk space is *torn*: recovery ignores it, as if
//! power had been lost in the middle of it, and the manifest is replaced before the next edit. A new manifest that
//! finds no disk space is removed, and the old one stays in use. Such errors have the kind `NoSpace`. An error after
//! which the content of the disk is unknown never has that kind.

use super::state::{ManifestState, RefusedEdit};
use crate::base::dir_lock::check_file;
use crate::base::dir_sync::DirSync;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::Arc;
use drumlin_env::{File, FileKind, Note};
use drumlin_format::log::Vouched;
use drumlin_format::manifest::{self, Edit, MAX_CHANGES, ManifestHeader, ManifestWriter as Encoder};
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use std::path::PathBuf;

/// Size in bytes below which a manifest is never rewritten.
const REWRITE_LEAST: u64 = 1 << 20;
/// Growth factor over its snapshot at which a manifest is rewritten.
const REWRITE_GROWTH: u64 = 4;
/// After a rewrite that found no disk space or no file descriptor, the manifest grows by one part in this many before
/// the next attempt.
const POSTPONED_SHARE: u64 = 8;

/// The manifest, open for appending unless the store is read-only.
pub(crate) struct ManifestFile {
    /// Syncs of its directory.
    entries: Arc<DirSync>,
    path: PathBuf,
    /// File of the manifest; `None` in a store that was opened read-only.
    file: Option<File>,
    header: ManifestHeader,
    encoder: Encoder,
    /// State that recovery would build from all edits so far.
    state: ManifestState,
    snapshot_bytes: u64,
    /// Length of the file, which is durable. Zeros follow the edits.
    file_len: u64,
    /// Offset up to which the edits are durable.
    synced: u64,
    /// Whether the last edit found no disk space.
    torn: bool,
    /// Length of the edits below which the manifest is not rewritten again, after a rewrite that found no disk space or
    /// no file descriptor.
    postponed: u64,
}

/// An encoded edit that recovery accepts. It must be the next to be appended.
#[must_use]
pub(crate) struct CheckedEdit {
    offset: u64,
    bytes: Vec<u8>,
}

impl ManifestFile {
    /// Writes a manifest that starts with `snapshot` into the directory of `entries`, and points `CURRENT` to it.
    pub(crate) fn create(
        entries: Arc<DirSync>,
        header: ManifestHeader,
        snapshot: &Edit,
    ) -> Result<ManifestFile> {
        let path = entries.dir().join(FileName::Manifest(header.number).to_string());
        let env = entries.env().clone();
        let written = ManifestFile::write(entries, header, snapshot);
        if written.as_ref().is_err_and(Error::is_shortage) {
            // If this fails, the next open removes what is left of the file.
            let _ = env.fs().unlink(&path, FileKind::Manifest);
        }
        written
    }

    fn write(entries: Arc<DirSync>, header: ManifestHeader, snapshot: &Edit) -> Result<ManifestFile> {
        let path = entries.dir().join(FileName::Manifest(header.number).to_string());
        let fail = |what: &str, e| Error::io(&path, what, e);
        let created = entries.env().fs().create(&path, FileKind::Manifest);
        let file = created.map_err(|e| fail("cannot create the manifest", e))?;
        let state = ManifestState::of_snapshot(snapshot).map_err(RefusedEdit::into_error)?;
        let (mut encoder, mut bytes) = Encoder::create(header);
        for changes in snapshot.changes.chunks(MAX_CHANGES) {
            let edit = Edit { changes: changes.to_vec() };
            bytes.extend(encoder.append(&edit).map_err(|e| Error::new(ErrorKind::Bug, e.what))?);
        }
        let file_len = manifest::file_len(bytes.len() as u64);
        file.allocate(0, file_len).map_err(|e| fail("cannot allocate the manifest", e))?;
        file.write_at(0, &bytes).map_err(|e| fail("cannot write the manifest", e))?;
        file.sync_data().map_err(|e| fail("cannot sync the manifest", e))?;
        encoder.synced_to(encoder.offset());
        let snapshot_bytes = encoder.offset();
        let file = Some(file);
        let writer = ManifestFile {
            entries,
            path,
            file,
            header,
            snapshot_bytes,
            file_len,
            synced: snapshot_bytes,
            encoder,
            state,
            torn: false,
            postponed: 0,
        };
        if !drumlin_types::bug!("no-manifest-dir-sync") {
            writer.entries.sync()?;
        }
        writer.point()?;
        Ok(writer)
    }

    /// Creates a writer for the manifest `header` in the directory of `entries` that refuses every edit.
    pub(crate) fn read_only(entries: Arc<DirSync>, header: ManifestHeader) -> ManifestFile {
        let path = entries.dir().join(FileName::Manifest(header.number).to_string());
        let (encoder, _) = Encoder::create(header);
        ManifestFile {
            entries,
            path,
            file: None,
            header,
            snapshot_bytes: 0,
            file_len: 0,
            synced: 0,
            encoder,
            state: ManifestState::default(),
            torn: false,
            postponed: 0,
        }
    }

    /// Points `CURRENT` to this manifest.
    fn point(&self) -> Result<()> {
        let (env, dir) = (self.entries.env(), self.entries.dir());
        let temp = dir.join(FileName::Temp(self.header.number).to_string());
        let target = dir.join(FileName::Pointer.to_string());
        let fail = |what: &str, e| Error::io(&temp, what, e);
        let fs = env.fs();
        env.note(Note::PointerTo { manifest: &self.path });
        let content = Pointer { manifest: self.header.number, synced: self.encoder.offset() }.encode();
        let write = || {
            let file = fs.create(&temp, FileKind::Pointer).map_err(|e| fail("cannot create CURRENT", e))?;
            file.write_at(0, content.as_bytes()).map_err(|e| fail("cannot write CURRENT", e))?;
            file.sync_data().map_err(|e| fail("cannot sync CURRENT", e))?;
            fs.rename(&temp, &target).map_err(|e| fail("cannot rename CURRENT", e))
        };
        write().inspect_err(|_| drop(fs.unlink(&temp, FileKind::Pointer)))?;
        // From here on a crash may leave the new manifest in use, so a failure is never reported as a mere lack of disk
        // space.
        self.entries.sync().map_err(|error| error.with_kind(ErrorKind::Io))
    }

    /// Checks `edit` with the code that recovery uses, and encodes it. A refused edit changes nothing. An accepted edit
    /// must be appended, since later edits are checked against the state after it.
    pub(crate) fn check(&mut self, edit: &Edit) -> Result<CheckedEdit> {
        if self.file.is_none() {
            return Err(Error::read_only());
        }
        let mut encoder = self.encoder.clone();
        let bytes = encoder.append(edit).map_err(|e| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("the manifest cannot store this change: {}", e.what),
            )
        })?;
        if !drumlin_types::bug!("edits-not-validated") {
            self.state.apply(edit).map_err(RefusedEdit::into_error)?;
        }
        let offset = self.encoder.offset();
        self.encoder = encoder;
        Ok(CheckedEdit { offset, bytes })
    }

    /// Appends the edit that was checked last and makes it durable. Returns its length in bytes.
    pub(crate) fn append(&mut self, edit: CheckedEdit) -> Result<u64> {
        let file = self.file.as_ref().ok_or_else(Error::read_only)?;
        let CheckedEdit { offset, bytes } = edit;
        let fail = |what: &str, e| Error::io(&self.path, what, e);
        let file_len = manifest::file_len(self.encoder.offset());
        if file_len > self.file_len {
            // The new length becomes durable before the edit is written. So a file that is too short for an edit in it
            // was truncated by somebody.
            let grown = file.allocate(self.file_len, file_len - self.file_len);
            if let Err(error) = grown {
                let error = fail("cannot extend the manifest", error);
                return Err(self.refused(error));
            }
            let synced = file.sync_data().map_err(|e| fail("cannot sync the manifest", e));
            synced.map_err(|error| error.with_kind(ErrorKind::Io))?;
            self.file_len = file_len;
        }
        if let Err(error) = file.write_at(offset, &bytes) {
            let error = fail("cannot write to the manifest", error);
            return Err(self.refused(error));
        }
        let synced = file.sync_data().map_err(|e| fail("cannot sync the manifest", e));
        synced.map_err(|error| error.with_kind(ErrorKind::Io))?;
        check_file(file, self.file_len)?;
        self.synced = self.encoder.offset();
        self.encoder.synced_to(self.synced);
        Ok(bytes.len() as u64)
    }

    /// Records whether `error`, of an edit that is not durable, is a lack of disk space. Returns it.
    fn refused(&mut self, error: Error) -> Error {
        self.torn = error.kind() == ErrorKind::NoSpace;
        if self.torn {
            self.entries.env().note(Note::EditRefused);
        }
        error
    }

    /// Returns the manifest number and the length of its durable edits, for records of the log.
    pub(crate) fn vouched(&self) -> Vouched {
        Vouched { manifest: self.header.number, len: self.synced }
    }

    /// Returns whether the last edit found no disk space. The manifest must then be replaced before the next edit.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn
    }

    /// Returns whether a snapshot would make the manifest much smaller.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.encoder.offset() > REWRITE_LEAST.max(self.snapshot_bytes * REWRITE_GROWTH).max(self.postponed)
    }

    /// Postpones the next rewrite, since this one found no disk space or no file descriptor.
    pub(crate) fn postpone_rewrite(&mut self) {
        let written = self.encoder.offset();
        self.postponed = written + written / POSTPONED_SHARE;
    }

    /// Returns the numbers of the manifest and of the store that it belongs to.
    pub(crate) fn header(&self) -> ManifestHeader {
        self.header
    }

    /// Returns the path of the manifest.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}
