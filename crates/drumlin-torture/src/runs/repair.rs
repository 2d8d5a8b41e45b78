//! The repair run: a repair saves correct data from a damaged store, and its report says correctly what is lost.
//!
//! Stores and damages are those of the corrupt run, and missing files. Each case repairs the damaged store, opens the
//! new store and compares it with the oracle. A report without losses must be correct. The new store holds nothing
//! that was never written. With a sound manifest, no dropped keyspace reappears, and a deleted key reappears only if
//! the report says so. A changed byte in a table loses no more entries than reported. Some repairs die midway: what
//! they leave opens as the whole store, or not at all.

use super::corrupt::{Damage, Fixture};
use crate::failure::{Failure, Verdict};
use crate::oracle::Content;
use crate::parallel;
use crate::runner::{contents, open_repaired};
use drumlin::{RepairReport, repair_in};
use drumlin_env::sync::Arc;
use drumlin_env::{Effect, Fault, FileKind, ImageMode, MemEnv, Random, When};
use std::collections::BTreeMap;
use std::path::Path;

/// Path of the repaired store.
const TARGET: &str = "/repaired";
/// Number of cases per fixture.
const CASES: u64 = 200;
/// One case in this many dies midway.
const DEATHS: u64 = 8;
/// Approximate number of I/O calls of a repair.
const CALLS: u64 = 120;
/// Time of all reads. The fixtures set no TTLs, so the time does not matter.
const NOW: u64 = 0;

/// Results of some cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    cases: u64,
    /// Number of repairs that lost nothing and reported so.
    whole: u64,
    /// Number of repairs that reported losses or doubts.
    told: u64,
    deaths: u64,
}

/// Results of all cases.
#[derive(Debug, Default)]
pub struct Figures {
    report: Report,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let count = |verdict: Verdict| self.failures.iter().filter(|(_, f)| f.verdict == verdict).count();
        let Report { cases, whole, told, deaths } = self.report;
        let named = [Verdict::Silent, Verdict::Resurrected, Verdict::Lost, Verdict::Panic];
        let other = self.failures.iter().filter(|(_, f)| !named.contains(&f.verdict)).count();
        format!(
            "repair: cases {cases}, whole {whole}, told {told}, deaths {deaths}, silent {}, resurrected {}, lost {}, \
             panics {}, wrong {other}",
            count(Verdict::Silent),
            count(Verdict::Resurrected),
            count(Verdict::Lost),
            count(Verdict::Panic),
        )
    }
}

type Contents = BTreeMap<String, Content>;

fn repaired(fixture: &Fixture, mem: &MemEnv) -> Result<(RepairReport, Contents), Failure> {
    let report = repair_in(&mem.env(), crate::runner::STORE, TARGET, |_| {});
    let report = report.map_err(|e| Verdict::Failed.of(format!("repair: {e}")))?;
    let names = report.keyspaces.iter().map(|kept| &kept.name);
    let db = open_repaired(mem, &fixture.workload, Path::new(TARGET), names);
    let db = db.map_err(|e| Verdict::Unopenable.of(format!("the repaired store: {e}")))?;
    let found = contents(&db).map_err(|e| Verdict::Failed.of(format!("reading the repaired store: {e}")))?;
    Ok((report, found))
}

