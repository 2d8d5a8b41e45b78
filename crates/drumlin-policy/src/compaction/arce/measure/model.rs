//! The cost model: what operations cost at a number of covered runs, and how long flush intervals and compactions
//! take.
//!
//! Times are nanoseconds, sizes bytes. A *flush interval* (the paper's window; `interval` in names) is the time in
//! which one flush is written, or less when writes are few. The cost of an operation is linear in the covered runs s:
//!
//! ```text
//! lookup  a_p + e_p*s      seek  a_r + e_r*s      write  a_w + kappa
//! cbar    the mean of the three by their shares, times 1 + chi while a compaction runs
//! D(s)    N_w * (z + cbar) / eta, the length of a flush interval
//! ```
//!
//! kappa is the delay of a write, chi the interference of a compaction, N_w the operations of a flush interval, z the
//! think time of a client and eta the number of clients. All numbers are measured or set. [`CostModel::new`] clamps
//! them, so that every input gives finite times.

use crate::real;

/// Load and costs at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CostModel {
    /// Shares of point lookups, seeks and writes; they sum to 1.
    pub(crate) shares: [f64; 3],
    /// a_p and e_p: cost of a point lookup without runs, and of each covered run.
    pub(crate) point: LinearCost,
    /// a_r and e_r: cost of a seek (with the steps after it) without runs, and of each covered run.
    pub(crate) seek: LinearCost,
    /// a_w: cost of a write that does not wait.
    pub(crate) write: f64,
    /// chi, the interference: share by which a running compaction slows operations down.
    pub(crate) chi: f64,
    /// z: think time, the time of a client between two operations.
    pub(crate) think: f64,
    /// eta: client threads.
    pub(crate) clients: f64,
    /// Time that all clients together lose per unit of a compaction's time, 0.1 to 1; see [`taken`].
    pub(crate) taken: f64,
    /// F: bytes of a flushed run.
    pub(crate) flush_bytes: f64,
    /// E: bytes of a written entry.
    pub(crate) entry_bytes: f64,
    /// N_w: operations per flush interval.
    pub(crate) interval_ops: f64,
    /// Share of a flush that one flush interval holds, at most 1.
    pub(crate) fill: f64,
    /// Input bytes that a compaction slot processes per nanosecond.
    pub(crate) speed: f64,
    /// Fixed time of a compaction.
    pub(crate) setup: f64,
    /// Compaction slots.
    pub(crate) slots: u32,
    /// Output bytes of compactions per input byte.
    pub(crate) shrink: f64,
    /// Read cost of a newly flushed run, in uncached runs.
    pub(crate) fresh: f64,
    /// Weight, 0 to 1, of the read slowdown g1*t in the score.
    pub(crate) lost: f64,
}

/// The runs that readers meet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Met {
    /// Covered runs.
    pub(crate) runs: f64,
    /// Their read cost in uncached runs: the number of [uncached runs](super::prices) that would cost readers as
    /// much.
    pub(crate) cost: f64,
}

/// A cost that grows linearly with the covered runs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct LinearCost {
    pub(crate) base: f64,
    pub(crate) per_run: f64,
}

/// Upper bound on the operations of a flush interval.
const WINDOW_OPS: f64 = 1_048_576.0;
/// Upper bound on the length of a flush interval without runs, delays and compactions.
const WINDOW_NS: f64 = 10e9;

/// When writes are delayed, and by how much.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stall {
    /// c: covered runs above which writes are delayed; infinite for never.
    pub(crate) above: f64,
    /// k: delay of each write.
    pub(crate) delay: f64,
}

impl Stall {
    /// No delay at any number of runs.
    pub(crate) const NEVER: Stall = Stall { above: f64::INFINITY, delay: 0.0 };
}

/// Returns `value` clamped to its bounds, or the lower bound when it is not a number.
pub(crate) fn bounded(value: f64, least: f64, most: f64) -> f64 {
    if value.is_nan() { least } else { value.clamp(least, most) }
}

