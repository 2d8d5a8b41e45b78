//! One thread of the admin run: its calls, and what it expects of their answers.

use super::store::{STORE_PATH, builder, failed, sound};
use crate::failure::{Failure, Verdict};
use crate::ledger::{
    self, FRESH, LASTING, Ledger, Life, OPTIONS, STORE, STORE_OPTIONS, check_life, check_pairs, content,
    numbers, options_of, pair_key, store_numbers,
};
use drumlin::{Batch, Db, Durability, ErrorKind, Keyspace};
use drumlin_env::sync::{Arc, Condvar, Mutex, atomic};
use drumlin_env::{ImageMode, MemEnv, Random};
use std::collections::BTreeMap;

/// Names of the keyspaces. Those after the lasting ones come and go.
const NAMES: [&str; 5] = [LASTING[0].0, LASTING[1].0, "a", "b", "c"];
/// Number of keys of each thread in each keyspace.
const KEYS: u64 = 6;
/// Calls between two meetings of the threads.
const BETWEEN_MEETINGS: usize = 12;
/// Policies, by names under which they also report themselves.
const POLICIES: [&str; 6] =
    ["leveling:3", "tiering:3", "arce", "leveling:6", "lazy-leveling:3", "1-leveling"];
/// Options that no keyspace accepts.
const INVALID: [(&str, &str); 9] = [
    ("block_bytes", "1"),
    ("max_runs", "many"),
    ("max_runs", ""),
    ("no_such_option", "1"),
    ("memory_budget", "16MiB"),
    ("compression", "best"),
    ("compaction", "no such policy"),
    ("compaction", "leveling:"),
    ("compaction", "no-such-policy:3"),
];
/// Options that no open store accepts.
const INVALID_STORE: [(&str, &str); 4] =
    [("memory_budget", "16MiB"), ("disk_budget", "1"), ("durability", "maybe"), ("block_bytes", "4KiB")];

/// Number of calls of each kind.
#[derive(Debug, Default)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    /// Adds one call of a kind.
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Adds the numbers of `other`.
    pub fn add(&mut self, other: Counts) {
        other.0.into_iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }
}

/// Point at which the threads wait for each other.
pub(super) struct Meeting {
    state: Mutex<MeetingState>,
    moved: Condvar,
}

struct MeetingState {
    members: usize,
    waiting: usize,
    number: u64,
}

impl Meeting {
    /// Waits until all members are here.
    fn wait(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        let number = state.number;
        self.begin_if_complete(&mut state);
        while state.number == number {
            state = self.moved.wait(state);
        }
    }

    /// Ends the membership of the calling thread.
    pub(super) fn leave(&self) {
        let mut state = self.state.lock();
        state.members -= 1;
        self.begin_if_complete(&mut state);
    }

    fn begin_if_complete(&self, state: &mut MeetingState) {
        if state.waiting == state.members {
            state.waiting = 0;
            state.number += 1;
            self.moved.notify_all();
        }
    }
}

/// What the threads of one round share.
pub(super) struct Shared {
    db: Db,
    mem: MemEnv,
    lives: Arc<atomic::AtomicU64>,
    round: u64,
    threads: usize,
    /// Whether a thread has begun to close the store.
    closing: atomic::AtomicBool,
    pub(super) meeting: Meeting,
}

impl Shared {
    pub(super) fn new(
        db: Db,
        mem: MemEnv,
        lives: Arc<atomic::AtomicU64>,
        round: u64,
        threads: usize,
    ) -> Shared {
        let state = Mutex::new(MeetingState { members: threads, waiting: 0, number: 0 });
        let meeting = Meeting { state, moved: Condvar::new() };
        Shared { db, mem, lives, round, threads, closing: atomic::AtomicBool::new(false), meeting }
    }
}

/// Makes the keyspace `name`, which begins life number `life`.
pub(super) fn create(db: &Db, name: &str, life: Life) -> drumlin::Result<Keyspace> {
    let values = OPTIONS.map(|(_, value)| value.to_string());
    let life = life.to_string();
    let mut options = vec![("memtable_bytes", &*life)];
    options.extend(OPTIONS.iter().zip(&values).map(|((name, _), value)| (*name, &**value)));
    db.create_keyspace(name, &options)
}

