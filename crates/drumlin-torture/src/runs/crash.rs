//! The crash run: after a power loss, or the death of the process, the store must hold a prefix of the commits.
//!
//! While a workload runs, the run snapshots the disk before some I/O calls (a *cut*), preferring call sites with few
//! cuts so far. With each snapshot it records what the store had promised by then. Every snapshot becomes a crash
//! image in each of the six modes. One image in five crashes again during recovery, and one in a hundred a third
//! time, at that recovery's call site with the fewest cuts. A call site without any cut is cut at its first call.
//! If the recovery that reaches it was cut elsewhere or was the last one, a later replay of that recovery does this.
//!
//! The run opens and judges each image. Some commit, not earlier than what was promised, must explain the state.
//! `verify` must be clean, no file may be orphaned, a second opening must change nothing, and further operations must
//! agree with the oracle.

use crate::failure::{Failure, Verdict};
use crate::oracle::{Oracle, Promise};
use crate::parallel;
use crate::runner::{Runner, contents, open};
use crate::workload::{Taste, Workload};
use drumlin::Db;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Disk, ImageMode, MemEnv, Random, Site};
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of the workloads. A workload either loses unlogged writes or reopens its store, never both. So no write
/// that a snapshot holds was known to be lost before.
pub const TASTE: Taste =
    Taste { operations: 250, unlogged: true, kills: false, swaps: true, lifetimes: true, renames: true };

/// Minimum and maximum number of operations after a recovery.
const AFTER: (usize, usize) = (20, 100);
/// Number of snapshots per workload, besides those at call sites without any cut.
const PICTURES: usize = 30;
/// Maximum number of cuts on the way to one image.
const DEPTH: usize = 3;

/// Recipe of one image.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Index of the I/O call before which the crash happens.
    pub index: u64,
    /// Mode of the image.
    pub mode: ImageMode,
    /// Cuts of the following recoveries: I/O index and image mode.
    pub then: Vec<(u64, ImageMode)>,
}

/// Selects the recoveries to cut.
#[derive(Clone, Copy)]
enum Depth {
    /// This number of recoveries, and further ones that reach a call site without any cut.
    Drawn(usize),
    /// The recoveries listed in the cut.
    Given,
}

/// Results of one workload.
#[derive(Debug, Default)]
pub struct Report {
    images: u64,
    second: u64,
    third: u64,
    dropped: u64,
    torn: u64,
    calls: u64,
    sites: BTreeSet<Site>,
    cut: BTreeSet<Site>,
}

/// Results of all workloads.
#[derive(Debug, Default)]
pub struct Figures {
    report: Report,
    /// Failures, each with its seed and cut.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the number of images.
    pub fn images(&self) -> u64 {
        self.report.images
    }

    /// Returns the figure line.
    pub fn line(&self) -> String {
        let Report { images, second, third, dropped, torn, calls, sites, cut } = &self.report;
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let named = [
            Verdict::Lost,
            Verdict::Resurrected,
            Verdict::Hole,
            Verdict::Split,
            Verdict::Unopenable,
            Verdict::Orphan,
            Verdict::Order,
        ];
        let other = self.failures.iter().filter(|(_, f)| !named.contains(&f.verdict)).count();
        let percent = |part: u64, whole: u64| part * 100 / whole.max(1);
        format!(
            "crash: images {images}, cut twice {second}, cut thrice {third}, lost {}, resurrected {}, holes {}, split \
             {}, unopenable {}, orphans {}, order {}, wrong {other}, calls {calls}, sites {} %, dropped something {} \
             %, torn {} %",
            count(Verdict::Lost),
            count(Verdict::Resurrected),
            count(Verdict::Hole),
            count(Verdict::Split),
            count(Verdict::Unopenable),
            count(Verdict::Orphan),
            count(Verdict::Order),
            percent(cut.intersection(sites).count() as u64, sites.len() as u64),
            percent(*dropped, *images),
            percent(*torn, *images),
        )
    }
}

/// A snapshot of the disk, with the promises at that time.
struct Picture {
    index: u64,
    disk: Disk,
    site: Site,
    promise: Promise,
}

/// Number of cuts per call site, over all workloads of a run.
pub type Cuts = Arc<Mutex<BTreeMap<Site, u64>>>;

/// Generates the workload of `seed`.
pub fn workload(seed: u64, operations: usize) -> Workload {
    let unlogged = seed.is_multiple_of(2);
    let taste = Taste { operations, unlogged, kills: !unlogged, ..TASTE };
    let mut workload = Workload::generate("crash", seed, &taste);
    // A kill inside the workload would need a world of its own, so reopen instead.
    workload.ops.iter_mut().filter(|op| **op == crate::ops::Op::Kill).for_each(|op| {
        *op = crate::ops::Op::Reopen;
    });
    workload
}

