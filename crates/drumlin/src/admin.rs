//! What a user may ask of an open store besides reading and writing: flushing, compacting, waiting,
//! keyspaces, policies, closing.

use crate::background::{Lane, Step};
use crate::compaction::control::{KeyspaceControl, ManualCompaction};
use crate::compaction::lane::MergeLane;
use crate::error::{Error, ErrorKind, Result};
use crate::flush::FlushLane;
use crate::keyspace::KeyspaceState;
use crate::memtable::Memtable;
use crate::options::{Adaptation, KeyspaceOptions, Options};
use crate::ready::ReadyLane;
use crate::recovery::open::keyspace_options;
use crate::search::SearchJob;
use crate::stats::Meter;
use crate::store::{Store, unlink};
use crate::version::Tree;
use drumlin_env::sync::{Arc, Mutex, atomic};
use drumlin_env::{FileKind, Note};
use drumlin_format::log::{RecordHeader, RecordKind};
use drumlin_format::manifest::{Change, Edit};
use drumlin_types::{KeyRange, KeyspaceId};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Longest keyspace name, in bytes.
const MAX_NAME: usize = 255;

impl Store {
    pub(crate) fn start_lanes(self: &Arc<Self>) -> Result<()> {
        self.background.start(Arc::new(FlushLane::new(self.clone())))?;
        self.background.start(Arc::new(ReadyLane::new(self.clone())))?;
        for number in 0..self.slots.count() {
            self.background.start(Arc::new(MergeLane::new(self.clone(), number)))?;
        }
        self.background.start(Arc::new(MaintenanceLane::new(self.clone())))
    }

    /// The keyspace called `name`, made when there is none.
    pub(crate) fn keyspace(&self, name: &str, wanted: &[(String, String)]) -> Result<Arc<KeyspaceState>> {
        let find = || self.keyspaces().iter().find(|k| &*k.name == name).cloned();
        if wanted.is_empty()
            && let Some(found) = find()
        {
            return Ok(found);
        }
        if name.is_empty() || name.len() > MAX_NAME {
            let what = format!("a keyspace name has 1 to {MAX_NAME} bytes, not {}", name.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        if let Some(found) = find() {
            for (option, value) in wanted {
                self.set_keyspace_option(&found, option, value)?;
            }
            return Ok(found);
        }
        self.check_poison()?;
        let options = keyspace_options(wanted)?;
        let policy = policy_for(&options)?;
        let mut control = self.control.lock();
        if let Some(found) = find() {
            return Ok(found);
        }
        let id = self.next_keyspace.fetch_add(1, atomic::Ordering::AcqRel);
        let id = u32::try_from(id)
            .map(KeyspaceId)
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "no keyspace ids are left"))?;
        let mut changes = vec![Change::CreateKeyspace { id, name: name.to_owned() }];
        for (name, value) in options.pairs() {
            changes.push(Change::KeyspaceOption { id, name: name.to_owned(), value });
        }
        self.append_edit(&mut control, Edit { changes }, || {})?;
        let log = self.lane.state.lock().log.segment.number;
        let operator = self.components.operators.get(name).cloned();
        let state = Arc::new(KeyspaceState::new(
            id,
            name.into(),
            &self.options.load(),
            options,
            operator,
            Tree::empty(),
            log,
            self.filter_seed,
            Meter::new(&self.sampling),
        ));
        control.keyspaces.push(KeyspaceControl::new(state.clone(), policy, 0));
        let mut all = self.keyspaces().to_vec();
        all.push(state.clone());
        self.set_keyspaces(all);
        Ok(state)
    }

