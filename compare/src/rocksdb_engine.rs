//! Adapter of RocksDB. `rocksdb_options` describes its options. Its statistics come from its log, and the options in
//! effect from its own OPTIONS file. Each close compares them with the ones wanted, since opens are timed.

use crate::rocksdb_log::{Log, stalls};
use crate::rocksdb_options::{RocksDb, in_effect};
use drumlin_bench::engine::{
    Counters, Direction, Durability, Engine, EngineConfig, EngineKind, Result, Seeker, Visit,
};
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBRawIterator, DEFAULT_COLUMN_FAMILY_NAME, FlushOptions, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default number of levels.
const LEVELS: usize = 7;

struct Open {
    db: DB,
    dir: PathBuf,
    kind: RocksDb,
    /// Settings of the open. Each close checks that the OPTIONS file has the corresponding options.
    config: EngineConfig,
    log: Arc<Log>,
    /// Write options for each durability, in the order of the enum.
    writes: [WriteOptions; 3],
    /// Options of lookups. Creating them for each lookup would cost an allocation.
    lookups: ReadOptions,
    /// Options of batches of lookups.
    batches: ReadOptions,
}

fn text(error: rocksdb::Error) -> String {
    error.into_string()
}

impl RocksDb {
    fn open_store(&self, dir: &Path, config: &EngineConfig) -> Result<Open> {
        let log = Arc::new(Log::default());
        let options = self.options(config, &log)?;
        // The column family is opened by name, so that batched reads can refer to it.
        let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [family]).map_err(text)?;
        let writes = [Durability::None, Durability::Buffered, Durability::Sync].map(|durability| {
            let mut options = WriteOptions::default();
            options.disable_wal(durability == Durability::None);
            options.set_sync(durability == Durability::Sync);
            options
        });
        let mut batches = ReadOptions::default();
        batches.set_async_io(true);
        let (dir, kind, config) = (dir.to_owned(), *self, config.clone());
        Ok(Open { db, dir, kind, config, log, writes, lookups: ReadOptions::default(), batches })
    }
}

impl EngineKind for RocksDb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.open_store(dir, config)?))
    }

    fn check_build(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let config = EngineConfig::default();
        let open = self.open_store(dir, &config)?;
        self.check_options(dir, &config)?;
        match open.log.build() {
            (true, true) => Ok(()),
            (false, _) => Err("its log does not report fast CRC32; build with target-cpu=native".to_owned()),
            (_, false) => Err("its log does not report jemalloc".to_owned()),
        }
    }
}

impl Open {
    fn write_options(&self, durability: Durability) -> &WriteOptions {
        &self.writes[durability as usize]
    }

    fn property(&self, name: &str) -> String {
        self.db.property_value(name).ok().flatten().unwrap_or_default()
    }
}

/// Passes up to `limit` entries to `visit`, starting at the position of `entries`.
fn give(
    entries: &mut DBRawIterator<'_>,
    direction: Direction,
    limit: usize,
    visit: Visit<'_>,
) -> Result<usize> {
    let mut given = 0;
    while given < limit
        && let Some((key, value)) = entries.item()
    {
        visit(key, value);
        given += 1;
        if given < limit {
            match direction {
                Direction::Forward => entries.next(),
                Direction::Back => entries.prev(),
            }
        }
    }
    entries.status().map_err(text)?;
    Ok(given)
}

struct Kept<'a>(DBRawIterator<'a>);

