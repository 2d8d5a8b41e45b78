//! Value files alone: what collecting them copies, by policy and space target.
//!
//! There is no tree. Each version that a flush supersedes is garbage at once, so the figures are those of a store that
//! compacts all the time. A flush writes the newest version of each key in its memtable; then files are collected until
//! the space factor is at the target. Collectors without a space target have a setting of their own; what they copy at
//! a given mean space comes from several runs ([`copies_at`]).
//!
//! Invariant: every live value is in exactly one file.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use drumlin_policy::lifetime::dumpkv::{FileClass, TimesToLive};
use drumlin_policy::lifetime::histogram::{BUCKETS, bucket};
use drumlin_policy::lifetime::history::{Version, fold};
use drumlin_policy::lifetime::{CLASSES, KeyOf, Learned, Placer, RecentWrites, features};
use drumlin_policy::value::{ValueFileSizes, to_collect};
use drumlin_types::history::History;

/// How files are filled and chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Collector {
    /// One class; the file with the largest share of garbage first.
    GarbageRatio,
    /// One class; the file with the highest score first.
    AgeScore,
    /// Classes by predicted lifetime.
    Lifetimes {
        /// Keys that the table of recent writes has room for.
        remembered: usize,
        /// Keys that are watched at most to train a model; 0 for the rule alone.
        watched: usize,
    },
    /// One class; the oldest file first. BlobDB has this order, with an age cutoff in place of a space target.
    OldestFirst,
    /// One class; every file with at least this share of garbage, as in TerarkDB and Titan. No space target.
    Ratio(f64),
    /// DumpKV: one class for flushed values, two for copied ones, and files are collected when their time to live has
    /// passed. No space target.
    DumpKv {
        /// Factor on all times to live; 1 in DumpKV.
        factor: f64,
        /// Keys that are watched at most to train a model, that of this store. The write count serves until it is
        /// trained. 0 for the write count alone.
        watched: usize,
    },
}

/// Settings of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ValueSetup {
    /// How files are filled and chosen.
    pub collector: Collector,
    /// Bytes of values per live byte.
    pub target: f64,
    /// Bytes of all versions in a memtable.
    pub memtable_bytes: u64,
    /// Bytes of a full value file.
    pub file_bytes: u64,
    /// Bytes from which on a flush or collection opens one more class.
    pub class_bytes: u64,
}

/// Counted bytes.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ValueReport {
    /// Bytes that flushes wrote.
    pub flushed: u64,
    /// Bytes that collection copied.
    pub copied: u64,
    /// Space factor, summed over flushes; see [`mean_space`](ValueReport::mean_space).
    pub space_sum: f64,
    /// Largest space factor after a flush.
    pub peak_space: f64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of files that were collected.
    pub collected: u64,
}

impl ValueReport {
    /// Returns the bytes copied for each flushed byte.
    #[must_use]
    pub fn copies(&self) -> f64 {
        self.copied as f64 / self.flushed.max(1) as f64
    }

    /// Returns the mean space factor.
    #[must_use]
    pub fn mean_space(&self) -> f64 {
        self.space_sum / self.flushes.max(1) as f64
    }

    /// Returns what came after `before`.
    #[must_use]
    pub fn since(&self, before: &ValueReport) -> ValueReport {
        ValueReport {
            flushed: self.flushed - before.flushed,
            copied: self.copied - before.copied,
            space_sum: self.space_sum - before.space_sum,
            peak_space: self.peak_space,
            flushes: self.flushes - before.flushes,
            collected: self.collected - before.collected,
        }
    }
}

/// The live version of a key.
#[derive(Clone, Debug)]
struct Live {
    seq: u64,
    bytes: u64,
    file: usize,
    history: Option<History>,
}

#[derive(Clone, Default, Debug)]
struct File {
    created: u64,
    /// Class and end of the time to live, for DumpKV.
    class: FileClass,
    end: u64,
    total: u64,
    live: u64,
    /// Keys of its records; some are dead.
    keys: Vec<(u32, u64)>,
}

/// A store of value files.
#[derive(Debug)]
pub struct ValueWorld {
    setup: ValueSetup,
    seq: u64,
    memtable: BTreeMap<u32, Vec<(u64, Option<u64>)>>,
    memtable_bytes: u64,
    live: BTreeMap<u32, Live>,
    files: BTreeMap<usize, File>,
    next_file: usize,
    recent: RecentWrites,
    placer: Placer,
    times: TimesToLive,
    report: ValueReport,
}

