//! The age line: the runs of a tree from new to old, and plans for its intervals (arce.md 3.1, 3.2).
//!
//! Runs are ordered by level, and within a level by falling largest sequence number. By invariant R that
//! is the order of age for every key. Runs of one level whose ages and keys interlock form one *link*,
//! which is taken whole. What unfinished plans touch is busy: it stays on the line and bars its way.
//!
//! Every plan made here is an interval of the line, so merges meet the versions of a key in unbroken
//! order of age. The output may go to any level from that of the oldest input to that of the next older
//! run that shares keys with it.

use super::cover::{BITS, Cover, Mask, Scale};
use super::groups::Groups;
use super::interval::{Candidate, Part};
use super::real;
use super::sorted::SortedKeys;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::cmp::Reverse;
use core::ops::Deref;
use core::slice;
use drumlin_types::contract::{FileState, FileView, Place, Plan, RunView, Take, TreeView};
use drumlin_types::{Key, KeyRange, RunId, Seq, Ticket};

/// Keys that runs are measured by.
pub(super) struct Samples<'a> {
    pub(super) points: SortedKeys<'a>,
    pub(super) seeks: SortedKeys<'a>,
}

impl<'a> Samples<'a> {
    /// The wanted keys; where nothing was wanted yet, where files begin.
    pub(super) fn of(points: &'a [Key], seeks: &'a [Key], tree: &TreeView) -> Samples<'a> {
        let cut = |keys: &'a [Key]| SortedKeys::new(Cow::Borrowed(&keys[..keys.len().min(BITS)]));
        if !points.is_empty() || !seeks.is_empty() {
            return Samples { points: cut(points), seeks: cut(seeks) };
        }
        Samples::starts(tree)
    }

    /// Where files begin.
    fn starts(tree: &TreeView) -> Samples<'a> {
        let mut starts: Vec<&Key> = tree.files().map(|(_, _, f)| &f.bounds.start).collect();
        starts.sort();
        starts.dedup();
        let stride = starts.len().div_ceil(BITS).max(1);
        let points = starts.into_iter().step_by(stride).cloned().collect();
        Samples { points: SortedKeys::new(Cow::Owned(points)), seeks: SortedKeys::default() }
    }

    /// Where files begin, those of them that lie in at least `least` times as many runs as any does, and in two; and
    /// how many that are at most.
    pub(super) fn deepest(tree: &TreeView, least: f64) -> (Samples<'a>, f64) {
        let all = Samples::starts(tree);
        let mut depths = [0u32; BITS];
        for run in tree.levels.iter().flat_map(|level| &level.runs) {
            let live = run.files.iter().filter(|f| !matches!(f.state, FileState::Coming(_)));
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
        // Most runs are one file.
        match (files.next(), files.next()) {
            (None, _) => Cover::default(),
            (Some(file), None) => of(&[file]),
            (Some(first), Some(second)) => of(&[first, second].into_iter().chain(files).collect::<Vec<_>>()),
        }
    }
}

/// Runs that go together, nearly always one.
#[derive(Debug)]
pub(super) struct Link<'a> {
    pub(super) level: u8,
    pub(super) runs: Runs<'a>,
}

/// One run without a list, or a list of them.
#[derive(Debug)]
pub(super) enum Runs<'a> {
    One(&'a RunView),
    More(Vec<&'a RunView>),
}

impl<'a> Deref for Runs<'a> {
    type Target = [&'a RunView];

    fn deref(&self) -> &[&'a RunView] {
        match self {
            Runs::One(run) => slice::from_ref(run),
            Runs::More(runs) => runs,
        }
    }
}

/// The files of a run that a plan may still count on: those that are not leaving.
fn staying(run: &RunView) -> impl Iterator<Item = &FileView> + Clone {
    run.files.iter().filter(|f| !matches!(f.state, FileState::Leaving(_)))
}

impl Link<'_> {
    pub(super) fn files(&self) -> impl Iterator<Item = &FileView> {
        self.runs.iter().flat_map(|run| staying(run))
    }

    fn overlaps(&self, range: &KeyRange) -> bool {
        self.files().any(|f| f.bounds.overlaps(range))
    }

    /// The id of its newest run.
    pub(super) fn id(&self) -> RunId {
        self.runs.first().map_or(RunId(0), |run| run.id)
    }
}

/// The line, newest link first, with what scores see of each link.
pub(super) struct AgeLine<'a> {
    pub(super) links: Vec<Link<'a>>,
    pub(super) parts: Vec<Part>,
    /// Covered runs as readers meet them now.
    pub(super) runs: f64,
    /// The dear runs that these cost as much as.
    pub(super) cost: f64,
    /// Bytes and covered runs of each.
    met: Vec<(f64, f64)>,
    /// Bytes that are in the tree or on their way.
    pub(super) bytes: f64,
    /// The runs that merges under way are taking away: level, and smallest sequence number.
    leaving: Vec<(u8, Seq)>,
    /// Made when first asked for.
    groups: OnceCell<Groups>,
}

