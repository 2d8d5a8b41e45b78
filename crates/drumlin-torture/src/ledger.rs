//! What the threads of the admin run know of one store, and whether a store agrees with it.
//!
//! A *life* is one existence of a keyspace between its creation and its drop. It has a number of its own, which the
//! creation stores as the option `memtable_bytes`, and which every value of the keyspace starts with. So handles,
//! reopened stores and values tell which life they belong to. Every key, and every option in [`OPTIONS`], has one
//! thread that changes it. That thread knows its exact state.

use crate::failure::{Failure, Verdict};
use drumlin::{Db, Keyspace, KeyspaceOptions, Options};
use std::collections::BTreeMap;

/// Number of one existence of a keyspace.
pub type Life = u64;

/// Options of a keyspace that threads change, with their values at its creation. Each change adds one.
pub const OPTIONS: [(&str, u64); 6] = [
    ("block_bytes", 1024),
    ("file_bytes", 16 << 10),
    ("flush_bytes", 16 << 10),
    ("max_runs", 40),
    ("max_write_amp", 20),
    ("ttl_seconds", 1_000_000),
];
/// Options of the store that threads change, with their first values.
pub const STORE_OPTIONS: [(&str, u64); 3] =
    [("background_rate", 1 << 30), ("disk_budget", 1 << 40), ("write_timeout_ms", 3_600_000)];
/// Life under which a ledger lists options of the store. No keyspace has it.
pub const STORE: Life = 1;
/// The keyspaces that are never dropped, with their lives. The second has a merge operator.
pub const LASTING: [(&str, Life); 2] = [("base", 16_384), ("sum", 16_385)];
/// First life of the keyspaces that come and go.
pub const FIRST_LIFE: Life = 16_400;
/// Start of the names of keyspaces that all threads make at once. They stay empty.
pub const FRESH: &str = "fresh";

/// Knowledge of one thread. An I/O index is the one after the acknowledgement, unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Number of the thread.
    pub thread: usize,
    /// Number of values written so far.
    pub written: u64,
    /// Values of the thread's keys.
    pub values: BTreeMap<Life, BTreeMap<String, String>>,
    /// Values of the thread's options by life and position in the list, each with its I/O index.
    pub options: BTreeMap<(Life, usize), Vec<(u64, u64)>>,
    /// Creations: name, life, and the I/O indices before and after.
    pub made: Vec<(String, Life, u64, u64)>,
    /// Drops: name, and the I/O indices before and after.
    pub dropped: Vec<(String, u64, u64)>,
    /// Lives that ended, with the I/O index of the thread's own drop; `None` if the thread saw that another one had
    /// dropped it.
    pub gone: BTreeMap<Life, Option<u64>>,
    /// Keyspaces with a name that starts with [`FRESH`], with their I/O indices.
    pub fresh: BTreeMap<String, u64>,
}

/// A keyspace of an open store.
#[derive(Debug)]
pub struct Seen {
    life: Life,
    options: [u64; 6],
    content: BTreeMap<String, String>,
}

/// The keyspaces and options of an open store.
#[derive(Debug)]
pub struct Picture {
    keyspaces: BTreeMap<String, Seen>,
    options: [u64; 3],
}

fn wrong(what: impl Into<String>) -> Failure {
    Verdict::Wrong.of(what)
}

/// Returns the options of `keyspace`.
pub fn options_of(keyspace: &Keyspace) -> drumlin::Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    keyspace.options().iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok(options)
}

/// Returns the values of [`OPTIONS`].
pub fn numbers(options: &KeyspaceOptions) -> [u64; 6] {
    let o = options;
    [o.block_bytes, o.file_bytes, o.flush_bytes, o.max_runs, o.max_write_amp as u64, o.ttl_seconds]
}

/// Returns the values of [`STORE_OPTIONS`] in `db`.
pub fn store_numbers(db: &Db) -> drumlin::Result<[u64; 3]> {
    let mut options = Options::default();
    db.options().iter().try_for_each(|(name, value)| options.set(name, value))?;
    Ok([options.background_rate, options.disk_budget, options.write_timeout_ms])
}

