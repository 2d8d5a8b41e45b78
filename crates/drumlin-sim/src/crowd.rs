//! One admission over thousands of files, repeatable. The regression gate measures it, because the engine admits
//! plans under the store's lock.
//!
//! A whole level is compacted into the next one, which holds the same number of bytes. Each file overlaps two files
//! of the level below.

use crate::world::key;
use alloc::string::ToString;
use alloc::vec::Vec;
use drumlin_policy::schedule::{Flight, FoldCosts, Numbers, Refusal, Scene, Settings, project};
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::{FileView, Place, Plan, RunTag, RunView, Take, TreeView};
use drumlin_types::{KeyRange, LEVELS, RunId, TableId};

/// Bytes of a file.
const FILE: u64 = 64 << 20;
/// Number of keys in a file's range.
const WIDTH: u32 = 1000;

/// Two full levels, and the plan that compacts the upper one.
pub struct Crowd {
    tree: TreeView,
    plan: Plan,
}

impl Crowd {
    /// Builds levels of `files` files.
    pub fn new(files: u32) -> Crowd {
        let mut tree = TreeView::empty(LEVELS);
        for level in [1, 2] {
            // The lower level is older.
            let seq = u64::from(3 - level);
            let file = |n: u32| {
                let from = n * WIDTH + (level - 1) * WIDTH / 2;
                let bounds = KeyRange::new(key(from), Some(key(from + WIDTH)));
                let table = TableId(u64::from(level * files + n));
                FileView { bytes: FILE, entries: FILE >> 10, ..plain_file(table, bounds, seq, seq) }
            };
            let run = RunView {
                id: RunId(u64::from(level)),
                tag: RunTag::default(),
                files: (0..files).map(file).collect(),
            };
            tree.levels[level as usize].runs.push(run);
        }
        let all = |level: usize| -> Vec<Take> {
            let files = tree.levels[level].files();
            files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect()
        };
        let mut plan = Plan::new(all(1), 2, "a whole level".to_string());
        (plan.may_fold, plan.place) = (all(2), Place::Run(RunId(2)));
        Crowd { tree, plan }
    }

    /// Admits the plan. Returns the number of its pieces, and the number of files in the tree with the plan under
    /// way.
    ///
    /// # Errors
    /// None: the plan is legal.
    pub fn admit(&self) -> Result<(usize, usize), Refusal> {
        let settings = Settings { slots: 8, fold_every: Some(1), ..Settings::default() };
        let (costs, room) = (FoldCosts { inflow: 1e6, rewrite: 5e-9, ..FoldCosts::default() }, u64::MAX);
        let scene = Scene { tree: &self.tree, design: &[], settings: &settings, costs, room, now: 0 };
        let (mut flight, mut numbers) = (Flight::default(), Numbers { next_run: 100, next_ticket: 1 });
        let ticket = flight.admit(&scene, &self.plan, &mut numbers)?;
        let pieces = flight.ticket(ticket).map_or(0, |ticket| ticket.pieces.len());
        Ok((pieces, project::view(&self.tree, &flight).files().count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_a_piece_and_every_piece_in_the_view() {
        let (pieces, files) = Crowd::new(50).admit().unwrap();
        assert!((80..=120).contains(&pieces), "{pieces}");
        // A cut file appears as its parts.
        assert!(files >= 100 + pieces, "{files}");
    }
}
