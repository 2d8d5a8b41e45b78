//! Results of the threads of a phase, and checks whether its figures count.

use super::process;
use super::sampler::Samples;
use super::thread::Done;

/// Maximum ratio of the clients' CPU time to the elapsed time of all cores. Above it, the elapsed time is wrong.
const MOST_CPU: f64 = 1.03;

/// Result of a client: its counts, the digest of its operations, and the number of ids it inserted.
pub type Ended = (Done, u64, u64);

/// Results of the threads of a phase.
pub struct Clients {
    /// Results of the clients.
    pub ended: Vec<Ended>,
    /// Samples that the sampler took.
    pub samples: Samples,
    /// Writes of the concurrent writer.
    pub written: Written,
}

/// Writes of the concurrent writer.
#[derive(Default)]
pub struct Written {
    /// Key and value bytes written.
    pub ingested: u64,
    /// CPU nanoseconds spent drawing keys.
    pub drawing: u64,
    /// Warning if the writer fell noticeably short of its rate. Its readers then had less competition than those of
    /// other engines.
    pub behind: Option<String>,
}

impl Clients {
    /// Returns the seconds of the phase: those of the slowest client.
    pub fn seconds(&self) -> f64 {
        self.ended.iter().map(|(done, ..)| done.busy).max().unwrap_or(0) as f64 / 1e9
    }

    /// Returns the sum of a count over all clients.
    pub fn sum(&self, of: fn(&Done) -> u64) -> u64 {
        self.ended.iter().map(|(done, ..)| of(done)).sum()
    }

    /// Returns the reasons why the figures of the phase do not count; empty if they count.
    pub fn faults(&self) -> Vec<String> {
        let cpu = self.sum(|done| done.cpu) as f64 / 1e9;
        let cores = process::cores();
        self.written.behind.iter().cloned().chain(overbooked(cpu, self.seconds(), cores)).collect()
    }
}

/// Returns a warning if clients with `cpu` seconds of CPU time cannot have needed as little as `seconds`.
fn overbooked(cpu: f64, seconds: f64, cores: u64) -> Option<String> {
    let most = seconds * cores as f64 * MOST_CPU;
    let what = || {
        format!("clients used {cpu:.2} s of CPU time in {seconds:.2} s on {cores} cores: the time is wrong")
    };
    (cpu > most).then(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_use_more_than_all_cores() {
        assert_eq!(overbooked(2.05, 1.0, 2), None, "clocks differ a little");
        assert_eq!(overbooked(0.0, 0.0, 2), None);
        let warning = overbooked(3.4, 1.0, 2).expect("a warning");
        assert!(warning.starts_with("clients used 3.40 s of CPU time in 1.00 s on 2 cores"), "{warning}");
    }
}