/// Returns the entries of a scan as text.
pub fn content(
    entries: impl Iterator<Item = drumlin::Result<(drumlin::Slice, drumlin::Slice)>>,
) -> drumlin::Result<BTreeMap<String, String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    entries.map(|entry| entry.map(|(key, value)| (text(&key), text(&value)))).collect()
}

/// Checks that every value of `content` was written in `life`.
pub fn check_life(name: &str, life: Life, content: &BTreeMap<String, String>) -> Result<(), Failure> {
    let tagged = content.iter().filter_map(|(key, value)| Some((key, value.split_once(':')?.0)));
    for (key, tag) in tagged {
        if tag != life.to_string() {
            let what = format!("keyspace {name} of life {life} holds {key} of life {tag}");
            return Err(Verdict::Resurrected.of(what));
        }
    }
    Ok(())
}

/// Checks the pairs of `threads` threads: each was written to both lasting keyspaces in one batch.
pub fn check_pairs<'a>(
    threads: usize,
    get: impl Fn(&str, &str) -> Option<&'a String>,
) -> Result<(), Failure> {
    for thread in 0..threads {
        let [one, other] = LASTING.map(|(name, _)| get(name, &pair_key(thread)));
        if one != other {
            let what = format!("a batch of thread {thread} is there in part: {one:?} and {other:?}");
            return Err(Verdict::Split.of(what));
        }
    }
    Ok(())
}

/// Returns the key under which a thread writes its pairs.
pub fn pair_key(thread: usize) -> String {
    format!("{thread}-p")
}

impl Picture {
    /// Reads all of `db`, which no other thread uses. Checks that each keyspace has the policy that its option names.
    pub fn of(db: &Db) -> Result<Picture, Failure> {
        let failed = |e: drumlin::Error| Verdict::Failed.of(format!("reading the whole store: {e}"));
        let mut keyspaces = BTreeMap::new();
        for name in db.keyspaces() {
            let keyspace = db.open_keyspace(&name).map_err(failed)?;
            let options = options_of(&keyspace).map_err(failed)?;
            let named = drumlin_policy::by_name(&options.compaction).map(|policy| policy.name());
            if named.as_deref().ok() != Some(&keyspace.policy()) {
                let what = format!("keyspace {name}: {} is not {}", keyspace.policy(), options.compaction);
                return Err(wrong(what));
            }
            let content = content(keyspace.iter()).map_err(failed)?;
            let seen = Seen { life: options.memtable_bytes, options: numbers(&options), content };
            if keyspaces.insert(name.clone(), seen).is_some() {
                return Err(wrong(format!("there are two keyspaces {name}")));
            }
        }
        let picture = Picture { keyspaces, options: store_numbers(db).map_err(failed)? };
        Ok(picture)
    }

    /// Checks what holds for every store, even one that lost its last writes.
    pub fn check(&self, threads: usize) -> Result<(), Failure> {
        for (name, seen) in &self.keyspaces {
            if name.starts_with(FRESH) && !seen.content.is_empty() {
                return Err(Verdict::Resurrected.of(format!("keyspace {name} is not empty")));
            }
            check_life(name, seen.life, &seen.content)?;
        }
        check_pairs(threads, |name, key| self.keyspaces.get(name)?.content.get(key))
    }

    fn life(&self, name: &str) -> Option<Life> {
        self.keyspaces.get(name).map(|seen| seen.life)
    }
}

