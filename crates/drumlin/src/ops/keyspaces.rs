//! Keyspaces of an open store: creation, lookup, rename and drop, and access to their policies.

use super::options::policy_named;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::merge_operator::Operator;
use crate::compaction::control::KeyspaceControl;
use crate::keyspace::KeyspaceState;
use crate::options::KeyspaceOptions;
use crate::stats::Meter;
use crate::store::Store;
use crate::version::{Tree, value_files};
use drumlin_env::Note;
use drumlin_env::sync::{Arc, atomic};
use drumlin_format::manifest::{Change, Edit, MAX_NAME_LEN};
use drumlin_types::KeyspaceId;
use std::collections::BTreeSet;
use std::path::PathBuf;

impl Store {
    /// Returns the keyspace called `name`, which must exist.
    pub(crate) fn open_keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        self.health.check_open()?;
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"));
        self.find_lasting(name).ok_or_else(missing)
    }

    /// Creates the keyspace `name`. It must not exist.
    pub(crate) fn create_keyspace(
        &self,
        name: &str,
        wanted: &[(String, String)],
    ) -> Result<Arc<KeyspaceState>> {
        self.health.check_open()?;
        let taken = || Error::new(ErrorKind::AlreadyExists, format!("there is a keyspace {name:?} already"));
        if self.find_lasting(name).is_some() {
            return Err(taken());
        }
        self.make_keyspace(name, wanted)?.ok_or_else(taken)
    }

    fn find_keyspace(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        self.keyspaces().iter().find(|k| *k.name() == name).cloned()
    }

    /// Finds the keyspace `name`. If it is being dropped, waits for the end of the drop.
    fn find_lasting(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        let found = self.find_keyspace(name)?;
        if !found.is_dropped() {
            return Some(found);
        }
        drop(self.drops.read());
        self.find_keyspace(name)
    }

    /// Returns the keyspace `name`. Creates it if it does not exist.
    pub(crate) fn keyspace(&self, name: &str, wanted: &[(String, String)]) -> Result<Arc<KeyspaceState>> {
        self.health.check_open()?;
        if let Some(found) = self.find_lasting(name) {
            self.set_keyspace_options(&found, wanted)?;
            return Ok(found);
        }
        match self.make_keyspace(name, wanted)? {
            Some(made) => Ok(made),
            // Another thread has created it meanwhile.
            None => self.keyspace(name, wanted),
        }
    }

    /// Creates the keyspace `name`. Returns `None` if another thread was faster.
    fn make_keyspace(&self, name: &str, wanted: &[(String, String)]) -> Result<Option<Arc<KeyspaceState>>> {
        check_name(name)?;
        self.health.check_poison()?;
        let options = KeyspaceOptions::from_pairs(wanted)?;
        let policy = policy_named(&options.compaction)?;
        let bound = self.components.operator_names.get(name).map(String::as_str);
        let operator = Operator::new(name, bound, self.components.operators.get(name).cloned())?;
        let mut control = self.control.lock();
        if self.find_keyspace(name).is_some() {
            return Ok(None);
        }
        // The id counts as used once its edit may be on disk. An edit that fails for lack of disk space leaves the id
        // to the next keyspace, and a manifest rewritten in place of the full one does not mark it as used.
        let number = self.next_keyspace.load(atomic::Ordering::Acquire);
        let id = u32::try_from(number)
            .map(KeyspaceId)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "no keyspace ids are left"))?;
        let mut changes = vec![Change::CreateKeyspace { id, name: name.to_owned() }];
        for (name, value) in options.pairs() {
            changes.push(Change::KeyspaceOption { id, name: name.to_owned(), value });
        }
        if let Some(operator) = &operator.name {
            changes.push(Change::MergeOperator { keyspace: id, name: operator.to_string() });
        }
        let spent = || self.next_keyspace.store(number + 1, atomic::Ordering::Release);
        self.append_edit(&mut control, Edit { changes }, spent)?;
        let log = self.commit_lock.state.lock().log.segment.number;
        let state = Arc::new(KeyspaceState::new(
            id,
            name,
            &self.options.load(),
            options,
            operator,
            self.files.values.reader(),
            Tree::empty(),
            log,
            self.files.filter_seed,
            Meter::new(&self.sampling),
            self.files.cache.epochs().clone(),
        ));
        control.keyspaces.push(KeyspaceControl::new(state.clone(), policy, 0));
        let mut all = self.keyspaces().to_vec();
        all.push(state.clone());
        self.set_keyspaces(all);
        Ok(Some(state))
    }

    /// Renames the keyspace `from` to `to`. First makes all earlier writes durable: a program that fills a new keyspace
    /// and then renames it expects to find the new data under the new name, also after a power loss.
    pub(crate) fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        check_name(to)?;
        // Waits for a checkpoint under way, whose copy holds older data than the rename assumes.
        let _drops = self.drops.write();
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no keyspace {from:?}"));
        self.find_keyspace(from).ok_or_else(missing)?;
        if !drumlin_types::bug!("rename-not-synced") {
            self.sync_log(self.publisher.last_published().log_end)?;
        }
        let mut control = self.control.lock();
        // Found under the lock: another thread may have renamed it meanwhile.
        let state = self.find_keyspace(from).ok_or_else(missing)?;
        if from == to {
            return Ok(());
        }
        if self.find_keyspace(to).is_some() {
            let what = format!("there is a keyspace {to:?} already");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        // The next open gives the keyspace the operator of its new name.
        let operator = self.components.operators.get(to);
        if operator.is_some() && state.operator.is_none() {
            let what = format!(
                "a merge operator was given for keyspace {to:?} when the store was opened, but keyspace {from:?} has \
                 none; open the store with the operator for both names"
            );
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        Operator::new(to, state.operator_name.as_deref(), operator.cloned())?;
        if !drumlin_types::bug!("rename-not-logged") {
            let edit = Edit { changes: vec![Change::RenameKeyspace { id: state.id, name: to.to_owned() }] };
            self.append_edit(&mut control, edit, || {})?;
        }
        state.name.set(to);
        Ok(())
    }

    /// Drops a keyspace with all its data. First makes all earlier writes durable, so that the drop cannot survive a
    /// crash that loses an earlier write. That happens without the control lock, so flushes and compactions go on.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.health.check_open()?;
        self.health.check_poison()?;
        let early = if drumlin_types::bug!("edits-not-validated") { self.find_keyspace(name) } else { None };
        let _drop = self.drops.write();
        // Found under the lock: another thread may have dropped it meanwhile.
        let state = early
            .or_else(|| self.find_keyspace(name))
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")))?;
        self.end_writes(&state)?;
        let mut control = self.control.lock();
        let tree = state.view().tree.clone();
        let tables: BTreeSet<PathBuf> = tree.files().map(|(_, _, f)| self.files.table_path(f.id())).collect();
        let values = value_files(tree.files().map(|(_, _, file)| file));
        let mut removed: Vec<PathBuf> = tables.into_iter().collect();
        removed.extend(values.keys().map(|id| self.files.value_path(*id)));
        self.files.env.note(Note::EditRemoves { files: &removed });
        if !drumlin_types::bug!("drop-not-logged") {
            let edit = Edit { changes: vec![Change::DropKeyspace { id: state.id }] };
            if let Err(error) = self.append_edit(&mut control, edit, || {}) {
                // The keyspace stays if the edit lacked disk space. After any other failure its state is unknown.
                state.mark_dropped(self.health.is_poisoned());
                return Err(error);
            }
        }
        for (_, _, file) in tree.files() {
            file.table.retire();
        }
        values.values().for_each(|file| file.retire());
        control.keyspaces.retain(|k| !Arc::ptr_eq(&k.state, &state));
        self.set_keyspaces(self.keyspaces().iter().filter(|k| !Arc::ptr_eq(k, &state)).cloned().collect());
        let log = self.commit_lock.state.lock().log.segment.number;
        state.clear(log);
        self.refresh_pace(&control);
        drop(control);
        self.lifetimes.forget(state.id);
        // Releases finished outputs of its compactions that waited for earlier installs.
        self.install_ready(&state);
        self.charge_trees();
        // The drop is durable. If this fails, the next flush or open releases the segments.
        let _ = self.release_log_of_dropped();
        self.background.progressed();
        Ok(())
    }

    /// Releases the log segments that only a dropped keyspace kept. Otherwise a store whose disk budget the log has
    /// used up would refuse writes for ever: it has nothing to flush, and only flushes release segments.
    fn release_log_of_dropped(&self) -> Result<()> {
        self.sync_log_starts()?;
        let mut control = self.control.lock();
        let floor = self.log_floor(&[]);
        // The segments no longer tell the last sequence number.
        let changes = vec![Change::LogFloor(floor), Change::LastSeq(self.log.durable_seq())];
        self.append_edit(&mut control, Edit { changes }, || {})?;
        drop(control);
        self.release_log(floor);
        Ok(())
    }

    /// Stops writes to `keyspace`, waits for commits that have a place, and makes all earlier writes durable.
    ///
    /// The keyspace's memtables protect the log segments of its commits. A commit that still copied its record after
    /// the drop could write into a recycled segment.
    fn end_writes(&self, keyspace: &KeyspaceState) -> Result<()> {
        let locked = self.commit_lock.state.lock();
        keyspace.mark_dropped(true);
        drop(locked);
        let drained =
            if drumlin_types::bug!("drop-ignores-writers") { Ok(()) } else { self.publisher.drain() };
        let synced = drained.and_then(|()| self.sync_log(self.publisher.last_published().log_end));
        // Nothing says yet that the keyspace is dropped, so it stays.
        synced.inspect_err(|_| keyspace.mark_dropped(false))
    }

    pub(crate) fn policy_name(&self, keyspace: &Arc<KeyspaceState>) -> String {
        self.control.lock().keyspace(keyspace).map_or_else(String::new, |k| k.policy.name())
    }

    /// Returns the state of the policy of `keyspace`, as readable text lines.
    pub(crate) fn policy_state(&self, keyspace: &Arc<KeyspaceState>) -> String {
        self.control.lock().keyspace(keyspace).map_or_else(String::new, |k| k.policy.explain())
    }

    pub(crate) fn set_policy(&self, keyspace: &Arc<KeyspaceState>, name: &str) -> Result<()> {
        self.set_keyspace_options(keyspace, &[("compaction".to_owned(), name.to_owned())])
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        let what = format!("a keyspace name has 1 to {MAX_NAME_LEN} bytes, not {}", name.len());
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    Ok(())
}