/// A handle with the name and the life of its keyspace.
type Handle = (&'static str, Keyspace, Life);

/// Answer of a step of a thread.
type Answer<T = ()> = Result<T, Failure>;

/// One thread.
pub(super) struct Thread<'a> {
    shared: &'a Shared,
    seed: u64,
    random: Random,
    /// What the thread knows.
    pub(super) ledger: Ledger,
    handles: BTreeMap<&'static str, Handle>,
    /// Handles of dropped keyspaces.
    dead: Vec<Handle>,
    /// Whether a call was refused since the store was closed.
    is_closed: bool,
    copies: u64,
    counts: Counts,
}

impl<'a> Thread<'a> {
    pub(super) fn new(shared: &'a Shared, seed: u64, ledger: Ledger) -> Thread<'a> {
        let random = Random::new(seed, &format!("round {} thread {}", shared.round, ledger.thread));
        Thread {
            shared,
            seed,
            random,
            ledger,
            handles: BTreeMap::new(),
            dead: Vec::new(),
            is_closed: false,
            copies: 0,
            counts: Counts::default(),
        }
    }

    /// Returns what the thread knows and has done.
    pub(super) fn done(self) -> (Ledger, Counts) {
        (self.ledger, self.counts)
    }

    /// Makes `operations` calls. If the threads' store `closes` in this round, thread 0 closes it halfway.
    pub(super) fn work(&mut self, operations: usize, closes: bool) -> Answer {
        for number in 0..operations {
            if closes && self.ledger.thread == 0 && number == operations / 2 {
                self.shared.closing.store(true, atomic::Ordering::SeqCst);
                self.shared.db.clone().close().map_err(failed("close"))?;
                self.is_closed = true;
                self.counts.count("closed");
            }
            if self.is_closed {
                return self.try_closed();
            }
            if number % BETWEEN_MEETINGS == BETWEEN_MEETINGS - 1 {
                self.meet(number)?;
            } else {
                self.step()?;
            }
        }
        Ok(())
    }

    fn index(&self) -> u64 {
        self.shared.mem.io_index()
    }

    /// Judges an answer. Returns the value of a call that succeeded, or `None` if its error is in `allowed` or the
    /// store is closed.
    fn told<T>(
        &mut self,
        what: &'static str,
        answer: drumlin::Result<T>,
        allowed: &[ErrorKind],
    ) -> Answer<Option<T>> {
        self.counts.count(what);
        match answer {
            Ok(_) if self.is_closed => {
                Err(Verdict::Wrong.of(format!("{what}: succeeds, although the store is closed")))
            }
            Ok(value) => Ok(Some(value)),
            Err(error)
                if error.kind() == ErrorKind::Closed
                    && self.shared.closing.load(atomic::Ordering::SeqCst) =>
            {
                self.is_closed = true;
                Ok(None)
            }
            Err(error) if allowed.contains(&error.kind()) => Ok(None),
            Err(error) => Err(failed(what)(error)),
        }
    }

    /// Judges an answer of a call through the handle of `name`, whose keyspace another thread may have dropped.
    fn through<T>(
        &mut self,
        what: &'static str,
        name: &'static str,
        answer: drumlin::Result<T>,
    ) -> Answer<Option<T>> {
        let lasts = LASTING.iter().any(|(lasting, _)| *lasting == name);
        let is_dropped = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::KeyspaceDropped);
        if is_dropped
            && !lasts
            && let Some(handle) = self.handles.remove(name)
        {
            self.ledger.gone.entry(handle.2).or_insert(None);
            // While the store closes, the drop may still be refused.
            if !self.shared.closing.load(atomic::Ordering::SeqCst) {
                self.dead.push(handle);
            }
        }
        let allowed: &[ErrorKind] = if lasts { &[] } else { &[ErrorKind::KeyspaceDropped] };
        self.told(what, answer, allowed)
    }

    /// Checks that a call was refused with an error in `kinds`.
    fn refused<T>(&mut self, what: &str, answer: drumlin::Result<T>, kinds: &[ErrorKind]) -> Answer {
        if answer.is_ok() {
            return Err(Verdict::Wrong.of(format!("{what}: succeeds, but must be refused")));
        }
        self.told("refused", answer, kinds).map(drop).map_err(|failure| failure.within(what))
    }

    /// Returns a handle of one of the keyspaces, or makes one.
    fn pick(&mut self) -> Answer<Option<Handle>> {
        let name = NAMES[self.random.index(NAMES.len())];
        self.handle(name)
    }

