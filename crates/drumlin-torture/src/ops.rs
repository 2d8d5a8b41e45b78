//! The operation language: one text form for every driver, every tape and every shrunk failure.
//!
//! A line is an operation. Keys are words; `*` as a bound means "unbounded". A value is written `TAG*LEN`, a number
//! and a length; its bytes follow from them, so tapes stay short. In a keyspace of counters, the value is the number
//! itself. Parsing a printed operation gives the same operation.
//!
//! ```text
//! put a k1 7*20 sync          batch { put a k1 7*20; del b k2 } buffered      scan @s1 a k1 k9 rev
//! put a k1 7*20 ttl 5000      put a k1 7*20 ttl never                         merge a k1 1*3
//! del a k1                    range-del a k1 k5                               merge a k1 1*3 ttl 5000
//! snap s1                     get @s1 a k1                                    multi-get a k1 k3
//! drop s1                     flush a        compact a k1 *       idle        step 20
//! policy a tiering:4          set a file_bytes 4KiB                           reopen
//! drop-keyspace b             keyspace b     checkpoint     sync  kill        sleep 5000     repair
//! rename b
//! ```
//!
//! `ttl` is the time to live of one write in microseconds; without it, the keyspace's counts.
//! `rename b` switches the name of the keyspace between `b` and `b~`. Other operations call it `b` all the time.
//!
//! Any operation can be omitted from a list: an operation on a missing keyspace or snapshot does nothing. The
//! shrinker depends on that.

use drumlin::{Batch, Durability, Keyspace};
use std::fmt;
use std::ops::Bound;
use std::time::Duration;

/// A value, whose bytes follow from tag and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// Number that distinguishes the value from others.
    pub tag: u64,
    /// Length in keyspaces of text.
    pub len: u32,
}

/// Prefix of every generated text value that is long enough, so that a leak into messages can be detected.
pub const VALUE_MARK: &str = "w8x";
/// Prefix of every generated key.
pub const KEY_MARK: &str = "q7z";

impl Value {
    /// Returns the bytes of the value. A short value ends with the last digits of the tag, so that short values differ
    /// too: the oracle could not tell two equal values apart that expire at different times.
    pub fn bytes(self, counts: bool) -> Vec<u8> {
        if counts {
            return self.tag.to_string().into_bytes();
        }
        let unit = format!("{VALUE_MARK}{}", self.tag);
        let len = self.len as usize;
        if len <= unit.len() {
            return unit.as_bytes()[unit.len() - len..].to_vec();
        }
        format!("{unit}.").bytes().cycle().take(len).collect()
    }
}

/// Time to live of a put or a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ttl {
    /// The option `ttl_seconds` of the keyspace.
    #[default]
    Keyspace,
    /// The entry never expires.
    Never,
    /// The entry has its own, in microseconds.
    Micros(u64),
}

/// One operation of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Name of the keyspace.
    pub keyspace: String,
    /// Change to make.
    pub change: Change,
    /// Time to live of a put or a merge.
    pub ttl: Ttl,
}

/// Effect of one operation of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Writes a value.
    Put(String, Value),
    /// Removes a key.
    Delete(String),
    /// Removes a range.
    DeleteRange(Bounds),
    /// Applies an operand.
    Merge(String, Value),
}

/// A half-open range of keys; `None` means unbounded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// First key of the range.
    pub start: Option<String>,
    /// First key after the range.
    pub end: Option<String>,
}

impl Bounds {
    /// Returns whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Some(start), Some(end)) => start >= end,
            (None, Some(end)) => end.is_empty(),
            _ => false,
        }
    }

    /// Returns the range as the store's API takes it.
    pub fn std(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let start = self.start.as_ref().map_or(Bound::Unbounded, |start| Bound::Included(start.as_bytes()));
        let end = self.end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_bytes()));
        (start, end)
    }
}