/// Whether files of `run` are leaving or yet to come, so that readers meet other files than plans.
fn is_in_motion(run: &RunView) -> bool {
    run.files.iter().any(|f| matches!(f.state, FileState::Leaving(_) | FileState::Coming(_)))
}

struct Aged<'a> {
    run: &'a RunView,
    min_seq: Seq,
    max_seq: Seq,
}

impl<'a> AgeLine<'a> {
    pub(super) fn of(tree: &'a TreeView, samples: &Samples<'_>, scale: &Scale) -> AgeLine<'a> {
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
                let live = run.files.iter().filter(|f| !matches!(f.state, FileState::Coming(_)));
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

    /// Counts each run as a whole one, whatever it covers.
    pub(super) fn count_whole(&mut self, scale: &Scale) {
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

    /// Runs of the tree, whatever they cover.
    pub(super) fn count(&self) -> usize {
        self.met.len()
    }

    /// Bytes and covered runs of each run that readers meet.
    pub(super) fn met(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.met.iter().copied()
    }

    /// Prices all runs by `scale`.
    pub(super) fn price(&mut self, scale: &Scale) {
        self.cost = self.met().map(|(bytes, weight)| scale.cost(bytes, weight)).sum();
        self.parts.iter_mut().for_each(|part| part.cost = scale.cost(part.bytes, part.weight));
    }

    /// What of the merge of `ticket` is still to come takes away, in dear runs.
    pub(super) fn relief_of(
        &self,
        ticket: Ticket,
        tree: &TreeView,
        samples: &Samples<'_>,
        scale: &Scale,
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

    fn push(&mut self, link: Link<'a>, samples: &Samples<'_>, scale: &Scale) {
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
        self.parts.push(Part { bytes, cover, weight, cost: weight, idle });
        self.links.push(link);
    }

    /// Bytes of `candidate` that a merge of it rewrites: files that share no keys with another input stay
    /// as they are.
    pub(super) fn rewritten(&self, candidate: &Candidate) -> f64 {
        self.groups.get_or_init(|| Groups::of(&self.links)).rewritten(candidate)
    }

    /// The oldest link that shares keys with the one at `from`; itself when there is none.
    pub(super) fn oldest_below(&self, from: usize) -> Option<usize> {
        let own = self.links.get(from)?;
        let shares = |older: &Link<'_>| own.files().any(|f| older.overlaps(&f.bounds));
        Some(self.links[from + 1..].iter().rposition(shares).map_or(from, |at| from + 1 + at))
    }

    /// Tombstones per entry.
    pub(super) fn tombstone_share(&self, candidate: &Candidate) -> f64 {
        let files = || self.links[candidate.from..candidate.to].iter().flat_map(Link::files);
        let tombstones: u64 = files().map(|f| f.tombstones).sum();
        tombstones as f64 / files().map(|f| f.entries).sum::<u64>().max(1) as f64
    }

    /// Covered runs that merging these links takes away.
    pub(super) fn removed(&self, range: core::ops::Range<usize>, scale: &Scale) -> f64 {
        let (mut union, mut weight) = (Cover::default(), 0.0);
        for part in &self.parts[range] {
            union.union(&part.cover);
            weight += part.weight;
        }
        weight - scale.runs(&union)
    }

    /// The dear runs that these cost as much as.
    pub(super) fn relief(&self, range: core::ops::Range<usize>, removed: f64, scale: &Scale) -> f64 {
        if scale.is_even() {
            return removed;
        }
        let parts = &self.parts[range];
        let sum = |of: fn(&Part) -> f64| parts.iter().map(of).sum::<f64>();
        let left = sum(|part| part.weight) - removed;
        sum(|part| part.cost) - scale.cost(sum(|part| part.bytes), left)
    }

    /// The levels that the output of `candidate` may go to.
    fn outputs(&self, candidate: &Candidate, last: u8) -> (u8, u8) {
        let inputs = &self.links[candidate.from..candidate.to];
        let least = inputs.last().map_or(last, |link| link.level);
        let shares =
            |older: &&Link<'_>| inputs.iter().flat_map(Link::files).any(|f| older.overlaps(&f.bounds));
        let next = self.links[candidate.to..].iter().find(shares);
        (least, next.map_or(last, |older| older.level).max(least))
    }

    /// The plan that merges `candidate`.
    pub(super) fn plan(&self, candidate: &Candidate, flush_bytes: f64, last: u8, reason: String) -> Plan {
        let (least, most) = self.outputs(candidate, last);
        let inputs = &self.links[candidate.from..candidate.to];
        let bytes: f64 = inputs.iter().flat_map(Link::files).map(|f| f.bytes as f64).sum();
        let mut out = wished_level(bytes, flush_bytes).clamp(least, most);
        // Going below files that are still on their way down would mean to wait for them.
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
                // A file of the output level that shares no keys with another input is where it belongs.
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

    /// A run that shares no keys with anything between it and a deeper level, moved there by an edit
    /// alone: into a gap of a run, or together with a neighbour of its level into a new one.
    pub(super) fn join(&self, scale: &Scale, flush_bytes: f64, last: u8) -> Option<Plan> {
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

    fn may_join(&self, at: usize, scale: &Scale) -> bool {
        let part = &self.parts[at];
        // Tombstones may have to be dropped on the way down: such runs are merged, not moved.
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

/// The largest sequence number of `links`.
fn newest(links: &[Link<'_>]) -> Seq {
    links.iter().flat_map(Link::files).map(|f| f.max_seq).max().unwrap_or_default()
}

/// The level whose usual size is next to `bytes`: tenfold from one to the next.
fn wished_level(bytes: f64, flush_bytes: f64) -> u8 {
    let tens = real::ln((bytes / flush_bytes.max(1.0)).max(1.0)) / core::f64::consts::LN_10;
    real::round(tens).min(64.0) as u8
}

fn aged(run: &RunView) -> Option<Aged<'_>> {
    let max_seq = staying(run).map(|f| f.max_seq).max()?;
    let min_seq = staying(run).map(|f| f.min_seq).min()?;
    Some(Aged { run, min_seq, max_seq })
}

/// Where the link that begins with the run at `from` ends.
fn link_end(aged: &[Aged<'_>], from: usize) -> usize {
    let mut end = from + 1;
    let mut at = from;
    while at < end {
        // Only runs whose largest sequence number reaches into this one's ages can interlock with it: none of them,
        // mostly.
        let reaches = |other: &Aged<'_>| other.max_seq >= aged[at].min_seq;
        if !aged.get(end).is_some_and(reaches) {
            at += 1;
            continue;
        }
        let reach = aged[at..].partition_point(reaches) + at;
        let last = (end..reach).rev().find(|&other| interlock(aged[at].run, aged[other].run));
        end = last.map_or(end, |last| last + 1);
        at += 1;
    }
    end
}

/// The files of `run` that share keys with `range`.
fn around<'a>(run: &'a RunView, range: &'a KeyRange) -> impl Iterator<Item = &'a FileView> {
    let is_before = |f: &FileView| f.bounds.end.as_ref().is_some_and(|end| *end <= range.start);
    let files = run.files[run.files.partition_point(is_before)..].iter();
    let near = files.take_while(|f| range.is_before_end(&f.bounds.start));
    near.filter(|f| !matches!(f.state, FileState::Leaving(_)) && f.bounds.overlaps(range))
}

/// Whether `newer` holds, beside keys of `older`, anything that is as old. What the runs reach over elsewhere
/// does not matter: a run that was merged in part is long in age where it shares no keys with the rest.
fn interlock(newer: &RunView, older: &RunView) -> bool {
    if newer.files.len() <= older.files.len() {
        staying(newer).any(|f| around(older, &f.bounds).any(|other| other.max_seq >= f.min_seq))
    } else {
        staying(older).any(|f| around(newer, &f.bounds).any(|other| f.max_seq >= other.min_seq))
    }
}

/// Whether the files of `run` lie in gaps of `home`, which nothing is leaving.
fn gap_for(home: &RunView, run: &RunView) -> bool {
    home.files.iter().all(|f| f.state == FileState::Free)
        && staying(run).all(|f| around(home, &f.bounds).next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::TableId;
    use drumlin_types::contract::RunTag;
    use drumlin_types::contract::draw::plain_file;

    /// A run of files: first key, the key behind, ages.
    fn run(id: u64, files: &[(u8, u8, Seq, Seq)]) -> RunView {
        let file = |(at, &(from, to, min, max)): (usize, &(u8, u8, Seq, Seq))| {
            let bounds = KeyRange::new(Key::new(&[from]), Some(Key::new(&[to])));
            plain_file(TableId(id * 100 + at as u64), bounds, min, max)
        };
        RunView { id: RunId(id), tag: RunTag::default(), files: files.iter().enumerate().map(file).collect() }
    }

    #[test]
    fn runs_interlock_where_they_share_keys_and_ages() {
        // Merged in part: below key 50 as old as the first flush, above it only what came last.
        let merged = run(9, &[(0, 50, 1, 90), (50, 100, 80, 90)]);
        let rest = run(5, &[(50, 100, 41, 50)]);
        assert!(!interlock(&merged, &rest), "older than all that it shares keys with");
        assert!(interlock(&merged, &run(5, &[(40, 100, 41, 50)])));
        assert!(interlock(&merged, &run(5, &[(0, 10, 1, 5), (20, 30, 41, 50), (60, 70, 3, 4)])));
        assert!(!interlock(&merged, &run(5, &[(50, 60, 1, 5), (60, 70, 41, 50), (80, 90, 3, 4)])));
        assert!(!interlock(&run(9, &[(0, 100, 51, 90)]), &rest));
    }
}
