//! Installing the output of pieces (subcompactions): one durable edit for each piece.
//!
//! A finished piece is installed once the earlier pieces that it waits for are installed. Until then its output is
//! *held*. No thread blocks for it: the thread that installs a piece also installs all pieces that this makes ready. A
//! piece whose install stays blocked, or is delayed too long, *lands*: its output replaces its inputs in their own
//! level. Later the output *sinks* to the output level by an edit alone.
//!
//! An install removes the parts of the inputs in the piece's key range from the tree. The rest of a file on either side
//! stays, as references with narrower bounds and exact entry counts. The outputs join the ticket's run. Nothing is
//! visible before the edit is durable, and nothing is deleted before that either (O1).

use super::inherit::inherit_piece;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::event::Event;
use crate::compaction::control::Control;
use crate::compaction::executor::{Finished, InputCount};
use crate::compaction::explain;
use crate::filter::MergedPart;
use crate::keyspace::KeyspaceState;
use crate::store::{Store, TreeStep};
use crate::version::{FileMeta, KeyspaceEdit, Run, Tree};
use drumlin_env::sync::{Arc, atomic};
use drumlin_policy::schedule::{Install, RunFit, Settings, choose_run};
use drumlin_policy::schedule::{Piece, PieceState};
use drumlin_types::contract::{FileSpan, PieceId};
use drumlin_types::{Key, KeyRange, RunId, TableId};
use std::collections::BTreeSet;

/// Counts the entries of `spans` exactly. The count of a whole reference is known; a part costs up to two block reads.
pub(crate) fn count_inputs(store: &Store, tree: &Tree, spans: &[FileSpan]) -> Result<Vec<MergedPart>> {
    let mut parts = Vec::new();
    for span in spans {
        for (level, _, file) in tree.refs(span.table) {
            let Some(range) = file.bounds.intersect(&span.range) else { continue };
            let entries =
                if range == file.bounds { file.counts.entries } else { count(store, file, &range)? };
            parts.push(MergedPart { level, file: file.clone(), range, entries });
        }
    }
    Ok(parts)
}

/// Returns the exact number of entries of the table of `file` in `range`.
fn count(store: &Store, file: &FileMeta, range: &KeyRange) -> Result<u64> {
    let table = file.table.open(&store.files.tables)?;
    let before = table.rank(&range.start)?;
    let until = match &range.end {
        Some(end) => table.rank(end)?,
        None => file.table_entries,
    };
    Ok(until.saturating_sub(before))
}

/// Adds to `edit` the removal of the inputs of `piece`, and the parts outside its key range that stay.
fn add_removals(
    store: &Store,
    tree: &Tree,
    piece: &Piece,
    counts: &[InputCount],
    edit: &mut KeyspaceEdit,
) -> Result<()> {
    let tables: BTreeSet<TableId> = piece.inputs.iter().map(|span| span.table).collect();
    for (level, run, file) in tree.files().filter(|(_, _, file)| tables.contains(&file.id())) {
        // A piece may take several parts of one reference.
        let spans = piece.inputs.iter().filter(|span| span.table == file.id());
        let taken: Vec<KeyRange> = spans.filter_map(|span| file.bounds.intersect(&span.range)).collect();
        if taken.is_empty() {
            continue;
        }
        edit.remove.push((file.id(), file.bounds.start.clone()));
        let (mut left, mut rest) = (vec![file.bounds.clone()], file.counts.entries);
        for inside in &taken {
            let entries = counted(counts, file, inside)?;
            rest = rest.checked_sub(entries).ok_or_else(|| {
                Error::new(
                    ErrorKind::Bug,
                    format!("{entries} entries are taken from {rest} in {}", file.id()),
                )
            })?;
            left = left
                .iter()
                .map(|range| range.subtract(inside))
                .flat_map(|(a, b)| a.into_iter().chain(b))
                .collect();
        }
        while let Some(mut range) = left.pop() {
            if drumlin_types::bug!("remainder-loses-a-key")
                && taken.iter().any(|t| t.end.as_ref() == Some(&range.start))
            {
                range.start = Key::successor(&range.start);
            }
            let entries = if left.is_empty() { rest } else { count(store, file, &range)? };
            rest = rest.saturating_sub(entries);
            keep_part(file, range, entries, level, run.id, edit);
        }
    }
    Ok(())
}

