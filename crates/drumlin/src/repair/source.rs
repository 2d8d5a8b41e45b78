//! Decides what repair reads: the manifest, how far it is trusted, the tables, and the keyspace of each table.
//!
//! The manifest is the first of these that exists:
//!
//! 1. The manifest that `CURRENT` names, if both are sound and nothing shows that their end is lost.
//! 2. The manifest with the highest number in the directory, if it is sound and not empty.
//! 3. The readable part of the newest manifest that can be read at all. Only its keyspace names, options and drops are
//!    used. Its lists of tables are not used, since tables were added and removed after it.
//! 4. None. Tables name their keyspace themselves, and log records hold its id.
//!
//! In cases 1 and 2 repair reads exactly the tables that the manifest names, within their bounds, so no deleted data
//! reappears. In cases 3 and 4 it reads all tables in the directory, and everything in them is in doubt. The same holds
//! if other files contradict the manifest and there are finished tables that the manifest does not name.

use crate::base::SET_ASIDE;
use crate::base::error::Error;
use crate::disk::look_error;
use crate::recovery::evidence;
use crate::recovery::state;
use crate::table::Salvage;
use crate::version::{KeyspaceRecord, ManifestState};
use crate::write::segment::{log_numbers, path_in};
use drumlin_env::{DirEntry, Env, FileKind};
use drumlin_format::log::{LogDamage, Record, Replay, SegmentPrefix, recover};
use drumlin_format::manifest::MAX_NAME_LEN;
use drumlin_format::names::FileName;
use drumlin_format::table::Owner;
use drumlin_types::{KeyRange, KeyspaceId, LogNumber, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Destination of saved entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Destination {
    /// The keyspace with this id.
    Keyspace(KeyspaceId),
    /// A table whose keyspace is unknown.
    Apart(TableId),
}

/// Table to read.
pub(super) struct RepairSource {
    pub(super) id: TableId,
    pub(super) path: PathBuf,
    pub(super) destination: Destination,
    /// Bounds in force: entries outside them are ignored.
    pub(super) bounds: KeyRange,
    /// Lower bound on its keys. The table need not be opened before the merge reaches it.
    pub(super) first: Vec<u8>,
    /// Upper bound on the sequence numbers of its entries.
    pub(super) max_seq: Seq,
    pub(super) len: u64,
    /// Number of entries inside the bounds, if the manifest gives it.
    pub(super) entries: Option<u64>,
}

/// Everything that repair reads, except the log: the manifest, and the list of tables.
pub(super) struct RepairSources {
    pub(super) manifest: Option<ManifestState>,
    /// Whether the manifest's lists of tables are trusted.
    pub(super) is_sound: bool,
    pub(super) tables: Vec<RepairSource>,
    /// Names of keyspaces, from the properties of tables.
    names: BTreeMap<KeyspaceId, ((Seq, TableId), String)>,
    /// Names of the keyspaces in the new store. Each name is given once.
    given: BTreeMap<Destination, String>,
    pub(super) findings: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl RepairSources {
    /// Examines the directory `dir`, which holds `entries`.
    pub(super) fn find(env: &Env, dir: &Path, entries: &[DirEntry]) -> RepairSources {
        let mut sources = RepairSources {
            manifest: None,
            is_sound: false,
            tables: Vec::new(),
            names: BTreeMap::new(),
            given: BTreeMap::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        };
        sources.choose_manifest(env, dir, entries);
        let identities = identities(env, dir, entries, sources.manifest.as_ref());
        sources.doubt_manifest(env, dir, entries, &identities);
        match sources.is_sound {
            true => sources.tables_of_manifest(dir, &identities),
            false => sources.all_tables(env, &identities),
        }
        sources
    }

    /// Chooses the manifest, and whether it is trusted.
    fn choose_manifest(&mut self, env: &Env, dir: &Path, entries: &[DirEntry]) {
        let read = state::read(env, dir).and_then(|manifest| {
            evidence::check_ends(env, dir, &manifest, entries)?;
            Ok(manifest)
        });
        match read {
            Ok(manifest) => {
                (self.manifest, self.is_sound) = (Some(manifest), true);
                return;
            }
            Err(error) => self.findings.push(format!("the current manifest: {error}")),
        }
        let mut numbers: Vec<u64> = entries
            .iter()
            .filter_map(|entry| match FileName::parse(&entry.name) {
                Some(FileName::Manifest(number)) => Some(number),
                _ => None,
            })
            .collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let (last, mut lacks_newer) = (numbers.last().copied(), false);
        for number in numbers {
            let path = dir.join(FileName::Manifest(number).to_string());
            let Ok((manifest, stopped)) = state::read_as_far(env, &path, number) else {
                lacks_newer = true;
                continue;
            };
            let whole = match stopped {
                None => evidence::check_ends(env, dir, &manifest, entries),
                Some(error) => Err(error),
            };
            // The store was killed while it wrote this one. Its predecessor, which was in force, has all that this one
            // would have held.
            let is_begun = whole.is_err() || manifest.is_empty();
            if is_begun && Some(number) != last && !evidence::was_used(env, &path, number) {
                self.findings.push(format!("manifest {number} was never in force: an older one is used"));
                continue;
            }
            // If a newer manifest exists and cannot be read, it held edits that this one lacks.
            self.is_sound = whole.is_ok() && !lacks_newer && !manifest.is_empty();
            self.findings.push(match (&whole, self.is_sound) {
                (_, true) => {
                    format!("manifest {number} is the newest and complete: it is taken as the current one")
                }
                (Err(error), _) => format!("manifest {number} is damaged: repair took only keyspace names and options \
                    from it: {error}"),
                (Ok(()), false) => {
                    format!("manifest {number} is not the newest: repair took only keyspace names and options from it")
                }
            });
            self.manifest = Some(manifest);
            break;
        }
        if !self.is_sound {
            self.findings
                .push("no usable manifest: deleted keys and dropped keyspaces may reappear, and renamed ones may have \
                    earlier names".to_owned());
        }
    }

    /// Withdraws the trust in a manifest that other files contradict, if there are finished tables that it does not
    /// name: they may hold data that the lost part of the manifest assigned to them. A contradiction is that it names a
    /// missing table, that the log begins after its log floor, or that the log records that more of the manifest was
    /// durable.
    fn doubt_manifest(
        &mut self,
        env: &Env,
        dir: &Path,
        entries: &[DirEntry],
        identities: &BTreeMap<TableId, PathBuf>,
    ) {
        let Some(manifest) = self.manifest.as_ref().filter(|_| self.is_sound) else { return };
        let tables = manifest.tables();
        let unnamed = identities.iter().filter(|(id, path)| !tables.contains_key(id) && !is_aside(path));
        let unnamed = unnamed.filter(|(id, path)| {
            Salvage::open(env, path, **id).is_ok_and(|salvage| salvage.properties.is_some())
        });
        let unnamed = unnamed.count();
        if unnamed == 0 {
            return;
        }
        let missing = tables.keys().find(|id| !identities.contains_key(id));
        let why = match missing {
            Some(id) => Some(format!("it names {}, which is missing", FileName::Table(*id))),
            None => contradicts_log(env, dir, manifest, entries),
        };
        if let Some(why) = why {
            self.is_sound = false;
            self.findings.push(format!(
                "the manifest has lost edits: {why}. {unnamed} tables that it does not name are read as well; \
                 deleted keys may reappear"
            ));
        }
    }

    /// Lists the tables that the manifest names.
    fn tables_of_manifest(&mut self, dir: &Path, identities: &BTreeMap<TableId, PathBuf>) {
        let Some(manifest) = &self.manifest else { return };
        let mut named = BTreeSet::new();
        for (id, record) in &manifest.keyspaces {
            for file in record.references() {
                named.insert(file.table);
                let path = identities.get(&file.table);
                let own = || dir.join(FileName::Table(file.table).to_string());
                self.tables.push(RepairSource {
                    id: file.table,
                    path: path.cloned().unwrap_or_else(own),
                    destination: Destination::Keyspace(*id),
                    bounds: file.bounds(),
                    first: file.start.as_bytes().to_vec(),
                    max_seq: file.max_seq,
                    len: file.file_len,
                    entries: Some(file.entries),
                });
            }
        }
        // A table that an open set aside holds commits that the store lacks and never reported as durable. Other tables
        // that the manifest does not name are useless. Both stay in the old directory.
        let unnamed = identities.iter().filter(|(id, _)| !named.contains(id)).map(|(_, path)| path);
        let aside = unnamed.filter(|path| is_aside(path));
        self.notes.extend(
            aside.map(|path| format!("{} was set aside by an open, and is left out", path.display())),
        );
    }

    /// Lists all tables in the directory, except those of dropped keyspaces.
    fn all_tables(&mut self, env: &Env, identities: &BTreeMap<TableId, PathBuf>) {
        let dropped = |id: KeyspaceId, manifest: &ManifestState| {
            u64::from(id.0) < manifest.marks.next_keyspace && !manifest.keyspaces.contains_key(&id)
        };
        for (id, path) in identities {
            let len = env.fs().file_len(path).unwrap_or(0);
            let mut source = whole(*id, path.clone(), Destination::Apart(*id), len);
            let salvage = Salvage::open(env, path, *id).ok();
            match salvage.and_then(|salvage| salvage.properties) {
                Some(properties) => {
                    source.first =
                        properties.key_bounds.map_or_else(Vec::new, |(first, _)| first.as_bytes().to_vec());
                    source.max_seq = properties.max_seq;
                    if let Some(owner) = properties.owner {
                        if self.manifest.as_ref().is_some_and(|manifest| dropped(owner.id, manifest)) {
                            continue;
                        }
                        source.destination = Destination::Keyspace(owner.id);
                        self.name_by_table(owner, (properties.created_seq, *id));
                    }
                }
                None => {
                    self.findings.push(format!("{}: the keyspace of the table is unknown", path.display()))
                }
            }
            self.tables.push(source);
        }
    }

    /// Takes the name of a keyspace from one of its tables. A rename writes no table, so the newest table decides.
    fn name_by_table(&mut self, owner: Owner, written: (Seq, TableId)) {
        let Some((newest, name)) = self.names.get_mut(&owner.id) else {
            self.names.insert(owner.id, (written, owner.name));
            return;
        };
        if *name != owner.name {
            let both = format!("{:?} and {:?}", name, owner.name);
            self.findings.push(format!("tables of keyspace {} name it {both}: the newest decides", owner.id));
        }
        if written > *newest {
            (*newest, *name) = (written, owner.name);
        }
    }

    /// Returns whether, according to the manifest, keyspace `id` was dropped.
    pub(super) fn was_dropped(&self, id: KeyspaceId) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| {
            u64::from(id.0) < manifest.marks.next_keyspace && !manifest.keyspaces.contains_key(&id)
        })
    }

    /// Returns the sequence number up to which all writes to keyspace `id` are in tables.
    pub(super) fn flushed(&self, id: KeyspaceId) -> Seq {
        let record = self.manifest.as_ref().and_then(|manifest| manifest.keyspaces.get(&id));
        record.map_or(0, |record| record.flushed)
    }

    /// Gives each of `destinations` the name of a keyspace in the new store. Keyspaces of the manifest keep their
    /// names. If several others have one name, the newest keyspace keeps it and the rest get a suffix.
    pub(super) fn give_names(&mut self, destinations: &BTreeSet<Destination>) {
        let mut used = BTreeSet::new();
        let is_recorded = |destination: &&Destination| self.record(**destination).is_some();
        let (recorded, others): (Vec<&Destination>, Vec<&Destination>) =
            destinations.iter().partition(is_recorded);
        let mut given = BTreeMap::new();
        for destination in recorded.into_iter().chain(others.into_iter().rev()) {
            let wanted = self.wanted_name(*destination);
            let suffix = match destination {
                Destination::Keyspace(id) => format!("-{}", id.0),
                Destination::Apart(id) => format!("-table-{}", id.0),
            };
            let mut name = wanted.clone();
            for times in 1.. {
                if used.insert(name.clone()) {
                    break;
                }
                let suffix = suffix.repeat(times);
                let room = MAX_NAME_LEN.saturating_sub(suffix.len());
                name = format!("{}{suffix}", &wanted[..wanted.floor_char_boundary(room)]);
            }
            if name != wanted {
                self.findings.push(format!(
                    "several keyspaces are called {wanted:?}: the entries of one go to {name:?}"
                ));
            }
            given.insert(*destination, name);
        }
        self.given = given;
    }

    /// Returns the manifest's record of a keyspace.
    pub(super) fn record(&self, destination: Destination) -> Option<&KeyspaceRecord> {
        let Destination::Keyspace(id) = destination else { return None };
        self.manifest.as_ref().and_then(|manifest| manifest.keyspaces.get(&id))
    }

    /// Returns the name of the keyspace in the new store, after [`give_names`](Sources::give_names).
    pub(super) fn name(&self, destination: Destination) -> String {
        self.given.get(&destination).cloned().unwrap_or_else(|| self.wanted_name(destination))
    }

    /// Returns the name that the keyspace had, or a name made of its number.
    fn wanted_name(&self, destination: Destination) -> String {
        match destination {
            Destination::Apart(id) => format!("recovered-table-{}", id.0),
            Destination::Keyspace(id) => {
                let record = self.record(destination);
                let name =
                    record.map(|record| record.name.clone()).or_else(|| Some(self.names.get(&id)?.1.clone()));
                name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("recovered-{}", id.0))
            }
        }
    }
}

