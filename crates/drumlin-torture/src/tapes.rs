//! Tapes: workloads as text files, shrunk from fixed failures. The merge lane replays all tapes of `regress/`.

use crate::failure::{Failure, Verdict};
use crate::runs::model;
use crate::workload::Workload;
use drumlin_env::{Env, FileKind};
use std::path::Path;

/// Folder of the tapes in this repository.
pub const REGRESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/regress");

/// Returns the text of the file at `path`.
pub fn read(path: &Path) -> Result<String, String> {
    let read = || {
        let file = Env::os().fs().open(path, FileKind::Temp)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(0, &mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().map_err(|e| format!("{}: {e}", path.display()))?;
    String::from_utf8(bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// Replays one tape, with a full comparison every `every` operations.
pub fn replay(text: &str, every: usize) -> Result<(), Failure> {
    let workload = Workload::read(text).map_err(|why| Verdict::Failed.of(why))?;
    model::closely(&workload, every).map(drop)
}

/// Replays every tape in `folder`; returns their number.
pub fn replay_all(folder: &Path) -> Result<usize, Failure> {
    let unreadable = |why: String| Verdict::Failed.of(why);
    let entries = Env::os().fs().list(folder).map_err(|e| unreadable(e.to_string()))?;
    let mut names: Vec<String> =
        entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(".txt")).collect();
    names.sort();
    for name in &names {
        let text = read(&folder.join(name)).map_err(unreadable)?;
        replay(&text, model::EVERY).map_err(|failure| failure.within(name))?;
    }
    Ok(names.len())
}
