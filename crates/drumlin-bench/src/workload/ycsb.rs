//! The six workloads of YCSB: one row is one value, keys are `user` and a scattered number.
//!
//! A load ends with a flush and waits for the compactions that follow. Workloads A to F only wait until no flush or
//! compaction is pending, since their operations may have started some. They do not flush: YCSB does not, and a
//! forced flush of a small memtable makes a level 0 file that RocksDB counts like a full one.

use super::{Action, After, Entries, Phase, Workload};
use crate::engine::{Direction, Result};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use crate::generate::zipf::YCSB_THETA;

/// Variants of the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Distribution {
    /// YCSB: scrambled zipf for all workloads except D; ranges of 1 to 100 entries.
    #[default]
    Ycsb,
    /// ArceKV: A, E and F uniform.
    Arce,
    /// Downforce: E uniform with ranges of 100 entries.
    Downforce,
}

/// Form of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Update {
    /// Put the whole row without reading it.
    #[default]
    Whole,
    /// Read-modify-write: read the whole row, then write it.
    Field,
}

/// Sizes of a YCSB run.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Number of rows loaded.
    pub records: u64,
    /// Number of operations per workload.
    pub ops: u64,
    /// Size of a row in bytes.
    pub value_bytes: usize,
    /// Compressed size of the rows as a fraction of their size.
    pub value_ratio: f64,
    /// Number of threads.
    pub threads: u32,
    /// Variant of the parameters.
    pub distribution: Distribution,
    /// Form of updates.
    pub update: Update,
}

/// Maximum number of entries in a range.
const RANGE: u32 = 100;

impl Sizes {
    fn load(&self) -> Phase {
        let load = Phase::of("load", self.records, Action::Put(Target::New)).on_empty();
        load.on_threads(self.threads).then(After::Idle)
    }

    fn phase(&self, letter: char) -> Result<Phase> {
        let zipf = Target::Zipf { theta: YCSB_THETA };
        let uniform = match self.distribution {
            Distribution::Ycsb => "",
            Distribution::Arce => "aef",
            Distribution::Downforce => "e",
        };
        let keys = if uniform.contains(letter) { Target::Uniform } else { zipf };
        let update = match self.update {
            Update::Whole => Action::Put(keys),
            Update::Field => Action::Modify(keys),
        };
        let insert = Action::Put(Target::New);
        let range = match self.distribution {
            Distribution::Downforce => Entries::Fixed(RANGE),
            _ => Entries::UpTo(RANGE),
        };
        let mix = match letter {
            'a' => vec![(0.5, Action::Get(keys)), (0.5, update)],
            'b' => vec![(0.95, Action::Get(keys)), (0.05, update)],
            'c' => vec![(1.0, Action::Get(keys))],
            'd' => vec![(0.95, Action::Get(Target::Latest)), (0.05, insert)],
            'e' => vec![(0.95, Action::Range(keys, range, Direction::Forward)), (0.05, insert)],
            'f' => vec![(0.5, Action::Get(keys)), (0.5, Action::Modify(keys))],
            _ => return Err(format!("unknown YCSB workload {letter}; available: a to f, load, all")),
        };
        let phase = Phase::new(&letter.to_uppercase().to_string(), self.ops, &mix).on_threads(self.threads);
        Ok(phase.then(After::Wait))
    }
}

/// Returns the workload called `name`: a letter, `load`, or `all` in YCSB's order: load, A, B, C, F, D; load, E.
pub fn workload(name: &str, sizes: &Sizes) -> Result<Workload> {
    let mut phases = vec![sizes.load()];
    match name {
        "load" => {}
        "all" => {
            for letter in "abcfd".chars() {
                phases.push(sizes.phase(letter)?);
            }
            phases.push(Phase { name: "load again".to_owned(), ..sizes.load() });
            phases.push(sizes.phase('e')?);
        }
        letters => {
            for letter in letters.chars() {
                phases.push(sizes.phase(letter.to_ascii_lowercase())?);
            }
        }
    }
    Ok(Workload {
        name: "ycsb".to_owned(),
        keys: KeyForm::User,
        value_bytes: sizes.value_bytes,
        value_ratio: sizes.value_ratio,
        trace: None,
        phases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_that_a_phase_starts_counts_for_it() {
        let sizes = Sizes {
            records: 10,
            ops: 10,
            value_bytes: 100,
            value_ratio: 0.5,
            threads: 1,
            distribution: Distribution::Ycsb,
            update: Update::Whole,
        };
        let phases = workload("all", &sizes).expect("a workload").phases;
        let is_load = |phase: &Phase| phase.name.starts_with("load");
        let after = |phase: &Phase| if is_load(phase) { After::Idle } else { After::Wait };
        assert!(phases.len() == 8 && phases.iter().all(|phase| phase.after == after(phase)));
    }
}
