//! The crash run: what a power loss, or the death of the process, leaves must be a prefix of the commits.
//!
//! While a workload runs, the disk is pictured before some I/O calls, first at sites that were seldom cut, and with
//! each picture goes what was promised then. Every picture becomes an image in each of the six modes. A part of the
//! images crashes again inside recovery. Each is opened and judged: the state is explained by a commit that is not
//! behind what was promised, `verify` is clean, nothing is orphaned, opening again changes nothing, and more
//! operations agree with the oracle.

use crate::failure::{Failure, Verdict};
use crate::oracle::{Oracle, Promise};
use crate::parallel;
use crate::runner::{Runner, contents, open};
use crate::workload::{Taste, Workload};
use drumlin_env::sync::{Arc, Mutex};
use drumlin_env::{Disk, ImageMode, MemEnv, Random, Site};
use std::collections::{BTreeMap, BTreeSet};

/// What the run wants. A workload either loses unlogged writes or opens its store again, so that no write that a
/// picture may show was already known to be lost.
pub const TASTE: Taste = Taste { operations: 250, unlogged: true, kills: false, swaps: true };

/// Operations after a recovery.
const AFTER: usize = 50;
/// Pictures of a workload.
const PICTURES: usize = 30;

/// How one image is made.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The I/O index before which it happens.
    pub index: u64,
    /// What is left.
    pub mode: ImageMode,
    /// Whether recovery is cut too, and before which of its calls.
    pub then: Option<u64>,
}

/// What came out of one workload.
#[derive(Debug, Default)]
pub struct Report {
    images: u64,
    second: u64,
    dropped: u64,
    torn: u64,
    calls: u64,
    sites: BTreeSet<Site>,
    cut: BTreeSet<Site>,
}

/// What came out of all.
#[derive(Debug, Default)]
pub struct Figures {
    report: Report,
    /// Failures, each with its seed and cut.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Images made.
    pub fn images(&self) -> u64 {
        self.report.images
    }

    /// The figure line.
    pub fn line(&self) -> String {
        let Report { images, second, dropped, torn, calls, sites, cut } = &self.report;
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
            "crash: images {images}, cut twice {second}, lost {}, resurrected {}, holes {}, split {}, unopenable {}, \
             orphans {}, order {}, wrong {other}, calls {calls}, sites {} %, dropped something {} %, torn {} %",
            count(Verdict::Lost),
            count(Verdict::Resurrected),
            count(Verdict::Hole),
            count(Verdict::Split),
            count(Verdict::Unopenable),
            count(Verdict::Orphan),
            count(Verdict::Order),
            percent(cut.len() as u64, sites.len() as u64),
            percent(*dropped, *images),
            percent(*torn, *images),
        )
    }
}

/// A picture of the disk, and what was promised.
struct Picture {
    index: u64,
    disk: Disk,
    site: Site,
    promise: Promise,
}

/// Where pictures were taken already, over all workloads of a run.
pub type Cuts = Arc<Mutex<BTreeMap<Site, u64>>>;

/// The workload of `seed`.
pub fn workload(seed: u64, operations: usize) -> Workload {
    let unlogged = seed.is_multiple_of(2);
    let taste = Taste { operations, unlogged, kills: !unlogged, ..TASTE };
    let mut workload = Workload::generate("crash", seed, &taste);
    // A kill inside the workload would be a world of its own.
    workload.ops.iter_mut().filter(|op| **op == crate::ops::Op::Kill).for_each(|op| {
        *op = crate::ops::Op::Reopen;
    });
    workload
}

/// Runs a workload and takes pictures: those at `wanted`, or those that `cuts` makes worth while.
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
            None if noted.lock().len() >= PICTURES => false,
            None => {
                let taken = cuts.lock().get(&call.site).copied().unwrap_or(0);
                random.chance(1, (taken * taken / 8 + 1).min(60))
            }
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