/// Runs a workload and takes snapshots: those at `wanted`, or those that `cuts` makes useful.
fn pictures(
    workload: &Workload,
    cuts: &Cuts,
    wanted: Option<u64>,
    report: &mut Report,
) -> Result<(Vec<Picture>, Oracle), Failure> {
    let mem = MemEnv::new(workload.seed);
    let promise: Arc<Mutex<Promise>> = Arc::default();
    let notes: Arc<Mutex<Vec<(u64, Site, Promise)>>> = Arc::default();
    let mut random = Random::new(workload.seed, "cuts");
    let (seen, noted, cuts) = (promise.clone(), notes.clone(), cuts.clone());
    mem.record(move |call| {
        let take = match wanted {
            Some(index) => call.index == index,
            None => match cuts.lock().get(&call.site).copied().unwrap_or(0) {
                0 => true,
                _ if noted.lock().len() >= PICTURES => false,
                taken => random.chance(1, (taken * taken / 8 + 1).min(60)),
            },
        };
        if take {
            *cuts.lock().entry(call.site).or_default() += 1;
            noted.lock().push((call.index, call.site, seen.lock().clone()));
        }
        take
    });
    let mut runner = Runner::create_promising(mem.clone(), workload, promise)?;
    runner.run(&workload.ops, usize::MAX)?;
    let oracle = runner.oracle.clone();
    runner.finish()?;
    report.calls += mem.io_index();
    report.sites.extend(mem.sites().into_iter().map(|(site, _)| site));
    let notes = std::mem::take(&mut *notes.lock());
    let pictures = mem.taken().into_iter().zip(notes).map(|((index, disk), (noted, site, promise))| {
        assert_eq!(index, noted, "each picture has its note");
        Picture { index, disk, site, promise }
    });
    Ok((pictures.collect(), oracle))
}

/// Crashes `workload` at every useful call, in all modes.
pub fn one(workload: &Workload, cuts: &Cuts) -> Result<Report, Failure> {
    let mut report = Report::default();
    let (pictures, oracle) = parallel::guarded(|| pictures(workload, cuts, None, &mut report))
        .map_err(|failure| failure.within("before any crash"))?;
    let mut random = Random::new(workload.seed, "depth");
    let owed = Mutex::new(BTreeMap::new());
    for picture in &pictures {
        report.cut.insert(picture.site);
        for mode in ImageMode::ALL {
            let depth = match random.below(100) {
                0 => 2,
                1..20 => 1,
                _ => 0,
            };
            let mut cut = Cut { index: picture.index, mode, then: Vec::new() };
            let depth = Depth::Drawn(depth);
            let trial = Trial { workload, picture, oracle: &oracle, cuts, depth, owed: &owed };
            parallel::guarded(|| trial.judge(&mut cut, &mut report))
                .map_err(|failure| failure.within(&repro(workload, &cut)))?;
        }
    }
    // A replayed recovery may reach further call sites without a cut, which are then replayed too.
    let mut replayed = BTreeSet::new();
    loop {
        let Some((site, mut cut)) = owed.lock().pop_first() else { break };
        if cuts.lock().contains_key(&site) || !replayed.insert(site) {
            continue;
        }
        let picture = pictures.iter().find(|picture| picture.index == cut.index);
        let Some(picture) = picture else { continue };
        let cuts_before = report.second + report.third;
        let trial = Trial { workload, picture, oracle: &oracle, cuts, depth: Depth::Given, owed: &owed };
        parallel::guarded(|| trial.judge(&mut cut, &mut report))
            .map_err(|failure| failure.within(&repro(workload, &cut)))?;
        if report.second + report.third == cuts_before + cut.then.len() as u64 {
            cuts.lock().insert(site, 1);
            report.cut.insert(site);
        }
    }
    Ok(report)
}

/// Returns the command that reproduces one image.
fn repro(workload: &Workload, cut: &Cut) -> String {
    let then: Vec<String> = cut.then.iter().map(|(index, mode)| format!("{index}:{mode:?}")).collect();
    let then = if then.is_empty() { String::new() } else { format!(" --then {}", then.join(",")) };
    let (seed, operations) = (workload.seed, workload.ops.len());
    format!("crash --seed {seed:#x} --ops {operations} --at {} --image {:?}{then}", cut.index, cut.mode)
}