/// Returns the number of entries of `file` in `range`, counted when the piece began.
fn counted(counts: &[InputCount], file: &FileMeta, range: &KeyRange) -> Result<u64> {
    let found = counts.iter().find(|c| c.table == file.id() && c.range == *range);
    found.map(|c| c.entries).ok_or_else(|| {
        Error::new(ErrorKind::Bug, format!("the entries of a part of {} were not counted", file.id()))
    })
}

/// Keeps a part of a file, unless it is empty.
fn keep_part(file: &FileMeta, range: KeyRange, entries: u64, level: u8, run: RunId, edit: &mut KeyspaceEdit) {
    if entries > 0 || file.counts.range_tombstones > 0 {
        edit.add.push((level, run, Arc::new(file.narrowed(range, entries))));
    }
}

/// Returns, for each run of level `level`, whether files with these `bounds` fit into it once the removals of `edit`
/// are made.
fn run_fits(tree: &Tree, edit: &KeyspaceEdit, level: u8, bounds: &[&KeyRange]) -> Vec<RunFit> {
    let goes =
        |f: &Arc<FileMeta>| edit.remove.iter().any(|(t, start)| *t == f.id() && *start == f.bounds.start);
    let meets = |f: &Arc<FileMeta>| bounds.iter().any(|b| f.bounds.overlaps(b));
    let room = |run: &Arc<Run>| {
        // A part of a file that `edit` narrows stays too.
        let is_cut = edit.add.iter().any(|(_, to, file)| *to == run.id && meets(file));
        RunFit {
            run: run.id,
            max_seq: run.files.iter().map(|f| f.max_seq).max().unwrap_or(0),
            is_plain: run.tag.0.is_empty(),
            fits: !is_cut && !run.files.iter().any(|f| !goes(f) && meets(f)),
        }
    };
    tree.levels[usize::from(level)].runs.iter().map(room).collect()
}

/// An edit, with the output files of its piece and the level that they go to.
struct InstallEdit {
    edit: KeyspaceEdit,
    files: Vec<Arc<FileMeta>>,
    level: u8,
}

impl InstallEdit {
    fn tables(&self) -> Vec<TableId> {
        self.files.iter().map(|file| file.id()).collect()
    }

    /// Returns the tables and bounds of the outputs, for a piece that has landed.
    fn spans(&self) -> Vec<FileSpan> {
        let span = |file: &Arc<FileMeta>| FileSpan {
            level: self.level,
            table: file.id(),
            range: file.bounds.clone(),
            min_seq: file.min_seq,
            max_seq: file.max_seq,
        };
        self.files.iter().map(span).collect()
    }
}

/// Adds the output files to the run of level `level` that the scheduler chooses. Returns `None` if the ticket has
/// ended.
fn place(
    control: &mut Control,
    tree: &Tree,
    piece: &Piece,
    level: u8,
    outputs: &mut InstallEdit,
) -> Option<()> {
    let Control { keyspaces, numbers, .. } = control;
    let ticket = keyspaces.iter_mut().find_map(|k| k.flight.ticket_mut(piece.id.ticket))?;
    let bounds: Vec<&KeyRange> = outputs.files.iter().map(|f| &f.bounds).collect();
    let (run, tag) = choose_run(ticket, level, &run_fits(tree, &outputs.edit, level, &bounds), numbers);
    outputs.edit.runs.push((level, run, tag));
    outputs.edit.add.extend(outputs.files.iter().map(|file| (level, run, file.clone())));
    outputs.level = level;
    Some(())
}

impl Store {
    /// Installs the output of a finished piece, and all others that this makes ready, or holds it until it may be
    /// installed, or drops it if the piece was withdrawn.
    pub(crate) fn finish_piece(&self, id: PieceId, finished: Finished) {
        let keyspace = finished.keyspace.clone();
        let now = self.files.now();
        {
            let mut control = self.control.lock();
            let is_wanted = control.keyspace(&keyspace).is_some_and(|entry| entry.flight.finished(id, now));
            if !is_wanted {
                drop(control);
                drop(finished);
                return;
            }
            self.held.lock().insert(id, finished);
        }
        self.install_ready(&keyspace);
    }

