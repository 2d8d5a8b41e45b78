//! The threads run: real threads on one store, on the machine's file system, checked for strict serializability.
//!
//! Two to eight threads write batches to two keyspaces, delete ranges and use every kind of read. Another thread
//! switches policies, flushes, compacts and makes checkpoints. At the end the run reopens the store. The contents of
//! every checkpoint and of the reopened store count as further reads. [`History::check`] decides whether one order
//! explains every answer.
//!
//! The operations follow from the seed, but their interleaving does not: a failure prints what the check rejected.

use crate::certificate::{Commit, History, KeyId, Read, Seq, Span, Value};
use crate::failure::{Failure, Verdict};
use crate::parallel::guarded;
use drumlin::env::TempDir;
use drumlin::{Batch, Db, Durability, Keyspace, Result, Slice};
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_env::{Env, Random};
use std::path::Path;

/// Number of operations on one store, over all clients.
pub const OPERATIONS: usize = 50_000;
/// Number of keys per keyspace; few, so that threads collide.
const KEYS: usize = 12;
/// Store options that cause flushes, compactions and new log segments within a few hundred operations.
const OPTIONS: [(&str, &str); 2] = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB")];
/// Keyspace options with the same purpose.
const SMALL: [(&str, &str); 3] =
    [("memtable_bytes", "16KiB"), ("file_bytes", "16KiB"), ("flush_bytes", "16KiB")];
/// Policies to switch between.
const POLICIES: [&str; 6] = ["leveling:3", "tiering:3", "arce", "universal", "lazy-leveling:3", "1-leveling"];

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    operations: u64,
    moments: u64,
    swaps: u64,
    flushes: u64,
    checkpoints: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        format!(
            "threads: ops {}, moments {}, swaps {}, flushes {}, checkpoints {}, violations {}",
            self.operations,
            self.moments,
            self.swaps,
            self.flushes,
            self.checkpoints,
            self.failures.len()
        )
    }
}

/// Runs `count` stores, each with `operations` operations.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let mut figures = Figures::default();
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        if let Err(failure) = guarded(|| one(seed, operations, &mut figures)) {
            figures.failures.push((seed, failure));
            break;
        }
    }
    figures
}

/// State that the threads of one store share.
struct Shared {
    db: Db,
    keyspaces: [Keyspace; 2],
    ticks: atomic::AtomicU64,
    clients: atomic::AtomicUsize,
    history: Mutex<History>,
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, atomic::Ordering::SeqCst)
    }

    /// Runs `call`; returns its result and its time span.
    fn timed<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<(T, Span)> {
        let began = self.tick();
        let answer = call()?;
        Ok((answer, Span { began, ended: self.tick() }))
    }

    /// Adds the history of a thread that ended.
    fn ended(&self, history: History, result: std::result::Result<(), Failure>) {
        self.history.lock().extend(history);
        if let Err(failure) = result {
            self.failure.lock().get_or_insert(failure);
        }
    }
}

fn failed(error: impl ToString) -> Failure {
    Verdict::Failed.of(error.to_string())
}

fn open(home: &Path) -> Result<Db> {
    let builder =
        OPTIONS.iter().try_fold(Db::builder(home), |builder, (name, value)| builder.set(name, value));
    builder?.open()
}

