//! Description of the machine and the build, for the head of a report.

mod device;
mod tools;

use super::process;
use crate::report::model::{Build, Machine};
use std::fs;
use std::path::Path;

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// Returns the value of `name` in a file of `name : value` lines.
fn value(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix(':'));
    found.map(|value| value.trim().to_owned())
}

/// Returns the size of the first core's cache of the given level.
fn cache_bytes(level: &str) -> Option<u64> {
    let folder = "/sys/devices/system/cpu/cpu0/cache";
    (0..8).find_map(|index| {
        let of = |name: &str| line(&format!("{folder}/index{index}/{name}"));
        let is_it = of("level")? == level && of("type")? != "Instruction";
        let kib: u64 = of("size")?.strip_suffix('K')?.parse().ok()?;
        is_it.then_some(kib * 1024)
    })
}

/// Returns the type of the file system that contains `dir`: that of the longest mount point above it.
fn filesystem(dir: &Path) -> Option<String> {
    let dir = dir.ancestors().find_map(|above| above.canonicalize().ok())?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let fields = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let above = fields.filter(|fields| fields.len() > 2 && dir.starts_with(fields[1]));
    above.max_by_key(|fields| fields[1].len()).map(|fields| fields[2].to_owned())
}

/// Returns the processor's name, family and model. One name may stand for several models, on which instruction counts
/// differ, because the C library chooses its functions by the processor.
pub fn processor() -> String {
    let parts = [("model name", ""), ("cpu family", "family "), ("model", "model ")];
    let parts = parts.map(|(field, title)| Some(format!("{title}{}", value("/proc/cpuinfo", field)?)));
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

/// Describes the machine; `dir` is the data directory.
pub fn machine(dir: &Path) -> Machine {
    let ram = value("/proc/meminfo", "MemTotal");
    let flags = value("/proc/cpuinfo", "flags");
    Machine {
        cpu: value("/proc/cpuinfo", "model name"),
        processor: Some(processor()).filter(|text| !text.is_empty()),
        cores: process::cores(),
        ram_bytes: ram.and_then(|text| Some(text.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)),
        l2_bytes: cache_bytes("2"),
        l3_bytes: cache_bytes("3"),
        kernel: line("/proc/sys/kernel/osrelease"),
        filesystem: filesystem(dir),
        device: device::of(dir),
        virtual_machine: flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        calibration: Vec::new(),
    }
}

/// Folder of the sources that the program was built from. The program may run in another folder.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Paths of the program's sources, for git. Other changes in the working tree, such as new reports, do not make a
/// build dirty.
const SOURCES: [&str; 4] = [":/crates", ":/compare", ":/Cargo.toml", ":/Cargo.lock"];

/// Describes the build. Facts that the build did not record are read from the source repository, if that is still
/// there.
pub fn build(features: Vec<String>, allocator: &str, profiles: &str) -> Build {
    let run = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let features_of_cpu = [
        ("avx512f", cfg!(target_feature = "avx512f")),
        ("avx2", cfg!(target_feature = "avx2")),
        ("sse4.2", cfg!(target_feature = "sse4.2")),
    ];
    let best = features_of_cpu.iter().find(|(_, on)| *on).map_or("x86-64 or other", |(name, _)| name);
    let changed = run("git", &[&["-C", CHECKOUT, "status", "--porcelain", "--"], &SOURCES[..]].concat());
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: run("git", &["-C", CHECKOUT, "rev-parse", "HEAD"]),
        dirty: changed.map(|text| !text.is_empty() || has_newer_sources()),
        rustc: run("rustc", &["--version"]),
        target_cpu: Some(best.to_owned()),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        lto: tools::lto(profiles).filter(|_| !cfg!(debug_assertions)),
        tools: tools::of_this_program(),
        allocator: allocator.to_owned(),
        features,
    }
}

/// Returns whether a source is newer than this program: then the checkout is not what the program was built from.
fn has_newer_sources() -> bool {
    let listed = std::process::Command::new("git")
        .args(["-C", CHECKOUT, "ls-files", "-z", "--full-name", "--"])
        .args(SOURCES)
        .output();
    let modified = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let built = std::env::current_exe().ok().and_then(|program| modified(&program));
    let (Ok(listed), Some(built)) = (listed, built) else { return true };
    let text = String::from_utf8_lossy(&listed.stdout);
    let mut sources = text.split('\0').filter(|path| !path.is_empty());
    sources.any(|path| modified(&Path::new(CHECKOUT).join(path)).is_none_or(|modified| modified > built))
}

/// Returns the free bytes available to this user in the file system of `dir`, which need not exist yet.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = dir.ancestors().find_map(|above| rustix::fs::statvfs(above).ok())?;
    Some(stat.f_bavail * stat.f_frsize)
}

/// Returns the current date and time in UTC, as ISO 8601 with seconds.
pub fn now_utc() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    iso8601(since.as_secs())
}

/// Returns a Unix time in UTC, as ISO 8601 with seconds. Converts days to a civil date by Hinnant's algorithm.
pub fn iso8601(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns the command line, without the folder of the program.
pub fn command_line() -> Vec<String> {
    let mut arguments: Vec<String> = std::env::args().collect();
    if let Some(program) = arguments.first_mut() {
        *program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    arguments
}

/// Returns a distinct file name part for the results of this process.
pub fn stamp() -> String {
    format!("{:x}-{:x}", std::process::id(), process::wall() & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso8601(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(iso8601(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso8601(1_893_456_000), "2030-01-01T00:00:00Z");
    }
}