    /// Commits every install that may be made now, in the order of tickets. An output that was held too long lands.
    pub(crate) fn install_ready(&self, keyspace: &Arc<KeyspaceState>) {
        loop {
            let mut control = self.control.lock();
            let needless = self.take_needless(&mut control, keyspace);
            let next = self.next_install(&mut control, keyspace);
            let Some(install) = next else {
                drop(control);
                drop(needless);
                return;
            };
            let made = self.commit_install(&mut control, keyspace, install);
            drop(control);
            drop(needless);
            self.charge_trees();
            match made {
                Ok(event) => event.into_iter().for_each(|event| self.tell(event)),
                Err((id, tables, error)) => self.piece_failed(keyspace, id, &tables, &error),
            }
            self.background.progressed();
        }
    }

    /// Takes the results of pieces that were withdrawn, which nobody will install.
    fn take_needless(&self, control: &mut Control, keyspace: &Arc<KeyspaceState>) -> Vec<Finished> {
        let mut held = self.held.lock();
        if held.is_empty() {
            return Vec::new();
        }
        let flight = control.keyspace(keyspace).map(|entry| &entry.flight);
        let is_held = |id: &PieceId| {
            flight.and_then(|f| f.piece(*id)).is_some_and(|piece| piece.state == PieceState::Held)
        };
        let mine = |finished: &Finished| Arc::ptr_eq(&finished.keyspace, keyspace);
        let gone: Vec<PieceId> =
            held.iter().filter(|(id, f)| mine(f) && !is_held(id)).map(|(id, _)| *id).collect();
        gone.iter().filter_map(|id| held.remove(id)).collect()
    }

    fn next_install(&self, control: &mut Control, keyspace: &Arc<KeyspaceState>) -> Option<Install> {
        if self.health.is_poisoned() {
            return None;
        }
        let settings = Settings { mode: self.sizes.mode, ..Settings::default() };
        let is_set = |flag: &atomic::AtomicBool| flag.load(atomic::Ordering::Acquire);
        let is_short = is_set(&self.health.disk_full)
            || is_set(&self.health.compaction_lacks_space)
            || control.shortage.is_some();
        control.keyspace(keyspace)?.flight.next_install(&settings, self.files.now(), is_short)
    }

    /// Makes one edit durable and installs the next tree. Returns the event to report. An error names the piece and its
    /// tables.
    fn commit_install(
        &self,
        control: &mut Control,
        keyspace: &Arc<KeyspaceState>,
        install: Install,
    ) -> Result<Option<Event>, (PieceId, Vec<TableId>, Error)> {
        let (Install::Output(id) | Install::Land(id, _) | Install::Sink(id)) = install;
        let piece = control.keyspace(keyspace).and_then(|entry| entry.flight.piece(id)).cloned();
        let Some(piece) = piece else { return Ok(None) };
        let made = match install {
            Install::Output(_) => self.install_output(control, keyspace, &piece, piece.out),
            Install::Land(_, level) => self.install_output(control, keyspace, &piece, level),
            Install::Sink(_) => self.install_as_they_are(control, keyspace, &piece).map(|()| None),
        };
        if made.is_ok() {
            match install {
                Install::Output(_) => {}
                Install::Land(_, level) => {
                    explain::landed(
                        &mut control.decisions,
                        self.files.now(),
                        &keyspace.name(),
                        &piece,
                        level,
                    );
                }
                Install::Sink(_) => {
                    explain::sunk(&mut control.decisions, self.files.now(), &keyspace.name(), &piece)
                }
            }
        }
        made.map_err(|error| (id, piece.inputs.iter().map(|span| span.table).collect(), error))
    }