/// Files that one collection takes at most.
const MOST_VICTIMS: usize = 8;
/// DumpKV's ages of living values come from one key in this many.
const SAMPLED: u64 = 16;
/// Copies below this are not told apart.
const LEAST_COPIES: f64 = 1e-4;

impl ValueWorld {
    /// Creates an empty store.
    #[must_use]
    pub fn new(setup: ValueSetup) -> ValueWorld {
        let (remembered, watched, factor) = match setup.collector {
            Collector::Lifetimes { remembered, watched } => (remembered, watched, 1.0),
            Collector::DumpKv { factor, watched } => (0, watched, factor),
            _ => (0, 0, 1.0),
        };
        ValueWorld {
            setup,
            seq: 0,
            memtable: BTreeMap::new(),
            memtable_bytes: 0,
            live: BTreeMap::new(),
            files: BTreeMap::new(),
            next_file: 0,
            recent: RecentWrites::new(remembered * 16),
            placer: Placer::new(watched),
            times: TimesToLive::new(factor),
            report: ValueReport::default(),
        }
    }

    /// Returns what was learned so far.
    #[must_use]
    pub fn learned(&self) -> Learned {
        self.placer.learner.learned()
    }

    /// Returns what was counted so far.
    #[must_use]
    pub fn report(&self) -> ValueReport {
        self.report
    }

    /// Writes a value of `bytes` bytes, or a tombstone.
    pub fn write(&mut self, key: u32, bytes: Option<u64>) {
        self.seq += 1;
        self.memtable.entry(key).or_default().push((self.seq, bytes));
        self.memtable_bytes += bytes.unwrap_or(0) + 32;
        if self.memtable_bytes >= self.setup.memtable_bytes {
            self.flush();
        }
    }

    fn classes(&self, bytes: u64) -> usize {
        match self.setup.collector {
            Collector::Lifetimes { .. } => (bytes / self.setup.class_bytes).clamp(1, CLASSES as u64) as usize,
            _ => 1,
        }
    }

    /// Writes the memtable to value files.
    fn flush(&mut self) {
        let memtable = core::mem::take(&mut self.memtable);
        let classes = self.classes(self.memtable_bytes);
        self.memtable_bytes = 0;
        let mut open = self.open(&vec![FileClass::Flushed; classes]);
        let typical = self.placer.typical(self.seq);
        self.placer.learner.expire(self.seq);
        for (key, versions) in memtable {
            self.flush_key(key, &versions, typical, &mut open);
        }
        if let Some(mut training) = self.placer.learner.begin_training() {
            let model = core::iter::repeat_with(|| training.step()).flatten().next();
            model.into_iter().for_each(|model| self.placer.learner.trained(model));
        }
        self.collect();
        let space = self.space();
        self.report.flushes += 1;
        self.report.space_sum += space;
        self.report.peak_space = self.report.peak_space.max(space);
    }

    /// Writes the newest of the versions of a key in the memtable.
    fn flush_key(&mut self, key: u32, versions: &[(u64, Option<u64>)], typical: f64, open: &mut Open) {
        let hash = hash(key);
        let old = self.live.remove(&key);
        let mut past = old.as_ref().map(|old| (old.seq, old.history));
        if let Some(old) = old {
            self.garbage(&old);
        }
        if let Some((first, _)) = versions.first() {
            self.placer.learner.written(hash, *first);
        }
        // As in a store, where the newest version of a key comes first.
        let newest = versions.last().filter(|(_, bytes)| bytes.is_some());
        let before = newest.and_then(|(seq, _)| self.recent.write(hash, *seq));
        for (seq, bytes) in versions {
            if let Some((older, _)) = past {
                self.placer.completed(seq - older);
                self.times.completed(seq - older);
            }
            if bytes.is_none() {
                past = None;
                continue;
            }
            self.recent.write(hash, *seq);
            let newer = Version { seq: *seq, history: None };
            let history =
                past.map(|(older, history)| fold(newer, Version { seq: older, history: history.as_ref() }));
            past = Some((*seq, history));
        }
        if newest.is_none() {
            self.recent.forget(hash);
        }
        let (Some((seq, Some(bytes))), Some((_, history))) = (versions.last().copied(), past) else { return };
        let expected = self.placer.at_flush(KeyOf { hash, bytes }, seq, before, typical);
        self.placer.predicted(&expected, bytes);
        self.placer.learner.placed(hash, seq, seq, &expected, typical);
        let class = self.placer.class(&expected, open.files.len());
        let file = self.add(open, class, key, seq, bytes);
        self.report.flushed += bytes;
        self.live.insert(key, Live { seq, bytes, file, history });
    }

