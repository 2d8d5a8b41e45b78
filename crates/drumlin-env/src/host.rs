//! What the operating system says about the machine and the process: clocks, limits, memory, random bits.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

/// Returns the nanoseconds since an arbitrary start; never decreases.
#[inline]
pub(crate) fn monotonic_nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // 2^64 nanoseconds are 584 years.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns the CPU time of the calling thread in nanoseconds.
#[inline]
pub(crate) fn thread_cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns the microseconds since 1970; may decrease when the machine's clock is set.
pub(crate) fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64
}

pub(crate) fn sleep_micros(micros: u64) {
    std::thread::sleep(Duration::from_micros(micros));
}

/// Returns the number of threads that can run at once.
pub(crate) fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the maximum number of open files of this process.
pub(crate) fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the maximum length of a file that this process writes.
pub(crate) fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Returns random bits from the system. The hasher's keys are unique in the process and start from the system's
/// random source.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the physical memory, or the control group's limit when that is lower.
pub(crate) fn total_memory() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        let physical = (info.totalram as u64).checked_mul(u64::from(info.mem_unit))?;
        let limit = fs::read_to_string("/sys/fs/cgroup/memory.max")
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .unwrap_or(u64::MAX);
        Some(physical.min(limit))
    }
    #[cfg(not(target_os = "linux"))]
    None
}