    /// Installs the output of a finished piece in `level`: its output level, or the level of its inputs.
    fn install_output(
        &self,
        control: &mut Control,
        keyspace: &Arc<KeyspaceState>,
        piece: &Piece,
        level: u8,
    ) -> Result<Option<Event>> {
        self.health.check_poison()?;
        let Some(mut finished) = self.held.lock().remove(&piece.id) else {
            return Err(Error::new(
                ErrorKind::Bug,
                format!("a held piece of {} has no output", piece.id.ticket),
            ));
        };
        let tree = keyspace.view().tree.clone();
        let mut outputs =
            InstallEdit { edit: KeyspaceEdit::default(), files: finished.result.files().to_vec(), level };
        add_removals(self, &tree, piece, &finished.counts, &mut outputs.edit)?;
        inherit_piece(keyspace, &tree, &outputs.edit, &finished, level);
        if place(control, &tree, piece, level, &mut outputs).is_none() {
            return Ok(None);
        }
        let step = TreeStep { tree: &tree, edit: &outputs.edit, flushed: &[], more: &[] };
        let result = &mut finished.result;
        let next = self.commit_edit(control, keyspace, &step, || result.outputs.installed())?;
        keyspace.install(next, &[]);
        self.explain_filters(control, keyspace, result);
        keyspace.compaction_failures.succeeded();
        let bytes_out: u64 = outputs.files.iter().map(|f| f.table.len).sum();
        let dropped = finished.result.counts.dropped();
        if let Some(entry) = control.keyspace(keyspace) {
            if level == piece.out {
                entry.flight.installed(piece.id, &outputs.tables(), bytes_out, dropped);
            } else {
                entry.flight.landed(piece.id, outputs.spans(), bytes_out, dropped);
            }
            entry.due = true;
        }
        // The inputs may be deleted now, so jobs that lacked disk space try again.
        self.health.space_freed();
        self.health.count_freed();
        let bytes_in = finished.counts.iter().map(|c| c.bytes).sum();
        self.metrics.compacted(&finished.result.counts, bytes_in, bytes_out);
        self.metrics.separated(finished.result.outputs.value_bytes());
        self.tell_operator_panics(keyspace, &finished.result.counts);
        keyspace.activity.compacted(&finished.result.counts, bytes_in, bytes_out);
        control.end_tickets(keyspace, self.files.now());
        self.refresh_pace(control);
        Ok(self.has_listener().then(|| Event::Compacted {
            keyspace: keyspace.name.to_string(),
            level,
            bytes_read: bytes_in,
            bytes_written: bytes_out,
        }))
    }

    /// Installs a trivial move: the inputs change level and run, and nothing but the edit is written.
    pub(crate) fn install_move(&self, keyspace: &Arc<KeyspaceState>, piece: &Piece) -> Result<()> {
        let mut control = self.control.lock();
        self.health.check_poison()?;
        self.install_as_they_are(&mut control, keyspace, piece)
    }

    fn install_as_they_are(
        &self,
        control: &mut Control,
        keyspace: &Arc<KeyspaceState>,
        piece: &Piece,
    ) -> Result<()> {
        let tree = keyspace.view().tree.clone();
        let mut outputs = InstallEdit { edit: KeyspaceEdit::default(), files: Vec::new(), level: piece.out };
        for span in &piece.inputs {
            for (_, _, file) in tree.refs(span.table).filter(|(_, _, f)| f.bounds.overlaps(&span.range)) {
                if !span.range.covers(&file.bounds) {
                    return Err(Error::new(
                        ErrorKind::Bug,
                        format!("a trivial move takes a part of {file:?}"),
                    ));
                }
                outputs.edit.remove.push((span.table, file.bounds.start.clone()));
                outputs.files.push(file.clone());
            }
        }
        if place(control, &tree, piece, piece.out, &mut outputs).is_none() {
            return Ok(());
        }
        let step = TreeStep { tree: &tree, edit: &outputs.edit, flushed: &[], more: &[] };
        let next = self.commit_edit(control, keyspace, &step, || {})?;
        keyspace.install(next, &[]);
        keyspace.compaction_failures.succeeded();
        if let Some(entry) = control.keyspace(keyspace) {
            entry.flight.installed(piece.id, &outputs.tables(), 0, 0);
            entry.due = true;
        }
        self.metrics.moved();
        keyspace.activity.moved();
        control.end_tickets(keyspace, self.files.now());
        self.refresh_pace(control);
        Ok(())
    }

