//! Directory entries of the simulated disk: their present targets, and what a power loss may leave of them.
//!
//! Each entry keeps every state since the last sync of its directory. A power loss leaves any one of these states,
//! for each entry on its own. So it may keep or lose a create, rename, link or unlink independently of the
//! neighbouring entries. The target of a rename is old or new but never absent, because its history has no such
//! state. The source of the rename may reappear as well. A file that had a durable name and still has a name keeps at
//! least one.
//!
//! The empty path and the root are directories that always exist. Paths are compared as given.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// Identity of a file, whatever its names.
pub(crate) type NodeId = u64;

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameTarget {
    Dir,
    File(NodeId),
}

impl NameTarget {
    pub(crate) fn file(self) -> Option<NodeId> {
        match self {
            NameTarget::Dir => None,
            NameTarget::File(id) => Some(id),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Name {
    durable: Option<NameTarget>,
    /// States since the directory was synced, the newest last; empty when the entry is unchanged.
    since: Vec<Option<NameTarget>>,
    /// Whether a failed sync of the directory lost the change. It counts as written, so later syncs skip it.
    lost: bool,
}

impl Name {
    fn live(&self) -> Option<NameTarget> {
        self.since.last().copied().unwrap_or(self.durable)
    }
}

/// Names that survive a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// The synced state of each name.
    Synced,
    /// Any state of each name since the last sync.
    Any,
}

/// All directory entries of a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    map: BTreeMap<PathBuf, Name>,
}

fn always_exists(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new("/")
}

impl Names {
    /// Returns the present target of `path`.
    pub(crate) fn live(&self, path: &Path) -> Option<NameTarget> {
        if always_exists(path) { Some(NameTarget::Dir) } else { self.map.get(path).and_then(Name::live) }
    }

    /// Returns whether a power loss leaves the name and its parent directories as they are now.
    pub(crate) fn is_durable(&self, path: &Path) -> bool {
        path.ancestors().filter(|path| !always_exists(path)).all(|path| {
            self.map.get(path).is_some_and(|name| name.durable.is_some() && name.since.is_empty())
        })
    }

    /// Sets or removes the target of `path`.
    pub(crate) fn set(&mut self, path: &Path, entry: Option<NameTarget>) {
        let name = self.map.entry(path.to_owned()).or_default();
        name.since.push(entry);
        name.lost = false;
    }

    /// Sets the target of `path`, on stable storage too.
    pub(crate) fn set_durable(&mut self, path: &Path, entry: NameTarget) {
        self.map.insert(path.to_owned(), Name { durable: Some(entry), ..Name::default() });
    }

    fn below<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Name)> {
        self.map
            .range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded))
            .take_while(move |(path, _)| path.starts_with(dir))
            .filter(move |(path, _)| path.parent() == Some(dir))
    }

    /// Returns the entries of `dir`.
    pub(crate) fn list<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = (&'a Path, NameTarget)> {
        self.below(dir).filter_map(|(path, name)| Some((path.as_path(), name.live()?)))
    }

    /// Returns every name of every file.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, NodeId)> {
        self.map.iter().filter_map(|(path, name)| Some((path.as_path(), name.live()?.file()?)))
    }

    /// Makes the entries of `dir` durable, except those that a failed sync lost.
    pub(crate) fn sync(&mut self, dir: &Path) {
        let changed: Vec<PathBuf> = self
            .below(dir)
            .filter(|(_, name)| !name.since.is_empty() && !name.lost)
            .map(|(path, _)| path.clone())
            .collect();
        for path in changed {
            match self.map[&path].live() {
                Some(entry) => self.set_durable(&path, entry),
                None => {
                    self.map.remove(&path);
                }
            }
        }
    }

    /// Marks the changes in `dir` as written although they are not.
    pub(crate) fn lose_sync(&mut self, dir: &Path) {
        let changed: Vec<PathBuf> = self.below(dir).map(|(path, _)| path.clone()).collect();
        for path in changed {
            let name = self.map.get_mut(&path).expect("the path was just listed");
            name.lost = !name.since.is_empty();
        }
    }

    /// Returns every file that has a name now or may have one after a power loss.
    pub(crate) fn reachable(&self) -> BTreeSet<NodeId> {
        let states = self.map.values().flat_map(|name| name.since.iter().copied().chain([name.durable]));
        states.flatten().filter_map(NameTarget::file).collect()
    }

    /// Returns the names that a power loss leaves, and how many of them differ from the present ones.
    pub(crate) fn after_power_loss(
        &self,
        survival: Survival,
        random: &mut Random,
    ) -> (BTreeMap<PathBuf, NameTarget>, u64) {
        let mut left: BTreeMap<PathBuf, Option<NameTarget>> = BTreeMap::new();
        for (path, name) in &self.map {
            let entry = match survival {
                Survival::Synced => name.durable,
                Survival::Any => match random.index(name.since.len() + 1) {
                    0 => name.durable,
                    n => name.since[n - 1],
                },
            };
            left.insert(path.clone(), entry);
        }
        if survival == Survival::Any {
            self.keep_one_name(&mut left);
        }
        drop_without_parent(&mut left);
        let dropped = self.map.iter().filter(|(path, name)| left[*path] != name.live()).count() as u64;
        let left = left.into_iter().filter_map(|(path, entry)| Some((path, entry?))).collect();
        (left, dropped)
    }

    /// Keeps one name of each file that has a durable name and a present one: if the draw left it none, it gets its
    /// present name. That may take the name from another file, so the loop continues until each such file has one.
    fn keep_one_name(&self, left: &mut BTreeMap<PathBuf, Option<NameTarget>>) {
        let durable: BTreeSet<NodeId> = self.map.values().filter_map(|name| name.durable?.file()).collect();
        let present: BTreeMap<NodeId, &Path> =
            self.files().filter(|(_, id)| durable.contains(id)).map(|(path, id)| (id, path)).collect();
        loop {
            let kept: BTreeSet<NodeId> = left.values().flatten().filter_map(|entry| entry.file()).collect();
            let Some((&id, path)) = present.iter().find(|(id, _)| !kept.contains(id)) else { return };
            left.insert(path.to_path_buf(), Some(NameTarget::File(id)));
        }
    }
}