impl Ledger {
    /// Checks that `content` of `life` holds the thread's keys as it left them, and no others of its keys.
    pub fn check_content(
        &self,
        name: &str,
        life: Life,
        content: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let mine = format!("{}-", self.thread);
        let found = content.iter().filter(|(key, _)| key.starts_with(&mine));
        let kept = self.values.get(&life).into_iter().flatten();
        if found.clone().eq(kept.clone()) {
            return Ok(());
        }
        let (found, kept): (Vec<_>, Vec<_>) = (found.collect(), kept.collect());
        let what = format!("keyspace {name} of life {life}, thread {}: {found:?}, not {kept:?}", self.thread);
        Err(if found.len() < kept.len() { Verdict::Lost.of(what) } else { wrong(what) })
    }

    /// Returns the last value that the thread gave to an option, up to the I/O index `before`.
    fn value(&self, life: Life, number: usize, before: u64) -> Option<u64> {
        let set = self.options.get(&(life, number))?;
        set.iter().filter(|(_, index)| *index <= before).map(|(value, _)| *value).max()
    }

    /// Checks `values`, those of the options `list` of `life`. Only options that the thread changes are checked.
    pub fn check_options(&self, life: Life, list: &[(&str, u64)], values: &[u64]) -> Result<(), Failure> {
        for (number, (&(name, _), &found)) in list.iter().zip(values).enumerate() {
            if let Some(kept) = self.value(life, number, u64::MAX).filter(|kept| *kept != found) {
                let what = format!("{name} of life {life} is {found}, not {kept}, which was acknowledged");
                return Err(Verdict::Lost.of(what));
            }
        }
        Ok(())
    }

    /// Checks a copy of the store that holds all of the thread's changes. Other threads may have dropped keyspaces.
    pub fn check_copy(&self, picture: &Picture) -> Result<(), Failure> {
        self.check_options(STORE, &STORE_OPTIONS, &picture.options)?;
        for (name, seen) in &picture.keyspaces {
            self.check_options(seen.life, &OPTIONS, &seen.options)?;
            self.check_content(name, seen.life, &seen.content)?;
        }
        let fresh = self.fresh.keys().map(String::as_str).chain(LASTING.map(|(name, _)| name));
        match fresh.into_iter().find(|name| !picture.keyspaces.contains_key(*name)) {
            Some(name) => Err(Verdict::Lost.of(format!("keyspace {name} is gone"))),
            None => Ok(()),
        }
    }

    /// Adopts `picture` as the state at I/O index 0: takes its values, and forgets what it does not hold.
    pub fn settle(&mut self, picture: &Picture) {
        let mine = format!("{}-", self.thread);
        self.values.clear();
        for seen in picture.keyspaces.values() {
            let own = seen.content.iter().filter(|(key, _)| key.starts_with(&mine));
            self.values.insert(seen.life, own.map(|(k, v)| (k.clone(), v.clone())).collect());
        }
        let lives: Vec<Life> = picture.keyspaces.values().map(|seen| seen.life).collect();
        self.options.retain(|(life, _), set| {
            let last = set.last().map(|(value, _)| (*value, 0));
            *set = last.into_iter().collect();
            *life == STORE || lives.contains(life)
        });
        self.made.retain(|(_, life, ..)| lives.contains(life));
        self.made.iter_mut().for_each(|(_, _, began, ended)| (*began, *ended) = (0, 0));
        self.dropped.clear();
        self.gone.clear();
        self.fresh.values_mut().for_each(|index| *index = 0);
    }
}