/// Parses the modes and indices that `repro` printed.
pub fn read_cut(at: u64, image: &str, then: &str) -> Option<Cut> {
    let mode = |name: &str| ImageMode::ALL.into_iter().find(|mode| format!("{mode:?}") == name);
    let one = |text: &str| {
        let (index, name) = text.split_once(':')?;
        Some((index.parse().ok()?, mode(name)?))
    };
    let then = then.split(',').filter(|text| !text.is_empty()).map(one).collect::<Option<_>>()?;
    Some(Cut { index: at, mode: mode(image)?, then })
}

/// Crashes `workload` once.
pub fn again(workload: &Workload, cut: &Cut) -> Result<(), Failure> {
    let (mut report, cuts) = (Report::default(), Cuts::default());
    let (pictures, oracle) = parallel::guarded(|| pictures(workload, &cuts, Some(cut.index), &mut report))?;
    let Some(picture) = pictures.first() else { return Ok(()) };
    let owed = Mutex::default();
    let trial = Trial { workload, picture, oracle: &oracle, cuts: &cuts, depth: Depth::Given, owed: &owed };
    parallel::guarded(|| trial.judge(&mut cut.clone(), &mut report))
}

/// The call of a recovery at which it is cut: one whose call site has the fewest cuts.
#[derive(Default)]
struct Choice {
    site: Option<Site>,
    cuts: u64,
    ties: u64,
    /// Sites without any cut, each with the index of its first call.
    uncut: BTreeMap<Site, u64>,
}

/// Call sites that a recovery reached and that have no cut yet, each with the cut at its first call.
type Owed = Mutex<BTreeMap<Site, Cut>>;

/// One snapshot to judge, in some mode.
struct Trial<'a> {
    workload: &'a Workload,
    picture: &'a Picture,
    oracle: &'a Oracle,
    cuts: &'a Cuts,
    depth: Depth,
    owed: &'a Owed,
}

