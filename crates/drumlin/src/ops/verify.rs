//! Verification of a whole store. It checks all checksums, orders and counts inside tables, the records of the log, the
//! shape of the trees, the recency invariant R between levels, and every value that an entry points to.

use crate::base::cursor::Cursor;
use crate::base::error::{Error, Result};
use crate::base::resolve::ValueRead;
use crate::disk::Files;
use crate::keyspace::KeyspaceState;
use crate::read::{MergeCursor, OpenFile, RunCursor};
use crate::recovery::replay::check_log;
use crate::store::Store;
use crate::table::{CursorOptions, TableCursor};
use crate::version::{Level, Run, check};
use drumlin_env::sync::Arc;
use drumlin_format::names::FileName;
use drumlin_types::{KeyRange, Kind, Seq};
use std::collections::BTreeSet;

/// Number of unreadable values of a keyspace that get findings of their own.
const MOST_VALUE_FINDINGS: u64 = 100;

/// Fault that [`Db::verify`](crate::Db::verify) found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct Finding {
    /// Name of the file. For a fault of a tree, which lies in no single file, the name of the keyspace.
    pub file: String,
    /// Offset in the file, if known.
    pub offset: Option<u64>,
    /// Description of the fault. It contains no keys or values.
    pub what: String,
}

/// Result of [`Db::verify`](crate::Db::verify): what was checked, and the faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(not(feature = "testing"), non_exhaustive)]
pub struct VerifyReport {
    /// Number of tables read.
    pub tables: u64,
    /// Number of data blocks read.
    pub blocks: u64,
    /// Number of entries read.
    pub entries: u64,
    /// Number of bytes of tables read, and of values in value files, decompressed.
    pub bytes: u64,
    /// Number of values read from value files. They are not read in a keyspace with other findings.
    pub values: u64,
    /// Number of log records read.
    pub log_records: u64,
    /// Number of user keys whose versions were compared between levels.
    pub keys: u64,
    /// All faults; empty for a sound store.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    fn find(&mut self, file: &str, offset: Option<u64>, what: String) {
        self.findings.push(Finding { file: file.to_owned(), offset, what });
    }

    /// Adds `error` to the faults. A lack of file descriptors is no fault of the store, and is returned.
    fn find_error(&mut self, place: &str, error: &Error) -> Result<()> {
        if error.is_shortage() {
            return Err(error.clone());
        }
        let file = error.path().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        self.find(file.as_deref().unwrap_or(place), error.offset(), error.text_without_place());
        Ok(())
    }
}