/// Removes the content of lost directories. Parents sort before their children.
fn drop_without_parent(left: &mut BTreeMap<PathBuf, Option<NameTarget>>) {
    let mut dirs = BTreeSet::new();
    for (path, entry) in left {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !always_exists(parent) && !dirs.contains(parent) {
            *entry = None;
        } else if *entry == Some(NameTarget::Dir) {
            dirs.insert(path.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "d/a";
    const B: &str = "d/b";

    fn with_dir() -> Names {
        let mut names = Names::default();
        names.set_durable(Path::new("d"), NameTarget::Dir);
        names
    }

    fn set(names: &mut Names, path: &str, id: Option<NodeId>) {
        names.set(Path::new(path), id.map(NameTarget::File));
    }

    /// Returns every outcome of 200 power losses, as (target of A, target of B).
    fn outcomes(names: &Names) -> BTreeSet<(Option<NodeId>, Option<NodeId>)> {
        (0..200)
            .map(|seed| {
                let (left, _) = names.after_power_loss(Survival::Any, &mut Random::new(seed, "names"));
                let id = |path: &str| left.get(Path::new(path)).and_then(|entry| entry.file());
                (id(A), id(B))
            })
            .collect()
    }

    #[test]
    fn unsynced_creates_are_kept_or_lost_one_by_one() {
        let mut names = with_dir();
        set(&mut names, A, Some(1));
        set(&mut names, B, Some(2));
        assert_eq!(
            outcomes(&names),
            BTreeSet::from([(None, None), (Some(1), None), (None, Some(2)), (Some(1), Some(2))])
        );
        names.sync(Path::new("d"));
        assert_eq!(outcomes(&names), BTreeSet::from([(Some(1), Some(2))]));
    }

    #[test]
    fn a_rename_over_a_name_leaves_old_or_new_and_perhaps_the_source() {
        let mut names = with_dir();
        set(&mut names, A, Some(1));
        set(&mut names, B, Some(2));
        names.sync(Path::new("d"));
        set(&mut names, B, Some(1));
        set(&mut names, A, None);
        assert_eq!(
            outcomes(&names),
            // Never (None, Some(2)): file 1 was durable and keeps a name.
            BTreeSet::from([(Some(1), Some(2)), (Some(1), Some(1)), (None, Some(1))])
        );
    }

    #[test]
    fn an_unlinked_file_may_come_back_until_the_directory_is_synced() {
        let mut names = with_dir();
        set(&mut names, A, Some(1));
        names.sync(Path::new("d"));
        set(&mut names, A, None);
        assert_eq!(outcomes(&names), BTreeSet::from([(Some(1), None), (None, None)]));
        names.sync(Path::new("d"));
        assert_eq!(outcomes(&names), BTreeSet::from([(None, None)]));
        assert!(names.reachable().is_empty());
    }

    #[test]
    fn a_lost_sync_is_not_made_good_by_the_next() {
        let mut names = with_dir();
        set(&mut names, A, Some(1));
        names.lose_sync(Path::new("d"));
        names.sync(Path::new("d"));
        assert!(!names.is_durable(Path::new(A)));
        set(&mut names, A, Some(1));
        names.sync(Path::new("d"));
        assert!(names.is_durable(Path::new(A)));
    }

    #[test]
    fn what_is_in_a_lost_directory_is_lost() {
        let mut names = Names::default();
        names.set(Path::new("d"), Some(NameTarget::Dir));
        set(&mut names, A, Some(1));
        names.sync(Path::new("d"));
        assert!(!names.is_durable(Path::new(A)));
        let (left, dropped) = names.after_power_loss(Survival::Synced, &mut Random::new(0, ""));
        assert!(left.is_empty());
        assert_eq!(dropped, 2);
        names.sync(Path::new(""));
        assert!(names.is_durable(Path::new(A)));
    }

    #[test]
    fn listing_shows_one_directory() {
        let mut names = with_dir();
        for path in ["d/a", "d/sub", "d/sub/x", "da", "d-a"] {
            set(&mut names, path, Some(1));
        }
        let listed: Vec<_> = names.list(Path::new("d")).map(|(path, _)| path.to_owned()).collect();
        assert_eq!(listed, [Path::new("d/a"), Path::new("d/sub")]);
        let listed: Vec<_> = names.list(Path::new("")).map(|(path, _)| path.to_owned()).collect();
        assert_eq!(listed, [Path::new("d"), Path::new("d-a"), Path::new("da")]);
    }
}
