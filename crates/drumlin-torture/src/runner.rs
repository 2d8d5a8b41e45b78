//! Drives a store in a simulated world by a workload, and holds every answer against the oracle.
//!
//! Before each operation the runner writes down what is promised from now on, and after it what has been: a recorder
//! that takes pictures of the disk in between keeps a copy with each picture. Sequence numbers are foretold, so that
//! the oracle knows a commit before the store does.

use crate::failure::{Failure, Verdict};
use crate::ops::{Bounds, Change, Item, KEY_MARK, Op, VALUE_MARK};
use crate::oracle::{Content, Cut, Map, Oracle, Promise, Seq, show};
use crate::workload::{KeyspaceSetup, Workload};
use drumlin::{AddI64, Append, Batch, Db, Durability, Event, EventListener, Keyspace, Snapshot};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{ImageMode, MemEnv};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where the store is.
pub const STORE: &str = "/store";

/// Keeps what the store says went wrong in the background.
#[derive(Default)]
struct Complaints(Mutex<Vec<String>>);

impl EventListener for Complaints {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Recovered { .. } => {}
            other => self.0.lock().push(format!("{other:?}")),
        }
    }
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Policies swapped.
    pub swaps: u64,
    /// I/O calls.
    pub calls: u64,
    /// Flushes, merges and moves installed.
    pub installs: u64,
    /// Times the store was opened again.
    pub reopened: u64,
    /// Full comparisons with the oracle.
    pub comparisons: u64,
    /// Checkpoints compared.
    pub checkpoints: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.operations += other.operations;
        self.swaps += other.swaps;
        self.calls += other.calls;
        self.installs += other.installs;
        self.reopened += other.reopened;
        self.comparisons += other.comparisons;
        self.checkpoints += other.checkpoints;
    }
}

/// A store under test, with its oracle.
pub struct Runner {
    /// The world.
    pub mem: MemEnv,
    /// What was written.
    pub oracle: Oracle,
    /// What is promised; recorders look at it.
    pub promise: Arc<Mutex<Promise>>,
    /// What happened.
    pub tally: Tally,
    /// Every answer, as text, when it is kept.
    pub history: Option<String>,
    setup: Workload,
    db: Option<Db>,
    keyspaces: BTreeMap<String, Keyspace>,
    snapshots: BTreeMap<String, (Snapshot, Seq)>,
    complaints: Arc<Complaints>,
    checkpoints: u32,
    kills: u64,
}

fn failed(what: &str) -> impl FnOnce(drumlin::Error) -> Failure + '_ {
    move |error| {
        let text = format!("{error} {error:?}");
        let is_bug = error.kind() == drumlin::ErrorKind::Bug;
        let verdict = if leaks(&text) && !is_bug { Verdict::Leaked } else { Verdict::Failed };
        verdict.of(format!("{what}: {error}"))
    }
}

fn leaks(text: &str) -> bool {
    text.contains(KEY_MARK) || text.contains(VALUE_MARK)
}

fn builder(mem: &MemEnv, setup: &Workload, path: &Path, complaints: &Arc<Complaints>) -> drumlin::Builder {
    let mut builder = Db::builder(path).env(mem.env()).listener(complaints.clone());
    for keyspace in &setup.keyspaces {
        builder = if keyspace.counts {
            builder.merge_operator(&keyspace.name, Arc::new(AddI64::Text))
        } else {
            builder.merge_operator(&keyspace.name, Arc::new(Append::new("")))
        };
    }
    for (name, value) in &setup.store {
        builder = builder.set(name, value).expect("a workload has legal options");
    }
    builder
}

/// Opens the store of `setup` in `mem`.
pub fn open(mem: &MemEnv, setup: &Workload) -> drumlin::Result<Db> {
    builder(mem, setup, Path::new(STORE), &Arc::default()).open()
}

/// Everything in `db`.
pub fn contents(db: &Db) -> drumlin::Result<BTreeMap<String, Content>> {
    let content = |name: String| {
        let entries = db.keyspace(&name)?.iter();
        let content = entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok((name, content.collect::<drumlin::Result<Content>>()?))
    };
    db.keyspaces().into_iter().map(content).collect()
}