impl Store {
    pub(crate) fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        self.health.check_open()?;
        let mut report = VerifyReport::default();
        self.verify_manifest(&mut report)?;
        self.verify_log(&mut report)?;
        let mut seen = BTreeSet::new();
        for keyspace in self.keyspaces().iter() {
            let (view, before) = (keyspace.view(), report.findings.len());
            if let Err(what) = check::check(&view.tree) {
                report.find(&keyspace.name(), None, what);
            }
            for (_, _, file) in view.tree.files() {
                if !seen.insert(file.id()) {
                    continue;
                }
                let name = FileName::Table(file.id()).to_string();
                match file.table.open(&self.files.tables).and_then(|table| table.verify()) {
                    Ok(counts) => {
                        report.tables += 1;
                        report.blocks += counts.data_blocks;
                        report.entries += counts.entries;
                        report.bytes += counts.bytes;
                        if counts.checksum != file.checksum {
                            report.find(
                                &name,
                                None,
                                "the file's checksum differs from the manifest's".to_owned(),
                            );
                        }
                        if counts.entries != file.table_entries {
                            let what = format!(
                                "holds {} entries, the manifest says {}",
                                counts.entries, file.table_entries
                            );
                            report.find(&name, None, what);
                        }
                    }
                    Err(error) => report.find_error(&name, &error)?,
                }
            }
            if report.findings.len() == before
                && let Err(error) = self.verify_recency(keyspace, &mut report)
            {
                report.find_error(&keyspace.name(), &error)?;
            }
        }
        Ok(report)
    }

    /// Reads the manifest again, to find damage before the next open needs the manifest.
    fn verify_manifest(&self, report: &mut VerifyReport) -> Result<()> {
        let control = self.control.lock();
        let path = control.manifest.path();
        if let Err(error) = crate::recovery::state::read(&self.files.env, &self.files.dir) {
            report.find_error(&path.display().to_string(), &error)?;
        }
        Ok(())
    }

    /// Reads the log records that recovery would read. Writes continue meanwhile; records after the last published one
    /// are not read, since they may be half written.
    fn verify_log(&self, report: &mut VerifyReport) -> Result<()> {
        let Files { env, dir, .. } = &*self.files;
        match self.read_log(|numbers, written| check_log(env, dir, numbers, written)) {
            Ok(records) => report.log_records += records,
            Err(error) => report.find_error("log", &error)?,
        }
        Ok(())
    }

    /// Checks invariant R: of two versions of a key in different levels, the one in the upper level is newer. Also
    /// checks that the entries inside the bounds of all files are as many as the manifest says.
    fn verify_recency(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceState>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let view = keyspace.view();
        let mut levels: Vec<(usize, MergeCursor<RunCursor<CheckedRun>>)> = Vec::new();
        for (number, level) in view.tree.levels.iter().enumerate() {
            if !level.runs.is_empty() {
                let mut cursor = self.level_cursor(level);
                cursor.seek_first()?;
                levels.push((number, cursor));
            }
        }
        let (mut counted, mut lost) = (0, 0);
        loop {
            let least =
                levels.iter().filter(|(_, c)| c.valid()).map(|(_, c)| c.key()).min().map(<[u8]>::to_vec);
            let Some(key) = least else { break };
            report.keys += 1;
            let mut oldest_above: Option<(usize, Seq)> = None;
            for (number, cursor) in &mut levels {
                let mut oldest = None;
                while cursor.valid() && cursor.key() == &key[..] {
                    let seq = cursor.seq();
                    if let Some((above, limit)) = oldest_above
                        && seq >= limit
                    {
                        let what = format!(
                            "level {number} holds a version #{seq} of a key that has #{limit} in level {above}"
                        );
                        report.find(&keyspace.name(), None, what);
                        return Ok(());
                    }
                    oldest = Some(seq);
                    counted += 1;
                    if cursor.kind() == Kind::PutPointer {
                        match (keyspace.pointers)(&key, seq, cursor.value(), ValueRead::Check) {
                            Ok(value) => {
                                report.values += 1;
                                report.bytes += value.len() as u64;
                            }
                            Err(error) => {
                                lost += 1;
                                if lost <= MOST_VALUE_FINDINGS {
                                    report.find_error(&keyspace.name(), &error)?;
                                }
                            }
                        }
                    }
                    cursor.next()?;
                }
                if let Some(seq) = oldest {
                    oldest_above = Some((*number, seq));
                }
            }
        }
        if lost > MOST_VALUE_FINDINGS {
            let what = format!("{} more values cannot be read", lost - MOST_VALUE_FINDINGS);
            report.find(&keyspace.name(), None, what);
        }
        let claimed: u64 = view.tree.files().map(|(_, _, f)| f.counts.entries).sum();
        if counted != claimed {
            let what =
                format!("the files hold {counted} entries inside their bounds, the manifest says {claimed}");
            report.find(&keyspace.name(), None, what);
        }
        Ok(())
    }

    fn level_cursor(self: &Arc<Self>, level: &Level) -> MergeCursor<RunCursor<CheckedRun>> {
        let run = |run: &Arc<Run>| RunCursor::new(CheckedRun { store: self.clone(), run: run.clone() });
        MergeCursor::new(level.runs.iter().map(run).collect())
    }
}

/// Files of a run that is verified. One of them is open at a time.
struct CheckedRun {
    store: Arc<Store>,
    run: Arc<Run>,
}

impl OpenFile for CheckedRun {
    type Cursor = TableCursor;

    fn open(&self, index: usize) -> Result<TableCursor> {
        let file = &self.run.files[index];
        let table = file.table.open(&self.store.files.tables)?;
        Ok(table.cursor(CursorOptions::MERGE).within(file.min_seq, file.max_seq))
    }

    fn bounds(&self, index: usize) -> &KeyRange {
        &self.run.files[index].bounds
    }