impl Ttl {
    /// Returns what the store's API takes, or `None` for the keyspace's.
    fn own(self) -> Option<Option<Duration>> {
        match self {
            Ttl::Keyspace => None,
            Ttl::Never => Some(None),
            Ttl::Micros(micros) => Some(Some(Duration::from_micros(micros))),
        }
    }
}

impl Item {
    /// Adds the change to `batch` unless its range is empty, and returns whether it did. `counts` says that the
    /// keyspace holds counters.
    pub fn put_into(&self, batch: &mut Batch, keyspace: &Keyspace, counts: bool) -> bool {
        match (&self.change, self.ttl.own()) {
            (Change::Put(key, value), None) => batch.put(keyspace, key, value.bytes(counts)),
            (Change::Put(key, value), Some(ttl)) => {
                batch.put_with_ttl(keyspace, key, value.bytes(counts), ttl);
            }
            (Change::Delete(key), _) => batch.delete(keyspace, key),
            (Change::DeleteRange(bounds), _) if bounds.is_empty() => return false,
            (Change::DeleteRange(bounds), _) => batch.delete_range::<&[u8]>(keyspace, bounds.std()),
            (Change::Merge(key, operand), None) => batch.merge(keyspace, key, operand.bytes(counts)),
            (Change::Merge(key, operand), Some(ttl)) => {
                batch.merge_with_ttl(keyspace, key, operand.bytes(counts), ttl);
            }
        }
        true
    }
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the module's text lists them")]
pub enum Op {
    Write { items: Vec<Item>, durability: Durability },
    Snap(String),
    Drop(String),
    Get { at: Option<String>, keyspace: String, key: String },
    MultiGet { at: Option<String>, keyspace: String, keys: Vec<String> },
    Scan { at: Option<String>, keyspace: String, bounds: Bounds, reverse: bool },
    Flush(String),
    Compact { keyspace: String, bounds: Bounds },
    Idle,
    Step(usize),
    Policy { keyspace: String, name: String },
    Set { keyspace: String, option: String, value: String },
    DropKeyspace(String),
    MakeKeyspace(String),
    Rename(String),
    Checkpoint,
    Repair,
    Sync,
    Reopen,
    Kill,
    Sleep(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}", self.tag, self.len)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bound: &Option<String>| bound.clone().unwrap_or_else(|| "*".into());
        write!(f, "{} {}", text(&self.start), text(&self.end))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyspace = &self.keyspace;
        match &self.change {
            Change::Put(key, value) => write!(f, "put {keyspace} {key} {value}{}", self.ttl),
            Change::Delete(key) => write!(f, "del {keyspace} {key}"),
            Change::DeleteRange(bounds) => write!(f, "range-del {keyspace} {bounds}"),
            Change::Merge(key, value) => write!(f, "merge {keyspace} {key} {value}{}", self.ttl),
        }
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ttl::Keyspace => Ok(()),
            Ttl::Never => f.write_str(" ttl never"),
            Ttl::Micros(micros) => write!(f, " ttl {micros}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: &Option<String>| at.as_ref().map(|at| format!("@{at} ")).unwrap_or_default();
        match self {
            Op::Write { items, durability } => {
                match &items[..] {
                    [only] => write!(f, "{only}")?,
                    _ => {
                        let items: Vec<String> = items.iter().map(Item::to_string).collect();
                        write!(f, "batch {{ {} }}", items.join("; "))?;
                    }
                }
                write!(f, " {}", durability.name())
            }
            Op::Snap(name) => write!(f, "snap {name}"),
            Op::Drop(name) => write!(f, "drop {name}"),
            Op::Get { at: name, keyspace, key } => write!(f, "get {}{keyspace} {key}", at(name)),
            Op::MultiGet { at: name, keyspace, keys } => {
                write!(f, "multi-get {}{keyspace} {}", at(name), keys.join(" "))
            }
            Op::Scan { at: name, keyspace, bounds, reverse } => {
                write!(f, "scan {}{keyspace} {bounds}{}", at(name), if *reverse { " rev" } else { "" })
            }
            Op::Flush(keyspace) => write!(f, "flush {keyspace}"),
            Op::Compact { keyspace, bounds } => write!(f, "compact {keyspace} {bounds}"),
            Op::Idle => f.write_str("idle"),
            Op::Step(steps) => write!(f, "step {steps}"),
            Op::Policy { keyspace, name } => write!(f, "policy {keyspace} {name}"),
            Op::Set { keyspace, option, value } => write!(f, "set {keyspace} {option} {value}"),
            Op::DropKeyspace(name) => write!(f, "drop-keyspace {name}"),
            Op::MakeKeyspace(name) => write!(f, "keyspace {name}"),
            Op::Rename(name) => write!(f, "rename {name}"),
            Op::Checkpoint => f.write_str("checkpoint"),
            Op::Repair => f.write_str("repair"),
            Op::Sync => f.write_str("sync"),
            Op::Reopen => f.write_str("reopen"),
            Op::Kill => f.write_str("kill"),
            Op::Sleep(micros) => write!(f, "sleep {micros}"),
        }
    }
}

/// Iterates over the words of a line.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self, what: &str) -> Result<String, String> {
        self.0.next().map(str::to_owned).ok_or_else(|| format!("{what} is missing"))
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("`{word}` is no {what}"))
    }

    fn value(&mut self) -> Result<Value, String> {
        let word = self.word("value")?;
        let parsed = word
            .split_once('*')
            .and_then(|(tag, len)| Some(Value { tag: tag.parse().ok()?, len: len.parse().ok()? }));
        parsed.ok_or_else(|| format!("`{word}` is no value TAG*LEN"))
    }

    fn bounds(&mut self) -> Result<Bounds, String> {
        let mut bound = |what| self.word(what).map(|word| (word != "*").then_some(word));
        Ok(Bounds { start: bound("start")?, end: bound("end")? })
    }

    /// Parses an optional snapshot name and the word after it.
    fn at(&mut self) -> Result<(Option<String>, String), String> {
        let word = self.word("keyspace")?;
        match word.strip_prefix('@') {
            Some(at) => Ok((Some(at.to_owned()), self.word("keyspace")?)),
            None => Ok((None, word)),
        }
    }

    /// Parses an optional time to live.
    fn ttl(&mut self) -> Result<Ttl, String> {
        let mut ahead = self.0.clone();
        if ahead.next() != Some("ttl") {
            return Ok(Ttl::Keyspace);
        }
        self.0 = ahead;
        let word = self.word("time to live")?;
        match word.as_str() {
            "never" => Ok(Ttl::Never),
            _ => word.parse().map(Ttl::Micros).map_err(|_| format!("`{word}` is no time to live")),
        }
    }

    fn durability(&mut self) -> Result<Durability, String> {
        let Some(word) = self.0.next() else { return Ok(Durability::Buffered) };
        let found = Durability::ALL.iter().find(|durability| durability.name() == word);
        found.copied().ok_or_else(|| format!("`{word}` is no durability"))
    }
}

