//! Readings of clocks and of kernel statistics about this process and the machine.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the nanoseconds of the monotonic clock.
pub fn wall() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn thread_cpu() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of the process in nanoseconds.
pub fn process_cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Returns the number of cores that this process may use.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// Returns a value of `/proc/self/status` in bytes; `None` if the file does not exist.
fn status_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the peak resident memory in bytes since [`reset_rss_peak`].
pub fn rss_peak_bytes() -> Option<u64> {
    status_bytes("VmHWM")
}

/// Returns the resident memory in bytes.
pub fn rss_bytes() -> Option<u64> {
    status_bytes("VmRSS")
}

/// Resets the peak resident memory. If the kernel refuses, the peak remains that of the whole process.
pub fn reset_rss_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// CPU time of the whole machine, in kernel ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Time stolen by the host of a virtual machine.
    pub stolen: u64,
    /// Time of processes, in user mode and in the kernel. Interrupts do not count: the disk's interrupts serve the
    /// requests of the measured process, and are 8 % of the CPU when it syncs each write.
    pub busy: u64,
    /// Time of each thread of the kernel, by its number and start time. It is part of `busy`: mostly the write-back of
    /// what the measured process wrote.
    pub kernel: BTreeMap<(u64, u64), u64>,
    /// Total time.
    pub total: u64,
}

impl Machine {
    /// Returns the ticks since boot; `None` if the kernel does not report them.
    pub fn read() -> Option<Machine> {
        let machine = Machine::parse(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Machine { kernel: kernel_threads(), ..machine })
    }

    fn parse(text: &str) -> Option<Machine> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, wait, irq, soft, stolen, ..] = ticks[..] else { return None };
        let busy = user + nice + system;
        Some(Machine {
            stolen,
            busy,
            kernel: BTreeMap::new(),
            total: busy + irq + soft + idle + wait + stolen,
        })
    }

    /// Returns the percentage of CPU time that the host took since `before`.
    pub fn steal_percent(&self, before: &Machine) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        Some((self.stolen - before.stolen) as f64 * 100.0 / total as f64)
    }

    /// Returns the percentage of CPU time that other programs used since `before`. This process used `own` seconds of
    /// it. Threads of the kernel are no programs: they write back what this process wrote. Of those that have ended
    /// since `before`, nothing is known: their earlier time must not be subtracted from that of the others.
    pub fn foreign_percent(&self, before: &Machine, own: f64) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        let since = |(thread, ticks): (&(u64, u64), &u64)| {
            ticks.saturating_sub(before.kernel.get(thread).copied().unwrap_or(0))
        };
        let kernel: u64 = self.kernel.iter().map(since).sum();
        let programs = (self.busy - before.busy).saturating_sub(kernel);
        let foreign = programs as f64 / TICKS_PER_SECOND - own;
        Some(foreign.max(0.0) * 100.0 * TICKS_PER_SECOND / total as f64)
    }
}

/// Flag of the threads of the kernel in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Returns the ticks that each present thread of the kernel has used, by its number and start time.
fn kernel_threads() -> BTreeMap<(u64, u64), u64> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbered = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    numbered.filter_map(|entry| kernel_ticks(&fs::read_to_string(entry.path().join("stat")).ok()?)).collect()
}

/// Returns number, start time and ticks of a thread of the kernel, from its `/proc/PID/stat`; `None` for any other
/// process.
fn kernel_ticks(stat: &str) -> Option<((u64, u64), u64)> {
    // The name may contain spaces and brackets. The fields that follow its last bracket begin with number 3.
    let (head, fields) = stat.rsplit_once(')')?;
    let number = head.split_whitespace().next()?.parse::<u64>().ok()?;
    let field = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    (field(9)? & KERNEL_THREAD != 0).then(|| Some(((number, field(22)?), field(14)? + field(15)?)))?
}

/// Ticks per second in `/proc/stat`. The kernel reports hundredths of a second, independent of its internal unit.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_machine() {
        let parse = |text| Machine::parse(text).expect("a line of ticks");
        let before = parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1\n");
        let after = parse("cpu  200 0 150 1500 0 20 80 50 0 0\n");
        assert_eq!(after.steal_percent(&before), Some(5.0));
        assert_eq!(after.foreign_percent(&before, 1.0), Some(5.0));
        assert_eq!(after.foreign_percent(&before, 1.5), Some(0.0));
        let kernel = |threads: &[((u64, u64), u64)], machine: &Machine| Machine {
            kernel: threads.iter().copied().collect(),
            ..machine.clone()
        };
        let with_kernel = kernel(&[((7, 1), 25)], &after);
        assert_eq!(with_kernel.foreign_percent(&before, 1.0), Some(2.5), "write-back is no other program");
        // A thread with much time has ended, and another one has its number.
        let before = kernel(&[((7, 1), 5), ((8, 1), 5000)], &before);
        let after = kernel(&[((7, 1), 25), ((8, 90), 5)], &after);
        assert_eq!(after.foreign_percent(&before, 1.0), Some(2.5));
        assert_eq!(Machine::parse("cpu  1 2 3\n"), None);
        assert_eq!(before.steal_percent(&before), None);
    }

    #[test]
    fn threads_of_the_kernel_are_told_by_their_flag() {
        let stat = |name: &str, flags: u64| {
            format!("77 ({name}) I 2 0 0 0 -1 {flags} 0 0 0 0 30 12 0 0 20 0 1 0 5 0 0 18446744073709551615")
        };
        assert_eq!(kernel_ticks(&stat("kworker/u5:2-flush-254:0", 69_238_880)), Some(((77, 5), 42)));
        assert_eq!(kernel_ticks(&stat("a (b) c", 2_129_984)), Some(((77, 5), 42)));
        assert_eq!(kernel_ticks(&stat("drumlin", 4_194_304)), None);
        assert_eq!(kernel_ticks("77 (cut"), None);
        let machine = Machine::read().expect("this system reports its ticks");
        let kernel: u64 = machine.kernel.values().sum();
        assert!(kernel <= machine.busy && machine.busy <= machine.total, "{machine:?}");
    }
}