    /// Drops a keyspace with all that it holds. Everything written before is durable by then, so that
    /// the drop cannot survive a crash that earlier writes do not.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.check_poison()?;
        let found = self.keyspaces().iter().find(|k| &*k.name == name).cloned();
        let Some(state) = found else {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("there is no keyspace {name:?}")));
        };
        self.sync_log(self.publisher.published().log_end)?;
        let mut control = self.control.lock();
        state.mark_dropped(true);
        let tree = state.view().tree.clone();
        let tables: BTreeSet<PathBuf> = tree.files().map(|(_, _, f)| self.table_path(f.id())).collect();
        let tables: Vec<PathBuf> = tables.into_iter().collect();
        self.env.note(Note::EditRemoves { files: &tables });
        if !drumlin_types::bug!("E3") {
            let edit = Edit { changes: vec![Change::DropKeyspace { id: state.id }] };
            if let Err(error) = self.append_edit(&mut control, edit, || {}) {
                // Without room for the edit the keyspace stays; after any other failure nobody knows.
                state.mark_dropped(self.is_poisoned());
                return Err(error);
            }
        }
        for (_, _, file) in tree.files() {
            file.table.retire();
        }
        control.keyspaces.retain(|k| !Arc::ptr_eq(&k.state, &state));
        self.set_keyspaces(self.keyspaces().iter().filter(|k| !Arc::ptr_eq(k, &state)).cloned().collect());
        let log = self.lane.state.lock().log.segment.number;
        state.clear(log);
        drop(control);
        // Results of its merges that were held back are nobody's now.
        self.install_ready(&state);
        self.background.progressed();
        Ok(())
    }

    pub(crate) fn policy_name(&self, keyspace: &Arc<KeyspaceState>) -> String {
        self.control.lock().keyspace(keyspace).map_or_else(String::new, |k| k.policy.name())
    }

    /// What the policy of `keyspace` goes by, in lines for people.
    pub(crate) fn policy_state(&self, keyspace: &Arc<KeyspaceState>) -> String {
        self.control.lock().keyspace(keyspace).map_or_else(String::new, |k| k.policy.explain())
    }

    pub(crate) fn set_policy(&self, keyspace: &Arc<KeyspaceState>, name: &str) -> Result<()> {
        let policy = drumlin_policy::by_name(name).map_err(|e| Error::new(ErrorKind::InvalidOption, e.0))?;
        self.check_poison()?;
        keyspace.check_alive()?;
        let mut control = self.control.lock();
        let id = keyspace.id;
        let changes = vec![
            Change::KeyspaceOption { id, name: "compaction".to_owned(), value: name.to_owned() },
            Change::Policy { keyspace: id, name: policy.name(), blob: policy.save() },
        ];
        self.append_edit(&mut control, Edit { changes }, || {})?;
        let mut options = KeyspaceOptions::clone(&keyspace.options.load());
        options.set("compaction", name)?;
        keyspace.set_options(&self.options.load(), options);
        let now = self.now();
        control.decisions.note(now, &keyspace.name, format!("policy {name}"), "set by the user".to_owned());
        if let Some(entry) = control.keyspace(keyspace) {
            entry.set_policy(policy);
        }
        self.refresh_pace(&control);
        drop(control);
        self.background.progressed();
        Ok(())
    }

    /// Changes an option of the open store.
    pub(crate) fn set_option(&self, name: &str, value: &str) -> Result<()> {
        let mut options = Options::clone(&self.options.load());
        options.set(name, value)?;
        if Options::defs().iter().any(|def| def.name == name && !def.live) {
            let what = format!("{name} is taken when the store is opened: give it to the builder");
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        let mut control = self.control.lock();
        let change = Change::StoreOption { name: name.to_owned(), value: value.to_owned() };
        self.append_edit(&mut control, Edit { changes: vec![change] }, || {})?;
        self.lane.home.budget.limit.store(options.disk_budget, atomic::Ordering::Relaxed);
        self.write_gate.limit(options.background_rate);
        self.options.store(Arc::new(options));
        control.shortage = None;
        drop(control);
        // A limit may have been lifted that lanes wait for.
        self.background.progressed();
        Ok(())
    }

    pub(crate) fn set_keyspace_option(
        &self,
        keyspace: &Arc<KeyspaceState>,
        name: &str,
        value: &str,
    ) -> Result<()> {
        let mut options = KeyspaceOptions::clone(&keyspace.options.load());
        options.set(name, value)?;
        if name == "compaction" {
            return self.set_policy(keyspace, value);
        }
        let mut control = self.control.lock();
        let change =
            Change::KeyspaceOption { id: keyspace.id, name: name.to_owned(), value: value.to_owned() };
        let adapts = name == "adaptation";
        // What is frozen is frozen for the next life too, whatever ends this one.
        let frozen = options.adaptation == Adaptation::Frozen;
        let policy = control.keyspace(keyspace).filter(|_| adapts).map(|entry| {
            entry.policy.freeze(frozen);
            entry.durable_policy()
        });
        let policy = policy.map(|(name, blob)| Change::Policy { keyspace: keyspace.id, name, blob });
        let changes = std::iter::once(change).chain(policy).collect();
        self.append_edit(&mut control, Edit { changes }, || {})?;
        keyspace.set_options(&self.options.load(), options);
        if adapts {
            let now = self.now();
            let what = format!("adaptation {value}");
            control.decisions.note(now, &keyspace.name, what, "set by the user".to_owned());
        }
        if let Some(entry) = control.keyspace(keyspace) {
            if adapts && entry.is_frozen() {
                entry.end_search();
            }
            entry.ask_soon();
        }
        drop(control);
        self.background.wake();
        Ok(())
    }

    /// Writes the memtables of one keyspace, or of all, to tables and waits for it.
    pub(crate) fn flush(&self, only: Option<&Arc<KeyspaceState>>) -> Result<()> {
        self.check_open()?;
        self.check_poison()?;
        self.look_for_room();
        let wanted: Vec<Arc<KeyspaceState>> = match only {
            Some(keyspace) => vec![keyspace.clone()],
            None => self.keyspaces().to_vec(),
        };
        let pending = self.seal(&wanted);
        self.wait_flushed(&pending)
    }

    /// Seals the memtables of `keyspaces` at one moment and gives all that wait to be flushed.
    pub(crate) fn seal(&self, keyspaces: &[Arc<KeyspaceState>]) -> Vec<(Arc<KeyspaceState>, Arc<Memtable>)> {
        let lane = self.lane.state.lock();
        let mut pending = Vec::new();
        for keyspace in keyspaces {
            keyspace.seal(lane.log.segment.number);
            pending.extend(keyspace.view().sealed.iter().map(|m| (keyspace.clone(), m.clone())));
        }
        pending
    }

    /// Every sealed memtable that waits to be flushed.
    pub(crate) fn pending_flushes(&self) -> Vec<(Arc<KeyspaceState>, Arc<Memtable>)> {
        let keyspaces = self.keyspaces();
        let of = |k: &Arc<KeyspaceState>| {
            k.view().sealed.iter().map(|m| (k.clone(), m.clone())).collect::<Vec<_>>()
        };
        keyspaces.iter().flat_map(of).collect()
    }

    pub(crate) fn wait_flushed(&self, pending: &[(Arc<KeyspaceState>, Arc<Memtable>)]) -> Result<()> {
        self.background.wake();
        let failed = self.failed_flushes();
        self.background.wait("flush waits for its memtables", || {
            self.check_poison()?;
            let waiting = |(k, m): &(Arc<KeyspaceState>, Arc<Memtable>)| {
                k.view().sealed.iter().any(|s| Arc::ptr_eq(s, m))
            };
            if !pending.iter().any(waiting) {
                return Ok(true);
            }
            self.check_flushes(failed)?;
            if self.disk_full.load(atomic::Ordering::Acquire) {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the disk has no room for a flush; it goes on when there is",
                ));
            }
            Ok(false)
        })
    }

    /// Merges everything of `range` into one run.
    pub(crate) fn compact(&self, keyspace: &Arc<KeyspaceState>, range: KeyRange) -> Result<()> {
        keyspace.check_alive()?;
        self.flush(Some(keyspace))?;
        let id = {
            let mut control = self.control.lock();
            let id = control.next_manual;
            control.next_manual += 1;
            match control.keyspace(keyspace) {
                Some(entry) => entry.manual.push(ManualCompaction::new(id, range)),
                None => return keyspace.check_alive(),
            }
            id
        };
        self.background.wake();
        let ended = self.background.wait("a compaction waits for its merge", || {
            self.check_poison()?;
            let mut control = self.control.lock();
            let Some(entry) = control.keyspace(keyspace) else {
                return keyspace.check_alive().map(|()| true);
            };
            if let Some(ended) = entry.take_manual(id) {
                return ended.map(|()| true);
            }
            drop(control);
            self.check_room_to_merge().map(|()| false)
        });
        if ended.is_err()
            && let Some(entry) = self.control.lock().keyspace(keyspace)
        {
            entry.forget_manual(id);
        }
        ended
    }

    /// Waits until nothing is to be flushed, merged or removed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.look_for_room();
        {
            let mut control = self.control.lock();
            control.idle_waiters += 1;
            control.keyspaces.iter_mut().filter(|entry| entry.due).for_each(KeyspaceControl::ask_soon);
        }
        self.background.wake();
        let failed = self.failed_flushes();
        let ended = self.background.wait("the store is not idle", || {
            self.check_poison()?;
            self.check_flushes(failed)?;
            self.check_room_to_merge()?;
            if self.keyspaces().iter().any(|k| !k.peek().sealed.is_empty()) {
                return Ok(false);
            }
            let control = self.control.lock();
            Ok(control.keyspaces.iter().all(KeyspaceControl::is_quiet) && self.obsolete.is_empty())
        });
        self.control.lock().idle_waiters -= 1;
        ended
    }

    /// Whether log segment `number` is kept for recycling.
    pub(crate) fn keeps_log(&self, number: drumlin_types::LogNumber) -> bool {
        self.lane.state.lock().log.is_spare(number)
    }

    /// Ends background work, marks the log as closed and saves the policies' states.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, atomic::Ordering::AcqRel) {
            return Ok(());
        }
        self.background.stop();
        self.lane.state.lock().closed = true;
        // What waited to be installed is merged anew after the next opening.
        let held = std::mem::take(&mut *self.held.lock());
        drop(held);
        let result = match self.read_only {
            true => Ok(()),
            false => {
                self.write_decisions();
                self.save_at_close()
            }
        };
        self.control.lock().closed = true;
        self.unlock();
        result
    }

    fn save_at_close(&self) -> Result<()> {
        self.check_poison()?;
        self.publisher.drain()?;
        self.sync()?;
        self.write_close_record()?;
        self.save_lookups()?;
        let mut control = self.control.lock();
        let changes = control
            .keyspaces
            .iter()
            .map(|k| {
                let (name, blob) = k.durable_policy();
                Change::Policy { keyspace: k.state.id, name, blob }
            })
            .chain([Change::LastSeq(self.publisher.visible()), Change::ClockMark(self.unix_micros())])
            .collect();
        self.append_edit(&mut control, Edit { changes }, || {})
    }

    fn write_close_record(&self) -> Result<()> {
        let mut lane = self.lane.state.lock();
        let last = lane.log.last_seq();
        let len = drumlin_format::log::record_len(0);
        let place = lane.log.reserve(&self.lane.home, len, last, || self.fresh_number())?;
        let header = RecordHeader {
            kind: RecordKind::Close,
            synced_mark: self.log.durable_end(),
            first_seq: 0,
            count: 0,
        };
        let mut record = Vec::new();
        drumlin_format::log::encode_record(&mut record, place.segment.number, place.offset(), &header, &[])
            .map_err(|e| Error::new(ErrorKind::Bug, e.what))?;
        drop(lane);
        let written = crate::write::log::write(&place, &record)
            .and_then(|()| self.log.sync_segment(&place.segment))
            .and_then(|()| self.log.know_segments(&self.lane));
        if let Err(error) = &written {
            self.poison(error);
            // It may be in memory alone: who opens the store next must not take it for a clean end.
            let _ = place.segment.cut(place.offset());
        }
        written
    }
}

