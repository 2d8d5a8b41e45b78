//! Crash images: what a power loss, or the death of the process, leaves of a disk.
//!
//! Each image is drawn from a seed, so the same snapshot, mode and seed give the same image. Survival does not follow
//! write order: the page or name written last may survive alone.

use std::collections::BTreeMap;

use super::disk::Disk;
use super::names::{NameTarget, NodeId, Survival};
use super::node::{Inode, PAGE, Page, Slot, bytes, page_count};
use crate::random::Random;
use std::sync::Arc;

/// Bytes per sector, the unit that a disk writes atomically.
const SECTOR: usize = 512;

/// Amount of unsynced data that an image loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageMode {
    /// Nothing unsynced survives.
    None,
    /// All that was passed to the system survives, as after the death of the process.
    All,
    /// Each unsynced page is old, new, or zero where the file grew. Each unsynced name is kept or lost.
    Pages,
    /// As [`ImageMode::Pages`], with one page torn between two sectors.
    Torn,
    /// As [`ImageMode::Pages`], but pages by which a file grew may hold bytes of deleted files.
    Garbage,
    /// A file has its new length without the data, or the data without the length. Names are kept or lost.
    Size,
}

impl ImageMode {
    /// All modes.
    pub const ALL: [ImageMode; 6] = [
        ImageMode::None,
        ImageMode::All,
        ImageMode::Pages,
        ImageMode::Torn,
        ImageMode::Garbage,
        ImageMode::Size,
    ];
}

/// Losses of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageReport {
    /// Number of pages whose content is not the newest, in files that kept a name.
    pub dropped_pages: u64,
    /// Number of names whose target changed.
    pub dropped_entries: u64,
    /// Number of pages torn between two sectors.
    pub torn: u64,
    /// Number of pages with bytes of another file.
    pub garbage: u64,
    /// Number of files whose length is not the newest.
    pub lengths: u64,
}

impl ImageReport {
    /// Returns whether anything was lost.
    pub fn dropped_something(&self) -> bool {
        *self != ImageReport::default()
    }
}

/// Draws the disk that an event leaves. After a power loss, all of it is on stable storage. After the death of the
/// process, a later power loss may still take what was not synced or what a failed sync lost.
pub(crate) fn draw(disk: &Disk, mode: ImageMode, seed: u64) -> (Disk, ImageReport) {
    if mode == ImageMode::All {
        return (disk.without_handles(), ImageReport::default());
    }
    let mut random = Random::new(seed, "image");
    let survival = match mode {
        ImageMode::None => Survival::Synced,
        _ => Survival::Any,
    };
    let (names, dropped_entries) = disk.names.after_power_loss(survival, &mut random);
    let mut image = Disk { capacity: disk.capacity, nanos: disk.nanos, ..Disk::new(disk.stepped) };
    image.graveyard = disk.graveyard.clone();
    let mut drawing = Drawing {
        disk,
        mode,
        random,
        tear: None,
        report: ImageReport { dropped_entries, ..Default::default() },
    };
    if mode == ImageMode::Torn {
        drawing.choose_tear(&names);
    }
    let mut ids: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for (path, entry) in names {
        let entry = match entry {
            NameTarget::Dir => NameTarget::Dir,
            NameTarget::File(old) => {
                NameTarget::File(*ids.entry(old).or_insert_with(|| match &disk.nodes[&old] {
                    node if node.is_pristine() => image.add_shared(node.clone()),
                    _ => image.add_node(drawing.node(old)),
                }))
            }
        };
        image.names_mut().set_durable(&path, entry);
    }
    (image, drawing.report)
}

struct Drawing<'a> {
    disk: &'a Disk,
    mode: ImageMode,
    random: Random,
    /// Page to tear, with its torn content.
    tear: Option<(NodeId, usize, Arc<Page>)>,
    report: ImageReport,
}