impl CostModel {
    /// Returns the model with every number clamped to its bounds and with the size of its flush intervals derived.
    pub(crate) fn new(raw: CostModel) -> CostModel {
        let cost = |ns: f64| bounded(ns, 0.0, 1e9);
        let line = |line: LinearCost| LinearCost { base: cost(line.base), per_run: cost(line.per_run) };
        let shares = raw.shares.map(|share| bounded(share, 0.0, 1.0));
        let sum: f64 = shares.iter().sum();
        let mut model = CostModel {
            shares: if sum > 0.0 { shares.map(|share| share / sum) } else { [0.4, 0.1, 0.5] },
            point: line(raw.point),
            seek: line(raw.seek),
            write: cost(raw.write).max(1.0),
            chi: bounded(raw.chi, 0.0, 1.0),
            think: bounded(raw.think, 0.0, 1e12),
            clients: bounded(raw.clients, 1.0, 1e6),
            taken: bounded(raw.taken, LEAST_TAKEN, 1.0),
            flush_bytes: bounded(raw.flush_bytes, 1.0, 1e15),
            entry_bytes: bounded(raw.entry_bytes, 1.0, 1e12),
            interval_ops: 1.0,
            fill: 0.0,
            speed: bounded(raw.speed, 1e-3, 64.0),
            setup: bounded(raw.setup, 0.0, 1e12),
            slots: raw.slots.clamp(1, 256),
            shrink: bounded(raw.shrink, 0.01, 1.0),
            fresh: bounded(raw.fresh, 0.0, 1.0),
            lost: bounded(raw.lost, 0.0, 1.0),
        };
        let full = model.flush_ops();
        let by_time = WINDOW_NS * model.clients / (model.think + model.operation(0.0, 0.0, false));
        model.interval_ops = full.min(WINDOW_OPS).min(by_time).max(1.0);
        model.fill = (model.interval_ops / full).min(1.0);
        model
    }

    /// Returns the number of operations from one flush to the next; infinite without writes.
    pub(crate) fn flush_ops(&self) -> f64 {
        let writes = self.shares[2];
        if writes > 0.0 { (self.flush_bytes / self.entry_bytes).max(1.0) / writes } else { f64::INFINITY }
    }

    /// Returns cbar, the mean cost of an operation. `runs` is the read cost of the covered runs in uncached runs,
    /// `delay` the delay of each write, and `busy` says whether a compaction runs.
    pub(crate) fn operation(&self, runs: f64, delay: f64, busy: bool) -> f64 {
        let [points, seeks, writes] = self.shares;
        let mean = points * (self.point.base + self.point.per_run * runs)
            + seeks * (self.seek.base + self.seek.per_run * runs)
            + writes * (self.write + delay);
        mean * if busy { 1.0 + self.chi } else { 1.0 }
    }

    /// Returns g1: what one more covered run costs all reads of a flush interval.
    pub(crate) fn run_per_interval(&self) -> f64 {
        self.interval_ops * self.run_per_operation()
    }

    /// Returns what one more covered run costs the mean operation.
    pub(crate) fn run_per_operation(&self) -> f64 {
        self.shares[0] * self.point.per_run + self.shares[1] * self.seek.per_run
    }

    /// Returns D(s), the length of a flush interval.
    pub(crate) fn interval_ns(&self, runs: f64, delay: f64, busy: bool) -> f64 {
        self.interval_ops * (self.think + self.operation(runs, delay, busy)) / self.clients
    }

    /// Returns the time of a compaction of `bytes` input bytes.
    pub(crate) fn compaction_ns(&self, bytes: f64) -> f64 {
        self.setup + bytes / self.speed
    }

    /// Returns the share of clients that count as busy. One that spends a quarter of its time in operations keeps a
    /// core busy, since programs compute in between; below that, clients count in proportion.
    pub(crate) fn busy(&self, runs: f64) -> f64 {
        let operation = self.operation(runs, 0.0, false).max(1.0);
        (operation / (operation + self.think) / BUSY_FROM).min(1.0)
    }

