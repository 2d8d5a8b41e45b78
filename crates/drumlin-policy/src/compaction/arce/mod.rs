//! ARCE: the adaptive compaction policy (docs/design/arce.md; paper: ArceKV, PVLDB 19).
//!
//! A leveled or a tiered tree has a fixed shape, and each shape suits one ratio of reads to writes. ARCE fixes no
//! shape. At every policy call it lists the legal compactions of the present tree, scores them, and starts the best
//! one or none. It also sets the write rate limit. Four parameters (M, c, q, rho), the *parameter tuple*, steer both.
//! A background search simulates the coming load under many tuples and keeps the cheapest.
//!
//! # What it observes
//!
//! - **Runs**: the [age line](mod@line) holds all runs, newest first. Runs of unfinished compactions are busy.
//! - **Covered runs s**: the mean number of runs that cover a recently requested key ([`cover`]). This is the read
//!   amplification that readers meet. A run over keys that nobody requests adds nothing to s.
//! - **Load**: shares of point lookups, seeks and writes, and the number of clients ([`estimate`]).
//! - **Costs**: the mean time of each operation, the time that one more run adds, the compaction speed, and how much
//!   a running compaction slows operations down ([`model`], [`prices`], [`interference`]).
//!
//! The unit of time is the *flush interval*, the paper's window: the time in which clients write one flush of F
//! bytes. It is shorter than that when writes are few. Reads in one flush interval pay g1 for each covered run.
//!
//! # How candidates are made
//!
//! A candidate is an interval of neighbours on the age line, so a compaction sees all versions of a key in unbroken
//! order of age. Busy runs split the line into segments. All widths from 2 to 16 runs are tried, then widths that
//! grow by a quarter, then the whole segment. For each width the interval with the fewest bytes remains. Where runs
//! cover only some keys or differ in read cost, the interval that saves most read cost per byte remains too. The size
//! ratio rho drops an interval whose oldest run is larger than rho times its other runs ([`interval`]).
//!
//! # How a candidate is scored
//!
//! ```text
//! E_l   = g1 * y                              saved per flush interval                             (paper, Eq. 10)
//! E_s   = g1 * t + (F/E) * k * n_stall        cost of occupying a compaction slot                  (paper, Eq. 9)
//! score = M * E_l - E_s                                                                            (paper, Eq. 11)
//! ```
//!
//! The compaction removes y covered runs and takes t flush intervals. M is the number of flush intervals for which
//! the gain counts. E is the size of an entry, so a flush interval has F/E writes. k is the delay of a write while s
//! is above c, and n_stall the number of flush intervals that begin above c. Where runs differ in read cost, the y of
//! the gain counts in uncached runs ([`prices`]). ARCE does not set k itself: it sets q, the compaction passes per
//! written byte that the write rate limit leaves room for, and k follows from q ([`score`]).
//!
//! # How a decision is made
//!
//! The need for compaction depends on s ([`score::Need`]); S_max is the option `max_runs`:
//!
//! - s <= c and s < 0.75 S_max: *elective*. The highest score above 0 that the rewrite budget affords, and for which
//!   readers have paid ([`guard`]).
//! - s > c: *must*. The candidate that removes most runs per unit of its time.
//! - s >= 0.75 S_max: *must*. A candidate of runs of similar size, which rewrites least in the long run.
//! - s >= 0.875 S_max: *must*. Again most runs per unit of time.
//!
//! If a small part of an elective candidate removes runs at least four times as fast in at most an eighth of the
//! time, that part goes first. The same rule lets a short compaction run between the pieces (subcompactions) of a
//! long one. An elective compaction is withdrawn (its pieces that have not started never run) once its rest costs at
//! least four times what it gains ([`plans`]).
//!
//! # How the future is simulated
//!
//! A *rollout* simulates one tuple from the present tree ([`rollout`]). Its events are the ends of pieces and
//! flushes; after each event it decides as above. Its result is the mean cost of an operation over the horizon, which
//! is 400 to 4096 flush intervals, or fewer (at least 64) when the mix of operations changes often. A [`search`] runs
//! rollouts for the tuple in force, for a grid of 48 tuples and for neighbours of the best one. The tuple in force is
//! replaced only by one that is at least 0.5 % cheaper. [`drift`] decides when a search is due: after a change of the
//! operation mix, of the tree's size or of measured costs, or when a prediction was wrong.
//!
//! # Worked example
//!
//! The tests of `score` check these numbers. Costs are the paper's: a block read takes 12 us, a block write 15 us,
//! one client, a third each of lookups, seeks and writes, F = 2 MiB, E = 1 KiB. Eight runs of 2, 2, 2, 2, 20, 24, 400
//! and 4096 MiB, newest first, cover all keys, so s = 8. One run costs the readers of a flush interval g1 = 24.8 ms,
//! and the present flush interval takes 230.8 ms. No c is set. The lightest interval of each width, its t, and its
//! score / g1 = M * y - t for M = 5:
//!
//! ```text
//! runs (MiB)        y     bytes         t       5 y - t
//! 2 2               1     4 MiB      0.1198      4.880
//! 2 2 2             2     6 MiB      0.1797      9.820
//! 2 2 2 2           3     8 MiB      0.2396     14.760
//! 2 2 2 2 20        4    28 MiB      0.8384     19.162
//! 2 2 2 2 20 24     5    52 MiB      1.5030     23.497   <- started
//! ... and 400       6   452 MiB      9.3372     20.663
//! ... and 4096      7  4548 MiB     42.2901     -7.290
//! ```
//!
//! A larger M selects larger compactions: y = 6 from M = 7.834 on, and the whole tree (y = 7) from M = 32.953 on. At
//! M = 50 the whole tree wins, but the 52 MiB part of it is so much faster that it goes first. With rho = 1 the
//! intervals of 28, 452 and 4548 MiB drop out, since the oldest run of each outweighs its other runs together. An
//! interval of 50 MiB (2, 2, 2, 20, 24) takes the place of the one of 28 MiB.
//!
//! The tests of `rollout` check what the tuple does to the simulated cost. Over 20 flush intervals, with whole
//! compactions and any rho, an operation takes 26.094 us at M = 1, 31.840 us at M = 6 and 75.950 us at M = 50. So the
//! smallest M of these three is the best over that short horizon.
//!
//! # Where the code is
//!
//! - [`real`], [`model`], [`estimate`], [`interference`], [`prices`]: arithmetic, the cost model, and its measured
//!   inputs.
//! - [`sorted`], [`cover`], [`link`], [`mod@line`], [`groups`], [`interval`], [`score`]: runs by age, candidates, the
//!   choice.
//! - [`guard`], [`neglect`]: the rewrite budget, back-off, and runs that nobody reads.
//! - [`rollout`], [`search`], [`drift`]: choosing the tuple, and when to search again.
//! - [`decide`], [`scene`], [`plans`], [`tickets`], [`foreseen`], [`values`], [`outlook`]: the policy call: its inputs,
//!   the plans, what tickets say about themselves, the plans' deadlines, the order of their pieces, and the request
//!   for a search.
//! - [`returns`], [`explain`], [`state`], [`switches`]: what compactions saved, reasons for people, the saved state,
//!   and parts that can be switched off.