impl Seeker for Kept<'_> {
    fn seek(&mut self, from: &[u8], limit: usize, visit: Visit<'_>) -> Result<usize> {
        self.0.seek(from);
        give(&mut self.0, Direction::Forward, limit, visit)
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db.put_opt(key, value, self.write_options(durability)).map_err(text)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::default();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        self.db.write_opt(batch, self.write_options(durability)).map_err(text)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.db.delete_opt(key, self.write_options(durability)).map_err(text)
    }

    fn delete_range(&self, from: &[u8], to: &[u8], durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        self.db.write_opt(batch, self.write_options(durability)).map_err(text)
    }

    fn merge(&self, key: &[u8], operand: &[u8], durability: Durability) -> Result<()> {
        self.db.merge_opt(key, operand, self.write_options(durability)).map_err(text)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.lookups).map_err(text)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let cf = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).ok_or("no default column family")?;
        let values = self.db.batched_multi_get_cf_opt(cf, keys, false, &self.batches);
        for (position, value) in values.into_iter().enumerate() {
            visit(position, value.map_err(text)?.as_deref());
        }
        Ok(())
    }

    fn range(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        visit: Visit<'_>,
    ) -> Result<usize> {
        let mut entries = self.db.raw_iterator_opt(ReadOptions::default());
        match (direction, from) {
            (Direction::Forward, Some(from)) => entries.seek(from),
            (Direction::Forward, None) => entries.seek_to_first(),
            (Direction::Back, Some(from)) => entries.seek_for_prev(from),
            (Direction::Back, None) => entries.seek_to_last(),
        }
        give(&mut entries, direction, limit, visit)
    }

    fn seeker(&self) -> Option<Box<dyn Seeker + '_>> {
        Some(Box::new(Kept(self.db.raw_iterator_opt(ReadOptions::default()))))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_opt(&FlushOptions::default()).map_err(text)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(text)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn counters(&self) -> Counters {
        let files = |level| self.property(&format!("rocksdb.num-files-at-level{level}")).parse::<u64>();
        let counts: Option<Vec<u64>> = (0..LEVELS).map(|level| files(level).ok()).collect();
        // Below level 0, the files of a level form one run.
        let runs = |(level, files): (usize, u64)| if level == 0 { files } else { files.min(1) };
        Counters {
            runs_per_level: counts.map(|counts| counts.into_iter().enumerate().map(runs).collect()),
            stalls: stalls(
                &self.property("rocksdb.dbstats"),
                &self.property("rocksdb.cfstats-no-file-histogram"),
            ),
            ..self.log.counters()
        }
    }

    fn options(&self) -> BTreeMap<String, String> {
        in_effect(&self.dir)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        let checked = self.kind.check_options(&self.dir, &self.config);
        checked.map_err(|what| format!("{}: {what}", self.kind.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocksdb_options::Form;
    use drumlin_bench::engine::{Compression, Io};

    const FORMS: &[RocksDb] = &[
        RocksDb { name: "default", form: Form::Default },
        RocksDb { name: "tuned", form: Form::Tuned },
        RocksDb { name: "pinned", form: Form::Pinned },
        RocksDb { name: "universal", form: Form::Universal },
        RocksDb { name: "deferred", form: Form::Deferred },
        RocksDb { name: "warm", form: Form::Warm },
        RocksDb { name: "blob", form: Form::Blob },
        RocksDb { name: "blob-forced", form: Form::BlobForced },
    ];

    /// Creates an empty directory.
    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("drumlin-compare-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn each_option_takes_effect() {
        let small = EngineConfig {
            memory_bytes: 64 << 20,
            memtable_bytes: 2 << 20,
            file_bytes: 3 << 20,
            block_bytes: 8 << 10,
            filter_bits: 7.0,
            compression: Compression::Lz4,
            io: Io::Direct,
            merges: 3,
            durability: Durability::None,
            ..EngineConfig::default()
        };
        assert_eq!(small.flush_bytes(), 8 << 20);
        for form in FORMS {
            for config in [&EngineConfig::default(), &small] {
                let dir = dir(form.name);
                let open = form.open_store(&dir, config).expect("open");
                let found = open.options();
                for (name, wanted) in form.expected(config) {
                    assert_eq!(found.get(name), Some(&wanted), "{} {name}", form.name);
                }
                if form.has_blobs() {
                    // The OPTIONS file does not name the cache.
                    let capacity = open.property("rocksdb.blob-cache-capacity");
                    assert_eq!(capacity, config.memory_bytes.to_string(), "{}", form.name);
                }
                drop(open);
                let _ = std::fs::remove_dir_all(dir);
            }
        }
    }

    #[test]
    fn a_close_names_an_option_that_is_not_in_effect() {
        let dir = dir("close");
        let config = EngineConfig::default();
        let open = FORMS[1].open_store(&dir, &config).expect("open");
        let other = EngineConfig { block_bytes: 8 << 10, ..config.clone() };
        let found = Box::new(Open { config: other.clone(), ..open }).close();
        assert_eq!(found, Err("tuned: its OPTIONS file says 4096 for block_size, not 8192".to_owned()));
        // The newest OPTIONS file counts after a re-open with other settings.
        for config in [config, other] {
            let open = FORMS[1].open_store(&dir, &config).expect("open");
            Box::new(open).close().expect("the options in effect");
        }
        let _ = std::fs::remove_dir_all(dir);
    }

    #[test]
    fn filters_have_the_bits_per_key_that_were_set() {
        for form in FORMS {
            let dir = dir(&format!("{}-bits", form.name));
            let config = EngineConfig { filter_bits: 7.0, ..EngineConfig::default() };
            let open = form.open_store(&dir, &config).expect("open");
            let count = 100_000_u32;
            for n in 0..count {
                open.put(&n.to_be_bytes(), b"value", Durability::Buffered).expect("put");
            }
            open.flush().expect("flush");
            let tables = open.property("rocksdb.aggregated-table-properties");
            let bytes = tables.split(';').find_map(|part| part.trim().strip_prefix("filter block size="));
            let bytes: f64 =
                bytes.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no size in {tables}"));
            let bits = bytes * 8.0 / f64::from(count);
            assert!((6.5..8.5).contains(&bits), "{}: {bits} bits per key", form.name);
            drop(open);
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    #[test]
    fn the_deferred_form_leaves_twelve_flushes_in_level_0() {
        let config =
            EngineConfig { memory_bytes: 8 << 20, memtable_bytes: 1 << 20, ..EngineConfig::default() };
        assert_eq!(config.flush_bytes(), 1 << 20);
        for form in FORMS.iter().filter(|form| matches!(form.form, Form::Tuned | Form::Deferred)) {
            let dir = dir(&format!("{}-deferred", form.name));
            let open = form.open_store(&dir, &config).expect("open");
            for flush in 0..12_u32 {
                // Together more than the bytes of four write buffers, and less than those of 16.
                for n in 0..600_u32 {
                    let key = [n.to_be_bytes(), flush.to_be_bytes()].concat();
                    open.put(&key, &[7; 1000], Durability::Buffered).expect("put");
                }
                open.flush().expect("flush");
            }
            open.wait_idle().expect("idle");
            let counters = open.counters();
            let files = counters.runs_per_level.expect("levels")[0];
            if form.form == Form::Deferred {
                assert_eq!((files, counters.merges, counters.moves), (12, Some(0), Some(0)));
            } else {
                assert!(files < 12 && counters.merges > Some(0), "{files} files, {:?}", counters.merges);
            }
            drop(open);
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    #[test]
    fn the_build_has_what_the_comparison_needs() {
        for form in FORMS {
            let dir = dir(&format!("{}-build", form.name));
            form.check_build(&dir).expect("a fair baseline");
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    #[test]
    fn multi_get_reads_by_io_uring() {
        let dir = dir("uring");
        let config = EngineConfig { io: Io::Direct, memory_bytes: 1 << 20, ..EngineConfig::default() };
        let open = FORMS[1].open_store(&dir, &config).expect("open");
        for n in 0..20_000_u32 {
            open.put(&n.to_be_bytes(), &[7; 100], Durability::Buffered).expect("put");
        }
        open.flush().expect("flush");
        let keys: Vec<[u8; 4]> = (0..32).map(|n: u32| (n * 600).to_be_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut found = 0;
        open.multi_get(&keys, &mut |_, value| found += usize::from(value.is_some())).expect("multi_get");
        assert_eq!(found, keys.len());
        let fds = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
        let is_ring = |path: PathBuf| path.to_string_lossy().contains("io_uring");
        assert!(fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(is_ring), "no io_uring was made");
        drop(open);
        let _ = std::fs::remove_dir_all(dir);
    }
}
