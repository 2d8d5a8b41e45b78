//! The test lanes: their runs, volumes and seeds.
//!
//! The merge lane has fixed seeds: the same commit gives the same result. The nightly lane takes its seed from the
//! caller, who derives it from the date.

use crate::runs::{bank, corrupt, crash, fault, fsync, full, meta, model, repair, repeat};
use crate::tapes;
use std::path::Path;

/// Volume of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Number of seeds of the model run, 2,000 operations each.
    pub model: u64,
    /// Number of lists of the metamorphic run, 4,000 operations under 16 option sets each.
    pub meta: u64,
    /// Number of workloads of the crash run, about 200 images each.
    pub crash: u64,
    /// Number of programs of the fault run, about 450 faults each.
    pub fault: u64,
    /// Number of programs of the fsync run, about 350 cases each.
    pub fsync: u64,
    /// Number of programs of the full run, about 20 disk sizes each.
    pub full: u64,
    /// Number of cases of the corrupt run.
    pub corrupt: u64,
    /// Number of cases of the repair run.
    pub repair: u64,
    /// Number of seeds of the repeat run.
    pub repeat: u64,
}

/// Volume of the merge lane, which every change must pass.
pub const MERGE: Volume = Volume {
    model: 1500,
    meta: 30,
    crash: 400,
    fault: 8,
    fsync: 10,
    full: 60,
    corrupt: 60_000,
    repair: 6_000,
    repeat: 100,
};

/// Volume of the nightly lane.
pub const NIGHTLY: Volume = Volume {
    model: 15_000,
    meta: 300,
    crash: 4_000,
    fault: 80,
    fsync: 100,
    full: 600,
    corrupt: 2_000_000,
    repair: 300_000,
    repeat: 5_000,
};

/// Runs a lane; returns whether all of it passed.
pub fn run(volume: &Volume, seed: u64) -> Result<bool, String> {
    let tapes = tapes::replay_all(Path::new(tapes::REGRESS));
    let mut good = tapes.is_ok();
    match tapes {
        Ok(count) => println!("tapes: replayed {count}, failed 0"),
        Err(failure) => println!("tapes: failed 1\n{failure}"),
    }
    let mut tell = |line: String, failures: Vec<String>| {
        println!("{line}");
        failures.iter().for_each(|failure| println!("  {failure}"));
        good &= failures.is_empty();
    };
    let show = |run: &str, failures: &[(u64, crate::failure::Failure)]| {
        let line =
            |(seed, failure): &(u64, crate::failure::Failure)| format!("{run} --seed {seed:#x}: {failure}");
        failures.iter().map(line).collect::<Vec<_>>()
    };
    let figures = model::run(seed, volume.model, model::TASTE.operations);
    tell(figures.line(), show("model", &figures.failures));
    let figures = meta::run(seed, volume.meta, meta::TASTE.operations);
    tell(figures.line(), show("meta", &figures.failures));
    let figures = crash::run(seed, volume.crash, crash::TASTE.operations);
    tell(figures.line(), show("crash", &figures.failures));
    let figures = fault::run(seed, volume.fault);
    tell(figures.line(), show("fault", &figures.failures));
    let figures = fsync::run(seed, volume.fsync);
    tell(figures.line(), show("fsync", &figures.failures));
    let figures = full::run(seed, volume.full);
    tell(figures.line(), show("full", &figures.failures));
    let figures = corrupt::run(seed, volume.corrupt);
    tell(figures.line(), show("corrupt", &figures.failures));
    let figures = repair::run(seed, volume.repair);
    tell(figures.line(), show("repair", &figures.failures));
    let figures = repeat::run(seed, volume.repeat, 300);
    tell(figures.line(), show("repeat", &figures.failures));
    let figures = bank::run(seed)?;
    tell(figures.line(), figures.missed.iter().map(|bug| format!("{bug} was not found")).collect());
    Ok(good && figures.is_good())
}

/// Returns a seed derived from the date. The caller prints it, so that a nightly run can be repeated.
pub fn seed_of_the_day() -> u64 {
    let days = drumlin_env::Env::os().clock().unix_micros() / 86_400_000_000;
    let seed = days.wrapping_mul(1_000_003);
    println!("seed of the day: {seed:#x}");
    seed
}
