//! The age line: the runs of a tree from new to old, and plans for its intervals.
//!
//! Runs are ordered by level, and within a level by falling largest sequence number. By invariant R this is the order
//! of age for every key. Runs of one level that interlock, that is, share keys at overlapping ages, form one *link*,
//! which is always compacted as a whole. Files of unfinished plans are busy: they stay on the line and split it.
//!
//! Every plan made here is an interval of the line, so a compaction sees the versions of a key in unbroken order of
//! age. The output may go to any level from that of the oldest input to that of the next older run that shares keys
//! with the inputs.

use crate::compaction::arce::candidates::cover::{BITS, Cover, CoverScale, Mask};
use crate::compaction::arce::candidates::groups::Groups;
use crate::compaction::arce::candidates::interval::{Candidate, CandidatePart};
use crate::compaction::arce::candidates::link::{Aged, Link, Runs, aged, around, link_end, staying};
use crate::compaction::arce::candidates::sorted::SortedKeys;
use crate::real;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::cmp::Reverse;
use drumlin_types::contract::{FileState, FileView, Place, Plan, RunView, Take, TreeView};
use drumlin_types::{Key, Seq, Ticket};

/// Sampled keys by which runs are weighed.
pub(crate) struct Samples<'a> {
    pub(crate) points: SortedKeys<'a>,
    pub(crate) seeks: SortedKeys<'a>,
}

impl<'a> Samples<'a> {
    /// Returns the recently requested keys; if there are none yet, the first keys of files.
    pub(crate) fn of(points: &'a [Key], seeks: &'a [Key], tree: &TreeView) -> Samples<'a> {
        let cut = |keys: &'a [Key]| SortedKeys::new(Cow::Borrowed(&keys[..keys.len().min(BITS)]));
        if !points.is_empty() || !seeks.is_empty() {
            return Samples { points: cut(points), seeks: cut(seeks) };
        }
        Samples::starts(tree)
    }

    /// Returns the first keys of files.
    fn starts(tree: &TreeView) -> Samples<'a> {
        let mut starts: Vec<&Key> = tree.files().map(|(_, _, f)| &f.bounds.start).collect();
        starts.sort();
        starts.dedup();
        let stride = starts.len().div_ceil(BITS).max(1);
        let points = starts.into_iter().step_by(stride).cloned().collect();
        Samples { points: SortedKeys::new(Cow::Owned(points)), seeks: SortedKeys::default() }
    }

    /// Returns the first keys of files that lie in many runs, and the largest number of runs over any such key. A key
    /// must lie in at least two runs, and in at least `least` times that largest number.
    pub(crate) fn deepest(tree: &TreeView, least: f64) -> (Samples<'a>, f64) {
        let all = Samples::starts(tree);
        let mut depths = [0u32; BITS];
        for run in tree.levels.iter().flat_map(|level| &level.runs) {
            let live = run.files.iter().filter(|f| f.state.serves_reads());
            let cover = all.cover(live).points;
            depths.iter_mut().enumerate().for_each(|(at, depth)| *depth += u32::from(cover.has(at)));
        }
        let most = depths.iter().copied().max().map_or(0.0, f64::from);
        let is_deep = |at: &usize| f64::from(depths[*at]) >= (least * most).max(2.0);
        let keys = (0..all.points.len()).filter(is_deep).filter_map(|at| all.points.get(at).cloned());
        let points = SortedKeys::new(Cow::Owned(keys.collect()));
        (Samples { points, seeks: SortedKeys::default() }, most)
    }

    fn cover<'b>(&self, mut files: impl Iterator<Item = &'b FileView>) -> Cover {
        let of = |files: &[&FileView]| Cover {
            points: Mask::of(&self.points, files),
            seeks: Mask::of(&self.seeks, files),
        };
        // Most runs are a single file.
        match (files.next(), files.next()) {
            (None, _) => Cover::default(),
            (Some(file), None) => of(&[file]),
            (Some(first), Some(second)) => of(&[first, second].into_iter().chain(files).collect::<Vec<_>>()),
        }
    }
}

/// The line, newest link first, with the figures of each link that scores use.
pub(crate) struct AgeLine<'a> {
    pub(crate) links: Vec<Link<'a>>,
    pub(crate) parts: Vec<CandidatePart>,
    /// s: covered runs as readers meet them now.
    pub(crate) runs: f64,
    /// Read cost of these runs, in uncached runs.
    pub(crate) cost: f64,
    /// Bytes and covered runs of each run that readers meet.
    met: Vec<(f64, f64)>,
    /// Bytes of all files on the line, expected outputs included.
    pub(crate) bytes: f64,
    /// Level and smallest sequence number of each run that unfinished compactions are removing.
    leaving: Vec<(u8, Seq)>,
    /// Built on first use.
    groups: OnceCell<Groups>,
}