    /// Returns t: the flush intervals that a compaction of `bytes` takes when it begins at the runs `met`. The last
    /// one counts as a fraction. Each flush interval adds the runs that it flushes.
    pub(crate) fn compaction_intervals(&self, bytes: f64, met: Met, stall: Stall) -> f64 {
        let Met { runs, cost } = met;
        let left = self.compaction_ns(bytes);
        let free = self.intervals_before(stall, runs);
        let grown = self.fill * self.fresh;
        let slope = self.interval_ns(1.0, 0.0, true) - self.interval_ns(0.0, 0.0, true);
        let row = |from: f64, delay: f64| IntervalSeries {
            first: self.interval_ns(from, delay, true),
            step: slope * grown,
        };
        let before = row(cost, 0.0);
        if free > 0.0 {
            let whole = before.sum(free);
            if free.is_infinite() || whole >= left {
                return before.count(left);
            }
            return free + row(cost + free * grown, stall.delay).count(left - whole);
        }
        row(cost, stall.delay).count(left)
    }

    /// Returns the number of flush intervals that begin at or below c covered runs, from `runs` on: writes are not
    /// delayed in them.
    pub(crate) fn intervals_before(&self, stall: Stall, runs: f64) -> f64 {
        if runs > stall.above {
            0.0
        } else if stall.above.is_infinite() || self.fill <= 0.0 {
            f64::INFINITY
        } else {
            real::floor((stall.above - runs) / self.fill) + 1.0
        }
    }

    /// Returns the delay per write that keeps writes at `rate` bytes per nanosecond.
    pub(crate) fn delay_for(&self, rate: f64, runs: f64, busy: bool) -> f64 {
        let writes = self.shares[2];
        if writes <= 0.0 || rate.is_infinite() {
            return 0.0;
        }
        let spacing = self.clients * writes * self.entry_bytes / rate.max(1e-9);
        let slack = spacing - self.think - self.operation(runs, 0.0, busy);
        // The delay is part of the operation's cost, which interference multiplies: divide it out.
        (slack / writes / if busy { 1.0 + self.chi } else { 1.0 }).max(0.0)
    }
}

/// Least share of a compaction's time that clients lose.
const LEAST_TAKEN: f64 = 0.1;

/// Share of its time in operations from which on a client keeps a core busy.
const BUSY_FROM: f64 = 0.25;

/// Returns the time that all clients together lose per unit of a compaction's time: all of it if the `busy` ones keep
/// every core busy, a tenth if a core is idle. chi does not count: while runs and the busy share rise together, it
/// takes a part of the cost of the runs.
pub(crate) fn taken(busy: f64, cores: f64) -> f64 {
    bounded(busy + 1.0 - cores, LEAST_TAKEN, 1.0)
}

/// Upper bound on a number of flush intervals. Beyond it, rounding hides a difference of one.
const MOST_INTERVALS: f64 = 1e15;

/// A series of flush intervals whose lengths grow by a constant step.
struct IntervalSeries {
    first: f64,
    step: f64,
}

impl IntervalSeries {
    /// Returns the length of the first `count` flush intervals.
    fn sum(&self, count: f64) -> f64 {
        count * self.first + self.step * count * (count - 1.0) / 2.0
    }

    /// Returns how many flush intervals fit into `time`.
    fn count(&self, time: f64) -> f64 {
        if time <= self.first {
            return (time / self.first).max(0.0);
        }
        // Take the whole ones from the quadratic formula, then correct for rounding.
        let (half, b) = (self.step / 2.0, self.first - self.step / 2.0);
        let mut whole = if half <= 0.0 {
            real::floor(time / self.first)
        } else {
            let root = real::square_root(b * b + 4.0 * half * time);
            real::floor((root - b) / (2.0 * half))
        };
        // Above this bound one flush interval more or less is below the rounding error.
        if whole.is_nan() || whole >= MOST_INTERVALS {
            return MOST_INTERVALS;
        }
        while self.sum(whole + 1.0) <= time && self.first + self.step * whole < time {
            whole += 1.0;
        }
        while whole > 0.0 && self.sum(whole) > time {
            whole -= 1.0;
        }
        whole + (time - self.sum(whole)) / (self.first + self.step * whole)
    }
}

#[cfg(test)]
pub(crate) mod paper {
    //! The constants of the paper, for exact comparisons.
    use super::*;

