//! The lanes: which runs at which volume, and from which seeds.
//!
//! The merge lane has fixed seeds: same commit, same result. The nightly lane takes its seed from the caller, who
//! makes it from the date.

use crate::runs::{bank, corrupt, crash, meta, model, repeat};
use crate::tapes;
use std::path::Path;

/// How much a lane does.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Seeds of the model run, 2,000 operations each.
    pub model: u64,
    /// Lists of the metamorphic run, 4,000 operations under 16 option sets each.
    pub meta: u64,
    /// Workloads of the crash run, up to 180 images each.
    pub crash: u64,
    /// Cases of the corrupt run.
    pub corrupt: u64,
    /// Seeds of the repeat run.
    pub repeat: u64,
}

/// What every change passes.
pub const MERGE: Volume = Volume { model: 1500, meta: 30, crash: 250, corrupt: 60_000, repeat: 100 };

/// What runs at night.
pub const NIGHTLY: Volume =
    Volume { model: 15_000, meta: 300, crash: 25_000, corrupt: 2_000_000, repeat: 5_000 };

/// Runs a lane; whether all of it is good.
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
    let figures = corrupt::run(seed, volume.corrupt);
    tell(figures.line(), show("corrupt", &figures.failures));
    let figures = repeat::run(seed, volume.repeat, 300);
    tell(figures.line(), show("repeat", &figures.failures));
    let figures = bank::run(seed)?;
    tell(figures.line(), figures.missed.iter().map(|bug| format!("{bug} was not found")).collect());
    Ok(good && figures.is_good())
}

/// A seed made from the date; it is printed, so that a night can be repeated.
pub fn seed_of_the_day() -> u64 {
    let days = drumlin_env::Env::os().clock().unix_micros() / 86_400_000_000;
    let seed = days.wrapping_mul(1_000_003);
    println!("seed of the day: {seed:#x}");
    seed
}