    /// Handles a failed piece. After a temporary error it is retried. Damage excludes its tables from all plans.
    pub(crate) fn piece_failed(
        &self,
        keyspace: &Arc<KeyspaceState>,
        id: PieceId,
        tables: &[TableId],
        error: &Error,
    ) {
        if error.kind() == ErrorKind::NoSpace {
            self.health.compaction_lacks_space.store(true, atomic::Ordering::Release);
        }
        self.background_failed("compaction", error);
        let retry = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::TooManyFiles | ErrorKind::Io);
        if retry {
            self.health.compaction_failed(keyspace, error);
        }
        let is_named = |table: &&TableId| error.path() == Some(self.files.table_path(**table).as_path());
        let damaged: Vec<TableId> = match error.kind() {
            // If the error names one damaged file, the other inputs of the piece may still be compacted.
            ErrorKind::Corruption | ErrorKind::NewerFormat if tables.iter().any(|table| is_named(&table)) => {
                tables.iter().filter(is_named).copied().collect()
            }
            ErrorKind::Corruption | ErrorKind::NewerFormat | ErrorKind::Bug => tables.to_vec(),
            _ => Vec::new(),
        };
        let now = self.files.now();
        let mut control = self.control.lock();
        control.failed(keyspace, id, retry, &damaged, error, now);
        // What was reserved for the piece is given back.
        self.health.count_freed();
        drop(control);
        self.background.progressed();
    }
}

// They need the policy `chaos`.
#[cfg(all(test, feature = "experiments"))]
mod tests {
    use crate::api::db::Db;
    use crate::base::error::Error;
    use drumlin_env::MemEnv;
    use drumlin_types::contract::PieceId;
    use drumlin_types::{TableId, Ticket};

    /// A store whose compaction slots often block each other.
    fn busy(mem: &MemEnv) -> Db {
        let builder = Db::builder("/s").env(mem.env()).set("compaction_slots", "4").expect("an option");
        builder.open().expect("open")
    }

    const SMALL: &[(&str, &str)] =
        &[("memtable_bytes", "8KiB"), ("file_bytes", "4KiB"), ("compaction", "chaos")];

    #[test]
    fn results_that_wait_go_with_their_keyspace() {
        let mem = MemEnv::new(1);
        let db = busy(&mem);
        let keys = db.keyspace_with("k", SMALL).expect("a keyspace");
        let store = keys.store.clone();
        let has_held = |write: u32| {
            let key = write.wrapping_mul(2_654_435_761) % 900;
            keys.put(key.to_be_bytes(), [write as u8; 60]).expect("a put");
            !store.held.lock().is_empty()
        };
        assert!((0..9000).any(has_held), "no output was ever held");
        db.drop_keyspace("k").expect("dropped");
        assert!(store.held.lock().is_empty(), "the held output was not dropped");
        db.wait_idle().expect("idle");
        assert_eq!(store.files.obsolete.bytes_on_disk(), 0, "tables of the dropped keyspace are left");
    }

    #[test]
    fn of_a_failed_merge_the_damaged_file_alone_is_left_where_it_is() {
        let mem = MemEnv::new(2);
        let db = busy(&mem);
        let keys = db.keyspace_with("k", SMALL).expect("a keyspace");
        let (store, state) = (&keys.store, &keys.state);
        let id = PieceId { ticket: Ticket(1), index: 0 };
        let damaged = || store.control.lock().keyspaces[0].damaged.keys().copied().collect::<Vec<_>>();
        let tables = [TableId(91), TableId(92), TableId(93)];
        let of_table = Error::corruption(&store.files.table_path(TableId(92)), 7, "a checksum");
        store.piece_failed(state, id, &tables, &of_table);
        assert_eq!(damaged(), [TableId(92)]);
        let of_nobody = Error::corruption(std::path::Path::new("/s/other"), 7, "a checksum");
        store.piece_failed(state, id, &tables, &of_nobody);
        assert_eq!(damaged(), tables, "the error names no input, so all are excluded");
    }
}
