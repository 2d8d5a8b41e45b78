//! The order monitor: checks the durability order rules at each call of a simulated run.
//!
//! A crash image reveals a wrong order only when the crash falls on the right call and the seed drops the right page.
//! The monitor needs neither. The engine's notes tell it the purpose of each file, and the disk tells it what is
//! durable. It reports the call that breaks a rule, even if that run loses nothing.
//!
//! | rule | checked at | broken when |
//! |---|---|---|
//! | O1 | manifest write or sync after `EditAdds` | a file named by the edit, or its name, is not durable |
//! | O1 | unlink, rename, log write | the file is still referenced, or the edit that drops it is not durable |
//! | O2 | `AckSynced` | a log record at or below the sequence number would not survive |
//! | O3 | pointer rename; what follows it | the manifest or the pointer's bytes are not durable; the rename is not |
//! | O4 | create, rename, link | the name of a numbered file was used before |
//! | O6 | log write | recovery sealed the segment |
//! | O9 | unlink | the name was unlinked before |
//! | O10 | write, sync (not cutting) | an earlier write, sync or close of that log or manifest failed |
//! | O12 | `LogCopied` | the copied bytes are not durable |
//! | O13 | `LogBegins` | the header or the name of the first segment that recovery would read is not durable |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::fault::Op;
use super::names::NodeId;
use crate::kinds::FileKind;
use crate::note::Note;

/// Maximum number of violations kept; a broken rule tends to be broken repeatedly.
const KEPT: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Monitor {
    violations: Vec<String>,
    /// Whether the first violation panics, at the call that broke the order.
    pub(crate) stops: bool,
    /// Names that numbered files have had.
    used: BTreeSet<PathBuf>,
    unlinked: BTreeSet<PathBuf>,
    /// Logs and manifests that must not be written or synced again.
    failed: BTreeSet<NodeId>,
    edit: UnsyncedEdits,
    /// Files to which the durable state refers.
    referenced: BTreeSet<PathBuf>,
    /// Logs with records that no durable edit has released. Keyed by file, since recycling renames a segment.
    logs: BTreeMap<NodeId, LogState>,
    sealed: BTreeSet<NodeId>,
    /// Manifest that the next rename of a pointer makes current, for each directory.
    pointing_to: BTreeMap<PathBuf, PathBuf>,
    /// Manifests created in this run that no `PointerTo` note has named. They may be unlinked at any time.
    unnamed: BTreeSet<PathBuf>,
    /// Renamed pointers whose directory is not synced yet. A checkpoint has a pointer of its own.
    pointers: BTreeSet<PathBuf>,
}

/// Edits noted since the last durable one.
#[derive(Debug, Default)]
struct UnsyncedEdits {
    adds: BTreeSet<PathBuf>,
    /// Whether the files in `adds` were already checked.
    checked: bool,
    removes: BTreeSet<PathBuf>,
    obsolete: BTreeSet<PathBuf>,
    /// Whether the noted edits need a manifest sync.
    changed: bool,
    /// Directories whose manifest was synced since the last note.
    synced: BTreeSet<PathBuf>,
}

impl UnsyncedEdits {
    fn changed(&mut self) {
        self.changed = true;
        self.synced.clear();
    }
}

/// Records of one log.
#[derive(Debug)]
struct LogState {
    path: PathBuf,
    /// Lowest sequence number in the log.
    first: u64,
    /// Lowest sequence number that no sync has covered.
    unsynced: Option<u64>,
}

/// A call that the monitor examines.
pub(crate) struct Seen<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) index: u64,
    pub(crate) op: Op,
    pub(crate) kind: Option<FileKind>,
    pub(crate) path: &'a Path,
    pub(crate) to: Option<&'a Path>,
    pub(crate) node: Option<NodeId>,
}

fn is_numbered(kind: Option<FileKind>) -> bool {
    use FileKind::{Log, Manifest, Map, Table, Value};
    matches!(kind, Some(Log | Table | Value | Map | Manifest))
}

fn is_poisoned_by_failure(kind: Option<FileKind>) -> bool {
    matches!(kind, Some(FileKind::Log | FileKind::Manifest))
}

fn changes_content(op: Op) -> bool {
    matches!(op, Op::Write | Op::Allocate | Op::SetLen)
}