    fn handle(&mut self, name: &'static str) -> Answer<Option<Handle>> {
        if let Some(handle) = self.handles.get(name) {
            return Ok(Some(handle.clone()));
        }
        let opened = self.shared.db.open_keyspace(name);
        let Some(keyspace) = self.told("opened", opened, &[ErrorKind::NotFound])? else {
            return if self.is_closed { Ok(None) } else { self.make(name) };
        };
        let life = options_of(&keyspace).map_err(failed("options"))?.memtable_bytes;
        self.handles.insert(name, (name, keyspace.clone(), life));
        Ok(Some((name, keyspace, life)))
    }

    /// Makes keyspace `name`, unless it exists.
    fn make(&mut self, name: &'static str) -> Answer<Option<Handle>> {
        let life = self.shared.lives.fetch_add(1, atomic::Ordering::Relaxed);
        let began = self.index();
        let made = create(&self.shared.db, name, life);
        let Some(keyspace) = self.told("made", made, &[ErrorKind::AlreadyExists])? else { return Ok(None) };
        self.ledger.made.push((name.to_owned(), life, began, self.index()));
        let handle = (name, keyspace, life);
        self.dead.extend(self.handles.insert(name, handle.clone()));
        Ok(Some(handle))
    }

    /// Drops keyspace `name`, unless it does not exist.
    fn drop_keyspace(&mut self, name: &'static str) -> Answer {
        let began = self.index();
        let dropped = self.shared.db.drop_keyspace(name);
        if self.told("dropped", dropped, &[ErrorKind::NotFound])?.is_some() {
            let index = self.index();
            self.ledger.dropped.push((name.to_owned(), began, index));
            if let Some(handle) = self.handles.remove(name) {
                self.ledger.gone.insert(handle.2, Some(index));
                self.dead.push(handle);
            }
        }
        Ok(())
    }

    /// Makes the same call as all other threads, at the same time.
    fn meet(&mut self, number: usize) -> Answer {
        let mut random = Random::new(self.seed, &format!("meeting {} {number}", self.shared.round));
        let (kind, name) =
            (random.below(7), NAMES[LASTING.len() + random.index(NAMES.len() - LASTING.len())]);
        if kind < 3 {
            self.handle(name)?;
        }
        self.shared.meeting.wait();
        match kind {
            0 | 1 => self.drop_keyspace(name),
            2 if self.ledger.thread.is_multiple_of(2) => self.drop_keyspace(name),
            2 => match self.handles.get(name).cloned() {
                Some(handle) => self.set_own(handle),
                None => Ok(()),
            },
            3 => self.make(name).map(drop),
            4 => {
                let name = format!("{FRESH}-{}-{number}", self.shared.round);
                let made = self.shared.db.keyspace(&name);
                if self.told("made together", made, &[])?.is_some() {
                    self.ledger.fresh.insert(name, self.index());
                }
                Ok(())
            }
            5 => self.checkpoint(),
            _ => match self.handle(LASTING[0].0)? {
                Some(handle) => (0..4).try_for_each(|_| self.set_own(handle.clone())),
                None => Ok(()),
            },
        }
    }

    /// Makes one call.
    fn step(&mut self) -> Answer {
        let kind = self.random.below(44);
        match kind {
            0..2 => {
                let name = NAMES[self.random.index(NAMES.len())];
                return self.make(name).map(drop);
            }
            2..4 => {
                let name = NAMES[LASTING.len() + self.random.index(NAMES.len() - LASTING.len())];
                return self.drop_keyspace(name);
            }
            4..6 => return self.use_dead(),
            6 => return self.call_wrongly(),
            7 => return self.set_store(),
            8 => return self.settle(),
            9..12 => return self.snapshot(),
            12..15 => return self.write_pair(),
            15 if self.random.chance(1, 2) => return self.checkpoint(),
            _ => {}
        }
        let Some(handle) = self.pick()? else { return Ok(()) };
        match kind {
            16..21 => self.set_own(handle),
            21..23 => {
                let policy = POLICIES[self.random.index(POLICIES.len())];
                let set = match self.random.below(3) {
                    0 => handle.1.set_option("compaction", policy),
                    _ => handle.1.set_policy(policy),
                };
                self.through("policies", handle.0, set).map(drop)
            }
            23..25 => {
                let (option, value) = INVALID[self.random.index(INVALID.len())];
                let set = handle.1.set_option(option, value);
                self.refused(
                    "an invalid option",
                    set,
                    &[ErrorKind::InvalidOption, ErrorKind::KeyspaceDropped],
                )
            }
            25 => {
                let flushed = handle.1.flush();
                self.through("flushes", handle.0, flushed).map(drop)
            }
            26 => {
                let compacted = handle.1.compact::<&[u8]>(..);
                self.through("compactions", handle.0, compacted).map(drop)
            }
            27..31 => self.merge(handle),
            31..36 => self.read(handle),
            _ => self.write(handle),
        }
    }

