//! Writing the manifest: edits are appended and synced; a snapshot of everything replaces the file when
//! it has grown, or when the store is opened.
//!
//! Order rule O3: a new manifest and its directory entry are durable before the pointer moves to it, and
//! the directory is synced again after. O10: after a failed write or sync nothing more is written to it.
//!
//! A disk without room is no failure of the store. An edit that found none is torn: it is not in the manifest, as if
//! power had been lost in the middle of it, and the manifest is replaced before the next edit. A new manifest that finds
//! no room is removed, and the old one stays the store's. Such errors are of the kind `NoSpace`; errors that
//! leave open what is on disk never are.

use crate::error::{Error, ErrorKind, Result};
use drumlin_env::{Env, File, FileKind, Note};
use drumlin_format::manifest::{Edit, MAX_CHANGES, ManifestHeader, ManifestWriter as Encoder};
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use std::path::PathBuf;

/// Manifests below this size are never rewritten.
const REWRITE_LEAST: u64 = 1 << 20;
/// A manifest is rewritten when it is this many times as large as its snapshot was.
const REWRITE_GROWTH: u64 = 4;

/// The manifest, open for appending, unless the store is only read.
pub(crate) struct ManifestWriter {
    env: Env,
    dir: PathBuf,
    path: PathBuf,
    /// None in a store that was opened read-only.
    file: Option<File>,
    header: ManifestHeader,
    encoder: Encoder,
    snapshot_bytes: u64,
    /// Its last edit found no room.
    torn: bool,
}

impl ManifestWriter {
    /// Writes a manifest that says `snapshot` and makes it the store's.
    pub(crate) fn create(
        env: &Env,
        dir: PathBuf,
        header: ManifestHeader,
        snapshot: &Edit,
    ) -> Result<ManifestWriter> {
        let path = dir.join(FileName::Manifest(header.number).to_string());
        let written = ManifestWriter::write(env, dir, header, snapshot);
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            // Whatever is left of it is removed when the store is opened, if not now.
            let _ = env.fs().unlink(&path, FileKind::Manifest);
        }
        written
    }

    fn write(env: &Env, dir: PathBuf, header: ManifestHeader, snapshot: &Edit) -> Result<ManifestWriter> {
        let path = dir.join(FileName::Manifest(header.number).to_string());
        let fail = |what: &str, e| Error::io(&path, what, e);
        let file =
            env.fs().create(&path, FileKind::Manifest).map_err(|e| fail("cannot create the manifest", e))?;
        let (mut encoder, mut bytes) = Encoder::create(header);
        for changes in snapshot.changes.chunks(MAX_CHANGES) {
            let edit = Edit { changes: changes.to_vec() };
            bytes.extend(encoder.append(&edit).map_err(|e| Error::new(ErrorKind::Bug, e.what))?);
        }
        file.write_at(0, &bytes).map_err(|e| fail("cannot write the manifest", e))?;
        file.sync_data().map_err(|e| fail("cannot sync the manifest", e))?;
        encoder.synced_to(encoder.offset());
        let snapshot_bytes = encoder.offset();
        let file = Some(file);
        let writer = ManifestWriter {
            env: env.clone(),
            dir,
            path,
            file,
            header,
            snapshot_bytes,
            encoder,
            torn: false,
        };
        if !drumlin_types::bug!("B11") {
            writer.sync_dir()?;
        }
        writer.point()?;
        Ok(writer)
    }

    /// The manifest `header` in `dir`, which takes no edit.
    pub(crate) fn read_only(env: &Env, dir: PathBuf, header: ManifestHeader) -> ManifestWriter {
        let path = dir.join(FileName::Manifest(header.number).to_string());
        let (encoder, _) = Encoder::create(header);
        ManifestWriter {
            env: env.clone(),
            dir,
            path,
            file: None,
            header,
            snapshot_bytes: 0,
            encoder,
            torn: false,
        }
    }

    fn sync_dir(&self) -> Result<()> {
        self.env.fs().sync_dir(&self.dir).map_err(|e| Error::io(&self.dir, "cannot sync the directory", e))
    }

    /// Moves the pointer to this manifest.
    fn point(&self) -> Result<()> {
        let temp = self.dir.join(FileName::Temp(self.header.number).to_string());
        let target = self.dir.join(FileName::Pointer.to_string());
        let fail = |what: &str, e| Error::io(&temp, what, e);
        let fs = self.env.fs();
        self.env.note(Note::PointerTo { manifest: &self.path });
        let content = Pointer { manifest: self.header.number, synced: self.encoder.offset() }.encode();
        let write = || {
            let file =
                fs.create(&temp, FileKind::Pointer).map_err(|e| fail("cannot create the pointer", e))?;
            file.write_at(0, content.as_bytes()).map_err(|e| fail("cannot write the pointer", e))?;
            file.sync_data().map_err(|e| fail("cannot sync the pointer", e))?;
            fs.rename(&temp, &target).map_err(|e| fail("cannot rename the pointer", e))
        };
        write().inspect_err(|_| drop(fs.unlink(&temp, FileKind::Pointer)))?;
        // From here on the new manifest may be the store's.
        self.sync_dir().map_err(|error| error.with_kind(ErrorKind::Io))
    }

    /// Appends `edit` and makes it durable.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<u64> {
        let file = self.file.as_ref().ok_or_else(Error::read_only)?;
        let offset = self.encoder.offset();
        let bytes = self.encoder.append(edit).map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        let fail = |what: &str, e| Error::io(&self.path, what, e);
        if let Err(error) = file.write_at(offset, &bytes) {
            let error = fail("cannot write to the manifest", error);
            self.torn = error.kind() == ErrorKind::NoSpace;
            return Err(error);
        }
        let synced = file.sync_data().map_err(|e| fail("cannot sync the manifest", e));
        synced.map_err(|error| error.with_kind(ErrorKind::Io))?;
        self.encoder.synced_to(self.encoder.offset());
        Ok(bytes.len() as u64)
    }

    /// Whether its last edit found no room: it must be replaced before the next.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn
    }

    /// Whether a snapshot would make the manifest much smaller.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.encoder.offset() > REWRITE_LEAST.max(self.snapshot_bytes * REWRITE_GROWTH)
    }

    /// Number of the manifest, and of the store that it belongs to.
    pub(crate) fn header(&self) -> ManifestHeader {
        self.header
    }

    /// Where the manifest is.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}