impl Runner {
    /// A new store in `mem`.
    pub fn create(mem: MemEnv, setup: &Workload) -> Result<Runner, Failure> {
        Runner::create_promising(mem, setup, Arc::default())
    }

    /// A new store in `mem`, which keeps what it promises in `promise`.
    pub fn create_promising(
        mem: MemEnv,
        setup: &Workload,
        promise: Arc<Mutex<Promise>>,
    ) -> Result<Runner, Failure> {
        let mut runner = Runner::closed(mem, setup, Oracle::default(), promise);
        runner.start()?;
        Ok(runner)
    }

    /// A store in `mem` that was recovered at `cut`, with the oracle of all that was written before.
    pub fn resume(mem: MemEnv, setup: &Workload, oracle: &Oracle, cut: &Cut) -> Result<Runner, Failure> {
        let mut runner = Runner::closed(mem, setup, oracle.recovered(cut), Arc::default());
        let lives = cut.lives.iter().map(|(name, life)| (name.clone(), vec![Some(*life)])).collect();
        runner.promise.lock().lives = lives;
        runner.start()?;
        let mut promise = runner.promise.lock();
        promise.issued = runner.db().visible_seq();
        promise.buffered = promise.issued;
        drop(promise);
        Ok(runner)
    }

    fn closed(mem: MemEnv, setup: &Workload, oracle: Oracle, promise: Arc<Mutex<Promise>>) -> Runner {
        Runner {
            mem,
            oracle,
            promise,
            tally: Tally::default(),
            history: None,
            setup: Workload { ops: Vec::new(), ..setup.clone() },
            db: None,
            keyspaces: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            complaints: Arc::default(),
            checkpoints: 0,
            kills: 0,
        }
    }

    /// Opens the store and makes the keyspaces that are missing.
    fn start(&mut self) -> Result<(), Failure> {
        let opened = builder(&self.mem, &self.setup, Path::new(STORE), &self.complaints).open();
        let db = opened.map_err(|e| Verdict::Unopenable.of(e.to_string()))?;
        for name in db.keyspaces() {
            let keyspace = db.keyspace(&name).map_err(failed("keyspace"))?;
            self.keyspaces.insert(name, keyspace);
        }
        self.db = Some(db);
        for keyspace in self.setup.keyspaces.clone() {
            self.make_keyspace(&keyspace)?;
        }
        Ok(())
    }