fn judge(
    fixture: &Fixture,
    which: usize,
    damage: &Damage,
    random: &mut Random,
    sum: &mut Report,
) -> Result<(), Failure> {
    let (_, kind, _) = &fixture.files[which];
    let damaged = |seed| {
        let mem = fixture.disk.image(ImageMode::All, seed);
        fixture.damage(&mem, which, damage);
        mem
    };
    sum.cases += 1;
    let mem = damaged(fixture.workload.seed);
    let (report, found) = repaired(fixture, &mem)?;
    let explained = fixture.oracle.find_cut(&found, &fixture.promise, true, (u64::MAX, NOW));
    // Without a clean close, damage to the last record or edit looks like a torn end, and a removed log segment
    // may have been the last one.
    let is_log = *kind == FileKind::Log;
    let is_tail = !fixture.is_closed
        && match damage {
            Damage::Remove => is_log,
            Damage::Cut { .. } => false,
            _ => is_log || *kind == FileKind::Manifest,
        };
    if is_tail && report.nothing_lost() {
        return Err(
            Verdict::Silent.of("the repair of a store that was not closed claims that nothing is lost")
        );
    }
    // A store that was not closed proves nothing about its end; the rest must still be correct.
    match report.findings.is_empty() {
        true if !is_tail => {
            explained.map_err(|failure| Verdict::Silent.of(failure.what))?;
            sum.whole += 1;
        }
        true => sum.whole += 1,
        false => sum.told += 1,
    }
    let knows_all = !matches!(kind, FileKind::Manifest | FileKind::Pointer);
    for (name, content) in &found {
        let Some(map) = fixture.oracle.map(name).filter(|_| knows_all) else {
            if knows_all {
                return Err(Verdict::Resurrected.of(format!("keyspace {name} never existed, or was dropped")));
            }
            continue;
        };
        let truth = map.content(u64::MAX, NOW);
        let kept = report.keyspaces.iter().find(|kept| kept.name == *name);
        let is_told = kept.is_some_and(|kept| kept.doubtful > 0 || kept.lost_more);
        if !is_tail && !is_told && content.keys().any(|key| !truth.contains_key(key)) {
            return Err(Verdict::Resurrected
                .of(format!("keyspace {name}: a deleted key reappeared without a doubt in the report")));
        }
        let missing = truth.keys().filter(|key| !content.contains_key(*key)).count() as u64;
        let told = kept.map_or(0, |kept| if kept.lost_more { u64::MAX } else { kept.lost });
        if !is_tail && missing > told {
            return Err(
                Verdict::Lost.of(format!("keyspace {name}: {missing} keys are missing, {told} reported"))
            );
        }
    }
    if random.chance(1, DEATHS) {
        sum.deaths += 1;
        die(fixture, &damaged(fixture.workload.seed), random, &found)?;
    }
    Ok(())
}

/// Kills a repair at a random call and checks what it leaves.
fn die(fixture: &Fixture, mem: &MemEnv, random: &mut Random, whole: &Contents) -> Result<(), Failure> {
    let when = When::From(random.below(CALLS));
    mem.inject(Fault { op: None, kind: None, when, effect: Effect::Fail(5) });
    let _ = repair_in(&mem.env(), crate::runner::STORE, TARGET, |_| {});
    let mode = ImageMode::ALL[random.index(ImageMode::ALL.len())];
    let left = mem.snapshot().image(mode, fixture.workload.seed);
    if left.files().iter().all(|path| !path.starts_with(TARGET)) {
        return Ok(());
    }
    let Ok(db) = open_repaired(&left, &fixture.workload, Path::new(TARGET), whole.keys()) else {
        return Ok(());
    };
    let found =
        contents(&db).map_err(|e| Verdict::Failed.of(format!("reading an unfinished repair: {e}")))?;
    // An empty directory without a store may become a new store.
    match found == *whole || found.is_empty() {
        true => Ok(()),
        false => Err(Verdict::Split.of("an unfinished repair opens as a store")),
    }
}

/// Runs `cases` cases of one seed.
fn one(seed: u64, cases: u64) -> Result<Report, Failure> {
    let fixture = Fixture::make(seed)?;
    let mut random = Random::new(seed, "repair");
    let mut report = Report::default();
    for _ in 0..cases {
        let (which, mut damage) = fixture.draw(&mut random);
        if random.chance(1, 10) {
            damage = Damage::Remove;
        }
        let place = format!("{} {damage:?}", fixture.files[which].0.display());
        parallel::guarded(|| judge(&fixture, which, &damage, &mut random, &mut report))
            .map_err(|failure| failure.within(&place))?;
    }
    Ok(report)
}

/// Runs `count` cases, with seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let total = Arc::new(count);
    let results = parallel::each(count.div_ceil(CASES), move |number| {
        one(first.wrapping_add(number), (*total - number * CASES).min(CASES))
    });
    let mut figures = Figures::default();
    for (number, result) in results {
        match result {
            Ok(report) => {
                figures.report.cases += report.cases;
                figures.report.whole += report.whole;
                figures.report.told += report.told;
                figures.report.deaths += report.deaths;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
