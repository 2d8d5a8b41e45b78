//! A store for unit tests: an ordered map, with reports that a test sets.

use super::{
    Bounds, DecisionRecord, Durability, Entries, KeyspaceShape, ReplayReport, Store, VerifyReport, Want,
};
use crate::failure::{Failure, Result};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

/// An ordered map as a store.
#[derive(Default)]
pub(crate) struct FakeStore {
    /// Stored entries.
    pub(crate) map: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Calls that a test may check, in order.
    pub(crate) calls: RefCell<Vec<String>>,
    /// Number of writes that still succeed; later writes fail.
    pub(crate) writes_left: Cell<Option<u64>>,
    /// Result of `verify`.
    pub(crate) verification: VerifyReport,
    /// Result of `tree`.
    pub(crate) shapes: Vec<KeyspaceShape>,
    /// Result of `explain`.
    pub(crate) decisions: Vec<DecisionRecord>,
    /// Result of `explain --replay`.
    pub(crate) replayed: ReplayReport,
}

impl FakeStore {
    /// Creates a store that holds `entries`.
    pub(crate) fn with(entries: &[(&str, &str)]) -> FakeStore {
        let store = FakeStore::default();
        let owned = entries.iter().map(|&(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
        store.map.borrow_mut().extend(owned);
        store
    }

    /// Returns the stored entries as text.
    pub(crate) fn contents(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.map.borrow().iter().map(|(k, v)| (text(k), text(v))).collect()
    }

    fn called(&self, call: impl Into<String>) {
        self.calls.borrow_mut().push(call.into());
    }

    fn spend_write(&self) -> Result<()> {
        match self.writes_left.get() {
            None => Ok(()),
            Some(0) => Err(Failure::Failed("the disk is full".to_owned())),
            Some(left) => {
                self.writes_left.set(Some(left - 1));
                Ok(())
            }
        }
    }
}

impl Store for FakeStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.spend_write()?;
        self.called(format!("put {durability:?}"));
        self.map.borrow_mut().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn put_all(&self, entries: &[(Vec<u8>, Vec<u8>)], durability: Durability) -> Result<()> {
        self.spend_write()?;
        self.called(format!("put_all {} {durability:?}", entries.len()));
        self.map.borrow_mut().extend(entries.iter().cloned());
        Ok(())
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.called(format!("delete {durability:?}"));
        self.map.borrow_mut().remove(key);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.borrow().get(key).cloned())
    }

    fn scan(&self, bounds: &Bounds, want: Want, reverse: bool) -> Result<Entries<'_>> {
        let map = self.map.borrow();
        let mut found: Vec<_> = map
            .range::<[u8], _>(bounds.as_range())
            .map(|(k, v)| Ok((k.clone(), if want == Want::Keys { Vec::new() } else { v.clone() })))
            .collect();
        if reverse {
            found.reverse();
        }
        Ok(Box::new(found.into_iter()))
    }

    fn policy(&self) -> Result<String> {
        Ok("arce".to_owned())
    }

    fn policy_state(&self) -> Result<String> {
        Ok(String::new())
    }

    fn set_policy(&self, name: &str) -> Result<()> {
        self.called(format!("policy {name}"));
        Ok(())
    }

    fn is_frozen(&self) -> Result<bool> {
        Ok(false)
    }

    fn freeze(&self, frozen: bool) -> Result<()> {
        self.called(format!("freeze {frozen}"));
        Ok(())
    }

    fn keyspaces(&self) -> Result<Vec<String>> {
        Ok(vec!["default".to_owned(), "users".to_owned()])
    }

    fn flush(&self) -> Result<()> {
        self.called("flush");
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.called("compact");
        Ok(())
    }

    fn checkpoint(&self, path: &Path) -> Result<()> {
        self.called(format!("checkpoint {}", path.display()));
        Ok(())
    }

    fn verify(&self) -> Result<VerifyReport> {
        Ok(self.verification.clone())
    }

    fn metrics(&self) -> Result<Vec<(String, u64)>> {
        Ok(vec![("gets".to_owned(), 12), ("log_bytes_written".to_owned(), 2500)])
    }

    fn tree(&self) -> Result<Vec<KeyspaceShape>> {
        Ok(self.shapes.clone())
    }

    fn explain(&self) -> Result<Vec<DecisionRecord>> {
        Ok(self.decisions.clone())
    }

    fn replay_decisions(&self) -> Result<ReplayReport> {
        Ok(self.replayed.clone())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