    /// The open store.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open between operations")
    }

    fn make_keyspace(&mut self, setup: &KeyspaceSetup) -> Result<(), Failure> {
        let name = &setup.name;
        if self.keyspaces.contains_key(name) {
            return Ok(());
        }
        let lives = self.oracle.maps.entry(name.clone()).or_default();
        lives.push(Map::new(setup.counts, setup.unlogged));
        let life = lives.len() - 1;
        self.promise.lock().lives.insert(name.clone(), vec![None, Some(life)]);
        let options: Vec<(&str, &str)> = setup.options.iter().map(|(n, v)| (&**n, &**v)).collect();
        let keyspace = self.db().keyspace_with(name, &options).map_err(failed("keyspace"))?;
        self.promise.lock().lives.insert(name.clone(), vec![Some(life)]);
        self.keyspaces.insert(name.clone(), keyspace);
        Ok(())
    }

    /// Runs `ops`, with a full comparison every `every` operations and at the end.
    pub fn run(&mut self, ops: &[Op], every: usize) -> Result<(), Failure> {
        for (number, op) in ops.iter().enumerate() {
            self.promise.lock().operations = number;
            self.apply(op).map_err(|failure| failure.within(&op.to_string()).at(number))?;
            self.tally.operations += 1;
            if (number + 1) % every == 0 {
                self.compare_all().map_err(|failure| failure.at(number))?;
            }
        }
        self.compare_all().and_then(|()| self.check_health()).map_err(|failure| failure.at(ops.len()))
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push_str(&line());
            history.push('\n');
        }
    }

    /// Carries out one operation.
    pub fn apply(&mut self, op: &Op) -> Result<(), Failure> {
        match op {
            Op::Write { items, durability } => self.write(items, *durability)?,
            Op::Snap(name) => {
                let snapshot = self.db().snapshot();
                let seq = snapshot.seq();
                self.expect_seq("a snapshot", seq, self.db().visible_seq())?;
                self.snapshots.insert(name.clone(), (snapshot, seq));
            }
            Op::Drop(name) => drop(self.snapshots.remove(name)),
            Op::Get { at, keyspace, key } => {
                self.multi_get(at.as_deref(), keyspace, std::slice::from_ref(key), true)?
            }
            Op::MultiGet { at, keyspace, keys } => self.multi_get(at.as_deref(), keyspace, keys, false)?,
            Op::Scan { at, keyspace, bounds, reverse } => {
                self.scan(at.as_deref(), keyspace, bounds, *reverse)?;
            }
            Op::Step(steps) => drop(self.db().step_background(*steps).map_err(failed("step"))?),
            Op::Idle => self.db().wait_idle().map_err(failed("idle"))?,
            Op::Sync => self.db().sync().map_err(failed("sync"))?,
            Op::Sleep(micros) => self.mem.advance(*micros),
            Op::Checkpoint => self.checkpoint()?,
            Op::Reopen => self.reopen(true)?,
            Op::Kill => self.reopen(false)?,
            Op::MakeKeyspace(name) => {
                if let Some(setup) = self.setup.keyspaces.iter().find(|k| k.name == *name).cloned() {
                    self.make_keyspace(&setup)?;
                }
            }
            Op::DropKeyspace(name) => self.drop_keyspace(name)?,
            Op::Flush(name) | Op::Compact { keyspace: name, .. } => self.settle(op, name)?,
            Op::Policy { keyspace, name } => self.swap(keyspace, name)?,
            Op::Set { keyspace, option, value } => {
                if let Some(keyspace) = self.keyspaces.get(keyspace) {
                    keyspace.set_option(option, value).map_err(failed("option"))?;
                }
            }
        }
        self.keep_promises();
        self.check_complaints()
    }

    /// Switches the policy of `keyspace`.
    pub fn swap(&mut self, keyspace: &str, policy: &str) -> Result<(), Failure> {
        if let Some(keyspace) = self.keyspaces.get(keyspace) {
            keyspace.set_policy(policy).map_err(failed("policy"))?;
            self.tally.swaps += 1;
        }
        Ok(())
    }

    fn settle(&mut self, op: &Op, name: &str) -> Result<(), Failure> {
        let Some(keyspace) = self.keyspaces.get(name) else { return Ok(()) };
        match op {
            Op::Compact { bounds, .. } => {
                keyspace.compact::<&[u8]>(std_range(bounds)).map_err(failed("compact"))?;
            }
            _ => keyspace.flush().map_err(failed("flush"))?,
        }
        let seq = self.db().visible_seq();
        self.promise.lock().flushed.insert(name.to_owned(), seq);
        Ok(())
    }

    fn keep_promises(&mut self) {
        let durable = self.db().durable_seq();
        let mut promise = self.promise.lock();
        promise.synced = promise.synced.max(durable.min(promise.issued));
        promise.buffered = promise.issued;
    }

    fn expect_seq(&self, what: &str, seq: Seq, wanted: Seq) -> Result<(), Failure> {
        if seq == wanted {
            return Ok(());
        }
        Err(Verdict::Wrong.of(format!("{what} has sequence number {seq}, not {wanted}")))
    }

    fn write(&mut self, items: &[Item], durability: Durability) -> Result<(), Failure> {
        let mut live: Vec<Item> =
            items.iter().filter(|item| self.keyspaces.contains_key(&item.keyspace)).cloned().collect();
        // A keyspace is written with the log or without it for all of its life.
        let is_unlogged = |name: &str| self.oracle.map(name).is_some_and(|map| map.unlogged);
        let alone = live.first().map(|item| item.keyspace.clone()).filter(|name| is_unlogged(name));
        live.retain(|item| match &alone {
            Some(name) => item.keyspace == *name,
            None => !is_unlogged(&item.keyspace),
        });
        let durability = match durability {
            _ if alone.is_some() => Durability::None,
            Durability::None => Durability::Buffered,
            logged => logged,
        };
        let mut batch = Batch::new();
        let mut written = Vec::new();
        for item in live {
            let keyspace = &self.keyspaces[&item.keyspace];
            let counts = self.oracle.map(&item.keyspace).is_some_and(|map| map.counts);
            match &item.change {
                Change::Put(key, value) => batch.put(keyspace, key, value.bytes(counts)),
                Change::Delete(key) => batch.delete(keyspace, key),
                Change::DeleteRange(bounds) if is_empty(bounds) => continue,
                Change::DeleteRange(bounds) => batch.delete_range::<&[u8]>(keyspace, std_range(bounds)),
                Change::Merge(key, operand) => batch.merge(keyspace, key, operand.bytes(counts)),
            }
            written.push(item);
        }
        if written.is_empty() {
            return Ok(());
        }
        let end = self.oracle.commit(&written, self.db().visible_seq() + 1);
        self.promise.lock().issued = end;
        let seq = self.db().write_with(batch, durability).map_err(failed("write"))?;
        self.expect_seq("a commit", seq, end)?;
        self.expect_seq("the visible state", self.db().visible_seq(), end)?;
        if durability == Durability::Sync {
            let durable = self.db().durable_seq();
            if durable < end {
                let what = format!("durable_seq is {durable} after a synced commit {end}");
                return Err(Verdict::Wrong.of(what));
            }
        }
        Ok(())
    }

    /// The snapshot called `at`, and its number; none when the workload has none of that name.
    fn moment(&self, at: Option<&str>) -> Option<(Option<&Snapshot>, Seq)> {
        match at {
            None => Some((None, self.db().visible_seq())),
            Some(name) => self.snapshots.get(name).map(|(snapshot, seq)| (Some(snapshot), *seq)),
        }
    }

    fn multi_get(
        &mut self,
        at: Option<&str>,
        name: &str,
        keys: &[String],
        single: bool,
    ) -> Result<(), Failure> {
        let (Some(keyspace), Some(map)) = (self.keyspaces.get(name), self.oracle.map(name)) else {
            return Ok(());
        };
        let Some((snapshot, seq)) = self.moment(at) else { return Ok(()) };
        let found = match (snapshot, single) {
            (None, true) => keyspace.get(&keys[0]).map(|value| vec![value]),
            (Some(snapshot), true) => snapshot.get(keyspace, &keys[0]).map(|value| vec![value]),
            (None, false) => keyspace.multi_get(keys),
            (Some(snapshot), false) => snapshot.multi_get(keyspace, keys),
        };
        let found = found.map_err(failed("get"))?;
        let mut answers = String::new();
        for (key, found) in keys.iter().zip(&found) {
            let wanted = map.get(key.as_bytes(), seq);
            if found.as_deref() != wanted {
                let (found, wanted) = (show(found.as_deref()), show(wanted));
                let what = format!("keyspace {name}, key {key} as of {seq}: {found}, not {wanted}");
                return Err(Verdict::Wrong.of(what));
            }
            answers += &show(found.as_deref());
        }
        self.note(|| format!("{name} {answers}"));
        Ok(())
    }

    fn scan(&mut self, at: Option<&str>, name: &str, bounds: &Bounds, reverse: bool) -> Result<(), Failure> {
        if is_empty(bounds) {
            return Ok(());
        }
        let (Some(keyspace), Some(map)) = (self.keyspaces.get(name), self.oracle.map(name)) else {
            return Ok(());
        };
        let Some((snapshot, seq)) = self.moment(at) else { return Ok(()) };
        let entries = match snapshot {
            None => keyspace.range::<&[u8]>(std_range(bounds)),
            Some(snapshot) => snapshot.range::<&[u8]>(keyspace, std_range(bounds)),
        };
        let (seen, digest) = if reverse {
            compare(name, entries.rev(), map.scan(bounds, seq).rev())?
        } else {
            compare(name, entries, map.scan(bounds, seq))?
        };
        self.note(|| format!("{name} {seen} entries {digest:x}"));
        Ok(())
    }

    /// Scans every keyspace both ways, as of now and as of each snapshot.
    pub fn compare_all(&mut self) -> Result<(), Failure> {
        let moments: Vec<Option<String>> =
            std::iter::once(None).chain(self.snapshots.keys().cloned().map(Some)).collect();
        let names: Vec<String> = self.keyspaces.keys().cloned().collect();
        for at in &moments {
            for name in &names {
                for reverse in [false, true] {
                    self.scan(at.as_deref(), name, &Bounds::default(), reverse).map_err(|failure| {
                        let at = at.as_deref().unwrap_or("now");
                        let way = if reverse { "backwards" } else { "forwards" };
                        failure.within(&format!("full scan of {name} {way} at {at}"))
                    })?;
                }
            }
        }
        self.tally.comparisons += 1;
        Ok(())
    }

    /// Checks what must hold at any time: no complaint, no broken order, nothing for `verify` to find, no user bytes
    /// in the log of decisions.
    pub fn check_health(&mut self) -> Result<(), Failure> {
        self.check_quietly()?;
        let report = self.db().verify().map_err(failed("verify"))?;
        if let Some(finding) = report.findings.first() {
            return Err(Verdict::Unsound.of(format!("{finding:?}")));
        }
        for decision in self.db().explain() {
            if leaks(&format!("{decision:?}")) {
                return Err(Verdict::Leaked.of(format!("{decision:?}")));
            }
        }
        Ok(())
    }

    fn check_quietly(&self) -> Result<(), Failure> {
        if let Some(violation) = self.mem.order_violations().first() {
            return Err(Verdict::Order.of(violation));
        }
        self.check_complaints()
    }

    fn check_complaints(&self) -> Result<(), Failure> {
        if let Some(complaint) = self.complaints.0.lock().first() {
            return Err(Verdict::Failed.of(complaint));
        }
        Ok(())
    }

    fn drop_keyspace(&mut self, name: &str) -> Result<(), Failure> {
        if self.keyspaces.remove(name).is_none() {
            return Ok(());
        }
        let life = self.oracle.maps[name].len() - 1;
        self.promise.lock().lives.insert(name.to_owned(), vec![Some(life), None]);
        self.db().drop_keyspace(name).map_err(failed("drop-keyspace"))?;
        let mut promise = self.promise.lock();
        promise.lives.remove(name);
        promise.flushed.remove(name);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        // What an earlier life of the world left is in the way.
        let taken = self.mem.files();
        let free = |number: &u32| {
            let path = PathBuf::from(format!("/checkpoint-{number}"));
            !taken.iter().any(|file| file.starts_with(&path))
        };
        self.checkpoints = (self.checkpoints + 1..).find(free).unwrap_or(u32::MAX);
        let path = PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        self.db().checkpoint(&path).map_err(failed("checkpoint"))?;
        let seq = self.db().visible_seq();
        for name in self.keyspaces.keys() {
            self.promise.lock().flushed.insert(name.clone(), seq);
        }
        let copy = builder(&self.mem, &self.setup, &path, &Arc::default()).open();
        let copy = copy.map_err(failed("opening a checkpoint"))?;
        let found = contents(&copy).map_err(failed("reading a checkpoint"))?;
        if !found.keys().eq(self.keyspaces.keys()) {
            return Err(Verdict::Wrong.of("a checkpoint has other keyspaces"));
        }
        for (name, content) in found {
            if self.oracle.map(&name).map(|map| map.content(seq)) != Some(content) {
                return Err(Verdict::Wrong.of(format!("keyspace {name} of a checkpoint differs")));
            }
        }
        self.tally.checkpoints += 1;
        copy.close().map_err(failed("closing a checkpoint"))
    }

    /// Closes the store, or lets the process die, and opens it again.
    fn reopen(&mut self, cleanly: bool) -> Result<(), Failure> {
        self.check_quietly()?;
        self.count();
        self.snapshots.clear();
        self.keyspaces.clear();
        let db = self.db.take().expect("the store is open between operations");
        if cleanly {
            db.close().map_err(failed("close"))?;
            // Whatever a clean close leaves is as good as synced.
            let mut promise = self.promise.lock();
            promise.synced = promise.issued;
        } else {
            self.kills += 1;
            self.mem = self.mem.snapshot().image(ImageMode::All, self.setup.seed ^ self.kills);
            drop(db);
        }
        self.tally.reopened += 1;
        let opened = builder(&self.mem, &self.setup, Path::new(STORE), &self.complaints).open();
        let db = opened.map_err(|e| Verdict::Unopenable.of(e.to_string()))?;
        let found = contents(&db).map_err(failed("reading after opening again"))?;
        let promise = self.promise.lock().clone();
        let cut = self.oracle.find_cut(&found, &promise, false, db.visible_seq())?;
        self.oracle = self.oracle.recovered(&cut);
        {
            let mut promise = self.promise.lock();
            promise.lives = cut.lives.iter().map(|(name, life)| (name.clone(), vec![Some(*life)])).collect();
            promise.issued = db.visible_seq();
            promise.buffered = promise.issued;
        }
        for name in db.keyspaces() {
            let keyspace = db.keyspace(&name).map_err(failed("keyspace"))?;
            self.keyspaces.insert(name, keyspace);
        }
        self.db = Some(db);
        Ok(())
    }

    /// Adds what the open store and its world counted to the tally.
    fn count(&mut self) {
        let metrics = self.db().metrics();
        self.tally.installs += metrics.flushes + metrics.merges + metrics.moves;
        self.tally.calls = self.mem.io_index();
    }

    /// Ends the run: waits for quiet, looks for orphans, closes.
    pub fn finish(mut self) -> Result<Tally, Failure> {
        self.snapshots.clear();
        self.db().wait_idle().map_err(failed("idle"))?;
        self.check_orphans()?;
        self.count();
        self.keyspaces.clear();
        let db = self.db.take().expect("the store is open between operations");
        db.close().map_err(failed("close"))?;
        self.check_quietly()?;
        Ok(self.tally)
    }

    /// Every table on disk belongs to a tree.
    pub fn check_orphans(&self) -> Result<(), Failure> {
        let shapes = self.db().tree();
        let files = shapes.iter().flat_map(|shape| &shape.levels).flat_map(|level| &level.runs);
        let live: BTreeSet<u64> = files.flat_map(|run| &run.files).map(|file| file.table).collect();
        let tables = self.mem.files().into_iter().filter(|path| path.starts_with(STORE)).filter_map(|path| {
            use drumlin_format::names::FileName;
            match FileName::parse(path.file_name()?.to_str()?) {
                Some(FileName::Table(id)) => Some(id.0),
                _ => None,
            }
        });
        match tables.into_iter().find(|table| !live.contains(table)) {
            Some(table) => Err(Verdict::Orphan.of(format!("table {table} belongs to no tree"))),
            None => Ok(()),
        }
    }
}