/// Returns whether unfinished plans remove or add files of `run`. Readers then see other files than plans may use.
fn is_in_motion(run: &RunView) -> bool {
    run.files.iter().any(|f| matches!(f.state, FileState::Leaving(_) | FileState::Coming(_)))
}

impl<'a> AgeLine<'a> {
    /// Builds the line of `tree`.
    pub(crate) fn of(tree: &'a TreeView, samples: &Samples<'_>, scale: &CoverScale) -> AgeLine<'a> {
        let count = tree.runs();
        let mut line = AgeLine {
            links: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
            runs: 0.0,
            cost: 0.0,
            met: Vec::with_capacity(count),
            bytes: 0.0,
            leaving: Vec::new(),
            groups: OnceCell::new(),
        };
        for (level, runs) in tree.levels.iter().enumerate() {
            for run in runs.runs.iter().filter(|run| is_in_motion(run)) {
                let live = run.files.iter().filter(|f| f.state.serves_reads());
                line.meet(live.clone().map(|f| f.bytes).sum(), scale.runs(&samples.cover(live)));
                let leaving = run.files.iter().filter(|f| matches!(f.state, FileState::Leaving(_)));
                line.leaving.extend(leaving.map(|f| f.min_seq).min().map(|min_seq| (level as u8, min_seq)));
            }
            let mut aged: Vec<Aged<'a>> = runs.runs.iter().filter_map(aged).collect();
            aged.sort_by_key(|a| Reverse((a.max_seq, a.run.id)));
            let mut at = 0;
            while at < aged.len() {
                let end = link_end(&aged, at);
                let runs = match &aged[at..end] {
                    [one] => Runs::One(one.run),
                    more => Runs::More(more.iter().map(|a| a.run).collect()),
                };
                line.push(Link { level: level as u8, runs }, samples, scale);
                at = end;
            }
        }
        line
    }

    /// Counts each run as 1, no matter which keys it covers.
    pub(crate) fn count_whole(&mut self, scale: &CoverScale) {
        self.runs = 0.0;
        self.met.clear();
        for (part, link) in self.parts.iter_mut().zip(&self.links) {
            (part.cover, part.weight) = (scale.full, link.runs.len() as f64);
            self.runs += part.weight;
            self.met.push((part.bytes, part.weight));
        }
    }

    fn meet(&mut self, bytes: u64, weight: f64) {
        self.runs += weight;
        self.met.push((bytes as f64, weight));
    }

    /// Returns the number of runs in the tree, no matter which keys they cover.
    pub(crate) fn count(&self) -> usize {
        self.met.len()
    }

    /// Returns bytes and covered runs of each run that readers meet.
    pub(crate) fn met(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.met.iter().copied()
    }

    /// Sets the read cost of all runs by `scale`.
    pub(crate) fn price(&mut self, scale: &CoverScale) {
        self.cost = self.met().map(|(bytes, weight)| scale.cost(bytes, weight)).sum();
        self.parts.iter_mut().for_each(|part| part.cost = scale.cost(part.bytes, part.weight));
    }

    /// Returns the read cost, in uncached runs, that the rest of the compaction of `ticket` removes.
    pub(crate) fn relief_of(
        &self,
        ticket: Ticket,
        tree: &TreeView,
        samples: &Samples<'_>,
        scale: &CoverScale,
    ) -> f64 {
        let (mut bytes, mut cost, mut union) = (0.0, 0.0, Cover::default());
        for run in tree.levels.iter().flat_map(|level| &level.runs) {
            let leaving = || run.files.iter().filter(|f| f.state == FileState::Leaving(ticket));
            let cover = samples.cover(leaving());
            let of_run = leaving().map(|f| f.bytes as f64).sum::<f64>();
            cost += scale.cost(of_run, scale.runs(&cover));
            bytes += of_run;
            union.union(&cover);
        }
        cost - scale.cost(bytes, scale.runs(&union))
    }

    fn push(&mut self, link: Link<'a>, samples: &Samples<'_>, scale: &CoverScale) {
        let (mut cover, mut weight) = (Cover::default(), 0.0);
        for run in link.runs.iter() {
            let own = samples.cover(staying(run));
            let own_weight = scale.runs(&own);
            weight += own_weight;
            cover.union(&own);
            if !is_in_motion(run) {
                self.meet(run.bytes(), own_weight);
            }
        }
        let bytes = link.files().map(|f| f.bytes as f64).sum();
        let idle = link.files().all(|f| f.state == FileState::Free);
        self.bytes += bytes;
        self.parts.push(CandidatePart { bytes, cover, weight, cost: weight, idle });
        self.links.push(link);
    }

    /// Returns the bytes that a compaction of `candidate` rewrites. Files that share no keys with another input are
    /// trivially moved and cost nothing.
    pub(crate) fn rewritten(&self, candidate: &Candidate) -> f64 {
        self.groups.get_or_init(|| Groups::of(&self.links)).rewritten(candidate)
    }

    /// Returns the oldest link that shares keys with the link at `from`, or `from` if there is none.
    pub(crate) fn oldest_below(&self, from: usize) -> Option<usize> {
        let own = self.links.get(from)?;
        let shares = |older: &Link<'_>| own.files().any(|f| older.overlaps(&f.bounds));
        Some(self.links[from + 1..].iter().rposition(shares).map_or(from, |at| from + 1 + at))
    }

    /// Returns the tombstones per entry.
    pub(crate) fn tombstone_share(&self, candidate: &Candidate) -> f64 {
        let files = || self.links[candidate.from..candidate.to].iter().flat_map(Link::files);
        let tombstones: u64 = files().map(|f| f.tombstones).sum();
        tombstones as f64 / files().map(|f| f.entries).sum::<u64>().max(1) as f64
    }

    /// Returns the covered runs that a compaction of these links removes.
    pub(crate) fn removed(&self, range: core::ops::Range<usize>, scale: &CoverScale) -> f64 {
        let (mut union, mut weight) = (Cover::default(), 0.0);
        for part in &self.parts[range] {
            union.union(&part.cover);
            weight += part.weight;
        }
        weight - scale.runs(&union)
    }

    /// Returns the read cost, in uncached runs, that goes with these `removed` runs.
    pub(crate) fn relief(&self, range: core::ops::Range<usize>, removed: f64, scale: &CoverScale) -> f64 {
        if scale.is_uniform() {
            return removed;
        }
        let parts = &self.parts[range];
        let sum = |of: fn(&CandidatePart) -> f64| parts.iter().map(of).sum::<f64>();
        let left = sum(|part| part.weight) - removed;
        sum(|part| part.cost) - scale.cost(sum(|part| part.bytes), left)
    }

    /// Returns the least and the greatest level that the output of `candidate` may go to.
    fn outputs(&self, candidate: &Candidate, last: u8) -> (u8, u8) {
        let inputs = &self.links[candidate.from..candidate.to];
        let least = inputs.last().map_or(last, |link| link.level);
        let shares =
            |older: &&Link<'_>| inputs.iter().flat_map(Link::files).any(|f| older.overlaps(&f.bounds));
        let next = self.links[candidate.to..].iter().find(shares);
        (least, next.map_or(last, |older| older.level).max(least))
    }

    /// Returns the plan that compacts `candidate`.
    pub(crate) fn plan(&self, candidate: &Candidate, flush_bytes: f64, last: u8, reason: String) -> Plan {
        let (least, most) = self.outputs(candidate, last);
        let inputs = &self.links[candidate.from..candidate.to];
        let bytes: f64 = inputs.iter().flat_map(Link::files).map(|f| f.bytes as f64).sum();
        let mut out = wished_level(bytes, flush_bytes).clamp(least, most);
        // An output below files that are still being moved down would have to wait for them.
        if self.leaving.iter().any(|&(level, min_seq)| level < out && min_seq <= newest(inputs)) {
            out = least;
        }
        let runs: Vec<(u8, &RunView)> =
            inputs.iter().flat_map(|link| link.runs.iter().map(|run| (link.level, *run))).collect();
        let mut take = Vec::new();
        let mut place = Place::NewRun;
        for &(level, run) in &runs {
            let mut is_whole = true;
            for file in staying(run) {
                // A file of the output level that shares no keys with another input already is where it belongs.
                let others = runs.iter().filter(|(_, other)| other.id != run.id);
                if level == out && !others.flat_map(|(_, other)| around(other, &file.bounds)).any(|_| true) {
                    is_whole = false;
                    continue;
                }
                take.push(Take { table: file.table, range: file.bounds.clone() });
            }
            if !is_whole {
                place = Place::Run(run.id);
            }
        }
        let mut plan = Plan::new(take, out, reason);
        plan.place = place;
        plan
    }

    /// Returns a trivial move of a run that shares no keys with any run between it and a deeper level. The run goes
    /// into a gap of a deeper run, or forms a new run together with a neighbour of its level.
    pub(crate) fn join(&self, scale: &CoverScale, flush_bytes: f64, last: u8) -> Option<Plan> {
        for at in (0..self.links.len()).rev() {
            if !self.may_join(at, scale) {
                continue;
            }
            let alone = Candidate { from: at, to: at + 1, bytes: 0.0, removed: 0.0, relief: 0.0 };
            let (level, most) = self.outputs(&alone, last);
            let run = self.links[at].runs[0];
            let deeper = |older: &&Link<'_>| older.level > level && older.level <= most;
            let targets = self.links[at + 1..].iter().filter(deeper);
            let fits = |older: &&Link<'_>| older.runs.len() == 1 && gap_for(older.runs[0], run);
            if let Some(older) = targets.rev().find(fits) {
                let reason =
                    String::from("a run beside the keys of a deeper one joins it: 0 bytes rewritten");
                return Some(move_plan(&[run], older.level, Place::Run(older.runs[0].id), reason));
            }
            let newer = at.checked_sub(1).filter(|&newer| {
                self.links[newer].level == level && self.may_join(newer, scale) && level < most
            });
            let Some(newer) = newer else { continue };
            let other = self.links[newer].runs[0];
            let both = Candidate { from: newer, ..alone };
            let (_, most) = self.outputs(&both, last);
            if most > level && gap_for(other, run) {
                let bytes = self.parts[at].bytes + self.parts[newer].bytes;
                let out = wished_level(bytes, flush_bytes).clamp(level + 1, most);
                let reason = String::from("two runs without common keys join: 0 bytes rewritten");
                return Some(move_plan(&[other, run], out, Place::NewRun, reason));
            }
        }
        None
    }

    fn may_join(&self, at: usize, scale: &CoverScale) -> bool {
        let part = &self.parts[at];
        // Moving down may require dropping tombstones, so runs with tombstones are compacted, not moved.
        let is_plain = |f: &FileView| f.tombstones == 0 && f.range_tombstones == 0;
        part.idle
            && part.cover != scale.full
            && self.links[at].runs.len() == 1
            && self.links[at].files().all(is_plain)
    }
}