impl Trial<'_> {
    fn seed(&self, cut: &Cut) -> u64 {
        self.workload.seed ^ self.picture.index.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ cut.mode as u64
    }

    /// Snapshots the disk before one call of the next opening in `mem`, unless that opening `is_last`. Without
    /// `wanted`, only a call site without any cut is chosen.
    fn watch(&self, mem: &MemEnv, wanted: bool, is_last: bool, seed: u64) -> Arc<Mutex<Choice>> {
        let choice: Arc<Mutex<Choice>> = Arc::default();
        let (cuts, chosen) = (self.cuts.clone(), choice.clone());
        let mut random = Random::new(seed, "cut of a recovery");
        mem.record(move |call| {
            let times = cuts.lock().get(&call.site).copied().unwrap_or(0);
            let mut choice = chosen.lock();
            if times == 0 {
                choice.uncut.entry(call.site).or_insert(call.index);
            }
            if is_last {
                return false;
            }
            let rarer = choice.site.is_none() || times < choice.cuts;
            choice.ties = if rarer { 1 } else { choice.ties + u64::from(times == choice.cuts) };
            let take =
                (wanted || times == 0) && (rarer || times == choice.cuts && random.chance(1, choice.ties));
            if take {
                (choice.site, choice.cuts) = (Some(call.site), times);
            }
            take
        });
        choice
    }

    /// Opens the image of `cut`, and crashes as many recoveries as requested. Also returns whether the power was
    /// lost.
    fn recover(&self, cut: &mut Cut, report: &mut Report) -> Result<(MemEnv, Db, bool), Failure> {
        let seed = self.seed(cut);
        let mut mem = self.picture.disk.image(cut.mode, seed);
        report.images += 1;
        report.dropped += u64::from(mem.image_report().dropped_something());
        report.torn += u64::from(mem.image_report().torn > 0);
        let mut power = cut.mode != ImageMode::All;
        let mut level = 0;
        loop {
            let seed = seed.wrapping_add(level as u64);
            let choice = match self.depth {
                Depth::Given => match cut.then.get(level) {
                    Some((index, _)) => {
                        mem.take_snapshot_at(*index);
                        Arc::default()
                    }
                    None => self.watch(&mem, false, true, seed),
                },
                // The last opening is not cut.
                Depth::Drawn(wanted) => self.watch(&mem, level < wanted, level + 1 == DEPTH, seed),
            };
            let db = open(&mem, self.workload).map_err(unopenable)?;
            mem.record(|_| false);
            self.owe(cut, &choice.lock());
            report.sites.extend(mem.sites().into_iter().map(|(site, _)| site));
            let Some((index, disk)) = mem.taken().pop() else { return Ok((mem, db, power)) };
            // This opening crashed before its end, so nobody has seen its result.
            drop(db);
            let mode = match self.depth {
                Depth::Given => cut.then[level].1,
                Depth::Drawn(_) => {
                    let mode = ImageMode::ALL[Random::new(seed, "next image").index(ImageMode::ALL.len())];
                    cut.then.push((index, mode));
                    mode
                }
            };
            if let Some(site) = choice.lock().site {
                *self.cuts.lock().entry(site).or_default() += 1;
                report.cut.insert(site);
            }
            mem = disk.image(mode, seed ^ index);
            power |= mode != ImageMode::All;
            match level {
                0 => report.second += 1,
                _ => report.third += 1,
            }
            level += 1;
        }
    }

    /// Records the call sites without a cut that the opening after `cut` reached.
    fn owe(&self, cut: &Cut, choice: &Choice) {
        for (&site, &index) in choice.uncut.iter().filter(|(site, _)| Some(**site) != choice.site) {
            let mut owed = cut.clone();
            owed.then.push((index, ImageMode::None));
            self.owed.lock().entry(site).or_insert(owed);
        }
    }

    /// Makes one image and judges it.
    fn judge(&self, cut: &mut Cut, report: &mut Report) -> Result<(), Failure> {
        let (mem, db, power) = self.recover(cut, report)?;
        let seed = self.seed(cut);
        let found = contents(&db).map_err(|e| Verdict::Failed.of(format!("reading after recovery: {e}")))?;
        let seen = (db.visible_seq(), mem.env().clock().unix_micros());
        let mut promise = self.picture.promise.clone();
        promise.check_names(&db.keyspaces())?;
        let explained = self.oracle.find_cut(&found, &promise, power, seen)?;
        if db.visible_seq() < explained.seq {
            let what = format!(
                "visible_seq is {}, less than the last recovered commit {}",
                db.visible_seq(),
                explained.seq
            );
            return Err(Verdict::Wrong.of(what));
        }
        // Unlogged commits are outside the prefix, those of dropped keyspaces too, and so is a commit that was being
        // issued.
        let claimed = db.recovered_seq().min(promise.issued);
        if explained.unlogged.is_empty() && claimed > explained.seq.max(promise.synced) {
            let held = explained.seq;
            let what = format!("recovered_seq is {claimed}, and the store holds the commits up to {held}");
            return Err(Verdict::Wrong.of(what));
        }
        if let Some(violation) = mem.order_violations().first() {
            return Err(Verdict::Order.of(format!("in recovery: {violation}")));
        }
        // The recovered state is durable: another power loss right away must change nothing.
        let again = mem.snapshot().image(ImageMode::None, seed);
        drop(db);
        let mut after = Runner::resume(again, self.workload, self.oracle, &explained)
            .map_err(|failure| failure.within("opening a second time"))?;
        after.compare_all().map_err(|failure| failure.within("opening a second time"))?;
        let most = AFTER.1 - AFTER.0 + 1;
        let operations = AFTER.0 + Random::new(seed, "operations after a recovery").index(most);
        let taste =
            Taste { operations, unlogged: false, kills: true, swaps: true, lifetimes: true, renames: true };
        let ops = Workload::generate("crash", seed, &taste).ops;
        after.run(&ops, usize::MAX).map_err(|failure| failure.within("after recovery"))?;
        after.finish().map(drop).map_err(|failure| failure.within("after recovery"))
    }
}

fn unopenable(error: drumlin::Error) -> Failure {
    Verdict::Unopenable.of(error.to_string())
}

/// Number of workloads that share the count of cuts. They run one after the other, so that the same seeds give the
/// same snapshots.
const GROUP: u64 = 10;

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64, operations: usize) -> Figures {
    let groups = parallel::each(count.div_ceil(GROUP), move |group| {
        let cuts = Cuts::default();
        let seeds = group * GROUP..((group + 1) * GROUP).min(count);
        let one = |number| (number, one(&workload(first.wrapping_add(number), operations), &cuts));
        Ok(seeds.map(one).collect::<Vec<_>>())
    });
    let mut figures = Figures::default();
    for (number, result) in groups.into_iter().filter_map(|(_, group)| group.ok()).flatten() {
        match result {
            Ok(report) => {
                let sum = &mut figures.report;
                sum.images += report.images;
                sum.second += report.second;
                sum.third += report.third;
                sum.dropped += report.dropped;
                sum.torn += report.torn;
                sum.calls += report.calls;
                sum.sites.extend(report.sites);
                sum.cut.extend(report.cut);
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
