//! Cursor over a sorted list that counts calls and fails on demand.

use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use drumlin_types::{Kind, Seq};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

/// Version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
}

impl Entry {
    pub(crate) fn put(key: &str, seq: Seq, value: &str) -> Entry {
        Entry { key: key.into(), seq, kind: Kind::Put, value: value.into() }
    }
}

/// Sorts `entries` into internal order.
pub(crate) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (&a.key, Reverse(a.seq)).cmp(&(&b.key, Reverse(b.seq))));
}

/// Numbers of calls to the cursors that share it.
#[derive(Default)]
pub(crate) struct Meter {
    pub(crate) steps: AtomicUsize,
    pub(crate) seeks: AtomicUsize,
    pub(crate) key_reads: AtomicUsize,
    pub(crate) opens: AtomicUsize,
}

impl Meter {
    pub(crate) fn take(counter: &AtomicUsize) -> usize {
        counter.swap(0, Relaxed)
    }
}

/// Countdown to a failing call, shared by all cursors of a test.
#[derive(Clone)]
pub(crate) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    /// Creates a fuse that never fails a call.
    pub(crate) fn none() -> Fuse {
        Fuse(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// Creates a fuse that lets `calls` calls pass and fails the next one.
    pub(crate) fn after(calls: usize) -> Fuse {
        Fuse(Arc::new(AtomicI64::new(calls as i64)))
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.0.fetch_sub(1, Relaxed) {
            0 => Err(Error::new(ErrorKind::Io, "injected")),
            _ => Ok(()),
        }
    }
}

/// Cursor over a sorted list.
pub(crate) struct VecCursor {
    entries: Arc<Vec<Entry>>,
    at: Option<usize>,
    meter: Arc<Meter>,
    fuse: Fuse,
    failed: bool,
}

impl VecCursor {
    pub(crate) fn new(entries: Vec<Entry>) -> VecCursor {
        VecCursor::with(Arc::new(entries), Arc::default(), Fuse::none())
    }

    pub(crate) fn with(entries: Arc<Vec<Entry>>, meter: Arc<Meter>, fuse: Fuse) -> VecCursor {
        assert!(entries.is_sorted_by_key(|e| (e.key.clone(), Reverse(e.seq))));
        VecCursor { entries, at: None, meter, fuse, failed: false }
    }

    fn go(&mut self, counter: fn(&Meter) -> &AtomicUsize, to: Option<usize>) -> Result<()> {
        counter(&self.meter).fetch_add(1, Relaxed);
        self.at = None;
        if self.failed {
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        if let Err(error) = self.fuse.check() {
            self.failed = true;
            return Err(error);
        }
        self.at = to.filter(|&to| to < self.entries.len());
        Ok(())
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at.expect("valid")]
    }
}

impl Cursor for VecCursor {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        self.meter.key_reads.fetch_add(1, Relaxed);
        &self.entry().key
    }
    fn seq(&self) -> Seq {
        self.entry().seq
    }
    fn kind(&self) -> Kind {
        self.entry().kind
    }
    fn value(&self) -> &[u8] {
        &self.entry().value
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(|m| &m.seeks, Some(0))
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(|m| &m.seeks, self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let to = self.entries.partition_point(|e| (&*e.key, Reverse(e.seq)) < (key, Reverse(seq)));
        self.go(|m| &m.seeks, Some(to))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let to = self.entries.partition_point(|e| *e.key < *key).checked_sub(1);
        self.go(|m| &m.seeks, to)
    }
    fn next(&mut self) -> Result<()> {
        assert!(self.at.is_some() || self.failed, "next on a cursor that is not valid");
        self.go(|m| &m.steps, self.at.map(|at| at + 1))
    }
    fn prev(&mut self) -> Result<()> {
        assert!(self.at.is_some() || self.failed, "prev on a cursor that is not valid");
        self.go(|m| &m.steps, self.at.and_then(|at| at.checked_sub(1)))
    }
}