fn is_aside(path: &Path) -> bool {
    path.to_string_lossy().ends_with(SET_ASIDE)
}

/// Returns how the log contradicts the manifest, if it does.
fn contradicts_log(env: &Env, dir: &Path, manifest: &ManifestState, entries: &[DirEntry]) -> Option<String> {
    let numbers = log_numbers(entries);
    let floor = manifest.marks.floor;
    if numbers.iter().all(|number| *number != floor) && numbers.iter().any(|number| *number > floor) {
        return Some(format!("the log begins after {}", FileName::Log(floor)));
    }
    let recovered = recover(&numbers, floor, &mut Probe { env, dir }).ok()?;
    let checked = evidence::check_vouched(dir, manifest, &recovered);
    checked.err().map(|error| error.to_string())
}

/// Reads the log only for what its close records hold about the manifest.
struct Probe<'a> {
    env: &'a Env,
    dir: &'a Path,
}

/// The log cannot be read, so it cannot contradict the manifest.
struct Unreadable;

impl From<LogDamage> for Unreadable {
    fn from(_: LogDamage) -> Unreadable {
        Unreadable
    }
}

impl Replay for Probe<'_> {
    type Error = Unreadable;

    fn read(&mut self, number: LogNumber, _: Vec<u8>, most: u64) -> Result<SegmentPrefix, Unreadable> {
        let bytes = state::read_file(self.env, &path_in(self.dir, number), FileKind::Log);
        bytes.map(|bytes| SegmentPrefix::of(&bytes, most)).map_err(|_| Unreadable)
    }

    fn record(&mut self, _: &Record<'_>) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// Returns the source for all entries of table `id`.
fn whole(id: TableId, path: PathBuf, destination: Destination, len: u64) -> RepairSource {
    let bounds = KeyRange::all();
    RepairSource { id, path, destination, bounds, first: Vec::new(), max_seq: Seq::MAX, len, entries: None }
}

/// Returns the file of each table. Most files have the right name. A file that was renamed or exchanged with another is
/// identified by its footer, which is bound to the table's number.
fn identities(
    env: &Env,
    dir: &Path,
    entries: &[DirEntry],
    manifest: Option<&ManifestState>,
) -> BTreeMap<TableId, PathBuf> {
    let named = |entry: &DirEntry| {
        let name = entry.name.strip_suffix(SET_ASIDE).unwrap_or(&entry.name);
        match FileName::parse(name) {
            Some(FileName::Table(id)) => Some((id, dir.join(&entry.name))),
            _ => None,
        }
    };
    let files: Vec<(TableId, PathBuf)> = entries.iter().filter_map(named).collect();
    let mut candidates: BTreeSet<TableId> = files.iter().map(|(id, _)| *id).collect();
    candidates.extend(manifest.iter().flat_map(|manifest| manifest.tables().into_keys()));
    let mut found = BTreeMap::new();
    let mut strangers = Vec::new();
    for (id, path) in files {
        match Salvage::is(env, &path, id) {
            true => drop(found.insert(id, path)),
            false => strangers.push((id, path)),
        }
    }
    for (own, path) in strangers {
        let missing = |id: &TableId| !found.contains_key(id) && Salvage::is(env, &path, *id);
        let id = candidates.iter().copied().find(missing).unwrap_or(own);
        found.entry(id).or_insert(path);
    }
    found
}

/// Lists the directory `dir`.
pub(super) fn list(env: &Env, dir: &Path) -> Result<Vec<DirEntry>, Error> {
    env.fs().list(dir).map_err(|e| look_error(env, dir, "cannot list the directory", e))
}
