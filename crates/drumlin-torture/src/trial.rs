//! Drives a store through errors: whatever a call returns, the program continues, and every promise must hold.
//!
//! The runner compares every answer with the oracle and permits no call to fail. Here calls may fail, and a failed
//! commit may or may not be in the store. So each commit also writes a marker, a key of its own in a keyspace of
//! markers; the markers found show which commits are in. Then three things must hold. The promised commits are in. A
//! commit that is in has all earlier acknowledged ones before it. The content of the other keyspaces is what the
//! commits found make, in order.

use crate::failure::{Failure, Verdict};
use crate::ops::{Bounds, Item, Op};
use crate::oracle::{Content, Map, show};
use crate::runner::{STORE, contents, open};
use crate::workload::{Taste, Workload};
use drumlin::{Batch, Db, Durability, ErrorKind, Keyspace, Snapshot};
use drumlin_env::{Disk, ImageMode, MemEnv};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the keyspace of markers.
const MARKERS: &str = "markers";
/// A keyspace that is repeatedly created and dropped, and is not judged.
const FLEETING: &str = "fleeting";
/// Time of all writes and reads. Programs set no TTLs, so the time does not matter.
const NOW: u64 = 0;

/// Generates the program of `seed` for `run`.
pub fn program(run: &str, seed: u64, operations: usize) -> Workload {
    let taste =
        Taste { operations, unlogged: false, kills: true, swaps: true, lifetimes: false, renames: false };
    let mut workload = Workload::generate(run, seed, &taste);
    // Virtual time: a write that waits for disk space in vain fails after this timeout.
    workload.store.push(("write_timeout_ms".into(), "5000".into()));
    workload
}

/// Creates a world in which the store's directory is durable.
pub fn world(seed: u64) -> MemEnv {
    let mem = MemEnv::new(seed);
    let env = mem.env();
    env.fs().create_dir_all(STORE.as_ref()).expect("a directory");
    env.fs().sync_dir("/".as_ref()).expect("it lasts");
    mem
}

/// A commit that the program requested.
struct Commit {
    items: Vec<Item>,
    /// Whether the store acknowledged it.
    acknowledged: bool,
}

/// What the store has acknowledged and reported to the program.
#[derive(Default)]
pub struct Told {
    commits: Vec<Commit>,
    /// Number of the first commit that may be lost: acknowledged ones before it survive a power loss.
    pub lasting: usize,
    /// Number of failed calls.
    pub failures: u64,
    /// Error of the last failed call.
    pub error: Option<drumlin::Error>,
    /// Number of failed openings.
    pub unopened: u64,
    /// Number of times that the store stopped writes for good.
    pub poisoned: u64,
    /// Number of synced writes acknowledged by a store that had stopped writes for good.
    pub acknowledged_after: u64,
}

/// An open store.
struct Opened {
    db: Db,
    keyspaces: BTreeMap<String, Keyspace>,
    snapshots: BTreeMap<String, Snapshot>,
    /// Content of the store; `None` once a failed write makes it uncertain.
    state: Option<BTreeMap<String, Map>>,
    is_poisoned: bool,
}

/// A program in progress.
pub struct Trial<'a> {
    /// Simulated world.
    pub mem: MemEnv,
    /// Answers of the store.
    pub told: Told,
    /// Whether a failed sync may have reverted writes that were only buffered.
    pub reverts: bool,
    program: &'a Workload,
    opened: Option<Opened>,
    checkpoints: u32,
}

