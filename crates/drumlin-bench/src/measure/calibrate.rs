//! Calibration of the machine's current speed, in about two seconds.
//!
//! It measures four things that engines depend on: dependent loads in 64 MiB, hashing, synced writes, and reads of 4
//! KiB from the page cache. Rounds whose calibration is far from the median are not used, because other programs were
//! using the machine.

use super::process::wall;
use crate::engine::Result;
use crate::generate::random::{Random, mix};
use crate::report::model::Calibration;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Duration of each of the four measurements in nanoseconds.
const SHARE: u64 = 500_000_000;
/// Number of words in the array of dependent loads: 64 MiB.
const WORDS: usize = (64 << 20) / 8;
const WRITE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 4 << 10;
const FILE_BYTES: usize = 16 << 20;

/// Calls `step` repeatedly for its share of time. Returns the number of calls and the nanoseconds.
fn repeat(mut step: impl FnMut()) -> (u64, f64) {
    let started = wall();
    let mut calls = 0;
    loop {
        step();
        calls += 1;
        let taken = wall() - started;
        if taken >= SHARE {
            return (calls, taken as f64);
        }
    }
}

/// Runs the calibration. Creates files in `dir` and removes them. Without `dir`, the two file measurements are
/// `None`.
pub fn calibrate(dir: Option<&Path>) -> Result<Calibration> {
    // One random cycle through all words (Sattolo's shuffle), which no prefetcher can predict.
    let mut next: Vec<u64> = (0..WORDS as u64).collect();
    let mut random = Random::new(1, "calibrate", 0);
    for last in (1..WORDS).rev() {
        next.swap(last, random.below(last as u64) as usize);
    }
    let mut at = 0;
    let (calls, nanos) = repeat(|| {
        for _ in 0..1000 {
            at = next[at as usize];
        }
    });
    let load_ns = nanos / (calls as f64 * 1000.0) + if at == u64::MAX { 1.0 } else { 0.0 };

    let bytes: Vec<u8> = (0..WRITE_BYTES as u64).map(|i| mix(i) as u8).collect();
    let mut sum = 0u64;
    let (calls, nanos) = repeat(|| sum = sum.wrapping_add(xxh3_64(&bytes)));
    let hash_gb_per_s = calls as f64 * bytes.len() as f64 / nanos;
    std::hint::black_box(sum);

    let (write_mb_per_s, read_us) = match dir {
        Some(dir) => files(dir, &bytes).map(|(write, read)| (Some(write), Some(read)))?,
        None => (None, None),
    };
    Ok(Calibration { load_ns, hash_gb_per_s, write_mb_per_s, read_us })
}

fn files(dir: &Path, bytes: &[u8]) -> Result<(f64, f64)> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let path = dir.join("calibration");
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).map_err(failed)?;
    let mut written = 0;
    let mut error = None;
    let (calls, nanos) = repeat(|| {
        let result = match written >= FILE_BYTES {
            true => file.write_all_at(bytes, (written % FILE_BYTES) as u64),
            false => file.write_all(bytes),
        };
        written += bytes.len();
        error = error.take().or(result.and_then(|()| file.sync_data()).err());
    });
    let write = calls as f64 * bytes.len() as f64 * 1e3 / nanos;
    let blocks = written.min(FILE_BYTES) / READ_BYTES;
    let mut random = Random::new(1, "calibrate reads", 0);
    let mut block = vec![0; READ_BYTES];
    let (calls, nanos) = repeat(|| {
        let offset = random.below(blocks as u64) * READ_BYTES as u64;
        error = error.take().or(file.read_exact_at(&mut block, offset).err());
    });
    drop(file);
    let removed = std::fs::remove_file(&path);
    error.or(removed.err()).map_or(Ok((write, nanos / 1e3 / calls as f64)), |e| Err(failed(e)))
}