    /// Sets an option that this thread alone changes, after a check that it has kept its value.
    fn set_own(&mut self, (name, keyspace, life): Handle) -> Answer {
        let own: Vec<usize> =
            (0..OPTIONS.len()).filter(|number| number % self.shared.threads == self.ledger.thread).collect();
        if own.is_empty() {
            return Ok(());
        }
        let held = numbers(&options_of(&keyspace).map_err(failed("options"))?);
        self.ledger.check_options(life, &OPTIONS, &held)?;
        let number = own[self.random.index(own.len())];
        let (option, value) = (OPTIONS[number].0, held[number] + 1);
        let set = keyspace.set_option(option, &value.to_string());
        if self.through("options", name, set)?.is_some() {
            let index = self.index();
            self.ledger.options.entry((life, number)).or_default().push((value, index));
            let held = numbers(&options_of(&keyspace).map_err(failed("options"))?);
            self.ledger.check_options(life, &OPTIONS, &held)?;
        }
        Ok(())
    }

    /// Sets an option of the store: one that this thread alone changes, or an invalid one.
    fn set_store(&mut self) -> Answer {
        let number = self.ledger.thread;
        if number >= STORE_OPTIONS.len() || self.random.chance(1, 4) {
            let (option, value) = INVALID_STORE[self.random.index(INVALID_STORE.len())];
            let set = self.shared.db.set_option(option, value);
            return self.refused("an invalid store option", set, &[ErrorKind::InvalidOption]);
        }
        let held = store_numbers(&self.shared.db).map_err(failed("options"))?;
        self.ledger.check_options(STORE, &STORE_OPTIONS, &held)?;
        let value = held[number] + 1;
        let set = self.shared.db.set_option(STORE_OPTIONS[number].0, &value.to_string());
        if self.told("store options", set, &[])?.is_some() {
            let index = self.index();
            self.ledger.options.entry((STORE, number)).or_default().push((value, index));
        }
        Ok(())
    }

    /// Calls through the handle of a dropped keyspace.
    fn use_dead(&mut self) -> Answer {
        if self.dead.is_empty() {
            return Ok(());
        }
        let (name, keyspace, _) = self.dead[self.random.index(self.dead.len())].clone();
        let value = (OPTIONS[3].1 + self.random.below(100)).to_string();
        let (what, answer) = match self.random.below(11) {
            0..3 => ("set_option", keyspace.set_option(OPTIONS[3].0, &value)),
            3 => ("set_policy", keyspace.set_policy(POLICIES[self.random.index(POLICIES.len())])),
            4 => ("put", keyspace.put("k", "v").map(drop)),
            5 => ("get", keyspace.get("k").map(drop)),
            6 => ("flush", keyspace.flush()),
            7 => ("compact", keyspace.compact::<&[u8]>(..)),
            8 => ("multi_get", keyspace.multi_get(["k", "l"]).map(drop)),
            9 => ("a scan", keyspace.iter().next().unwrap_or_else(|| Ok(Default::default())).map(drop)),
            _ => ("a read of a snapshot", self.shared.db.snapshot().get(&keyspace, "k").map(drop)),
        };
        self.refused(&format!("{what} of dropped {name}"), answer, &[ErrorKind::KeyspaceDropped])
    }