/// Checks a store in which every acknowledged change is in force. Writes may be missing if it is `lossy`. Drops that
/// other threads only saw do not count if the store `was_closed` meanwhile, since the close may have refused them.
pub fn check_all(
    ledgers: &[Ledger],
    picture: &Picture,
    lossy: bool,
    was_closed: bool,
) -> Result<(), Failure> {
    picture.check(ledgers.len())?;
    let made: Vec<_> = ledgers.iter().flat_map(|ledger| &ledger.made).collect();
    let names = made.iter().map(|(name, ..)| name).chain(picture.keyspaces.keys());
    for name in names.filter(|name| !name.starts_with(FRESH) && !is_lasting(name)) {
        let life = picture.life(name);
        let of_name = || made.iter().filter(|(of, ..)| of == name);
        let drops = ledgers.iter().flat_map(|ledger| &ledger.dropped).filter(|(of, ..)| of == name).count();
        if of_name().count() != drops + usize::from(life.is_some()) {
            let what = format!(
                "keyspace {name} was made {} times, dropped {drops} times, and is now of life {life:?}",
                of_name().count()
            );
            return Err(wrong(what));
        }
        let Some(life) = life else { continue };
        let ended = of_name().find(|(_, of, ..)| *of == life).map(|(.., ended)| *ended);
        if ended.is_none_or(|ended| of_name().any(|(_, _, began, _)| *began > ended)) {
            return Err(Verdict::Resurrected.of(format!("life {life} of keyspace {name} is back")));
        }
        let ends = ledgers.iter().filter_map(|ledger| ledger.gone.get(&life));
        if ends.into_iter().any(|end| end.is_some() || !was_closed) {
            return Err(Verdict::Resurrected.of(format!("life {life} of keyspace {name} was dropped")));
        }
    }
    for ledger in ledgers {
        if let Some(name) = ledger.fresh.keys().find(|name| !picture.keyspaces.contains_key(*name)) {
            return Err(Verdict::Lost.of(format!("keyspace {name} was made and is gone")));
        }
        ledger.check_options(STORE, &STORE_OPTIONS, &picture.options)?;
        for (name, seen) in &picture.keyspaces {
            ledger.check_options(seen.life, &OPTIONS, &seen.options)?;
            if !lossy {
                ledger.check_content(name, seen.life, &seen.content)?;
            }
        }
    }
    let lasting = LASTING.iter().find(|(name, life)| picture.life(name) != Some(*life));
    lasting.map_or(Ok(()), |(name, _)| Err(Verdict::Lost.of(format!("keyspace {name} is gone"))))
}

fn is_lasting(name: &str) -> bool {
    LASTING.iter().any(|(lasting, _)| *lasting == name)
}

/// Checks the store that a power loss just before the I/O call `cut` left, while the threads were working.
pub fn check_cut(ledgers: &[Ledger], picture: &Picture, cut: u64) -> Result<(), Failure> {
    picture.check(ledgers.len())?;
    let made: Vec<_> = ledgers.iter().flat_map(|ledger| &ledger.made).collect();
    for (name, life, ..) in &made {
        let before = made.iter().filter(|(of, _, _, ended)| of == name && *ended <= cut).count();
        let drops = ledgers.iter().flat_map(|ledger| &ledger.dropped);
        let drops = drops.filter(|(of, began, _)| of == name && *began <= cut).count();
        if before > drops && picture.life(name).is_none() {
            return Err(Verdict::Lost.of(format!("keyspace {name} was made, not dropped, and is gone")));
        }
        let end = ledgers.iter().filter_map(|ledger| ledger.gone.get(life).copied().flatten()).min();
        if end.is_some_and(|end| end <= cut) && picture.life(name) == Some(*life) {
            return Err(Verdict::Resurrected.of(format!("life {life} of keyspace {name} was dropped")));
        }
    }
    for ledger in ledgers {
        let fresh = ledger.fresh.iter().filter(|(_, index)| **index <= cut);
        if let Some((name, _)) = fresh.into_iter().find(|(name, _)| !picture.keyspaces.contains_key(*name)) {
            return Err(Verdict::Lost.of(format!("keyspace {name} was made and is gone")));
        }
        let keyspaces = picture.keyspaces.values().map(|seen| (seen.life, &OPTIONS[..], &seen.options[..]));
        for (life, list, values) in keyspaces.chain([(STORE, &STORE_OPTIONS[..], &picture.options[..])]) {
            for (number, found) in values.iter().enumerate() {
                if ledger.value(life, number, cut).is_some_and(|kept| kept > *found) {
                    let what = format!("{} of life {life} is {found} again", list[number].0);
                    return Err(Verdict::Lost.of(what));
                }
            }
        }
    }
    Ok(())
}