/// The policy that a new keyspace's options ask for.
fn policy_for(options: &KeyspaceOptions) -> Result<Box<dyn drumlin_types::contract::CompactionPolicy>> {
    drumlin_policy::by_name(&options.compaction).map_err(|e| Error::new(ErrorKind::InvalidOption, e.0))
}

/// The lane that removes obsolete files, rewrites the manifest, writes the decision log, ages statistics, and searches
/// for policies.
struct MaintenanceLane {
    store: Arc<Store>,
    /// Merge lanes that were started: as many as there ever were slots.
    merge_lanes: atomic::AtomicUsize,
    search: Mutex<SearchJob>,
}

impl MaintenanceLane {
    fn new(store: Arc<Store>) -> MaintenanceLane {
        let search = Mutex::new(SearchJob::new(store.now()));
        let merge_lanes = atomic::AtomicUsize::new(store.slots.count());
        MaintenanceLane { store, merge_lanes, search }
    }

    /// Lets the number of merge slots follow what was measured, and starts the lanes that are missing. `true` when it
    /// changed.
    fn tune_slots(&self) -> bool {
        let store = &self.store;
        if store.is_poisoned() {
            return false;
        }
        let now = store.now();
        let Some(change) = store.tune_slots(now) else { return false };
        let started = self.merge_lanes.load(atomic::Ordering::Relaxed);
        for number in started..change.slots {
            if let Err(error) = store.background.start(Arc::new(MergeLane::new(store.clone(), number))) {
                store.slots.refuse_beyond(number);
                store.background_failed("maintenance", &error);
                break;
            }
            self.merge_lanes.store(number + 1, atomic::Ordering::Relaxed);
        }
        store.background.wake();
        true
    }