pub(crate) mod candidates;
mod decide;
#[cfg(test)]
mod lockstep;
mod measure;
mod score;
mod simulate;

use super::arguments::Arguments;
use alloc::boxed::Box;
use decide::switches::Switches;
use drumlin_types::contract::{CompactionPolicy, Pin, PolicyError};

/// Builds the policy from `arce` or `arce:M/c/q/rho` (a fixed tuple). With the feature `experiments`, parts can be
/// switched off.
pub(super) fn build(arguments: &Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    parse(arguments, cfg!(feature = "experiments"))
}

/// Builds the policy. Only with `has_switches` do arguments switch parts off.
fn parse(arguments: &Arguments<'_>, has_switches: bool) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let (mut pin, mut switches) = (None, Switches::ALL);
    for (at, part) in arguments.text.split(',').enumerate().filter(|(_, part)| !part.is_empty()) {
        if has_switches && part.starts_with("no-") {
            if !switches.off(part) {
                let names = Switches::names();
                return Err(arguments.error(format_args!("{part}: must be one of {names}")));
            }
        } else if at == 0 {
            pin = Some(part.parse::<Pin>().map_err(|what| arguments.error(what))?);
        } else if has_switches {
            return Err(arguments.error(format_args!("{part}: a tuple comes first")));
        } else {
            return Err(arguments.error(format_args!("{part}: there is no such argument")));
        }
    }
    Ok(Box::new(decide::policy::Arce::new(pin, switches)))
}