impl<'a> Trial<'a> {
    /// Creates a trial of `program` in `mem`, before its first operation.
    pub fn new(mem: MemEnv, program: &'a Workload) -> Trial<'a> {
        Trial { mem, told: Told::default(), reverts: false, program, opened: None, checkpoints: 0 }
    }

    /// Runs the whole program.
    pub fn run(&mut self) -> Result<(), Failure> {
        (0..self.program.ops.len()).try_for_each(|number| self.step(number))
    }

    /// Runs operation `number`. First opens a store that is closed or failed to open.
    pub fn step(&mut self, number: usize) -> Result<(), Failure> {
        self.open()?;
        let op = &self.program.ops[number];
        self.apply(op).map_err(|failure| failure.within(&op.to_string()).at(number))
    }

    /// Opens the store if it is not open, and retries as a user would. The content must match the promises.
    pub fn open(&mut self) -> Result<(), Failure> {
        for _ in 0..3 {
            if self.opened.is_some() {
                return Ok(());
            }
            match open(&self.mem, self.program) {
                Ok(db) => self.adopt(db)?,
                Err(error) => {
                    self.hear::<()>(Err(error))?;
                    self.told.unopened += 1;
                }
            }
        }
        Ok(())
    }

    /// Examines the content of a store that was just opened.
    fn adopt(&mut self, db: Db) -> Result<(), Failure> {
        let state = match contents(&db) {
            Ok(found) => {
                let promised = if self.reverts { self.told.lasting } else { self.told.commits.len() };
                let present = self.told.judge(self.program, &found, promised)?;
                for (number, commit) in self.told.commits.iter_mut().enumerate() {
                    commit.acknowledged = present.contains(&number);
                }
                Some(self.told.replay(self.program, &present))
            }
            Err(error) => self.hear(Err(error))?,
        };
        let mut keyspaces = BTreeMap::new();
        for name in db.keyspaces() {
            if let Some(keyspace) = self.hear(db.keyspace(&name))? {
                keyspaces.insert(name, keyspace);
            }
        }
        for setup in &self.program.keyspaces {
            let options: Vec<(&str, &str)> = setup.options.iter().map(|(n, v)| (&**n, &**v)).collect();
            if !keyspaces.contains_key(&setup.name)
                && let Some(keyspace) = self.hear(db.keyspace_with(&setup.name, &options))?
            {
                keyspaces.insert(setup.name.clone(), keyspace);
            }
        }
        if !keyspaces.contains_key(MARKERS)
            && let Some(keyspace) = self.hear(db.keyspace_with(MARKERS, &[("memtable_bytes", "4KiB")]))?
        {
            keyspaces.insert(MARKERS.into(), keyspace);
        }
        self.opened = Some(Opened { db, keyspaces, snapshots: BTreeMap::new(), state, is_poisoned: false });
        Ok(())
    }

    /// Records the outcome of a call. A failed call is acceptable unless its error reports a defect of the store.
    fn hear<T>(&mut self, result: drumlin::Result<T>) -> Result<Option<T>, Failure> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        self.told.failures += 1;
        self.told.error = Some(error.clone());
        match error.kind() {
            ErrorKind::Bug => return Err(Verdict::Failed.of(error.to_string())),
            ErrorKind::Corruption => return Err(Verdict::Unsound.of(error.to_string())),
            ErrorKind::Poisoned => {
                if let Some(opened) = &mut self.opened {
                    self.told.poisoned += u64::from(!opened.is_poisoned);
                    opened.is_poisoned = true;
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn apply(&mut self, op: &Op) -> Result<(), Failure> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let keyspace = |name: &str| opened.keyspaces.get(name).cloned();
        match op {
            Op::Write { items, durability } => return self.write(items, *durability),
            Op::Get { keyspace: name, key, .. } => {
                let Some(found) = keyspace(name).map(|keyspace| keyspace.get(key)) else { return Ok(()) };
                return self.compare_get(name, key, found);
            }
            Op::Scan { keyspace: name, bounds, .. } => return self.scan(name, bounds),
            Op::Snap(name) => {
                opened.snapshots.insert(name.clone(), opened.db.snapshot());
            }
            Op::Drop(name) => drop(opened.snapshots.remove(name)),
            Op::Sleep(micros) => self.mem.advance(*micros),
            Op::Reopen | Op::Kill => self.close()?,
            Op::Sync => {
                let result = opened.db.sync();
                if self.hear(result)?.is_some() {
                    self.told.lasting = self.told.commits.len();
                }
            }
            Op::Checkpoint => {
                self.checkpoints += 1;
                let result = opened.db.checkpoint(format!("/checkpoint-{}", self.checkpoints));
                self.hear(result)?;
            }
            Op::DropKeyspace(_) if opened.db.keyspaces().iter().any(|name| name == FLEETING) => {
                let result = opened.db.drop_keyspace(FLEETING);
                self.hear(result)?;
            }
            Op::MakeKeyspace(_) => {
                let result = opened.db.keyspace(FLEETING).and_then(|fleeting| fleeting.put("x", "y"));
                self.hear(result)?;
            }
            other => {
                let result = plain(other, opened);
                self.hear(result)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, items: &[Item], durability: Durability) -> Result<(), Failure> {
        let number = self.told.commits.len();
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let Some(markers) = opened.keyspaces.get(MARKERS) else { return Ok(()) };
        let mut batch = Batch::new();
        batch.put(markers, format!("{number:06}"), []);
        let mut written = Vec::new();
        for item in items {
            let Some(keyspace) = opened.keyspaces.get(&item.keyspace) else { continue };
            let counts = self.program.keyspaces.iter().any(|k| k.name == item.keyspace && k.counts);
            item.put_into(&mut batch, keyspace, counts);
            written.push(item.clone());
        }
        let result = opened.db.write_with(batch, durability);
        let acknowledged = result.is_ok();
        let synced = acknowledged && durability == Durability::Sync;
        self.told.acknowledged_after += u64::from(synced && opened.is_poisoned);
        match &mut opened.state {
            Some(state) if acknowledged => apply(state, &written, number),
            state => *state = None,
        }
        self.told.commits.push(Commit { items: written, acknowledged });
        if synced {
            self.told.lasting = number + 1;
        }
        self.hear(result).map(drop)
    }

    fn compare_get(
        &mut self,
        name: &str,
        key: &str,
        found: drumlin::Result<Option<drumlin::Slice>>,
    ) -> Result<(), Failure> {
        let Some(found) = self.hear(found)? else { return Ok(()) };
        let state = self.opened.as_ref().and_then(|opened| opened.state.as_ref());
        let Some(map) = state.and_then(|state| state.get(name)) else { return Ok(()) };
        let wanted = map.get(key.as_bytes(), u64::MAX, NOW);
        if found.as_deref() == wanted.as_deref() {
            return Ok(());
        }
        let (found, wanted) = (show(found.as_deref()), show(wanted.as_deref()));
        Err(Verdict::Wrong.of(format!("keyspace {name}, key {key}: {found}, not {wanted}")))
    }

    fn scan(&mut self, name: &str, bounds: &Bounds) -> Result<(), Failure> {
        let Some(opened) = &self.opened else { return Ok(()) };
        let Some(keyspace) = opened.keyspaces.get(name).filter(|_| !bounds.is_empty()) else { return Ok(()) };
        let mut entries = keyspace.range::<&[u8]>(bounds.std());
        let (mut found, mut error) = (Vec::new(), None);
        for entry in &mut entries {
            match entry {
                Ok((key, value)) => found.push((key.to_vec(), value.to_vec())),
                Err(first) => {
                    error = Some(first);
                    break;
                }
            }
        }
        if let Some(first) = error {
            if entries.next().is_some_and(|entry| entry.is_ok()) {
                return Err(Verdict::Wrong.of(format!("an iterator continues after the error {first}")));
            }
            return self.hear::<()>(Err(first)).map(drop);
        }
        let Some(map) = opened.state.as_ref().and_then(|state| state.get(name)) else { return Ok(()) };
        let wanted = map.scan(bounds, u64::MAX, NOW).map(|(key, value)| (key.to_vec(), value.to_vec()));
        if wanted.eq(found.iter().cloned()) {
            return Ok(());
        }
        Err(Verdict::Wrong.of(format!("keyspace {name}: a scan of {} entries differs", found.len())))
    }

    /// Closes the store; a clean close promises all of its content.
    pub fn close(&mut self) -> Result<(), Failure> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        let Opened { db, keyspaces, snapshots, .. } = opened;
        drop((keyspaces, snapshots));
        let result = db.close();
        if self.hear(result)?.is_some() {
            self.told.lasting = self.told.commits.len();
        }
        Ok(())
    }

    /// Checks the open store as it is: no acknowledged write may be missing.
    pub fn look(&mut self) -> Result<(), Failure> {
        let Some(opened) = &self.opened else { return Ok(()) };
        match contents(&opened.db) {
            Ok(found) => self.told.judge(self.program, &found, self.told.commits.len()).map(drop),
            Err(error) => self.hear::<()>(Err(error)).map(drop),
        }
        .map_err(|failure| failure.within("while it is open"))
    }

    /// Checks what must work again once the fault is over, without reopening the store.
    pub fn resumes(&mut self) -> Result<(), Failure> {
        let stuck = |error: drumlin::Error| Verdict::Stuck.of(error.to_string());
        self.open()?;
        let Some(opened) = &self.opened else { return Err(Verdict::Stuck.of("the store does not open")) };
        opened.db.wait_idle().map_err(stuck)?;
        let Some(markers) = opened.keyspaces.get(MARKERS) else { return Ok(()) };
        markers.put_with("once more", [], Durability::Sync).map_err(stuck)?;
        opened.db.flush().map_err(stuck)?;
        opened.db.wait_idle().map_err(stuck)
    }

    /// Drops the store without closing it; returns the disk as it was before the drop.
    pub fn end(mut self) -> (Disk, Told) {
        let disk = self.mem.snapshot();
        drop(self.opened.take());
        (disk, self.told)
    }

    /// Fails if a durability order rule was broken.
    pub fn broken_order(&self) -> Result<(), Failure> {
        let mut broken = self.mem.order_violations();
        // The monitor assumes one store. An unsettled pointer of a checkpoint does not affect the edits of this
        // store.
        broken.retain(|rule| !(rule.starts_with("O3") && rule.contains("/checkpoint-")));
        // An opening may fail before a manifest refers to the files that it created; the next one reuses their
        // numbers.
        broken.retain(|rule| self.told.unopened == 0 || !rule.starts_with("O4"));
        broken.first().map_or(Ok(()), |rule| Err(Verdict::Order.of(rule)))
    }
}

/// Runs an operation whose only result is success or failure.
fn plain(op: &Op, opened: &Opened) -> drumlin::Result<()> {
    let keyspace = |name: &str| opened.keyspaces.get(name);
    match op {
        Op::Flush(name) => keyspace(name).map_or(Ok(()), Keyspace::flush),
        Op::Compact { keyspace: name, bounds } if !bounds.is_empty() => {
            keyspace(name).map_or(Ok(()), |keyspace| keyspace.compact::<&[u8]>(bounds.std()))
        }
        Op::Policy { keyspace: name, name: policy } => {
            keyspace(name).map_or(Ok(()), |keyspace| keyspace.set_policy(policy))
        }
        Op::Set { keyspace: name, option, value } => {
            keyspace(name).map_or(Ok(()), |keyspace| keyspace.set_option(option, value))
        }
        Op::MultiGet { keyspace: name, keys, .. } => {
            keyspace(name).map_or(Ok(()), |keyspace| keyspace.multi_get(keys).map(drop))
        }
        Op::Step(steps) => opened.db.step_background(*steps).map(drop),
        Op::Idle => opened.db.wait_idle(),
        _ => Ok(()),
    }
}

fn apply(state: &mut BTreeMap<String, Map>, items: &[Item], number: usize) {
    for item in items {
        if let Some(map) = state.get_mut(&item.keyspace) {
            map.apply(item, number as u64 + 1, NOW);
        }
    }
}

impl Told {
    /// Returns the number of requested commits.
    pub fn commits(&self) -> usize {
        self.commits.len()
    }

    /// Returns the state that the commits in `present` make.
    fn replay(&self, program: &Workload, present: &BTreeSet<usize>) -> BTreeMap<String, Map> {
        let mut state: BTreeMap<String, Map> =
            program.keyspaces.iter().map(|k| (k.name.clone(), Map::new(k.counts, false))).collect();
        present.iter().for_each(|&number| apply(&mut state, &self.commits[number].items, number));
        state
    }

    /// Checks that the commits in the store explain `found`, and returns their numbers. All acknowledged commits
    /// before `promised` must be among them.
    pub fn judge(
        &self,
        program: &Workload,
        found: &BTreeMap<String, Content>,
        promised: usize,
    ) -> Result<BTreeSet<usize>, Failure> {
        let number = |key: &Vec<u8>| std::str::from_utf8(key).ok()?.parse::<usize>().ok();
        let present: BTreeSet<usize> =
            found.get(MARKERS).into_iter().flat_map(Content::keys).filter_map(number).collect();
        let end = present.last().map_or(0, |last| last + 1);
        if end > self.commits.len() {
            return Err(Verdict::Wrong.of(format!("commit {} was never made", end - 1)));
        }
        let missing = |below: usize| {
            (0..below).find(|number| self.commits[*number].acknowledged && !present.contains(number))
        };
        if let Some(lost) = missing(promised) {
            return Err(
                Verdict::Lost.of(format!("commit {lost} is missing; all before {promised} were promised"))
            );
        }
        if let Some(hole) = missing(end) {
            return Err(Verdict::Hole.of(format!("commit {hole} is missing, but {} is present", end - 1)));
        }
        for (name, map) in self.replay(program, &present) {
            let wanted = map.content(u64::MAX, NOW);
            let found = found.get(&name).cloned().unwrap_or_default();
            if wanted != found {
                let keys = || wanted.keys().chain(found.keys());
                let key = keys().find(|key| wanted.get(*key) != found.get(*key)).cloned().unwrap_or_default();
                let text = |content: &Content| show(content.get(&key).map(Vec::as_slice));
                let what = format!(
                    "keyspace {name}, key {}: {}, but its commits give {}",
                    String::from_utf8_lossy(&key),
                    text(&found),
                    text(&wanted)
                );
                return Err(Verdict::Split.of(what));
            }
        }
        Ok(present)
    }

    /// Opens what `mode` leaves of `disk`, twice, and judges it. The disk has free space again.
    pub fn judge_image(
        &self,
        program: &Workload,
        disk: &Disk,
        mode: ImageMode,
        promised: usize,
        seed: u64,
    ) -> Result<(), Failure> {
        let mem = disk.image(mode, seed);
        mem.set_capacity(None);
        self.judge_world(program, &mem, promised).map_err(|failure| failure.within(&format!("{mode:?}")))?;
        let again = mem.snapshot().image(ImageMode::None, seed);
        let judged = self.judge_world(program, &again, promised);
        judged.map_err(|failure| failure.within(&format!("{mode:?}, the second time")))
    }

    fn judge_world(&self, program: &Workload, mem: &MemEnv, promised: usize) -> Result<(), Failure> {
        let db = open(mem, program).map_err(|e| Verdict::Unopenable.of(e.to_string()))?;
        let found = contents(&db).map_err(|e| Verdict::Failed.of(format!("a read fails: {e}")))?;
        self.judge(program, &found, promised)?;
        let verified = db.verify().map_err(|e| Verdict::Failed.of(format!("it cannot be verified: {e}")))?;
        verified
            .findings
            .first()
            .map_or(Ok(()), |finding| Err(Verdict::Unsound.of(format!("{finding:?}"))))?;
        mem.order_violations().first().map_or(Ok(()), |rule| Err(Verdict::Order.of(rule)))
    }
}
