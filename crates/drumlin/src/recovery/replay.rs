//! Replaying the log into memtables.

use super::state::decode_error;
use crate::base::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use crate::version::HighWaterMarks;
use crate::write::apply::insert;
use crate::write::segment::path_in;
use drumlin_env::sync::Arc;
use drumlin_env::{Env, FileKind};
use drumlin_format::batch::BatchReader;
use drumlin_format::error::DecodeError;
use drumlin_format::log::{
    LogDamage, Record, RecordKind, Recovered, Replay, SEGMENT_HEADER_LEN, SegmentHeader, SegmentPrefix,
};
use drumlin_format::names::FileName;
use drumlin_types::{KeyspaceId, LogNumber, Seq, bug};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a keyspace gets from the log.
pub(crate) struct ReplayTarget {
    /// Sequence number up to which commits are in tables.
    pub(crate) flushed: Seq,
    pub(crate) memtable: Option<Arc<Memtable>>,
}

/// Reads segments and inserts their operations into memtables.
pub(crate) struct LogReplay<'a> {
    env: &'a Env,
    dir: &'a Path,
    targets: &'a mut BTreeMap<KeyspaceId, ReplayTarget>,
    /// Next keyspace id. Keyspaces with this id or a larger one were never created.
    next_keyspace: u64,
    memtable_seed: u64,
    /// Log position up to which records are read. Later ones may be half written.
    until: u64,
    pub(crate) bytes_read: u64,
}

/// Why replay failed.
pub(crate) enum ReplayError {
    Damage(LogDamage),
    Other(Error),
}

impl From<LogDamage> for ReplayError {
    fn from(damage: LogDamage) -> ReplayError {
        ReplayError::Damage(damage)
    }
}

/// Replays the segments `numbers` from the floor in `marks` on into `targets`. Returns what was recovered and the
/// number of bytes read. A record for a keyspace that was never created is damage: the manifest has a keyspace durably
/// before anything is written to it.
pub(crate) fn replay(
    env: &Env,
    dir: &Path,
    numbers: &[LogNumber],
    marks: &HighWaterMarks,
    targets: &mut BTreeMap<KeyspaceId, ReplayTarget>,
    memtable_seed: u64,
) -> Result<(Recovered, u64)> {
    let next_keyspace = marks.next_keyspace;
    let mut replay =
        LogReplay { env, dir, targets, next_keyspace, memtable_seed, until: u64::MAX, bytes_read: 0 };
    let recovered = recover(numbers, marks.floor, &mut replay)?;
    Ok((recovered, replay.bytes_read))
}

/// Reads the records of the live segments `numbers` of an open store, up to the log position `until`. Every record
/// before it must be whole. Returns their number.
pub(crate) fn check_log(env: &Env, dir: &Path, numbers: &[LogNumber], until: u64) -> Result<u64> {
    let Some(floor) = numbers.iter().min() else { return Ok(0) };
    let (mut targets, next_keyspace) = (BTreeMap::new(), u64::MAX);
    let mut replay =
        LogReplay { env, dir, targets: &mut targets, next_keyspace, memtable_seed: 0, until, bytes_read: 0 };
    let recovered = recover(numbers, *floor, &mut replay)?;
    if recovered.end < until {
        let last = recovered.replayed.last().unwrap_or(floor);
        let what = format!("the log ends at position {} and must reach {until}", recovered.end);
        return Err(Error::file(ErrorKind::Corruption, &path_in(dir, *last), what));
    }
    Ok(recovered.records)
}

fn recover(numbers: &[LogNumber], floor: LogNumber, replay: &mut LogReplay<'_>) -> Result<Recovered> {
    let dir = replay.dir;
    drumlin_format::log::recover(numbers, floor, replay).map_err(|error| match error {
        ReplayError::Damage(damage) => decode_error(&path_in(dir, damage.segment), damage.error),
        ReplayError::Other(error) => error,
    })
}

/// Syncs a segment as it is.
pub(crate) fn sync(env: &Env, path: &Path) -> Result<()> {
    let fail = |e| Error::io(path, "cannot sync a log segment", e);
    env.fs().open_write(path, FileKind::Log).map_err(fail)?.sync_data().map_err(fail)
}