/// Crashes `workload` everywhere worth while, in all modes.
pub fn one(workload: &Workload, cuts: &Cuts) -> Result<Report, Failure> {
    let mut report = Report::default();
    let (pictures, oracle) = parallel::guarded(|| pictures(workload, cuts, None, &mut report))
        .map_err(|failure| failure.within("before any crash"))?;
    let mut random = Random::new(workload.seed, "depth");
    for picture in &pictures {
        report.cut.insert(picture.site);
        for mode in ImageMode::ALL {
            let then = random.chance(1, 5).then(|| random.below(70));
            let cut = Cut { index: picture.index, mode, then };
            parallel::guarded(|| judge(workload, picture, &cut, &oracle, &mut report))
                .map_err(|failure| failure.within(&repro(workload, &cut)))?;
        }
    }
    Ok(report)
}

/// What to type to see one image again.
fn repro(workload: &Workload, cut: &Cut) -> String {
    let then = cut.then.map(|then| format!(" --then {then}")).unwrap_or_default();
    let (seed, operations) = (workload.seed, workload.ops.len());
    format!("crash --seed {seed:#x} --ops {operations} --at {} --image {:?}{then}", cut.index, cut.mode)
}

/// Crashes `workload` once.
pub fn again(workload: &Workload, cut: &Cut) -> Result<(), Failure> {
    let mut report = Report::default();
    let (pictures, oracle) =
        parallel::guarded(|| pictures(workload, &Cuts::default(), Some(cut.index), &mut report))?;
    match pictures.first() {
        Some(picture) => parallel::guarded(|| judge(workload, picture, cut, &oracle, &mut report)),
        None => Ok(()),
    }
}

/// Makes one image and judges it.
fn judge(
    workload: &Workload,
    picture: &Picture,
    cut: &Cut,
    oracle: &Oracle,
    report: &mut Report,
) -> Result<(), Failure> {
    let seed = workload.seed ^ picture.index.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ cut.mode as u64;
    let mut mem = picture.disk.image(cut.mode, seed);
    report.images += 1;
    report.dropped += u64::from(mem.image_report().dropped_something());
    report.torn += u64::from(mem.image_report().torn > 0);
    let mut power = cut.mode != ImageMode::All;
    if let Some(then) = cut.then {
        // Recovery itself is cut. What the first opening saw stands: the second must agree with it or go on.
        mem.take_snapshot_at(then);
        drop(open(&mem, workload).map_err(unopenable)?);
        report.sites.extend(mem.sites().into_iter().map(|(site, _)| site));
        if let Some((index, disk)) = mem.taken().pop() {
            let mode = ImageMode::ALL[Random::new(seed, "second image").index(ImageMode::ALL.len())];
            mem = disk.image(mode, seed ^ index);
            power |= mode != ImageMode::All;
            report.second += 1;
        }
    }
    let db = open(&mem, workload).map_err(unopenable)?;
    let found = contents(&db).map_err(|e| Verdict::Failed.of(format!("reading after recovery: {e}")))?;
    let explained = oracle.find_cut(&found, &picture.promise, power, db.visible_seq())?;
    if db.visible_seq() < explained.seq {
        let what = format!("visible_seq is {}, behind the state at {}", db.visible_seq(), explained.seq);
        return Err(Verdict::Wrong.of(what));
    }
    if let Some(violation) = mem.order_violations().first() {
        return Err(Verdict::Order.of(format!("in recovery: {violation}")));
    }
    // Once recovered, the state is durable: another power loss, at once, changes nothing.
    let again = mem.snapshot().image(ImageMode::None, seed);
    drop(db);
    let mut after = Runner::resume(again, workload, oracle, &explained)
        .map_err(|failure| failure.within("opening a second time"))?;
    after.compare_all().map_err(|failure| failure.within("opening a second time"))?;
    let taste = Taste { operations: AFTER, unlogged: false, kills: true, swaps: true };
    let ops = Workload::generate("crash", seed, &taste).ops;
    after.run(&ops, usize::MAX).map_err(|failure| failure.within("after recovery"))?;
    after.finish().map(drop).map_err(|failure| failure.within("after recovery"))
}

fn unopenable(error: drumlin::Error) -> Failure {
    Verdict::Unopenable.of(error.to_string())
}

/// Workloads that share their knowledge of where pictures were taken. They run one after the other, so that the
/// same seeds give the same pictures.
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