    /// Makes a call that is wrong at any time.
    fn call_wrongly(&mut self) -> Answer {
        let db = &self.shared.db;
        let long = "x".repeat(256);
        let (what, answer, kind) = match self.random.below(6) {
            0 => ("a second keyspace", create(db, LASTING[0].0, 0).map(drop), ErrorKind::AlreadyExists),
            1 => ("a drop of nothing", db.drop_keyspace("nothing"), ErrorKind::NotFound),
            2 => ("opening nothing", db.open_keyspace("nothing").map(drop), ErrorKind::NotFound),
            3 => ("an empty name", db.keyspace("").map(drop), ErrorKind::InvalidArgument),
            4 => ("a long name", db.keyspace(&long).map(drop), ErrorKind::InvalidArgument),
            _ => ("a checkpoint in place", db.checkpoint(STORE_PATH), ErrorKind::InvalidArgument),
        };
        // Options are checked first.
        self.refused(what, answer, &[kind, ErrorKind::InvalidOption])
    }

    /// Checks the calls on a closed store.
    fn try_closed(&mut self) -> Answer {
        let db = &self.shared.db;
        let mut answers = vec![
            db.keyspace("d").map(drop),
            db.drop_keyspace("a"),
            db.set_option("durability", "sync"),
            db.flush(),
            db.checkpoint("/late"),
            db.verify().map(drop),
        ];
        for (name, keyspace, _) in self.handles.values() {
            answers.push(keyspace.put("k", *name).map(drop));
            answers.push(keyspace.get("k").map(drop));
            answers.push(keyspace.set_option("max_runs", "64"));
            answers.push(keyspace.compact::<&[u8]>(..));
        }
        for answer in answers {
            self.refused("a call on a closed store", answer, &[])?;
        }
        Ok(())
    }

    /// Flushes, syncs, compacts or verifies the whole store.
    fn settle(&mut self) -> Answer {
        let db = self.shared.db.clone();
        match self.random.below(5) {
            0 => self.told("flushes", db.flush(), &[]).map(drop),
            1 => self.told("compactions", db.compact(), &[]).map(drop),
            2 => {
                let Some(report) = self.told("verified", db.verify(), &[])? else { return Ok(()) };
                match report.findings.first() {
                    // The close ends the files that verify reads.
                    Some(finding) if !self.shared.closing.load(atomic::Ordering::SeqCst) => {
                        Err(Verdict::Unsound.of(format!("{finding:?}")))
                    }
                    _ => Ok(()),
                }
            }
            _ => self.told("syncs", db.sync(), &[]).map(drop),
        }
    }

    fn value(&mut self, life: Life) -> String {
        self.ledger.written += 1;
        let filler = self.random.index(300);
        format!("{life}:{}-{}-{}", self.ledger.thread, self.ledger.written, "x".repeat(filler))
    }

    fn own(&mut self, life: Life) -> &mut BTreeMap<String, String> {
        self.ledger.values.entry(life).or_default()
    }

    /// Puts or deletes a key of this thread, or deletes a range of its keys.
    fn write(&mut self, (name, keyspace, life): Handle) -> Answer {
        let thread = self.ledger.thread;
        let key = format!("{thread}-k{}", self.random.below(KEYS));
        match self.random.below(10) {
            0 => {
                let deleted = keyspace.delete_range(key.clone()..format!("{thread}-l"));
                if self.through("writes", name, deleted)?.is_some() {
                    self.own(life).retain(|held, _| !held.contains("-k") || *held < key);
                }
            }
            1 => {
                let deleted = keyspace.delete(&key);
                if self.through("writes", name, deleted)?.is_some() {
                    self.own(life).remove(&key);
                }
            }
            _ => {
                let value = self.value(life);
                let is_synced =
                    self.random.chance(1, 10) && !self.shared.closing.load(atomic::Ordering::SeqCst);
                let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
                let put = keyspace.put_with(&key, &value, durability);
                if self.through("writes", name, put)?.is_some() {
                    self.own(life).insert(key, value);
                }
            }
        }
        Ok(())
    }

    /// Writes the same value to both lasting keyspaces in one batch.
    fn write_pair(&mut self) -> Answer {
        let (Some(one), Some(other)) = (self.handle(LASTING[0].0)?, self.handle(LASTING[1].0)?) else {
            return Ok(());
        };
        self.ledger.written += 1;
        let (key, value) = (pair_key(self.ledger.thread), self.ledger.written.to_string());
        let mut batch = Batch::new();
        batch.put(&one.1, &key, &value);
        batch.put(&other.1, &key, &value);
        let written = self.shared.db.write_with(batch, Durability::Buffered);
        if self.told("writes", written, &[])?.is_some() {
            for (_, _, life) in [one, other] {
                self.own(life).insert(key.clone(), value.clone());
            }
        }
        Ok(())
    }