fn move_plan(runs: &[&RunView], out: u8, place: Place, reason: String) -> Plan {
    let files = runs.iter().flat_map(|run| staying(run));
    let take = files.map(|f| Take { table: f.table, range: f.bounds.clone() }).collect();
    let mut plan = Plan::new(take, out, reason);
    plan.place = place;
    plan
}

/// Returns the largest sequence number of `links`.
fn newest(links: &[Link<'_>]) -> Seq {
    links.iter().flat_map(Link::files).map(|f| f.max_seq).max().unwrap_or_default()
}

/// Returns the level whose usual size is nearest to `bytes`; each level is ten times as large as the one above.
fn wished_level(bytes: f64, flush_bytes: f64) -> u8 {
    let tens = real::ln((bytes / flush_bytes.max(1.0)).max(1.0)) / core::f64::consts::LN_10;
    real::round(tens).min(64.0) as u8
}

/// Returns whether the files of `run` fit into gaps of `home`, and no unfinished plan touches `home`.
fn gap_for(home: &RunView, run: &RunView) -> bool {
    home.files.iter().all(|f| f.state == FileState::Free)
        && staying(run).all(|f| around(home, &f.bounds).next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::contract::draw::parse_tree;

    #[test]
    fn readers_meet_files_that_no_plan_may_take() {
        let covered = |text: &str| {
            let tree = parse_tree(text).unwrap();
            let samples = Samples::of(&[], &[], &tree);
            let scale = CoverScale::new(samples.points.len(), 0, [1.0, 0.0]);
            let line = AgeLine::of(&tree, &samples, &scale);
            (line.runs, line.parts.iter().map(|part| part.idle).collect::<Vec<_>>())
        };
        assert_eq!(covered("L0: [a..z #11-20] | [a..z #1-10]"), (2.0, Vec::from([true, true])));
        assert_eq!(covered("L0: [a..z #11-20] | [a..z #1-10 !]"), (2.0, Vec::from([true, false])));
        assert_eq!(covered("L0: [a..z #11-20] | [a..z #1-10 ^7]").0, 1.0, "an output to come");
    }
}