/// Makes a replayed segment durable, except for its directory entry. If an earlier sync of it failed, another sync may
/// succeed although the bytes are not on disk. So the segment is replaced by a copy. Without disk space for a copy, it
/// is only synced.
pub(crate) fn renew(env: &Env, dir: &Path, number: LogNumber) -> Result<()> {
    let (path, temp) = (path_in(dir, number), dir.join(FileName::Temp(number.0).to_string()));
    let fail = |e| Error::io(&path, "cannot make a replayed log segment durable", e);
    let fs = env.fs();
    let copied = || {
        let old = fs.open(&path, FileKind::Log)?;
        let mut bytes = vec![0; usize::try_from(old.len()?).unwrap_or(usize::MAX)];
        old.read_exact_at(0, &mut bytes)?;
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let new = fs.create(&temp, FileKind::Temp)?;
        new.allocate(0, bytes.len() as u64)?;
        new.write_at(0, &bytes[..used])?;
        new.sync_data()?;
        fs.rename(&temp, &path)
    };
    match copied().map_err(fail) {
        Err(error) => {
            let _ = fs.unlink(&temp, FileKind::Temp);
            match error.kind() {
                ErrorKind::NoSpace => sync(env, &path),
                _ => Err(error),
            }
        }
        done => done,
    }
}

impl LogReplay<'_> {
    fn load(
        &mut self,
        number: LogNumber,
        mut bytes: Vec<u8>,
        most: u64,
    ) -> Result<SegmentPrefix, ReplayError> {
        let path: PathBuf = path_in(self.dir, number);
        let fail = |e| ReplayError::Other(Error::io(&path, "cannot read a log segment", e));
        let file = self.env.fs().open(&path, FileKind::Log).map_err(fail)?;
        let file_len = file.len().map_err(fail)?;
        let (from, len) = (bytes.len(), usize::try_from(file_len.min(most)).unwrap_or(usize::MAX));
        bytes.resize(len.max(from), 0);
        file.read_exact_at(from as u64, &mut bytes[from..]).map_err(fail)?;
        self.bytes_read += (bytes.len() - from) as u64;
        Ok(SegmentPrefix { bytes, file_len })
    }
}

impl Replay for LogReplay<'_> {
    type Error = ReplayError;

    fn read(&mut self, number: LogNumber, begun: Vec<u8>, most: u64) -> Result<SegmentPrefix, ReplayError> {
        let mut segment = self.load(number, begun, most)?;
        let bytes = &mut segment.bytes;
        if self.until < u64::MAX
            && let Ok(header) = SegmentHeader::decode(bytes, number)
        {
            // A segment that begins beyond the end has no record to read.
            let end = header.offset(self.until).unwrap_or(SEGMENT_HEADER_LEN as u64);
            let end = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
            bytes[end..].fill(0);
        }
        Ok(segment)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), ReplayError> {
        if record.header.kind != RecordKind::Batch {
            return Ok(());
        }
        let operations = BatchReader::new(record.payload, record.header.count);
        for (seq, operation) in (record.header.first_seq..).zip(operations) {
            if bug!("batch-replayed-in-part") && seq > record.header.first_seq {
                break;
            }
            let operation = operation.map_err(|c| {
                let error = DecodeError::Corruption(c);
                ReplayError::Other(decode_error(&path_in(self.dir, record.segment), error))
            })?;
            if u64::from(operation.keyspace.0) >= self.next_keyspace {
                let what = format!(
                    "the log holds a write to keyspace {}, which was never created",
                    operation.keyspace
                );
                let path = path_in(self.dir, record.segment);
                return Err(ReplayError::Other(Error::corruption(&path, record.offset, what)));
            }
            // Operations of a keyspace that was dropped later have no target.
            if let Some(target) = self.targets.get_mut(&operation.keyspace)
                && seq > target.flushed
            {
                let seed = self.memtable_seed;
                let memtable =
                    target.memtable.get_or_insert_with(|| Arc::new(Memtable::new(record.segment, seed)));
                insert(memtable, &operation, seq).map_err(ReplayError::Other)?;
            }
        }
        Ok(())
    }
}
