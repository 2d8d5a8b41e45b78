//! Runs a workload on a store in a simulated world and compares every answer with the oracle.
//!
//! Before each operation, and after it, the runner updates what the store has promised so far. A recorder that takes
//! disk snapshots meanwhile stores a copy of this promise with each snapshot. The runner predicts sequence numbers,
//! so the oracle includes a commit before the store does.

mod copies;

use crate::complaints::Complaints;
use crate::failure::{Failure, Verdict};
use crate::ops::{Bounds, Item, KEY_MARK, Op, VALUE_MARK};
use crate::oracle::{Content, Cut, Map, Oracle, Promise, Renamed, Seq, other_name, own_name, show};
use crate::workload::{KeyspaceSetup, Workload};
use drumlin::{AddI64, Append, Batch, Db, Durability, Keyspace, Snapshot};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{ImageMode, MemEnv};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Path of the store.
pub const STORE: &str = "/store";

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Policy switches.
    pub swaps: u64,
    /// I/O calls.
    pub calls: u64,
    /// Installed flushes, compactions and trivial moves.
    pub installs: u64,
    /// Reopenings of the store.
    pub reopened: u64,
    /// Full comparisons with the oracle.
    pub comparisons: u64,
    /// Renames of keyspaces.
    pub renames: u64,
    /// Checkpoints compared.
    pub checkpoints: u64,
    /// Repairs compared.
    pub repairs: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.operations += other.operations;
        self.swaps += other.swaps;
        self.calls += other.calls;
        self.installs += other.installs;
        self.reopened += other.reopened;
        self.comparisons += other.comparisons;
        self.renames += other.renames;
        self.checkpoints += other.checkpoints;
        self.repairs += other.repairs;
    }
}

/// A store under test, with its oracle.
pub struct Runner {
    /// Simulated world.
    pub mem: MemEnv,
    /// All writes so far.
    pub oracle: Oracle,
    /// What the store has promised; read by recorders.
    pub promise: Arc<Mutex<Promise>>,
    /// Counts so far.
    pub tally: Tally,
    /// Every answer as text, if recorded.
    pub history: Option<String>,
    setup: Workload,
    db: Option<Db>,
    pub(crate) keyspaces: BTreeMap<String, Keyspace>,
    snapshots: BTreeMap<String, (Snapshot, Seq, u64)>,
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
        for name in [keyspace.name.clone(), other_name(&keyspace.name)] {
            builder = if keyspace.counts {
                builder.merge_operator(&name, Arc::new(AddI64::Text))
            } else {
                builder.merge_operator(&name, Arc::new(Append::new("")))
            };
        }
    }
    for (name, value) in &setup.store {
        builder = builder.set(name, value).expect("a workload has legal options");
    }
    builder
}

/// Opens the store of `setup` in `mem`.
pub fn open(mem: &MemEnv, setup: &Workload) -> drumlin::Result<Db> {
    open_at(mem, setup, Path::new(STORE))
}

/// Opens the store at `path` in `mem` with the options of `setup`.
pub fn open_at(mem: &MemEnv, setup: &Workload, path: &Path) -> drumlin::Result<Db> {
    builder(mem, setup, path, &Arc::default()).open()
}

/// Opens the store that a repair of `setup`'s store wrote to `path` in `mem`. Keyspaces in `names` that `setup` lacks
/// get a merge operator that accepts every operand.
pub fn open_repaired<'a>(
    mem: &MemEnv,
    setup: &Workload,
    path: &Path,
    names: impl Iterator<Item = &'a String>,
) -> drumlin::Result<Db> {
    let whole = builder(mem, setup, path, &Arc::default());
    let others = names.filter(|name| setup.keyspaces.iter().all(|keyspace| keyspace.name != **name));
    others.fold(whole, |all, name| all.merge_operator(name, Arc::new(Append::new("")))).open()
}