fn item(verb: &str, words: &mut Words<'_>) -> Result<Option<Item>, String> {
    if !matches!(verb, "put" | "del" | "range-del" | "merge") {
        return Ok(None);
    }
    let keyspace = words.word("keyspace")?;
    let change = match verb {
        "put" => Change::Put(words.word("key")?, words.value()?),
        "del" => Change::Delete(words.word("key")?),
        "range-del" => Change::DeleteRange(words.bounds()?),
        _ => Change::Merge(words.word("key")?, words.value()?),
    };
    let ttl = if matches!(verb, "put" | "merge") { words.ttl()? } else { Ttl::Keyspace };
    Ok(Some(Item { keyspace, change, ttl }))
}

fn batch(line: &str) -> Result<Op, String> {
    let inside = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let (inside, after) = inside.ok_or("a batch stands in { }")?;
    let mut items = Vec::new();
    for part in inside.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = Words(part.split_whitespace());
        let verb = words.word("operation")?;
        items.push(item(&verb, &mut words)?.ok_or_else(|| format!("`{verb}` cannot be in a batch"))?);
    }
    Ok(Op::Write { items, durability: Words(after.split_whitespace()).durability()? })
}

impl std::str::FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Op, String> {
        let mut words = Words(line.split_whitespace());
        let verb = words.word("operation")?;
        if verb == "batch" {
            return batch(line);
        }
        if let Some(item) = item(&verb, &mut words)? {
            return Ok(Op::Write { items: vec![item], durability: words.durability()? });
        }
        Ok(match verb.as_str() {
            "snap" => Op::Snap(words.word("name")?),
            "drop" => Op::Drop(words.word("name")?),
            "get" => {
                let (at, keyspace) = words.at()?;
                Op::Get { at, keyspace, key: words.word("key")? }
            }
            "multi-get" => {
                let (at, keyspace) = words.at()?;
                Op::MultiGet { at, keyspace, keys: words.0.map(str::to_owned).collect() }
            }
            "scan" => {
                let (at, keyspace) = words.at()?;
                Op::Scan { at, keyspace, bounds: words.bounds()?, reverse: words.0.next() == Some("rev") }
            }
            "flush" => Op::Flush(words.word("keyspace")?),
            "compact" => Op::Compact { keyspace: words.word("keyspace")?, bounds: words.bounds()? },
            "idle" => Op::Idle,
            "step" => Op::Step(words.number("number of steps")?),
            "policy" => Op::Policy { keyspace: words.word("keyspace")?, name: words.word("policy")? },
            "set" => Op::Set {
                keyspace: words.word("keyspace")?,
                option: words.word("option")?,
                value: words.word("value")?,
            },
            "drop-keyspace" => Op::DropKeyspace(words.word("name")?),
            "keyspace" => Op::MakeKeyspace(words.word("name")?),
            "rename" => Op::Rename(words.word("name")?),
            "checkpoint" => Op::Checkpoint,
            "repair" => Op::Repair,
            "sync" => Op::Sync,
            "reopen" => Op::Reopen,
            "kill" => Op::Kill,
            "sleep" => Op::Sleep(words.number("number of microseconds")?),
            _ => return Err(format!("`{verb}` is no operation")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_same_length_differ() {
        for len in 2..12 {
            let values: std::collections::BTreeSet<_> =
                (100..200).map(|tag| Value { tag, len }.bytes(false)).collect();
            assert_eq!(values.len(), 100, "length {len}");
            assert!(values.iter().all(|value| value.len() == len as usize));
        }
    }

    #[test]
    fn every_operation_reads_back_as_printed() {
        let lines = "put a k1 7*20 sync\nput a k1 7*20 ttl never sync\nmerge b k1 1*3 ttl 0 buffered\n\
            batch { put a k1 7*20 ttl 5000; del b k2 } none\ndel a k1 none\nrange-del a k1 * buffered\nmerge b k1 1*3 \
            buffered\n\
            batch { put a k1 7*20; del b k2; range-del a * k5 } sync\nbatch {  } buffered\nsnap s1\ndrop s1\n\
            get @s1 a k1\nget a k1\nmulti-get @s1 a k1 k3\nscan @s1 a k1 k9 rev\nscan a * *\nflush a\n\
            compact a k1 *\nidle\nstep 20\npolicy a tiering:4\nset a file_bytes 4KiB\ndrop-keyspace b\n\
            keyspace b\nrename b\ncheckpoint\nrepair\nsync\nreopen\nkill\nsleep 5000";
        for line in lines.lines() {
            let op: Op = line.parse().unwrap_or_else(|why| panic!("{line}: {why}"));
            assert_eq!(op.to_string(), line.trim_start());
            assert_eq!(op.to_string().parse::<Op>(), Ok(op));
        }
        for bad in [
            "",
            "fly",
            "put a k1",
            "put a k1 7",
            "put a k1 7*2 forever",
            "put a k1 7*2 ttl x",
            "batch { get a k }",
            "step x",
        ] {
            assert!(bad.parse::<Op>().is_err(), "{bad}");
        }
    }
}
