//! Verification of a whole store. It checks all checksums, orders and counts inside tables, the records of the log, the
//! shape of the trees, and the recency invariant R between levels.

use crate::base::cursor::Cursor;
use crate::base::error::{Error, Result};
use crate::keyspace::KeyspaceState;
use crate::read::{ClippedCursor, MergeCursor};
use crate::recovery::replay::replay;
use crate::store::Store;
use crate::table::CursorOptions;
use crate::version::{Level, Marks, check};
use drumlin_env::sync::Arc;
use drumlin_format::names::FileName;
use drumlin_types::{LogNumber, Seq};
use std::collections::{BTreeMap, BTreeSet};

/// Number of attempts to read the log while writes add and recycle segments.
const LOG_ATTEMPTS: usize = 8;

/// Fault that verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the file or of the keyspace.
    pub file: String,
    /// Offset in the file, if known.
    pub offset: Option<u64>,
    /// Description of the fault.
    pub what: String,
}

/// Result of `verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of tables read.
    pub tables: u64,
    /// Number of data blocks read.
    pub blocks: u64,
    /// Number of entries read.
    pub entries: u64,
    /// Number of table bytes read.
    pub bytes: u64,
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

    fn find_error(&mut self, place: &str, error: &Error) {
        let file = error.path().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        self.find(file.as_deref().unwrap_or(place), error.offset(), error.to_string());
    }
}

impl Store {
    pub(crate) fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        self.health.check_open()?;
        let mut report = VerifyReport::default();
        self.verify_manifest(&mut report);
        self.verify_log(&mut report);
        let mut seen = BTreeSet::new();
        for keyspace in self.keyspaces().iter() {
            let view = keyspace.view();
            if let Err(what) = check::check(&view.tree) {
                report.find(&keyspace.name, None, what);
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
                    Err(error) => report.find_error(&name, &error),
                }
            }
            if report.findings.is_empty()
                && let Err(error) = self.verify_recency(keyspace, &mut report)
            {
                report.find_error(&keyspace.name, &error);
            }
        }
        Ok(report)
    }

    /// Reads the manifest again, to find damage before the next open needs the manifest.
    fn verify_manifest(&self, report: &mut VerifyReport) {
        let control = self.control.lock();
        let path = control.manifest.path();
        if let Err(error) = crate::recovery::state::read(&self.files.env, &self.files.dir) {
            report.find_error(&path.display().to_string(), &error);
        }
    }

    /// Replays the log records that recovery would read. Writes continue meanwhile. If segments were added or removed
    /// during the replay, its result is discarded and the log is read again.
    fn verify_log(&self, report: &mut VerifyReport) {
        let live = || self.lane.state.lock().log.below(LogNumber(u64::MAX));
        for _ in 0..LOG_ATTEMPTS {
            let numbers = live();
            let floor = numbers.iter().copied().min().unwrap_or(LogNumber(0));
            let marks = Marks { floor, next_keyspace: u64::MAX, ..Marks::default() };
            let replayed =
                replay(&self.files.env, &self.files.dir, &numbers, &marks, &mut BTreeMap::new(), 0);
            if live() != numbers {
                continue;
            }
            match replayed {
                Ok((recovered, _)) => report.log_records += recovered.records,
                Err(error) => report.find_error("log", &error),
            }
            return;
        }
    }

    /// Checks invariant R: of two versions of a key in different levels, the one in the upper level is newer. Also
    /// checks that the entries inside the bounds of all files are as many as the manifest says.
    fn verify_recency(&self, keyspace: &Arc<KeyspaceState>, report: &mut VerifyReport) -> Result<()> {
        let view = keyspace.view();
        let mut levels: Vec<(usize, MergeCursor<Box<dyn Cursor>>)> = Vec::new();
        for (number, level) in view.tree.levels.iter().enumerate() {
            if !level.runs.is_empty() {
                let mut cursor = self.level_cursor(level)?;
                cursor.seek_first()?;
                levels.push((number, cursor));
            }
        }
        let mut counted = 0;
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
                        report.find(&keyspace.name, None, what);
                        return Ok(());
                    }
                    oldest = Some(seq);
                    counted += 1;
                    cursor.next()?;
                }
                if let Some(seq) = oldest {
                    oldest_above = Some((*number, seq));
                }
            }
        }
        let claimed: u64 = view.tree.files().map(|(_, _, f)| f.counts.entries).sum();
        if counted != claimed {
            let what =
                format!("the files hold {counted} entries inside their bounds, the manifest says {claimed}");
            report.find(&keyspace.name, None, what);
        }
        Ok(())
    }

    fn level_cursor(&self, level: &Level) -> Result<MergeCursor<Box<dyn Cursor>>> {
        let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
        for file in level.runs.iter().flat_map(|run| &run.files) {
            let table = file.table.open(&self.files.tables)?;
            cursors
                .push(Box::new(ClippedCursor::new(table.cursor(CursorOptions::MERGE), file.bounds.clone())));
        }
        Ok(MergeCursor::new(cursors))
    }
}
