//! Time: the machine's clock, or a virtual clock that moves only when a test advances it.

use crate::backend::Time;

/// A clock. Monotonic readings count from an arbitrary start.
#[derive(Clone, Debug)]
pub struct Clock(pub(crate) Time);

impl Clock {
    /// Returns the microseconds since an arbitrary start; never decreases.
    pub fn monotonic_micros(&self) -> u64 {
        self.monotonic_nanos() / 1000
    }

    /// Returns the nanoseconds since an arbitrary start; never decreases.
    pub fn monotonic_nanos(&self) -> u64 {
        self.0.monotonic_nanos()
    }

    /// Returns the CPU time of the calling thread in nanoseconds. A simulated world returns its clock instead.
    pub fn thread_cpu_nanos(&self) -> u64 {
        self.0.thread_cpu_nanos()
    }

    /// Returns the microseconds since 1970; may decrease when the machine's clock is set.
    pub fn unix_micros(&self) -> u64 {
        self.0.unix_micros()
    }

    /// Returns the CPU time of the calling thread in nanoseconds, where the system reports it. A [`crate::MemEnv`]
    /// returns 0.
    pub fn core_nanos(&self) -> u64 {
        self.0.core_nanos()
    }

    /// Sleeps for `micros` microseconds. A [`crate::MemEnv`] advances its virtual clock instead.
    pub fn sleep_micros(&self, micros: u64) {
        self.0.sleep_micros(micros)
    }
}
