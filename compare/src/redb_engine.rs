//! Adapter of redb: a B-tree, as a reference for the cost of reads.
//!
//! Its default commit is durable, which is `sync`. Its other commit stays in memory until a durable one follows, which
//! is `none` and weaker than `buffered`. `buffered` writes use that commit too, so that stores are loaded and redb's
//! reads can be measured. But these writes are cheaper than the guarantee requires: phases with such writes are run and
//! not reported. All counters are `null`, because redb reports none.

use drumlin_bench::engine::{
    Counters, Demands, Direction, Durability, Engine, EngineConfig, EngineKind, Io, Result, Visit,
};
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::path::Path;

/// redb as an engine kind.
pub struct Redb;

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("bench");

type Reads = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct Open {
    db: Database,
    options: BTreeMap<String, String>,
}

fn text(error: impl Into<redb::Error>) -> String {
    error.into().to_string()
}

impl EngineKind for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn lacks(&self, config: &EngineConfig) -> Option<String> {
        (config.io == Io::Direct).then(|| "redb has no direct I/O".to_owned())
    }

    fn uncompared(&self, demands: Demands) -> Option<String> {
        (demands.writes == Some(Durability::Buffered)).then(|| "redb has no buffered writes".to_owned())
    }

    fn open(&self, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Engine>> {
        std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        let mut builder = Database::builder();
        builder.set_cache_size(config.memory_bytes as usize);
        let db = builder.create(dir.join("bench.redb")).map_err(text)?;
        let options = BTreeMap::from([("cache_size".to_owned(), config.memory_bytes.to_string())]);
        let open = Open { db, options };
        open.write(Durability::Sync, |_| Ok(()))?;
        Ok(Box::new(open))
    }
}

impl Open {
    /// Applies `change` to the table in one commit.
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db.begin_write().map_err(text)?;
        let promise = match durability {
            Durability::Sync => redb::Durability::Immediate,
            Durability::None | Durability::Buffered => redb::Durability::None,
        };
        transaction.set_durability(promise).map_err(text)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(text)?;
            change(&mut table)?;
        }
        transaction.commit().map_err(text)
    }

    fn reads(&self) -> Result<(ReadTransaction, Reads)> {
        let transaction = self.db.begin_read().map_err(text)?;
        let table = transaction.open_table(TABLE).map_err(text)?;
        Ok((transaction, table))
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(durability, |table| table.insert(key, value).map(drop).map_err(text))
    }

    fn batch(&self, entries: &[(&[u8], &[u8])], durability: Durability) -> Result<()> {
        self.write(durability, |table| {
            entries.iter().try_for_each(|(key, value)| table.insert(*key, *value).map(drop).map_err(text))
        })
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write(durability, |table| table.remove(key).map(drop).map_err(text))
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (_transaction, table) = self.reads()?;
        let value = table.get(key).map_err(text)?;
        if let Some(value) = &value {
            visit(value.value());
        }
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let (_transaction, table) = self.reads()?;
        for (position, key) in keys.iter().enumerate() {
            let value = table.get(*key).map_err(text)?;
            visit(position, value.as_ref().map(|value| value.value()));
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
        let (_transaction, table) = self.reads()?;
        let mut range = match (direction, from) {
            (_, None) => table.iter(),
            (Direction::Forward, Some(from)) => table.range::<&[u8]>(from..),
            (Direction::Back, Some(from)) => table.range::<&[u8]>(..=from),
        }
        .map_err(text)?;
        let mut given = 0;
        while given < limit {
            let entry = match direction {
                Direction::Forward => range.next(),
                Direction::Back => range.next_back(),
            };
            let Some(entry) = entry else { break };
            let (key, value) = entry.map_err(text)?;
            visit(key.value(), value.value());
            given += 1;
        }
        Ok(given)
    }

    fn flush(&self) -> Result<()> {
        self.write(Durability::Sync, |_| Ok(()))
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        // redb's compaction shrinks the file but makes no read faster, and it needs exclusive access to the database.
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn options(&self) -> BTreeMap<String, String> {
        self.options.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