    /// Writes a record to the open file of a class.
    fn add(&mut self, open: &mut Open, class: usize, key: u32, seq: u64, bytes: u64) -> usize {
        let slot = &mut open.files[class];
        if slot.is_none_or(|file| self.files[&file].total >= self.setup.file_bytes) {
            let (class, end) = (open.classes[class], self.seq.saturating_add(open.times[class] as u64));
            self.files.insert(self.next_file, File { created: self.seq, class, end, ..File::default() });
            *slot = Some(self.next_file);
            self.next_file += 1;
        }
        let id = slot.unwrap_or_default();
        if let Some(file) = self.files.get_mut(&id) {
            file.total += bytes;
            file.live += bytes;
            file.keys.push((key, seq));
        }
        id
    }

    fn garbage(&mut self, old: &Live) {
        let Some(file) = self.files.get_mut(&old.file) else { return };
        file.live -= old.bytes;
        if file.live == 0 {
            self.files.remove(&old.file);
        }
    }

    fn space(&self) -> f64 {
        let sum = |part: fn(&File) -> u64| self.files.values().map(part).sum::<u64>();
        sum(|file| file.total) as f64 / sum(|file| file.live).max(1) as f64
    }

    /// Collects files until the space factor is at the target, or none is due.
    fn collect(&mut self) {
        loop {
            let victims = self.victims();
            if victims.is_empty() {
                return;
            }
            self.copy(&victims);
        }
    }

    /// Returns the files to collect next.
    fn victims(&self) -> Vec<usize> {
        let due = |is_due: &dyn Fn(&File) -> bool, most: usize| {
            self.files.iter().filter(|(_, file)| is_due(file)).map(|(id, _)| *id).take(most).collect()
        };
        let age = |file: &File| match self.setup.collector {
            Collector::GarbageRatio => 1,
            _ => self.seq - file.created,
        };
        match self.setup.collector {
            // File numbers grow with time.
            Collector::OldestFirst if self.space() > self.setup.target => due(&|_| true, 1),
            Collector::OldestFirst => Vec::new(),
            Collector::Ratio(least) => {
                let garbage = |file: &File| file.total - file.live;
                due(
                    &|file| garbage(file) > 0 && garbage(file) as f64 >= least * file.total as f64,
                    MOST_VICTIMS,
                )
            }
            Collector::DumpKv { .. } => due(&|file| file.end <= self.seq, MOST_VICTIMS),
            Collector::GarbageRatio | Collector::AgeScore | Collector::Lifetimes { .. } => {
                let ids: Vec<usize> = self.files.keys().copied().collect();
                let sizes = self.files.values().map(|file| ValueFileSizes {
                    total: file.total,
                    referenced: file.live,
                    age: age(file),
                });
                let mut victims = to_collect(&sizes.collect::<Vec<_>>(), self.setup.target, u64::MAX);
                victims.truncate(MOST_VICTIMS);
                victims.into_iter().map(|index| ids[index]).collect()
            }
        }
    }

    /// Returns the open files of a job. For DumpKV, each gets its time to live.
    fn open(&self, classes: &[FileClass]) -> Open {
        let is_dumpkv = matches!(self.setup.collector, Collector::DumpKv { .. });
        let mut ages = [0; BUCKETS];
        if is_dumpkv && classes.contains(&FileClass::Long) {
            let sampled = self.live.iter().filter(|(key, _)| hash(**key).is_multiple_of(SAMPLED));
            // Completed lifetimes are those of all keys.
            sampled.for_each(|(_, live)| ages[bucket((self.seq - live.seq) as f64)] += SAMPLED);
        }
        let time = |class: &FileClass| match is_dumpkv {
            true => self.times.time_to_live(*class, &ages, self.seq).max(1.0),
            false => 0.0,
        };
        Open {
            files: vec![None; classes.len()],
            classes: classes.to_vec(),
            times: classes.iter().map(time).collect(),
        }
    }