    fn len(&self) -> usize {
        self.run.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::db::Db;
    use crate::base::error::ErrorKind;
    use crate::write::request::Request;
    use drumlin_env::MemEnv;
    use drumlin_format::log::{RecordHeader, RecordKind, encode_record, record_len};

    #[test]
    fn records_that_are_being_written_are_no_damage() {
        let mem = MemEnv::new(21);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        keys.put("first", "1").expect("put");
        let (store, keyspaces, payload) = (&keys.store, [keys.state.clone()], [0; 9]);
        let record_len = Some(record_len(payload.len()));
        let request = || Request { keyspaces: &keyspaces, operations: 1, record_len, only_deletes: false };
        let [second, third] = [(); 2].map(|()| {
            let reserved =
                store.commit_lock.reserve(&request(), &store.publisher, || store.files.fresh_number());
            reserved.expect("a place")
        });
        // A reader may pass the place of the second record before it is written, and find a third one that was written
        // once the second was durable.
        let log = third.log.as_ref().expect("it is logged");
        let (kind, first_seq) = (RecordKind::Batch, third.first_seq);
        let header = RecordHeader { kind, synced_mark: log.position, first_seq, count: 1 };
        let mut record = Vec::new();
        encode_record(&mut record, log.segment.number, log.offset(), &header, &payload).expect("encoded");
        crate::write::log::write(log, &record, false).expect("written");
        let report = db.verify().expect("verify");
        assert_eq!((report.findings, report.log_records), (vec![], 1));
        for reserved in [second, third] {
            reserved.memtables.iter().for_each(|(_, memtable)| memtable.end_write());
            store.publisher.abandon(reserved.number, Error::new(ErrorKind::Bug, "as the test wants"));
        }
    }

    #[test]
    fn log_segments_stay_while_they_are_read() {
        let mem = MemEnv::new(22);
        let options = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB")];
        let builder = Db::builder("/s").env(mem.env());
        let builder =
            options.iter().try_fold(builder, |b, (name, value)| b.set(name, value)).expect("options");
        let db = builder.open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let write = |numbers: std::ops::Range<u32>| {
            for n in numbers {
                keys.put(n.to_be_bytes(), [7; 1000]).expect("put");
            }
            db.flush().expect("flush");
        };
        let live = || keys.store.commit_lock.state.lock().log.below(drumlin_types::LogNumber(u64::MAX));
        keys.put("first", "1").expect("put");
        keys.store.read_log(|numbers, written| {
            assert_eq!(numbers, live());
            write(0..600);
            assert!(live().len() > 4 && live().starts_with(numbers), "{numbers:?} {:?}", live());
            let Files { env, dir, .. } = &*keys.store.files;
            assert_eq!(check_log(env, dir, numbers, written).expect("whole"), 1);
        });
        assert_eq!(live().len(), 1, "what was flushed meanwhile is released");
        write(600..900);
        assert_eq!(db.verify().expect("verify").findings, vec![]);
        let image = mem.snapshot().image(drumlin_env::ImageMode::None, 1);
        let db = Db::builder("/s").env(image.env()).open().expect("open after power loss");
        assert_eq!(db.keyspace("k").expect("keyspace").iter().count(), 901);
    }

    #[test]
    fn one_file_of_each_run_is_open_at_a_time() {
        let mem = MemEnv::new(23);
        let open = || Db::builder("/s").env(mem.env()).open().expect("open");
        let db = open();
        let options = [("file_bytes", "4KiB"), ("compression", "none")];
        let keys = db.keyspace_with("k", &options).expect("keyspace");
        for n in 0..1000_u32 {
            keys.put(n.to_be_bytes(), [7; 100]).expect("put");
        }
        db.compact().expect("compact");
        drop(keys);
        db.close().expect("close");
        let db = open();
        let keys = db.keyspace("k").expect("keyspace");
        let (view, tables) = (keys.state.view(), &keys.store.files.tables);
        let level = view.tree.levels.iter().find(|level| !level.runs.is_empty()).expect("a run");
        assert!(level.runs[0].files.len() > 10 && level.runs.len() == 1);
        let before = tables.open_tables();
        let mut cursor = keys.store.level_cursor(level);
        cursor.seek_first().expect("seek");
        assert!(tables.open_tables() <= before + 1, "{} tables are open", tables.open_tables());
        assert_eq!(db.verify().expect("verify").findings, vec![]);
    }
}
