//! Detecting a truncated manifest or log.
//!
//! Damage inside a file breaks a checksum. A file that was truncated, or replaced by an older copy, breaks none. So
//! what was promised to be durable is recorded in a second place:
//!
//! - A manifest and a log segment record the length of their file (`drumlin_format::manifest`, `drumlin_format::log`).
//! - The manifest records a log position that was durable. The log's close record holds a length of the manifest.
//! - Every table has a number below [`NextFile`](drumlin_format::manifest::Change::NextFile).
//! - Edits are appended only to a manifest that `CURRENT` pointed to.
//!
//! Each is recorded only when it is already durable, so no crash violates it. A store that violates one is refused, and
//! nothing in it is changed.

use super::state::read_file;
use crate::base::error::{Error, Result};
use crate::version::ManifestState;
use crate::write::segment::path_in;
use drumlin_env::{DirEntry, Env, FileKind};
use drumlin_format::log::Recovered;
use drumlin_format::manifest::was_in_force;
use drumlin_format::names::FileName;
use drumlin_types::{TableId, ValueFileId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Checks that every table and value file of the manifest exists and has its expected length. The content is checked
/// when it is read.
pub(super) fn check_tables(dir: &Path, manifest: &ManifestState, entries: &[DirEntry]) -> Result<()> {
    let lens: BTreeMap<&str, u64> = entries.iter().map(|e| (e.name.as_str(), e.len)).collect();
    let tables = manifest.tables().into_iter().map(|(table, len)| (FileName::Table(table), len));
    let values = manifest.value_files().into_iter().map(|(file, len)| (FileName::Value(file), len));
    for (name, len) in tables.chain(values) {
        let name = name.to_string();
        match lens.get(name.as_str()) {
            None => {
                return Err(Error::corruption(
                    &dir.join(name),
                    0,
                    "the manifest refers to this file, but it is missing; run `drumlin repair`",
                ));
            }
            Some(found) if *found != len => {
                let what = format!("the file has {found} bytes instead of {len}; run `drumlin repair`");
                return Err(Error::corruption(&dir.join(name), (*found).min(len), what));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Checks that no table, value file or manifest is newer than the end of the manifest.
pub(crate) fn check_ends(
    env: &Env,
    dir: &Path,
    manifest: &ManifestState,
    entries: &[DirEntry],
) -> Result<()> {
    for entry in entries {
        match FileName::parse(&entry.name) {
            Some(FileName::Table(TableId(number)) | FileName::Value(ValueFileId(number)))
                if number >= manifest.marks.next_file =>
            {
                let what = format!(
                    "the manifest is truncated: the edit that reserves the number of {} is missing; run \
                        `drumlin repair`",
                    entry.name
                );
                return Err(Error::corruption(&manifest_path(dir, manifest), manifest.end, what));
            }
            Some(FileName::Manifest(number)) if number > manifest.number => {
                let bytes = read_file(env, &dir.join(&entry.name), FileKind::Manifest)?;
                if was_in_force(&bytes, number) {
                    let what = format!(
                        "{}, but {} was used later; run `drumlin repair`",
                        current(manifest),
                        entry.name
                    );
                    return Err(Error::corruption(&dir.join(FileName::Pointer.to_string()), 0, what));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Says which manifest CURRENT points to. A store without CURRENT has manifest number 0.
fn current(manifest: &ManifestState) -> String {
    match manifest.number {
        0 => "CURRENT is missing".to_owned(),
        number => format!("CURRENT points to manifest {number}"),
    }
}

/// Returns whether the manifest at `path` was ever the current one, or may have been: it cannot be read.
pub(crate) fn was_used(env: &Env, path: &Path, number: u64) -> bool {
    read_file(env, path, FileKind::Manifest).map_or(true, |bytes| was_in_force(&bytes, number))
}

/// Checks that the log reaches as far as the manifest says, and the manifest as far as the log says.
pub(crate) fn check_log(dir: &Path, manifest: &ManifestState, recovered: &Recovered) -> Result<()> {
    check_vouched(dir, manifest, recovered)?;
    if recovered.end < manifest.marks.log_end {
        let last = recovered.replayed.last();
        // The log ends because the header of the next segment is damaged, or else a record of the last one.
        let next = recovered.headless.as_ref().filter(|number| Some(*number) > last);
        let cut = next.or(last).copied().unwrap_or(manifest.marks.floor);
        let what = format!(
            "the log is truncated: it ends at position {} and must reach {}; run `drumlin repair`",
            recovered.end, manifest.marks.log_end
        );
        return Err(Error::corruption(&path_in(dir, cut), 0, what));
    }
    Ok(())
}

/// Checks that the manifest reaches as far as the log says.
pub(crate) fn check_vouched(dir: &Path, manifest: &ManifestState, recovered: &Recovered) -> Result<()> {
    if let Some(vouched) = recovered.vouched {
        if vouched.manifest > manifest.number {
            let what = format!(
                "{}, but the log was written with manifest {}; run `drumlin repair`",
                current(manifest),
                vouched.manifest
            );
            return Err(Error::corruption(&dir.join(FileName::Pointer.to_string()), 0, what));
        }
        if vouched.manifest == manifest.number && manifest.end < vouched.len {
            let what = format!(
                "the manifest is truncated: it must reach offset {}; run `drumlin repair`",
                vouched.len
            );
            return Err(Error::corruption(&manifest_path(dir, manifest), manifest.end, what));
        }
    }
    Ok(())
}

fn manifest_path(dir: &Path, manifest: &ManifestState) -> PathBuf {
    dir.join(FileName::Manifest(manifest.number).to_string())
}