    /// Returns the class of a value that is copied, and notes what was expected.
    fn class_of_copy(&mut self, key: u32, live: &Live, typical: f64, classes: usize) -> usize {
        let version = Version { seq: live.seq, history: live.history.as_ref() };
        let of = KeyOf { hash: hash(key), bytes: live.bytes };
        let now = self.seq;
        let expected = self.placer.at_copy(of, version, now, typical);
        self.placer.predicted(&expected, live.bytes);
        self.placer.learner.placed(of.hash, live.seq, now, &expected, typical);
        let Collector::DumpKv { watched, .. } = self.setup.collector else {
            return self.placer.class(&expected, classes);
        };
        // Each prediction is the model's, whichever predictor is more accurate.
        let row = || features::at_copy(version, now, live.bytes, expected.by_rule);
        let by_model = if watched > 0 { self.placer.learner.by_model(&row()) } else { None };
        let class = match by_model {
            Some(lifetime) => self.times.by_lifetime(lifetime, now),
            None => {
                let gaps = live.history.as_ref().map_or(&[][..], |history| &history.gaps[..history.kept()]);
                let mean = gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64;
                let interval = |interval: f64| (!gaps.is_empty()).then_some(interval);
                let writes = live.history.as_ref().map_or(0, |history| history.writes);
                let last = gaps.first().map_or(0.0, |gap| *gap as f64);
                self.times.by_write_count(writes, interval(last), interval(mean), now)
            }
        };
        usize::from(class == FileClass::Long)
    }

    /// Copies the live values of `victims`, in key order.
    fn copy(&mut self, victims: &[usize]) {
        let removed: Vec<File> = victims.iter().filter_map(|id| self.files.remove(id)).collect();
        for file in &removed {
            self.times.collected(file.class, file.total - file.live, file.total);
        }
        let bytes = removed.iter().map(|file| file.live).sum();
        let mut open = match self.setup.collector {
            Collector::DumpKv { .. } => self.open(&[FileClass::Short, FileClass::Long]),
            _ => self.open(&vec![FileClass::Flushed; self.classes(bytes)]),
        };
        let classes = open.files.len();
        let typical = self.placer.typical(self.seq);
        let mut keys: Vec<(u32, u64)> = removed.into_iter().flat_map(|file| file.keys).collect();
        keys.sort_unstable();
        for (key, seq) in keys {
            let Some(live) = self.live.get(&key).filter(|live| live.seq == seq).cloned() else { continue };
            let class = self.class_of_copy(key, &live, typical, classes);
            let file = self.add(&mut open, class, key, seq, live.bytes);
            self.report.copied += live.bytes;
            self.live.insert(key, Live { file, ..live });
        }
        self.report.collected += victims.len() as u64;
    }
}

fn hash(key: u32) -> u64 {
    let mixed = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The open files of a flush or collection, by class.
struct Open {
    files: Vec<Option<usize>>,
    /// Class and time to live of their files, for DumpKV.
    classes: Vec<FileClass>,
    times: Vec<f64>,
}

/// Returns what a collector copies at the mean space `space`, by interpolation between the two nearest of `runs` with
/// other settings: pairs of mean space and copies. `None` if all of them take more space, or all less. Bytes written
/// for each byte copied are interpolated: if all collected files have the same share of garbage, they are linear in the
/// space.
#[must_use]
pub fn copies_at(space: f64, runs: &[(f64, f64)]) -> Option<f64> {
    let nearest = |is_side: &dyn Fn(f64) -> bool| {
        let distance = |run: &&(f64, f64)| (run.0 - space).abs();
        runs.iter().filter(|run| is_side(run.0)).min_by(|a, b| distance(a).total_cmp(&distance(b)))
    };
    let (below, above) = (nearest(&|at| at <= space)?, nearest(&|at| at >= space)?);
    let share = if above.0 > below.0 { (space - below.0) / (above.0 - below.0) } else { 0.0 };
    let [least, most] = [below, above].map(|run| 1.0 / run.1.max(LEAST_COPIES));
    Some(1.0 / (least + share * (most - least)))
}