/// Returns the whole content of `db`, with the names that the workload uses.
pub fn contents(db: &Db) -> drumlin::Result<BTreeMap<String, Content>> {
    let content = |name: String| {
        let entries = db.keyspace(&name)?.iter();
        let content = entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok((own_name(&name).to_owned(), content.collect::<drumlin::Result<Content>>()?))
    };
    db.keyspaces().into_iter().map(content).collect()
}

impl Runner {
    /// Creates a new store in `mem`.
    pub fn create(mem: MemEnv, setup: &Workload) -> Result<Runner, Failure> {
        Runner::create_promising(mem, setup, Arc::default())
    }

    /// Creates a new store in `mem` that records its promises in `promise`.
    pub fn create_promising(
        mem: MemEnv,
        setup: &Workload,
        promise: Arc<Mutex<Promise>>,
    ) -> Result<Runner, Failure> {
        let mut runner = Runner::closed(mem, setup, Oracle::default(), promise);
        runner.start()?;
        Ok(runner)
    }

    /// Opens a store in `mem` that was recovered at `cut`, with the oracle of all earlier writes.
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

    /// Opens the store and creates the missing keyspaces.
    fn start(&mut self) -> Result<(), Failure> {
        let opened = builder(&self.mem, &self.setup, Path::new(STORE), &self.complaints).open();
        let db = opened.map_err(|e| Verdict::Unopenable.of(e.to_string()))?;
        self.take_keyspaces(&db)?;
        self.db = Some(db);
        for keyspace in self.setup.keyspaces.clone() {
            self.make_keyspace(&keyspace)?;
        }
        self.learn_lifetimes();
        Ok(())
    }

    /// Takes the handles of the keyspaces of `db`.
    fn take_keyspaces(&mut self, db: &Db) -> Result<(), Failure> {
        let names = db.keyspaces();
        self.promise.lock().learn_names(&names);
        for name in names {
            let keyspace = db.keyspace(&name).map_err(failed("keyspace"))?;
            self.keyspaces.insert(own_name(&name).to_owned(), keyspace);
        }
        Ok(())
    }