    /// Merges into a key of this thread, where the keyspace has an operator.
    fn merge(&mut self, (name, keyspace, life): Handle) -> Answer {
        let key = format!("{}-m{}", self.ledger.thread, self.random.below(2));
        let operand = self.random.below(100);
        let merged = keyspace.merge(&key, operand.to_string());
        if !["sum", "a"].contains(&name) {
            let allowed = [ErrorKind::MergeOperatorMissing, ErrorKind::KeyspaceDropped];
            return self.refused("a merge without an operator", merged, &allowed);
        }
        if self.through("merges", name, merged)?.is_some() {
            let sum = self.own(life).get(&key).and_then(|sum| sum.parse::<u64>().ok()).unwrap_or(0);
            self.own(life).insert(key, (sum + operand).to_string());
        }
        Ok(())
    }

    /// Reads a key of this thread, or scans the keyspace.
    fn read(&mut self, (name, keyspace, life): Handle) -> Answer {
        if self.random.chance(1, 2) {
            let key = format!("{}-k{}", self.ledger.thread, self.random.below(KEYS));
            let read = keyspace.get(&key);
            let Some(found) = self.through("reads", name, read)? else { return Ok(()) };
            let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
            let kept = self.own(life).get(&key).cloned();
            if found != kept {
                return Err(Verdict::Wrong.of(format!("{key} of {name}: {found:?}, not {kept:?}")));
            }
            return Ok(());
        }
        let scanned = content(keyspace.iter());
        let Some(found) = self.through("scans", name, scanned)? else { return Ok(()) };
        check_life(name, life, &found)?;
        self.ledger.check_content(name, life, &found)
    }

    /// Takes a snapshot, lets the store go on, and reads from the snapshot.
    fn snapshot(&mut self) -> Answer {
        let Some(handle) = self.pick()? else { return Ok(()) };
        let snapshot = self.shared.db.snapshot();
        let before = self.ledger.clone();
        if self.random.chance(1, 2) {
            self.write_pair()?;
        }
        if self.random.chance(1, 2) {
            self.write(handle.clone())?;
        }
        let (name, keyspace, life) = handle;
        let scanned = content(snapshot.iter(&keyspace));
        if let Some(found) = self.through("snapshots", name, scanned)? {
            check_life(name, life, &found)?;
            before.check_content(name, life, &found)?;
        }
        let mut pairs = BTreeMap::new();
        for (name, _) in LASTING {
            let Some((_, keyspace, life)) = self.handle(name)? else { return Ok(()) };
            let Some(found) = self.through("snapshots", name, content(snapshot.iter(&keyspace)))? else {
                return Ok(());
            };
            before.check_content(name, life, &found)?;
            pairs.insert(name, found);
        }
        check_pairs(self.shared.threads, |name, key| pairs.get(name)?.get(key))
    }

    /// Makes a checkpoint and checks it.
    fn checkpoint(&mut self) -> Answer {
        self.copies += 1;
        let path = format!("/copy-{}-{}-{}", self.shared.round, self.ledger.thread, self.copies);
        let made = self.shared.db.checkpoint(&path);
        if self.told("checkpoints", made, &[ErrorKind::Busy])?.is_none() {
            return Ok(());
        }
        self.counts.count("copies");
        // The copy is durable. It opens in a world of its own.
        let mode = if self.random.chance(1, 2) { ImageMode::None } else { ImageMode::All };
        let world = self.shared.mem.snapshot().image(mode, self.random.next_u64());
        let builder = builder(world.env(), &path).create_if_missing(false);
        let opened = builder.read_only(self.random.chance(1, 2)).open();
        let copy = opened.map_err(|error| Verdict::Unopenable.of(format!("a checkpoint: {error}")))?;
        let checked = self.check_copy(&copy).map_err(|failure| failure.within("a checkpoint"));
        copy.close().map_err(failed("closing a checkpoint"))?;
        checked
    }

    /// Checks a copy of the store that was made since the thread's last call.
    fn check_copy(&mut self, copy: &Db) -> Answer {
        sound(copy)?;
        let picture = ledger::Picture::of(copy)?;
        picture.check(self.shared.threads)?;
        self.ledger.check_copy(&picture)
    }
}
