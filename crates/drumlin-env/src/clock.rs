//! Time: the machine's, or a virtual one that moves only when told.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::env::Backend;

/// A clock. Monotonic readings count from an arbitrary start.
#[derive(Clone, Debug)]
pub struct Clock(pub(crate) Backend);

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

impl Clock {
    /// Microseconds since an arbitrary start; never goes back.
    pub fn monotonic_micros(&self) -> u64 {
        self.monotonic_nanos() / 1000
    }

    /// Nanoseconds since an arbitrary start; never goes back.
    pub fn monotonic_nanos(&self) -> u64 {
        match &self.0 {
            // 2^64 nanoseconds are 584 years.
            Backend::Os(_) => start().elapsed().as_nanos() as u64,
            Backend::Mem(mem) => mem.monotonic_nanos(),
        }
    }

    /// CPU time of the calling thread, nanoseconds. In a simulated world as much as the clock moves.
    pub fn thread_cpu_nanos(&self) -> u64 {
        match &self.0 {
            Backend::Os(_) => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
            }
            Backend::Mem(mem) => mem.monotonic_nanos(),
        }
    }

    /// Microseconds since 1970; may go back when the machine's clock is set.
    pub fn unix_micros(&self) -> u64 {
        match &self.0 {
            Backend::Os(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64
            }
            Backend::Mem(mem) => mem.unix_micros(),
        }
    }

    /// Nanoseconds that the calling thread spent on a core so far, where that is known. In a [`crate::MemEnv`] nothing
    /// takes time on a core.
    pub fn core_nanos(&self) -> u64 {
        match &self.0 {
            Backend::Os(_) => crate::os::core_nanos(),
            Backend::Mem(_) => 0,
        }
    }

    /// Waits for `micros` microseconds. In a [`crate::MemEnv`] the virtual clock jumps instead.
    pub fn sleep_micros(&self, micros: u64) {
        match &self.0 {
            Backend::Os(_) => std::thread::sleep(Duration::from_micros(micros)),
            Backend::Mem(mem) => mem.sleep_micros(micros),
        }
    }
}