    /// Returns the open store.
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
        self.learn_lifetimes();
        Ok(())
    }

    /// Passes the TTLs now in force to the oracle.
    fn learn_lifetimes(&mut self) {
        for (name, keyspace) in &self.keyspaces {
            let options = keyspace.options();
            let ttl = options.iter().find(|(name, _)| *name == "ttl_seconds").map(|(_, value)| value.parse());
            if let (Some(map), Some(Ok(ttl))) =
                (self.oracle.maps.get_mut(name).and_then(|lives| lives.last_mut()), ttl)
            {
                map.ttl = ttl;
            }
        }
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

    /// Runs one operation.
    pub fn apply(&mut self, op: &Op) -> Result<(), Failure> {
        match op {
            Op::Write { items, durability } => self.write(items, *durability)?,
            Op::Snap(name) => {
                let snapshot = self.db().snapshot();
                let seq = snapshot.seq();
                self.expect_seq("a snapshot", seq, self.db().visible_seq())?;
                self.snapshots.insert(name.clone(), (snapshot, seq, self.now()));
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
            Op::Repair => self.repair()?,
            Op::Reopen => self.reopen(true)?,
            Op::Kill => self.reopen(false)?,
            Op::MakeKeyspace(name) => {
                if let Some(setup) = self.setup.keyspaces.iter().find(|k| k.name == *name).cloned() {
                    self.make_keyspace(&setup)?;
                }
            }
            Op::DropKeyspace(name) => self.drop_keyspace(name)?,
            Op::Rename(name) => self.rename(name)?,
            Op::Flush(name) | Op::Compact { keyspace: name, .. } => self.settle(op, name)?,
            Op::Policy { keyspace, name } => self.swap(keyspace, name)?,
            Op::Set { keyspace, option, value } => {
                if let Some(keyspace) = self.keyspaces.get(keyspace) {
                    keyspace.set_option(option, value).map_err(failed("option"))?;
                }
                self.learn_lifetimes();
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
                keyspace.compact::<&[u8]>(bounds.std()).map_err(failed("compact"))?;
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
        // A keyspace either uses the log or bypasses it for all of its life.
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
            if !item.put_into(&mut batch, keyspace, counts) {
                continue;
            }
            written.push(item);
        }
        if written.is_empty() {
            return Ok(());
        }
        let end = self.oracle.commit(&written, self.db().visible_seq() + 1, self.now());
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

    /// Returns the snapshot called `at`, with its sequence number and time. Returns `None` when the workload has no
    /// such snapshot.
    fn moment(&self, at: Option<&str>) -> Option<(Option<&Snapshot>, Seq, u64)> {
        match at {
            None => Some((None, self.db().visible_seq(), self.now())),
            Some(name) => self.snapshots.get(name).map(|(snapshot, seq, now)| (Some(snapshot), *seq, *now)),
        }
    }

    /// Returns the time at which the store judges expiry.
    fn now(&self) -> u64 {
        self.mem.env().clock().unix_micros()
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
        let Some((snapshot, seq, now)) = self.moment(at) else { return Ok(()) };
        let found = match (snapshot, single) {
            (None, true) => keyspace.get(&keys[0]).map(|value| vec![value]),
            (Some(snapshot), true) => snapshot.get(keyspace, &keys[0]).map(|value| vec![value]),
            (None, false) => keyspace.multi_get(keys),
            (Some(snapshot), false) => snapshot.multi_get(keyspace, keys),
        };
        let found = found.map_err(failed("get"))?;
        let mut answers = String::new();
        for (key, found) in keys.iter().zip(&found) {
            let wanted = map.get(key.as_bytes(), seq, now);
            if found.as_deref() != wanted.as_deref() {
                let (found, wanted) = (show(found.as_deref()), show(wanted.as_deref()));
                let what = format!("keyspace {name}, key {key} at {seq} and {now} us: {found}, not {wanted}");
                return Err(Verdict::Wrong.of(what));
            }
            answers += &show(found.as_deref());
        }
        if single {
            let exists = match snapshot {
                None => keyspace.contains_key(&keys[0]),
                Some(snapshot) => snapshot.contains_key(keyspace, &keys[0]),
            };
            if exists.map_err(failed("contains_key"))? != found[0].is_some() {
                let what =
                    format!("keyspace {name}, key {} at {seq}: contains_key differs from get", keys[0]);
                return Err(Verdict::Wrong.of(what));
            }
        }
        self.note(|| format!("{name} {answers}"));
        Ok(())
    }

    fn scan(&mut self, at: Option<&str>, name: &str, bounds: &Bounds, reverse: bool) -> Result<(), Failure> {
        if bounds.is_empty() {
            return Ok(());
        }
        let (Some(keyspace), Some(map)) = (self.keyspaces.get(name), self.oracle.map(name)) else {
            return Ok(());
        };
        let Some((snapshot, seq, now)) = self.moment(at) else { return Ok(()) };
        let entries = match snapshot {
            None => keyspace.range::<&[u8]>(bounds.std()),
            Some(snapshot) => snapshot.range::<&[u8]>(keyspace, bounds.std()),
        };
        let (seen, digest) = if reverse {
            compare(name, entries.rev(), map.scan(bounds, seq, now).rev())?
        } else {
            compare(name, entries, map.scan(bounds, seq, now))?
        };
        self.note(|| format!("{name} {seen} entries {digest:x}"));
        Ok(())
    }

    /// Scans every keyspace in both directions, in the present state and in each snapshot.
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

    /// Checks what must hold at any time: no background error, no broken order rule, no finding of `verify`, and no
    /// user bytes in the decision log.
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
        if let Some(complaint) = self.complaints.lock().first() {
            return Err(Verdict::Failed.of(complaint));
        }
        Ok(())
    }

    fn drop_keyspace(&mut self, name: &str) -> Result<(), Failure> {
        let Some(keyspace) = self.keyspaces.remove(name) else { return Ok(()) };
        let life = self.oracle.maps[name].len() - 1;
        self.promise.lock().lives.insert(name.to_owned(), vec![Some(life), None]);
        self.db().drop_keyspace(&keyspace.name()).map_err(failed("drop-keyspace"))?;
        let mut promise = self.promise.lock();
        promise.renamed.remove(name);
        promise.lives.remove(name);
        promise.flushed.remove(name);
        Ok(())
    }

    /// Gives a keyspace its other name. Logged commits are durable then.
    fn rename(&mut self, name: &str) -> Result<(), Failure> {
        let Some(keyspace) = self.keyspaces.get(name) else { return Ok(()) };
        let before = keyspace.name();
        let is_back = before != name;
        let after = if is_back { name.to_owned() } else { other_name(name) };
        self.promise.lock().renamed.insert(name.to_owned(), Renamed::UnderWay(!is_back));
        self.db().rename_keyspace(&before, &after).map_err(failed("rename"))?;
        self.tally.renames += 1;
        let mut promise = self.promise.lock();
        match is_back {
            true => drop(promise.renamed.remove(name)),
            false => drop(promise.renamed.insert(name.to_owned(), Renamed::Other)),
        }
        let durable = self.db().durable_seq();
        if durable < promise.issued && !self.oracle.has_unlogged() {
            let what = format!("durable_seq is {durable} after a rename, not {}", promise.issued);
            return Err(Verdict::Wrong.of(what));
        }
        Ok(())
    }

    /// Closes the store, or kills the process, and reopens it.
    fn reopen(&mut self, cleanly: bool) -> Result<(), Failure> {
        self.check_quietly()?;
        self.count();
        self.snapshots.clear();
        self.keyspaces.clear();
        let db = self.db.take().expect("the store is open between operations");
        if cleanly {
            db.close().map_err(failed("close"))?;
            // After a clean close, all commits are as good as synced.
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
        let mut promise = self.promise.lock().clone();
        promise.check_names(&db.keyspaces())?;
        let cut = self.oracle.find_cut(&found, &promise, false, (db.visible_seq(), self.now()))?;
        self.oracle = self.oracle.recovered(&cut);
        {
            let mut promise = self.promise.lock();
            promise.lives = cut.lives.iter().map(|(name, life)| (name.clone(), vec![Some(*life)])).collect();
            let issued = db.visible_seq();
            (promise.issued, promise.buffered) = (issued, issued);
            // New commits get the numbers of trailing unlogged ones that are gone. Nothing is promised of them yet.
            promise.synced = promise.synced.min(issued);
            promise.flushed.values_mut().for_each(|seq| *seq = (*seq).min(issued));
        }
        self.take_keyspaces(&db)?;
        self.db = Some(db);
        self.learn_lifetimes();
        Ok(())
    }

    /// Adds the counts of the open store and its world to the tally.
    fn count(&mut self) {
        let metrics = self.db().metrics();
        self.tally.installs += metrics.flushes + metrics.compactions + metrics.moves;
        self.tally.calls = self.mem.io_index();
    }

    /// Ends the run: waits until the store is idle, checks for orphans, and closes it.
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

    /// Checks that every table on disk belongs to a tree.
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

/// Compares an iterator with the expected entries; returns their number and hash.
fn compare<'a>(
    name: &str,
    entries: impl Iterator<Item = drumlin::Result<(drumlin::Slice, drumlin::Slice)>>,
    mut wanted: impl Iterator<Item = (&'a [u8], Cow<'a, [u8]>)>,
) -> Result<(usize, u64), Failure> {
    let (mut seen, mut digest) = (0, 0u64);
    for entry in entries {
        let (key, value) = entry.map_err(failed("scan"))?;
        let expected = wanted.next();
        if expected.as_ref().map(|(key, value)| (*key, &**value)) != Some((&*key, &*value)) {
            let found = format!("{} = {}", String::from_utf8_lossy(&key), show(Some(&value)));
            let expected = expected.map_or("the end".to_owned(), |(key, value)| {
                format!("{} = {}", String::from_utf8_lossy(key), show(Some(&value)))
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