    pub(crate) const MIB: f64 = 1_048_576.0;
    const READ: f64 = 12_000.0;
    const WRITE: f64 = 15_000.0;

    /// Returns the model in paper mode for these percentages of seeks, writes and lookups.
    pub(crate) fn model(seeks: f64, writes: f64, points: f64) -> CostModel {
        let (flush, entry) = (2.0 * MIB, 1024.0);
        CostModel::new(CostModel {
            shares: [points, seeks, writes].map(|percent| percent / 100.0),
            point: LinearCost { base: READ, per_run: 0.01 * READ },
            seek: LinearCost { base: 0.0, per_run: READ },
            write: flush / 4096.0 * WRITE / (flush / entry),
            chi: 0.0,
            think: 0.0,
            clients: 1.0,
            taken: LEAST_TAKEN,
            flush_bytes: flush,
            entry_bytes: entry,
            interval_ops: 0.0,
            fill: 0.0,
            speed: 4096.0 / (READ + WRITE),
            setup: 0.0,
            slots: 1,
            shrink: 1.0,
            fresh: 1.0,
            lost: 1.0,
        })
    }

    /// Returns the model for one third of each kind of operation.
    pub(crate) fn thirds() -> CostModel {
        model(100.0 / 3.0, 100.0 / 3.0, 100.0 / 3.0)
    }

    /// Returns this number of runs, all of them uncached.
    pub(crate) fn met(runs: f64) -> Met {
        Met { runs, cost: runs }
    }

    #[track_caller]
    pub(crate) fn close(found: f64, expected: f64, digits: i32) {
        let unit = 10f64.powi(-digits);
        assert!((found - expected).abs() <= 0.51 * unit, "{found} is not {expected}");
    }
}

#[cfg(test)]
mod tests {
    use super::paper::{MIB, close, met, model, thirds};
    use super::*;

    #[test]
    fn windows_of_the_paper() {
        let m = thirds();
        for (runs, ms, digits) in [(7.0, 206.0, 1), (8.0, 230.83, 2), (10.0, 280.47, 2), (20.0, 528.69, 2)] {
            close(m.interval_ns(runs, 0.0, false) / 1e6, ms, digits);
        }
        close(m.run_per_interval() / 1e3, 24_821.76, 2);
        close(m.speed * 1e3, 151.70, 2);
        assert_eq!(m.fill, 1.0);
    }

    #[test]
    fn merges_fill_windows_in_part() {
        let m = thirds();
        for (mib, intervals, digits) in [(4.0, 0.0986, 4), (1024.0, 15.405, 3), (20.0 * 1024.0, 96.543, 3)] {
            close(m.compaction_intervals(mib * MIB, met(10.0), Stall::NEVER), intervals, digits);
        }
        for (micros, intervals) in [(6.0, 15.176), (24.0, 14.520)] {
            let stall = Stall { above: 12.0, delay: micros * 1e3 };
            close(m.compaction_intervals(1024.0 * MIB, met(10.0), stall), intervals, 3);
        }
    }

    #[test]
    fn windows_add_up_to_the_merge() {
        // Compare with the plain sum, flush interval by flush interval.
        for (seeks, writes, points) in [(1.0, 98.0, 1.0), (98.0, 1.0, 1.0), (20.0, 40.0, 40.0)] {
            let m = model(seeks, writes, points);
            for mib in [1.0, 77.0, 900.0, 20_000.0] {
                for above in [3.0, 11.0, 60.0, f64::INFINITY] {
                    let stall = Stall { above, delay: 9000.0 };
                    let (mut left, mut runs, mut count) = (m.compaction_ns(mib * MIB), 5.0, 0.0);
                    loop {
                        let delay = if runs > above { stall.delay } else { 0.0 };
                        let interval = m.interval_ns(runs, delay, true);
                        if interval > left {
                            count += left / interval;
                            break;
                        }
                        (left, runs, count) = (left - interval, runs + m.fill, count + 1.0);
                    }
                    let found = m.compaction_intervals(mib * MIB, met(5.0), stall);
                    assert!((found - count).abs() <= 1e-6 * count.max(1.0), "{found} is not {count}");
                }
            }
        }
    }