/// Compares what an iterator gives with what it should; the number of entries, and a hash of them.
fn compare<'a>(
    name: &str,
    entries: impl Iterator<Item = drumlin::Result<(drumlin::Slice, drumlin::Slice)>>,
    mut wanted: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(usize, u64), Failure> {
    let (mut seen, mut digest) = (0, 0u64);
    for entry in entries {
        let (key, value) = entry.map_err(failed("scan"))?;
        let expected = wanted.next();
        if expected != Some((&*key, &*value)) {
            let found = format!("{} = {}", String::from_utf8_lossy(&key), show(Some(&value)));
            let expected = expected.map_or("the end".to_owned(), |(key, value)| {
                format!("{} = {}", String::from_utf8_lossy(key), show(Some(value)))
            });
            let what = format!("keyspace {name}, entry {seen}: {found}, not {expected}");
            return Err(Verdict::Wrong.of(what));
        }
        seen += 1;
        for byte in key.iter().chain(value.iter()) {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    match wanted.next() {
        None => Ok((seen, digest)),
        Some((key, _)) => {
            let key = String::from_utf8_lossy(key);
            Err(Verdict::Wrong
                .of(format!("keyspace {name}: the scan ends after {seen} entries, before {key}")))
        }
    }
}

fn is_empty(bounds: &Bounds) -> bool {
    match (&bounds.start, &bounds.end) {
        (Some(start), Some(end)) => start >= end,
        (None, Some(end)) => end.is_empty(),
        _ => false,
    }
}

fn std_range(bounds: &Bounds) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let start = bounds.start.as_ref().map_or(Unbounded, |start| Included(start.as_bytes()));
    let end = bounds.end.as_ref().map_or(Unbounded, |end| Excluded(end.as_bytes()));
    (start, end)
}