/// Runs one store, from its creation to the check of its content after reopening.
fn one(seed: u64, operations: usize, figures: &mut Figures) -> std::result::Result<(), Failure> {
    let dir = TempDir::new("drumlin-threads").map_err(failed)?;
    let home = dir.path().join("store");
    let db = open(&home).map_err(failed)?;
    let [a, b] = ["a", "b"].map(|name| db.keyspace_with(name, &SMALL).map_err(failed));
    let threads = 2 + Random::new(seed, "threads").index(7);
    let shared = Arc::new(Shared {
        db,
        keyspaces: [a?, b?],
        ticks: atomic::AtomicU64::new(0),
        clients: atomic::AtomicUsize::new(threads),
        history: Mutex::default(),
        failure: Mutex::default(),
    });
    let (env, counts) = (Env::os(), Arc::new(Mutex::new((0, 0))));
    let mut handles = Vec::new();
    for number in 0..threads {
        let shared = shared.clone();
        let work = move || {
            let random = Random::new(seed, &format!("client {number}"));
            let mut client =
                Client { shared: &shared, random, value: number as u64, done: History::default() };
            let result = guarded(|| client.work(operations / threads).map_err(failed));
            let done = std::mem::take(&mut client.done);
            shared.ended(done, result);
            shared.clients.fetch_sub(1, atomic::Ordering::Release);
        };
        handles.push(env.spawn("client", work).map_err(failed)?);
    }
    let (of_admin, counted, copies) = (shared.clone(), counts.clone(), dir.path().join("copies"));
    let work = move || {
        let mut history = History::default();
        let result = guarded(|| administrate(&of_admin, seed, &copies, &mut history).map_err(failed));
        *counted.lock() = *result.as_ref().unwrap_or(&(0, 0));
        of_admin.ended(history, result.map(drop));
    };
    handles.push(env.spawn("administrator", work).map_err(failed)?);
    handles.into_iter().for_each(|thread| thread.join().expect("threads catch their panics"));
    if let Some(failure) = shared.failure.lock().take() {
        return Err(failure);
    }
    let mut history = std::mem::take(&mut *shared.history.lock());
    figures.flushes += shared.db.metrics().flushes;
    let ticks = shared.tick();
    drop(shared);
    let held = content(&open(&home).map_err(failed)?).map_err(failed)?;
    history.reads.push(Read { span: Span { began: ticks, ended: ticks + 1 }, ..held });
    figures.operations += (history.commits.len() + history.reads.len()) as u64;
    figures.moments += history.reads.len() as u64;
    history.check()?;
    let (swaps, checkpoints) = *counts.lock();
    figures.swaps += swaps;
    figures.checkpoints += checkpoints;
    Ok(())
}

/// Reads the whole content of `db`, which was just opened.
fn content(db: &Db) -> Result<Read> {
    let mut answers = Vec::new();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        answers.extend(scanned(db.keyspace(name)?.iter(), number)?);
    }
    let findings = db.verify()?.findings;
    assert!(findings.is_empty(), "{findings:?}");
    Ok(Read { span: Span { began: 0, ended: 0 }, at: Some(db.recovered_seq()), answers })
}

/// Switches policies, flushes, compacts and makes checkpoints while clients run. Returns the number of policy
/// switches and of checkpoints.
fn administrate(shared: &Shared, seed: u64, copies: &Path, history: &mut History) -> Result<(u64, u64)> {
    let (mut random, mut swaps, mut checkpoints) = (Random::new(seed, "administrator"), 0, 0);
    while shared.clients.load(atomic::Ordering::Acquire) > 0 {
        let keyspace = &shared.keyspaces[random.index(2)];
        match random.below(20) {
            0..14 => {
                keyspace.set_policy(POLICIES[random.index(POLICIES.len())])?;
                swaps += 1;
            }
            14..17 => keyspace.flush()?,
            17..19 => keyspace.compact::<&[u8]>(..)?,
            _ => {
                let copy = copies.join(checkpoints.to_string());
                let ((), span) = shared.timed(|| shared.db.checkpoint(&copy))?;
                checkpoints += 1;
                let copied = Db::builder(&copy).read_only(true).create_if_missing(false).open()?;
                history.reads.push(Read { span, ..content(&copied)? });
            }
        }
    }
    Ok((swaps, checkpoints))
}

/// A thread that writes and reads.
struct Client<'a> {
    shared: &'a Shared,
    random: Random,
    /// Next value to write; the values of all threads differ.
    value: u64,
    done: History,
}

