//! The evaluation workloads of four papers, as far as the engine supports them.
//!
//! The papers are `growth` (Vertiorizon), `filters` (Mnemosyne), `pipeline` (Downforce) and `values` (DumpKV). This
//! file contains their loads. The features that the papers switch on and off in their own engines are set by options.

use super::{Action, After, Entries, Phase, Workload, scaled};
use crate::engine::{Direction, Result};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use crate::generate::zipf::YCSB_THETA;

/// Number of operations in the window whose lowest rate is Vertiorizon's worst case, at scale 1.
const WINDOW: u64 = 100_000;
/// Standard deviation of Mnemosyne's normal distribution, as a fraction of the keys.
const SIGMA: f64 = 0.03;

fn keys_from(dist: &str) -> Result<Target> {
    Ok(match dist {
        "uniform" => Target::Uniform,
        "zipf" => Target::Zipf { theta: YCSB_THETA },
        "normal" => Target::Normal { sigma: SIGMA },
        _ => return Err(format!("unknown distribution {dist}; available: uniform, zipf, normal")),
    })
}

fn made(name: String, keys: usize, value_bytes: usize, phases: Vec<Phase>) -> Workload {
    let keys = KeyForm::Hashed { len: keys };
    Workload { name, keys, value_bytes, value_ratio: 0.5, trace: None, phases }
}

fn load(name: &str, entries: u64) -> Phase {
    Phase::of(name, entries, Action::Put(Target::New)).on_empty().then(After::Idle)
}

/// Vertiorizon: ten million entries of 128 + 896 bytes, then four million operations of each mix. Updates put
/// existing keys.
pub fn growth(mix: &str, dist: &str, scale: f64) -> Result<Workload> {
    let keys = keys_from(dist)?;
    let mixes = [
        ("read-heavy", 0.1, false),
        ("balanced", 0.5, false),
        ("write-heavy", 0.9, false),
        ("range", 0.75, true),
    ];
    let wanted: Vec<_> = mixes.iter().filter(|(name, ..)| mix == "all" || mix == *name).collect();
    if wanted.is_empty() {
        return Err(format!("unknown mix {mix}; available: read-heavy, balanced, write-heavy, range, all"));
    }
    let mut phases = vec![load("load", scaled(10_000_000, scale))];
    for (name, updates, ranges) in wanted {
        let read = match ranges {
            true => Action::Range(keys, Entries::Fixed(16), Direction::Forward),
            false => Action::Get(keys),
        };
        let mix = [(*updates, Action::Put(keys)), (1.0 - updates, read)];
        let phase = Phase::new(name, scaled(4_000_000, scale), &mix).then(After::Idle);
        phases.push(Phase { window: Some(scaled(WINDOW, scale)), ..phase });
    }
    Ok(made(format!("growth {dist}"), 128, 896, phases))
}

/// Mnemosyne: workload type I or II.
pub fn filters(kind: &str, empty: f64, dist: &str, scale: f64) -> Result<Workload> {
    let million = |n: u64| scaled(n * 1_000_000, scale);
    match kind {
        "I" => {
            let more = Phase::of("insert", million(20), Action::Put(Target::New)).then(After::Idle);
            let gets = Phase::of("get-empty", million(40), Action::GetAbsent(Target::Uniform));
            let updates = Phase::of("update", million(20), Action::Put(Target::Uniform)).then(After::Idle);
            Ok(made("filters I".to_owned(), 32, 96, vec![load("load", million(20)), more, gets, updates]))
        }
        "II" if (0.0..=1.0).contains(&empty) => {
            let keys = keys_from(dist)?;
            let mix = [
                (31.0 * (1.0 - empty), Action::Get(keys)),
                (31.0 * empty, Action::GetAbsent(keys)),
                (10.0, Action::Put(keys)),
            ];
            let phases =
                vec![load("load", million(21)), Phase::new("mixed", million(41), &mix).then(After::Idle)];
            Ok(made(format!("filters II {dist} Z={empty}"), 128, 384, phases))
        }
        "II" => Err("--empty is a share from 0 to 1".to_owned()),
        _ => Err(format!("unknown filter workload {kind}; available: I, II")),
    }
}

/// Downforce: unique random puts, or reads and writes over fifty million entries.
pub fn pipeline(kind: &str, writes: &[u32], scale: f64) -> Result<Workload> {
    // The data is 50 GB of 16 B + 1 KiB entries.
    let entries = scaled(50_000_000, scale);
    let mut phases = match kind {
        "fur" => vec![load("fill", entries)],
        "rrwr" => vec![load("load", entries)],
        _ => return Err(format!("unknown pipeline workload {kind}; available: fur, rrwr, workers")),
    };
    for percent in writes.iter().filter(|_| kind == "rrwr") {
        let share = f64::from((*percent).min(100)) / 100.0;
        let mix = [(share, Action::Put(Target::Uniform)), (1.0 - share, Action::Get(Target::Uniform))];
        phases.push(Phase::new(&format!("writes {percent} %"), entries / 4, &mix).then(After::Idle));
    }
    Ok(made(format!("pipeline {kind}"), 16, 1024, phases))
}

/// Downforce on few cores: unique random puts of 24 + 1000 bytes at 150 MB/s; scale 1 is 8 GiB.
pub fn workers(scale: f64) -> Workload {
    let entries = scaled((8 << 30) / 1024, scale);
    let mut fill = load("fill", entries);
    fill.rate = Some(150e6 / 1024.0);
    made("pipeline workers".to_owned(), 24, 1000, vec![fill])
}

/// DumpKV: zipf-distributed puts into an empty store with a fifth as many keys, then gets and a scan. Scale 1 is 200
/// GB of 256 + 4096 bytes.
pub fn values(theta: f64, value_bytes: usize, scale: f64) -> Result<Workload> {
    let puts = scaled(200_000_000_000 / (256 + value_bytes as u64), scale);
    let keys = (puts / 5).max(1);
    let zipf = Target::Zipf { theta };
    let phases = vec![
        // Zipf ranks are drawn over known keys, so each key is first put once. The paper's puts are all updates of a
        // key space; the same fraction of them are the first put of their key.
        load("first", keys),
        Phase::of("update", puts - keys, Action::Put(zipf)).then(After::Idle),
        Phase::of("get", scaled(1_000_000 * 64, scale).min(1_000_000), Action::Get(Target::Uniform)),
        Phase::of("scan", 1, Action::Scan(Direction::Forward)),
    ];
    Ok(made(format!("values theta={theta}"), 256, value_bytes, phases))
}
