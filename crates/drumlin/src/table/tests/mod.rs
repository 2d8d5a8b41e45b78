//! Tests of tables on a simulated disk, against an ordered map.

mod caches;
mod damage;
mod reads;
mod writes;

use super::*;
use drumlin_env::MemEnv;
use drumlin_env::sync::Arc;
use drumlin_format::compression::Compression;
use drumlin_format::filter::key_hash;
use drumlin_format::table::{FilterSpec, TableSummary, ValueReference};
use drumlin_format::value::{Place, RecordPlace, ValuePointer};
use drumlin_types::{Key, KeyRange, Kind, Seq, ValueFileId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All versions, in internal order.
type Versions = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

const SEED: u64 = 0x5eed;
const ID: TableId = TableId(12);

/// Small random generator: tests depend on their seed only.
struct Draw(u64);

impl Draw {
    fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        drumlin_format::filter::mix(self.0) % bound
    }

    fn versions(&mut self, count: usize) -> Versions {
        let prefix = vec![b'p'; self.next(3) as usize * 9];
        let mut versions = Versions::new();
        let mut seq = 1;
        for _ in 0..count {
            let mut key = prefix.clone();
            for _ in 0..self.next(6) {
                key.push(self.next(4) as u8 * 80);
            }
            // Sometimes a key gets enough versions to fill several blocks.
            for _ in 0..if self.next(20) == 0 { 40 } else { 1 } {
                seq += 1 + self.next(3);
                let kinds = Kind::ALL.iter().filter(|kind| **kind != Kind::DeleteRange);
                let kinds: Vec<Kind> = kinds.chain(&[Kind::Put]).copied().collect();
                let kind = kinds[self.next(7) as usize];
                let len = if kind == Kind::Delete { 0 } else { self.next(30) as usize };
                let value = match kind {
                    Kind::PutPointer => pointer(self.next(3), len as u32),
                    _ => vec![self.next(256) as u8; len],
                };
                versions.insert((key.clone(), Reverse(seq)), (kind, value));
            }
        }
        versions
    }
}

/// Returns an encoded pointer to a value of `len` bytes in one of few value files.
fn pointer(file: u64, len: u32) -> Vec<u8> {
    let record = RecordPlace { offset: 64, raw_len: len, stored_len: len };
    let mut encoded = Vec::new();
    let place = Some(Place { file: ValueFileId(1 + file), record });
    ValuePointer { place, history: None }.encode_into(&mut encoded);
    encoded
}

/// Table on its own simulated disk.
struct Fixture {
    id: TableId,
    mem: MemEnv,
    path: PathBuf,
    summary: TableSummary,
}

impl Fixture {
    fn write(
        versions: &Versions,
        tombstones: &[(KeyRange, Seq)],
        options: TableOptions,
        filter: FilterSpec,
    ) -> Fixture {
        Fixture::write_as(ID, versions, tombstones, options, filter)
    }

    fn write_as(
        id: TableId,
        versions: &Versions,
        tombstones: &[(KeyRange, Seq)],
        options: TableOptions,
        filter: FilterSpec,
    ) -> Fixture {
        let mem = MemEnv::new(1);
        let env = mem.env();
        env.fs().create_dir_all("/db".as_ref()).expect("room");
        let path = PathBuf::from("/db").join(table_file_name(id));
        let mut writer = TableWriter::create(&env, &path, id, options).expect("room");
        let mut used: BTreeMap<ValueFileId, (u64, u64)> = BTreeMap::new();
        for ((key, Reverse(seq)), (kind, value)) in versions {
            writer.add(key, *seq, *kind, value, false).expect("in order");
            if *kind == Kind::PutPointer {
                let place = ValuePointer::decode(value).expect("sound").place.expect("a place");
                let counted = used.entry(place.file).or_default();
                *counted = (counted.0 + 1, counted.1 + place.record.record_len());
            }
        }
        let used = used.into_iter().map(|(file, (entries, bytes))| ValueReference { file, entries, bytes });
        writer.set_value_files(used.collect()).expect("not finished");
        for (range, seq) in tombstones {
            writer.add_range_tombstone(range.clone(), *seq).expect("not finished");
        }
        let summary = writer.finish(filter).expect("room");
        Fixture { id, mem, path, summary }
    }

    fn open(&self, cache_bytes: usize) -> Result<Arc<Table>, Error> {
        self.open_with(&Arc::new(BlockCache::new(cache_bytes)))
    }

    fn open_with(&self, cache: &Arc<BlockCache>) -> Result<Arc<Table>, Error> {
        let len = self.summary.file_len;
        Table::open(&self.mem.env(), &self.path, self.id, len, Arc::clone(cache), SEED).map(Arc::new)
    }
}

fn options(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions { block_bytes, compression, seed: SEED, created_seq: 1, ..TableOptions::default() }
}

fn hash(key: &[u8]) -> u64 {
    key_hash(key, SEED)
}

/// Returns every key, its prefix, and the neighbouring keys.
fn keys_around(versions: &Versions) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new(), vec![255; 4]];
    for (key, _) in versions.keys() {
        let mut after = key.clone();
        after.push(0);
        keys.extend([key.clone(), after, key[..key.len() / 2].to_vec()]);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn range(start: &[u8], end: Option<&[u8]>) -> KeyRange {
    KeyRange::new(Key::new(start), end.map(Key::new))
}
