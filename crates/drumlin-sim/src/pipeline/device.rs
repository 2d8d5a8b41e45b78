//! Fluid model of a device. Each job has a rate at which it would run alone. If the rates exceed the bandwidth,
//! flushes are served first, and jobs of one class share the rest in proportion.
//!
//! Rates change only when a job begins or ends. All values are whole bytes, bytes per second and nanoseconds. The
//! remainder of a job is kept in byte-nanoseconds per second, so rounding loses less than one byte per second of
//! rate.

use alloc::collections::BTreeMap;

const SECOND: u128 = 1_000_000_000;

/// Class of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Served first.
    Flush,
    /// Shares the remaining bandwidth.
    Merge,
}

#[derive(Clone, Debug)]
struct Job {
    class: Class,
    /// Bytes per second that the job would use alone.
    cap: u64,
    /// Bytes per second that the job gets.
    rate: u64,
    /// Remaining bytes, times the nanoseconds of a second.
    left: u128,
}

/// Device with its jobs.
#[derive(Clone, Debug)]
pub struct Device {
    bandwidth: u64,
    /// Whether flushes are served first; otherwise all jobs share alike.
    pub flush_first: bool,
    jobs: BTreeMap<u64, Job>,
    now: u64,
    numbers: u64,
}

impl Device {
    /// Creates a device of `bandwidth` bytes per second.
    pub fn new(bandwidth: u64) -> Device {
        Device { bandwidth: bandwidth.max(1), flush_first: true, jobs: BTreeMap::new(), now: 0, numbers: 0 }
    }

    /// Starts a job of `bytes` bytes that would use `cap` bytes per second, and returns its number.
    pub fn add(&mut self, class: Class, bytes: u64, cap: u64) -> u64 {
        self.numbers += 1;
        let left = u128::from(bytes) * SECOND;
        self.jobs.insert(self.numbers, Job { class, cap: cap.max(1), rate: 0, left });
        self.share();
        self.numbers
    }

    /// Removes a job, finished or not.
    pub fn remove(&mut self, job: u64) {
        self.jobs.remove(&job);
        self.share();
    }

    /// Returns the time at which the next job ends, and its number. Among several, the one that began first is
    /// returned.
    pub fn next_end(&self) -> Option<(u64, u64)> {
        let end = |job: &Job| self.now + (job.left.div_ceil(u128::from(job.rate.max(1)))) as u64;
        self.jobs.iter().map(|(id, job)| (end(job), *id)).min()
    }

    /// Advances the time to `now`.
    pub fn advance(&mut self, now: u64) {
        let passed = u128::from(now.saturating_sub(self.now));
        for job in self.jobs.values_mut() {
            job.left = job.left.saturating_sub(passed * u128::from(job.rate));
        }
        self.now = now;
    }

    fn share(&mut self) {
        let mut left = self.bandwidth;
        let classes: &[&[Class]] = if self.flush_first {
            &[&[Class::Flush], &[Class::Merge]]
        } else {
            &[&[Class::Flush, Class::Merge]]
        };
        for classes in classes {
            let wanted: u64 = self.jobs.values().filter(|j| classes.contains(&j.class)).map(|j| j.cap).sum();
            let given = wanted.min(left);
            for job in self.jobs.values_mut().filter(|j| classes.contains(&j.class)) {
                let rate = u128::from(job.cap) * u128::from(given) / u128::from(wanted.max(1));
                job.rate = (rate as u64).max(1);
            }
            left -= given;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Returns the end times of the jobs in the order in which they began, in thousandths of a second.
    fn ends(device: &mut Device) -> Vec<u64> {
        let mut ends = BTreeMap::new();
        while let Some((at, job)) = device.next_end() {
            device.advance(at);
            device.remove(job);
            ends.insert(job, (at + 500_000) / 1_000_000);
        }
        ends.into_values().collect()
    }

    #[test]
    fn timelines_are_those_of_pencil_and_paper() {
        let mut device = Device::new(1000);
        device.add(Class::Flush, 640, 800);
        device.add(Class::Merge, 400, 400);
        device.add(Class::Merge, 800, 400);
        assert_eq!(ends(&mut device), [800, 1600, 2600]);
        let mut device = Device::new(900);
        for _ in 0..3 {
            device.add(Class::Merge, 400, 400);
        }
        assert_eq!(ends(&mut device), [1333; 3]);
    }
}