    fn try_step(&self) -> Result<Step> {
        let store = &self.store;
        if let Some((table, _)) = store.obsolete.next_table() {
            store.tables.remove(table);
            unlink(&store.env, &store.table_path(table), FileKind::Table)?;
            store.look_for_room();
            store.background.progressed();
            return Ok(Step::More);
        }
        if let Some(path) = store.obsolete.next_file() {
            let kind = match path.extension() {
                Some(_) => FileKind::Log,
                None => FileKind::Manifest,
            };
            unlink(&store.env, &path, kind)?;
            store.background.progressed();
            return Ok(Step::More);
        }
        let has_worked = store.rewrite_manifest_if_grown()?
            || store.write_decisions()
            || store.age_lookups()?
            || store.tick()
            || self.tune_slots();
        if has_worked {
            return Ok(Step::More);
        }
        let step = self.search.lock().step(store)?;
        Ok(match (step, store.next_look()) {
            (Step::Idle, Some(look)) => Step::Until(look),
            (Step::Until(when), Some(look)) => Step::Until(when.min(look)),
            (step, _) => step,
        })
    }
}

impl Lane for MaintenanceLane {
    fn name(&self) -> String {
        "drumlin-maintenance".into()
    }

    fn step(&self) -> Step {
        match self.try_step() {
            Ok(step) => step,
            Err(error) => {
                self.store.background_failed("maintenance", &error);
                Step::Idle
            }
        }
    }

    fn panicked(&self) {
        self.store.lane_panicked(&self.name());
    }

    fn abandon(&self) {
        self.search.lock().abandon();
    }
}