/// Returns the key of `id` inside its keyspace.
fn name(id: KeyId) -> [u8; 2] {
    ((id % KEYS) as u16).to_be_bytes()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

fn answer(value: Option<&Slice>) -> Value {
    value.map(|value| number(value))
}

/// Returns the answers of a scan over the whole of keyspace `number`.
fn scanned(
    entries: impl Iterator<Item = Result<(Slice, Slice)>>,
    keyspace: usize,
) -> Result<Vec<(KeyId, Value)>> {
    let mut answers: Vec<(KeyId, Value)> = (0..KEYS).map(|key| (keyspace * KEYS + key, None)).collect();
    for entry in entries {
        let (key, value) = entry?;
        let key = u16::from_be_bytes(key[..].try_into().expect("two bytes"));
        assert!(answers[key as usize].1.is_none(), "a scan gives a key twice");
        answers[key as usize].1 = Some(number(&value));
    }
    Ok(answers)
}

impl Client<'_> {
    fn work(&mut self, operations: usize) -> Result<()> {
        for _ in 0..operations {
            match self.random.below(10) {
                0..4 => self.write()?,
                4..7 => self.read_one()?,
                7 => self.read_many()?,
                8 => self.scan()?,
                _ => self.read_snapshot()?,
            }
        }
        Ok(())
    }

    fn key(&mut self) -> KeyId {
        self.random.index(2 * KEYS)
    }

    fn keyspace(&self, key: KeyId) -> &Keyspace {
        &self.shared.keyspaces[key / KEYS]
    }

    /// Writes a batch of up to four operations, or a single operation.
    fn write(&mut self) -> Result<()> {
        let (mut batch, mut writes) = (Batch::new(), Vec::new());
        for _ in 0..self.random.below(4).max(1) {
            let key = self.key();
            let keyspace = &self.shared.keyspaces[key / KEYS];
            match self.random.below(12) {
                0 => {
                    let base = key / KEYS * KEYS;
                    let end = key + self.random.index(base + KEYS - key);
                    batch.delete_range(keyspace, name(key)..=name(end));
                    writes.push((key..=end).map(|key| (key, None)).collect());
                }
                1 | 2 => {
                    batch.delete(keyspace, name(key));
                    writes.push(vec![(key, None)]);
                }
                _ => {
                    self.value += 64;
                    let filler = self.random.index(200);
                    let value: Vec<u8> = [&self.value.to_le_bytes()[..], &[7; 200][..filler]].concat();
                    batch.put(keyspace, name(key), value);
                    writes.push(vec![(key, Some(self.value))]);
                }
            }
        }
        let durability = if self.random.chance(1, 200) { Durability::Sync } else { Durability::Buffered };
        let (last, span) = self.shared.timed(|| self.shared.db.write_with(batch, durability))?;
        self.done.commits.push(Commit { span, last, writes });
        Ok(())
    }

    fn read(&mut self, span: Span, at: Option<Seq>, answers: Vec<(KeyId, Value)>) {
        self.done.reads.push(Read { span, at, answers });
    }

    fn read_one(&mut self) -> Result<()> {
        let key = self.key();
        let (value, span) = self.shared.timed(|| self.keyspace(key).get(name(key)))?;
        self.read(span, None, vec![(key, answer(value.as_ref()))]);
        Ok(())
    }

    fn read_many(&mut self) -> Result<()> {
        let base = self.random.index(2) * KEYS;
        let keys: Vec<KeyId> = (0..4).map(|_| base + self.random.index(KEYS)).collect();
        let (values, span) =
            self.shared.timed(|| self.keyspace(base).multi_get(keys.iter().map(|key| name(*key))))?;
        let answers = keys.into_iter().zip(values.iter().map(|value| answer(value.as_ref())));
        self.read(span, None, answers.collect());
        Ok(())
    }

    /// Scans forwards, backwards, or with a cursor.
    fn scan(&mut self) -> Result<()> {
        let (number, how) = (self.random.index(2), self.random.below(3));
        let keyspace = &self.shared.keyspaces[number];
        let (answers, span) = self.shared.timed(|| match how {
            0 => scanned(keyspace.iter(), number),
            1 => scanned(keyspace.iter().rev(), number),
            _ => {
                let (mut cursor, mut entries) = (keyspace.cursor::<&[u8]>(..)?, Vec::new());
                let mut is_valid = cursor.seek_first()?;
                while is_valid {
                    let (key, value) = cursor.entry().expect("it is valid");
                    entries.push(Ok((Slice::from(key), Slice::from(value))));
                    is_valid = cursor.next()?;
                }
                scanned(entries.into_iter(), number)
            }
        })?;
        self.read(span, None, answers);
        Ok(())
    }

    /// Reads both keyspaces from a snapshot after other operations have run.
    fn read_snapshot(&mut self) -> Result<()> {
        let (snapshot, span) = self.shared.timed(|| Ok(self.shared.db.snapshot()))?;
        if self.random.chance(1, 2) {
            self.write()?;
        }
        let mut answers = Vec::new();
        for (number, keyspace) in self.shared.keyspaces.iter().enumerate() {
            match self.random.below(3) {
                0 => answers.extend(scanned(snapshot.range::<&[u8]>(keyspace, ..), number)?),
                1 => {
                    let keys: Vec<KeyId> = (number * KEYS..(number + 1) * KEYS).collect();
                    let names: Vec<[u8; 2]> = keys.iter().map(|key| name(*key)).collect();
                    let values = snapshot.multi_get(keyspace, &names)?;
                    answers.extend(keys.into_iter().zip(values.iter().map(|value| answer(value.as_ref()))));
                }
                _ => {
                    let key = number * KEYS + self.random.index(KEYS);
                    answers.push((key, answer(snapshot.get(keyspace, name(key))?.as_ref())));
                }
            }
        }
        let at = snapshot.seq();
        self.read(span, Some(at), answers);
        Ok(())
    }
}
