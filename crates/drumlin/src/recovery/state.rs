//! Reading the manifest: the edits of the file that `CURRENT` points to, applied in order to a [`ManifestState`].

use crate::base::error::{Error, ErrorKind, Result};
use crate::version::{ManifestState, RefusedEdit};
use drumlin_env::{Env, FileKind};
use drumlin_format::error::DecodeError;
use drumlin_format::manifest::{self, ManifestScanner};
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use std::path::Path;

/// Returns the error for invalid content of a file.
pub(crate) fn decode_error(path: &Path, error: DecodeError) -> Error {
    match error {
        DecodeError::Corruption(c) => Error::corruption(path, c.offset, c.what),
        newer @ DecodeError::NewerFormat { .. } => {
            Error::new(ErrorKind::NewerFormat, format!("{}: {newer}", path.display()))
        }
    }
}

/// Reads a whole file.
pub(crate) fn read_file(env: &Env, path: &Path, kind: FileKind) -> Result<Vec<u8>> {
    read_start(env, path, kind, u64::MAX)
}

/// Reads the first `most` bytes of a file, or all if it has fewer.
pub(crate) fn read_start(env: &Env, path: &Path, kind: FileKind, most: u64) -> Result<Vec<u8>> {
    let fail = |what: &str, e| Error::io(path, what, e);
    let file = env.fs().open(path, kind).map_err(|e| fail("cannot open a file", e))?;
    let len = file.len().map_err(|e| fail("cannot get the length of a file", e))?;
    let mut bytes = vec![0; usize::try_from(len.min(most)).unwrap_or(usize::MAX)];
    file.read_exact_at(0, &mut bytes).map_err(|e| fail("cannot read a file", e))?;
    Ok(bytes)
}

/// Reads the manifest that `CURRENT` in `dir` points to.
pub(crate) fn read(env: &Env, dir: &Path) -> Result<ManifestState> {
    let pointer_path = dir.join(FileName::Pointer.to_string());
    let pointer_bytes = read_file(env, &pointer_path, FileKind::Pointer)?;
    let pointer = Pointer::decode(&pointer_bytes).map_err(|e| decode_error(&pointer_path, e))?;
    let path = dir.join(FileName::Manifest(pointer.manifest).to_string());
    if !env.fs().exists(&path).map_err(|e| Error::io(&path, "cannot look for the manifest", e))? {
        return Err(Error::corruption(&path, 0, "CURRENT points to this manifest, but the file is missing"));
    }
    let bytes = read_file(env, &path, FileKind::Manifest)?;
    let mut state = ManifestState::default();
    let end = manifest::replay::<Failure>(&bytes, pointer.manifest, pointer.synced, |edit| {
        state.apply(&edit).map_err(Failure::Refused)
    });
    match end {
        Ok(end) => {
            state.store = end.header.store;
            state.number = end.header.number;
            state.bytes_read = (bytes.len() + pointer_bytes.len()) as u64;
            state.end = end.end;
            Ok(state)
        }
        Err(Failure::Decode(error)) => Err(decode_error(&path, error)),
        Err(Failure::Refused(refusal)) => Err(refused(&path, refusal)),
    }
}

/// Reads the manifest at `path` up to the last edit that can be read. Returns its state, and the error that stopped it
/// unless that was the end. For repair: nothing proves where the end should be.
pub(crate) fn read_as_far(env: &Env, path: &Path, number: u64) -> Result<(ManifestState, Option<Error>)> {
    let bytes = read_file(env, path, FileKind::Manifest)?;
    let scanner = ManifestScanner::new(&bytes, number).map_err(|e| decode_error(path, e))?;
    let mut state = ManifestState::default();
    (state.store, state.number) = (scanner.header().store, number);
    for edit in scanner {
        let applied = match edit {
            Ok(edit) => state.apply(&edit).map_err(|refusal| refused(path, refusal)),
            Err(error) => Err(decode_error(path, error)),
        };
        if let Err(error) = applied {
            return Ok((state, Some(error)));
        }
    }
    let whole = manifest::replay::<Failure>(&bytes, number, 0, |_| Ok(()));
    match whole {
        Ok(end) => {
            state.end = end.end;
            Ok((state, None))
        }
        Err(Failure::Decode(error)) => Ok((state, Some(decode_error(path, error)))),
        Err(Failure::Refused(refusal)) => Ok((state, Some(refused(path, refusal)))),
    }
}

fn refused(path: &Path, refusal: RefusedEdit) -> Error {
    match refusal {
        RefusedEdit::Option(error) => error,
        RefusedEdit::Inconsistent(what) => Error::corruption(path, 0, what),
    }
}

enum Failure {
    Decode(DecodeError),
    Refused(RefusedEdit),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        Failure::Decode(error)
    }
}