    #[test]
    fn think_time_makes_fixed_arrival_rates() {
        let m = thirds();
        close(m.operation(10.0, 0.0, false) / 1e3, 45.65, 2);
        close(1e9 / m.operation(10.0, 0.0, false), 21_906.0, 0);
        let four = CostModel { clients: 4.0, think: 4e9 / 5000.0 - m.operation(10.0, 0.0, false), ..m };
        close(four.think / 1e3, 754.35, 2);
        let rate = |m: &CostModel, runs| m.clients * 1e9 / (m.think + m.operation(runs, 0.0, false));
        close(rate(&four, 20.0), 4760.0, 0);
        close(rate(&CostModel { think: 0.0, ..four }, 20.0), 46_485.0, 0);
    }

    #[test]
    fn bad_figures_come_into_bounds() {
        let bad = |figure: f64, slots: u32| {
            let line = LinearCost { base: figure, per_run: figure };
            CostModel::new(CostModel {
                shares: [figure; 3],
                point: line,
                seek: line,
                write: figure,
                chi: figure,
                think: figure,
                clients: figure,
                taken: figure,
                flush_bytes: figure,
                entry_bytes: figure,
                interval_ops: figure,
                fill: figure,
                speed: figure,
                setup: figure,
                slots,
                shrink: figure,
                fresh: figure,
                lost: figure,
            })
        };
        let least = CostModel {
            shares: [0.4, 0.1, 0.5],
            point: LinearCost::default(),
            seek: LinearCost::default(),
            write: 1.0,
            chi: 0.0,
            think: 0.0,
            clients: 1.0,
            taken: LEAST_TAKEN,
            flush_bytes: 1.0,
            entry_bytes: 1.0,
            interval_ops: 2.0,
            fill: 1.0,
            speed: 1e-3, // 1 MB/s
            setup: 0.0,
            slots: 1,
            shrink: 0.01,
            fresh: 0.0,
            lost: 0.0,
        };
        for figure in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
            assert_eq!(bad(figure, 0), least, "{figure}");
        }
        let second = LinearCost { base: 1e9, per_run: 1e9 };
        let most = CostModel {
            shares: [1.0 / 3.0; 3],
            point: second,
            seek: second,
            write: 1e9,
            chi: 1.0,
            think: 1e12,
            clients: 1e6,
            taken: 1.0,
            flush_bytes: 1e15,
            entry_bytes: 1e12,
            interval_ops: 3000.0,
            fill: 1.0,
            // 64 GB/s.
            speed: 64.0,
            setup: 1e12,
            slots: 256,
            shrink: 1.0,
            fresh: 1.0,
            lost: 1.0,
        };
        for figure in [f64::INFINITY, 1e300] {
            assert_eq!(bad(figure, u32::MAX), most, "{figure}");
        }
        let raw = CostModel { speed: f64::NAN, clients: -1.0, flush_bytes: f64::INFINITY, ..thirds() };
        let m = CostModel::new(CostModel { shares: [f64::NAN, 0.0, -3.0], setup: f64::INFINITY, ..raw });
        for bytes in [0.0, 1.0, 1e18] {
            assert!(m.compaction_intervals(bytes, met(1e9), Stall::NEVER).is_finite());
        }
        // Flush intervals end after 2^20 operations or after 10 s.
        let many = CostModel::new(CostModel { flush_bytes: 1e15, write: 1.0, ..least });
        assert_eq!(many.interval_ops, WINDOW_OPS);
        let slow = CostModel::new(CostModel { flush_bytes: 1e15, think: 1e9, clients: 4.0, ..least });
        close(slow.interval_ops, 40.0, 3);
        close(slow.fill, 40.0 / 2e15, 20);
        // Without writes, flush intervals end by operation count and hold no part of a flush.
        let reads = CostModel::new(CostModel { shares: [1.0, 0.0, 0.0], ..thirds() });
        assert_eq!(reads.fill, 0.0);
        assert!(
            reads.interval_ops < 1_048_577.0
                && reads.compaction_intervals(1e9, met(8.0), Stall::NEVER).is_finite()
        );
    }
}