impl Drawing<'_> {
    /// Chooses an unsynced page of the surviving files, and a split that changes its content.
    fn choose_tear(&mut self, names: &BTreeMap<std::path::PathBuf, NameTarget>) {
        let mut candidates = Vec::new();
        for id in names.values().filter_map(|entry| entry.file()) {
            let node = self.disk.node(id);
            for (page, old) in node.unsynced() {
                let new = node.current(page);
                let splits: Vec<usize> = (1..PAGE / SECTOR)
                    .map(|sector| sector * SECTOR)
                    .filter(|&at| {
                        let (old, new) = (bytes(old), bytes(&new));
                        old[..at] != new[..at] && old[at..] != new[at..]
                    })
                    .collect();
                if !splits.is_empty() {
                    candidates.push((id, page, splits));
                }
            }
        }
        if candidates.is_empty() {
            return;
        }
        let (id, page, splits) = candidates.swap_remove(self.random.index(candidates.len()));
        let at = splits[self.random.index(splits.len())];
        let node = self.disk.node(id);
        let old = node.unsynced().find(|&(other, _)| other == page).map_or(&None, |(_, old)| old);
        let new = node.current(page);
        let (mut torn, rest) =
            if self.random.chance(1, 2) { (*bytes(&new), bytes(old)) } else { (*bytes(old), bytes(&new)) };
        torn[at..].copy_from_slice(&rest[at..]);
        self.tear = Some((id, page, Arc::new(torn)));
        self.report.torn = 1;
    }

    /// Returns what is left of a file.
    fn node(&mut self, id: NodeId) -> Inode {
        let node = self.disk.node(id);
        let mut pages = node.pages().to_vec();
        if node.is_durable() {
            return Inode::synced(node.kind, node.len(), pages);
        }
        let data_without_length = self.mode == ImageMode::Size && self.random.chance(1, 2);
        // End of the newest page that survives.
        let mut reach = 0;
        for (page, old) in node.unsynced() {
            let new = node.current(page);
            let left = match self.mode {
                ImageMode::None => old.clone(),
                ImageMode::Size if data_without_length => new.clone(),
                ImageMode::Size => old.clone(),
                _ => self.page(id, page, old, &new, page >= page_count(node.durable_len())),
            };
            if bytes(&left) == bytes(&new) || self.is_torn(id, page) {
                reach = reach.max((page as u64 + 1) * PAGE as u64).min(node.len());
            }
            pages.resize(pages.len().max(page + 1), None);
            pages[page] = left;
        }
        let len = self.len(node, reach, data_without_length, id);
        self.report.lengths += u64::from(len != node.len());
        let left = Inode::synced(node.kind, len, pages);
        let changed = node.unsynced().filter(|&(page, _)| {
            bytes(&left.current(page)) != bytes(&node.current(page)) && !self.is_torn(id, page)
        });
        self.report.dropped_pages += changed.count() as u64;
        left
    }

    fn is_torn(&self, id: NodeId, page: usize) -> bool {
        self.tear.as_ref().is_some_and(|tear| (tear.0, tear.1) == (id, page))
    }

    fn page(&mut self, id: NodeId, page: usize, old: &Slot, new: &Slot, grown: bool) -> Slot {
        if let Some((_, _, torn)) = self.tear.as_ref().filter(|tear| (tear.0, tear.1) == (id, page)) {
            return Some(torn.clone());
        }
        match self.random.index(if grown { 3 } else { 2 }) {
            0 => new.clone(),
            _ if grown && self.mode == ImageMode::Garbage => {
                self.report.garbage += 1;
                Some(self.garbage())
            }
            1 => old.clone(),
            _ => None,
        }
    }

    fn garbage(&mut self) -> Arc<Page> {
        let graveyard = &self.disk.graveyard;
        if !graveyard.is_empty() && self.random.chance(3, 4) {
            return graveyard[self.random.index(graveyard.len())].clone();
        }
        let mut page = [0; PAGE];
        self.random.fill(&mut page);
        Arc::new(page)
    }

    fn len(&mut self, node: &Inode, reach: u64, data_without_length: bool, id: NodeId) -> u64 {
        let (old, new) = (node.durable_len(), node.len());
        match self.mode {
            ImageMode::None => old,
            ImageMode::Size if data_without_length => old,
            ImageMode::Size => new,
            // Garbage is visible only inside the file.
            ImageMode::Garbage if new > old => new,
            // The torn page is visible only inside the file.
            _ if self.tear.as_ref().is_some_and(|tear| tear.0 == id) && new > old => reach,
            _ => match self.random.index(3) {
                0 => old,
                1 => new,
                _ if new > old => reach.max(old),
                _ => new,
            },
        }
    }
}
