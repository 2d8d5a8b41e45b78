//! The one interface of everything that walks entries in order: memtables, tables, runs, merges.
//!
//! Internal order: user key ascending, then sequence number descending, so that the newest version of a
//! key comes first. (key, seq) is unique within a keyspace.
//!
//! A cursor is either *valid*, on an entry, or not. `next` past the last entry and `prev` before the
//! first make it invalid; only a seek makes it valid again. After an error every further call returns
//! an error and `valid` is false: an error never looks like the end of the data.

use crate::error::Result;
use crate::slice::Slice;
use drumlin_types::{Kind, Seq};

/// Walks entries both ways in internal order.
pub(crate) trait Cursor: Send {
    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// User key of the entry. Only when valid.
    fn key(&self) -> &[u8];
    /// Sequence number of the entry. Only when valid.
    fn seq(&self) -> Seq;
    /// Kind of the entry. Only when valid.
    fn kind(&self) -> Kind;
    /// Value of the entry. Only when valid.
    fn value(&self) -> &[u8];
    /// The value to keep, sharing memory where that can be. Only when valid.
    fn value_slice(&self) -> Slice {
        Slice::from(self.value())
    }
    /// To the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// To the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// To the first entry at or after (`key`, `seq`) in internal order: the newest version of `key` that
    /// is not newer than `seq`, or the first entry of a later key.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// To the last entry strictly before the first version of `key`, that is, of a smaller user key.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// To the following entry. Only when valid.
    fn next(&mut self) -> Result<()>;
    /// To the preceding entry. Only when valid.
    fn prev(&mut self) -> Result<()>;
}

impl Cursor for Box<dyn Cursor> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn seq(&self) -> Seq {
        (**self).seq()
    }
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn value_slice(&self) -> Slice {
        (**self).value_slice()
    }
    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        (**self).seek(key, seq)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_before(key)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
}
