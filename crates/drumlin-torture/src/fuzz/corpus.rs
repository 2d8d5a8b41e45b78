//! The stored inputs: `fuzz/corpus/TARGET/`, one file each.
//!
//! Files named `sound-N` are the target's own seeds, written by `DRUMLIN_BLESS=1 cargo test -p drumlin-torture --test
//! fuzz`. The others were found by a fuzzer and minimised; they stay.

use super::target::Target;
use drumlin_env::{Env, FileKind};
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the corpora in this repository.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");

/// Returns the corpus folder of `target`.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(FOLDER).join(target.name)
}

/// Returns the file name of seed number `index`.
pub fn seed_name(index: usize) -> String {
    format!("sound-{index}")
}

/// Returns the bytes of the file at `path`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = Env::os().fs().open(path, FileKind::Temp)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Returns all stored inputs of `target`, by name.
pub fn all(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let folder = folder(target);
    let mut names: Vec<String> = Env::os().fs().list(&folder)?.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.into_iter().map(|name| read(&folder.join(&name)).map(|bytes| (name, bytes))).collect()
}