fn is_durable(disk: &Disk, path: &Path) -> bool {
    disk.names.is_durable(path) && disk.node_at(path).is_some_and(|node| node.is_durable())
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl Monitor {
    /// Creates a monitor for a disk that may already hold files.
    pub(crate) fn new(disk: &Disk) -> Monitor {
        let numbered = disk.names.files().filter(|&(_, id)| is_numbered(Some(disk.node(id).kind)));
        Monitor { used: numbered.map(|(path, _)| path.to_owned()).collect(), ..Monitor::default() }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.clone()
    }

    fn broken(&mut self, seen: &Seen<'_>, rule: &str, what: std::fmt::Arguments<'_>) {
        self.report(format!(
            "{rule}: {what} (I/O {}: {:?} {})",
            seen.index,
            seen.op,
            seen.to.unwrap_or(seen.path).display()
        ));
    }

    fn report(&mut self, violation: String) {
        assert!(!self.stops, "broken order: {violation}");
        if self.violations.len() < KEPT {
            self.violations.push(violation);
        }
    }

    /// Checks a call before it takes effect.
    pub(crate) fn before(&mut self, seen: &Seen<'_>) {
        let touches = changes_content(seen.op) || seen.op.is_sync();
        // Truncating a failed file is allowed: it relies on none of its content.
        let relies = touches && seen.op != Op::SetLen;
        if relies && seen.node.is_some_and(|node| self.failed.contains(&node)) {
            self.broken(seen, "O10", format_args!("used after a failed write or sync"));
        }
        if touches && seen.kind == Some(FileKind::Manifest) {
            self.check_edit(seen);
        }
        match seen.op {
            Op::Write | Op::SetLen => self.before_change(seen),
            Op::Rename => self.before_rename(seen),
            Op::Unlink => self.before_unlink(seen),
            _ => {}
        }
    }

    fn before_change(&mut self, seen: &Seen<'_>) {
        if seen.node.is_some_and(|node| self.sealed.contains(&node)) {
            self.broken(seen, "O6", format_args!("a sealed log is written"));
        }
        if self.edit.obsolete.contains(seen.path) {
            self.broken(seen, "O1", format_args!("a log is reused before the edit that drops it is durable"));
        }
    }

    fn before_rename(&mut self, seen: &Seen<'_>) {
        self.check_unreferenced(seen, seen.path);
        let Some(to) = seen.to else { return };
        self.check_unreferenced(seen, to);
        if seen.kind == Some(FileKind::Pointer) {
            if !seen.disk.node_at(seen.path).is_some_and(|node| node.is_durable()) {
                self.broken(seen, "O3", format_args!("the pointer moves before its bytes are durable"));
            }
            if let Some(manifest) = self.pointing_to.remove(dir_of(to))
                && !is_durable(seen.disk, &manifest)
            {
                let manifest = manifest.display();
                self.broken(
                    seen,
                    "O3",
                    format_args!("the pointer moves to {manifest}, which is not durable"),
                );
            }
        }
    }

    fn before_unlink(&mut self, seen: &Seen<'_>) {
        self.check_unreferenced(seen, seen.path);
        if self.unlinked.contains(seen.path) {
            self.broken(seen, "O9", format_args!("unlinked twice"));
        }
        let is_unsettled = self.pointers.iter().any(|pointer| pointer.parent() == seen.path.parent());
        if is_unsettled && is_numbered(seen.kind) && !self.unnamed.contains(seen.path) {
            self.broken(
                seen,
                "O3",
                format_args!("a file is deleted before the pointer's new name is durable"),
            );
        }
    }

    /// Reports a call that removes a name which the durable state, or an edit that may become durable, still needs.
    fn check_unreferenced(&mut self, seen: &Seen<'_>, path: &Path) {
        let leaves = self.edit.removes.contains(path) || self.edit.obsolete.contains(path);
        if self.edit.adds.contains(path) || self.referenced.contains(path) && !leaves {
            self.broken(seen, "O1", format_args!("{} is still referenced", path.display()));
        } else if leaves {
            self.broken(seen, "O1", format_args!("{} is removed before its edit is durable", path.display()));
        } else if self.logs.values().any(|log| log.path == path) {
            self.broken(seen, "O1", format_args!("{} holds records that no edit released", path.display()));
        }
    }

    /// Checks that the files of the edit are durable, before the manifest refers to them.
    fn check_edit(&mut self, seen: &Seen<'_>) {
        if self.edit.checked {
            return;
        }
        self.edit.checked = true;
        let missing: Vec<PathBuf> =
            self.edit.adds.iter().filter(|path| !is_durable(seen.disk, path)).cloned().collect();
        for path in missing {
            self.broken(seen, "O1", format_args!("{} is referenced before it is durable", path.display()));
        }
    }

    /// Records the effect of a call, or its failure.
    pub(crate) fn after(&mut self, seen: &Seen<'_>, failed: bool) {
        if failed {
            let poisons = changes_content(seen.op) && seen.op != Op::Allocate
                || seen.op.is_sync()
                || seen.op == Op::Close;
            if poisons && is_poisoned_by_failure(seen.kind) {
                self.failed.extend(seen.node);
            }
            return;
        }
        match seen.op {
            Op::Create | Op::Link => self.name_used(seen, seen.to.unwrap_or(seen.path)),
            Op::Rename => {
                if let Some(to) = seen.to {
                    // A file that is set aside keeps its number. If a power loss undoes that, the next open repeats it.
                    let is_set_aside = to.to_string_lossy().starts_with(&*seen.path.to_string_lossy());
                    if !is_set_aside {
                        self.name_used(seen, to);
                    }
                    seen.node.inspect(|node| _ = self.sealed.remove(node));
                    if seen.kind == Some(FileKind::Pointer) {
                        self.pointers.insert(to.to_owned());
                    }
                }
            }
            Op::Unlink => {
                self.unlinked.insert(seen.path.to_owned());
                // A checkpoint that fails removes its lock file last. Another one may begin in the same directory.
                if seen.kind == Some(FileKind::Lock) {
                    self.used.retain(|path| path.parent() != seen.path.parent());
                }
            }
            Op::SyncDir => {
                self.pointers.retain(|pointer| pointer.parent() != Some(seen.path));
            }
            Op::SyncData | Op::SyncAll => match seen.kind {
                Some(FileKind::Manifest) => _ = self.edit.synced.insert(dir_of(seen.path).to_owned()),
                Some(FileKind::Log) => {
                    if let Some(log) = seen.node.and_then(|node| self.logs.get_mut(&node)) {
                        log.unsynced = None;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn name_used(&mut self, seen: &Seen<'_>, path: &Path) {
        if is_numbered(seen.kind) && !self.used.insert(path.to_owned()) {
            self.broken(seen, "O4", format_args!("a file number is reused"));
        }
        if seen.kind == Some(FileKind::Manifest) {
            self.unnamed.insert(path.to_owned());
        }
        self.unlinked.remove(path);
    }

    /// Records a note from the engine.
    pub(crate) fn note(&mut self, note: Note<'_>, disk: &Disk, index: u64) {
        match note {
            Note::EditAdds { files } => {
                self.edit.adds.extend(files.iter().cloned());
                self.edit.checked = false;
                self.edit.changed();
            }
            Note::EditRemoves { files } => {
                self.edit.removes.extend(files.iter().cloned());
                self.edit.changed();
            }
            Note::LogObsolete { log } => {
                self.edit.obsolete.insert(log.to_owned());
                self.edit.changed();
            }
            Note::Recovered { files } => {
                self.edit = UnsyncedEdits::default();
                self.referenced = files.iter().cloned().collect();
                self.logs.retain(|_, log| self.referenced.contains(&log.path));
            }
            Note::EditDurable { dir } => self.edit_durable(dir, index),
            Note::EditRefused => self.edit = UnsyncedEdits::default(),
            Note::Logged { log, first } => self.logged(log, first, disk, index),
            Note::AckSynced { seq } => self.ack_synced(seq, disk, index),
            Note::LogSealed { log } => self.sealed.extend(disk.file(log)),
            Note::PointerTo { manifest } => {
                self.pointing_to.insert(dir_of(manifest).to_owned(), manifest.to_owned());
                self.unnamed.remove(manifest);
            }
            Note::LogBegins { log, header } => {
                let is_durable = disk.node_at(log).is_some_and(|node| node.is_durable_to(header));
                if !is_durable || !disk.names.is_durable(log) {
                    let log = log.display();
                    self.report(format!(
                        "O13: recovery begins with {log}, which is not durable (I/O {index})"
                    ));
                }
            }
            Note::LogCopied { log, end } => {
                if !disk.node_at(log).is_some_and(|node| node.is_durable_to(end)) {
                    let log = log.display();
                    self.report(format!(
                        "O12: the first {end} bytes of {log} are copied before they are durable"
                    ));
                }
            }
        }
    }

    fn logged(&mut self, path: &Path, first: u64, disk: &Disk, index: u64) {
        let Ok(node) = disk.file(path) else {
            return self.report(format!(
                "O2: a record goes to {}, which does not exist (I/O {index})",
                path.display()
            ));
        };
        let log = self.logs.entry(node).or_insert(LogState { path: path.to_owned(), first, unsynced: None });
        if log.path != path {
            *log = LogState { path: path.to_owned(), first, unsynced: None };
        }
        log.first = log.first.min(first);
        log.unsynced = Some(log.unsynced.map_or(first, |seq| seq.min(first)));
    }

    fn edit_durable(&mut self, dir: &Path, index: u64) {
        if self.edit.changed && !self.edit.synced.contains(dir) {
            self.report(format!(
                "O1: an edit counts as durable without a sync of the manifest (I/O {index})"
            ));
        }
        let unsettled = self.pointers.iter().filter(|pointer| dir_of(pointer) == dir).map(|pointer| {
            let pointer = pointer.display();
            format!("O3: an edit counts as durable before the name {pointer} is durable (I/O {index})")
        });
        for rule in unsettled.collect::<Vec<_>>() {
            self.report(rule);
        }
        let edit = std::mem::take(&mut self.edit);
        // An edit that drops and adds the same file moves it.
        self.referenced.retain(|path| !edit.removes.contains(path) && !edit.obsolete.contains(path));
        self.referenced.extend(edit.adds);
        self.logs.retain(|_, log| !edit.obsolete.contains(&log.path));
    }

    fn ack_synced(&mut self, seq: u64, disk: &Disk, index: u64) {
        let mut broken = Vec::new();
        for log in self.logs.values().filter(|log| log.first <= seq) {
            let path = log.path.display();
            if log.unsynced.is_some_and(|unsynced| unsynced <= seq) {
                broken.push(format!("O2: {seq} is acknowledged before {path} is synced (I/O {index})"));
            } else if !disk.names.is_durable(&log.path) {
                broken.push(format!(
                    "O2: {seq} is acknowledged before the name {path} is durable (I/O {index})"
                ));
            }
        }
        broken.into_iter().for_each(|violation| self.report(violation));
    }
}
