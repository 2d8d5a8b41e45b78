//! Phases that open the store: the time from the call of the open to the answer to the first get.
//!
//! Before each open the store is closed, and the system drops its files from the page cache. So the time includes the
//! reads of manifest, log, index and filters from the device, as after a restart of the machine.

use super::super::process;
use super::{Run, Session, close};
use crate::engine::Result;
use crate::generate::random::Random;
use crate::generate::values::read_header;
use crate::report::model::{Latency, PhaseReport};
use crate::workload::Phase;
use rustix::fs::Advice;
use std::fs::File;
use std::path::Path;

/// Draws until an id with an entry is found.
const REDRAWS: u32 = 1000;

impl Run<'_> {
    /// Opens the store `phase.ops` times. `puts` entries are overwritten before each close.
    pub(super) fn opens(&self, phase: &Phase, puts: u64, session: &mut Session) -> Result<PhaseReport> {
        let mut random = Random::new(self.seed, "opens", 0);
        let (mut nanos, mut cpu, mut process_cpu) = (Vec::new(), 0, 0);
        process::reset_rss_peak();
        let (machine, own) = (process::Machine::read(), process::process_cpu());
        for _ in 0..phase.ops {
            self.overwrite(puts, &mut random, session)?;
            close(session)?;
            if !self.config.in_memory {
                forget(&self.dir)?;
            }
            let id = (0..REDRAWS)
                .map(|_| random.below(session.base.max(1)))
                .find(|id| session.oracle.is_present(*id))
                .ok_or("the store has no entries")?;
            let key = self.workload.keys.key(id);
            let (wall, thread, whole) = (process::wall(), process::thread_cpu(), process::process_cpu());
            let engine = self.open(&session.config)?;
            let mut is_right = false;
            let version = session.oracle.version(id);
            let found = engine.get(&key, &mut |value| {
                is_right = session.values.is_whole(id, value) && read_header(value) == (id, version)
            })?;
            nanos.push(process::wall() - wall);
            cpu += process::thread_cpu() - thread;
            process_cpu += process::process_cpu() - whole;
            session.opened = wall;
            session.engine = Some(engine);
            if !(found && is_right) {
                return Err(format!("after an open, the value of id {id} is missing or wrong"));
            }
        }
        let now = process::Machine::read();
        let machine = now.as_ref().zip(machine.as_ref());
        let own = (process::process_cpu() - own) as f64 / 1e9;
        let per_op = |nanos: u64| nanos as f64 / 1e3 / phase.ops.max(1) as f64;
        let seconds = nanos.iter().sum::<u64>() as f64 / 1e9;
        Ok(PhaseReport {
            name: format!("{} {}", self.workload.name, phase.name),
            engine: self.name.clone(),
            round: self.round,
            stream: format!("{puts:x}"),
            threads: 1,
            usable: true,
            ops: phase.ops,
            seconds,
            ops_per_s: phase.ops as f64 / seconds.max(1e-9),
            thread_cpu_us_per_op: per_op(cpu),
            process_cpu_us_per_op: per_op(process_cpu),
            latency_us: latency(&mut nanos),
            rss_peak_bytes: process::rss_peak_bytes(),
            steal_percent: machine.and_then(|(after, before)| after.steal_percent(before)),
            foreign_percent: machine.and_then(|(after, before)| after.foreign_percent(before, own)),
            ..PhaseReport::default()
        })
    }

    /// Overwrites `puts` entries.
    fn overwrite(&self, puts: u64, random: &mut Random, session: &Session) -> Result<()> {
        let engine = session.engine.as_deref().ok_or("the store is not open")?;
        let mut value = Vec::new();
        for _ in 0..puts {
            let id = random.below(session.base.max(1));
            let key = self.workload.keys.key(id);
            let version = session.oracle.next_version(id);
            session.values.write(id, version, self.workload.value_bytes, &mut value);
            engine.put(&key, &value, self.config.durability)?;
            session.oracle.note_put(id, version, key.len(), value.len());
        }
        Ok(())
    }
}

/// Drops the files in `dir` from the page cache.
fn forget(dir: &Path) -> Result<()> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            let file = File::open(entry.path()).map_err(failed)?;
            // Only clean pages can be dropped.
            file.sync_all().map_err(failed)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
        }
    }
    Ok(())
}

/// Returns the latencies of a few calls: too few for percentiles above the median.
fn latency(nanos: &mut [u64]) -> Latency {
    nanos.sort_unstable();
    let micros = |nanos: u64| nanos as f64 / 1e3;
    Latency {
        mean: (!nanos.is_empty()).then(|| micros(nanos.iter().sum()) / nanos.len() as f64),
        p50: nanos.get(nanos.len() / 2).copied().map(micros),
        max: nanos.last().copied().map(micros),
        samples: nanos.len() as u64,
        ..Latency::default()
    }
}
