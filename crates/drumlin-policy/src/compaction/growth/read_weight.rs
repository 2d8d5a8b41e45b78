//! The read weight: what a run costs readers, in units of merging.
//!
//! A schedule weighs bytes written against runs read with one number: the seconds that one run of H costs readers
//! while one unit is written, divided by the seconds that merging one unit takes. Both scale with the bytes of a
//! unit, so these cancel. Point lookups that search the run in vain pay a probe and the blocks that its filter lets
//! through, seeks pay the positioning of its cursor. All numbers are measured. The read weight is unknown until all
//! of them are.

use super::curve::SizeCurve;
use super::schedule::{Cost, Schedule};
use super::shape::{MAX_EXPONENT, Shape};
use crate::real::{ln, round};
use drumlin_types::contract::{CostView, LoadView};

/// Factor by which the best schedule must be cheaper than the one in force before it is adopted.
const GAIN: f64 = 1.05;
/// Most runs of a schedule: each is an input of a merge.
const MOST_RUNS: u16 = 32;

/// Returns the nanoseconds per second that one run of H costs readers.
pub(super) fn read_cost(load: &LoadView, costs: &CostView, false_positives: f64) -> f64 {
    let get = costs.probe_ns + false_positives * costs.block_ns;
    load.gets * load.vain() * get + load.seeks * costs.cursor_ns
}

/// Returns the read weight, or `None` while something is not known. Also `None` without writes: then `ReadDebt`
/// decides.
pub(super) fn read_weight(load: &LoadView, costs: &CostView, false_positives: f64) -> Option<f64> {
    let reads = read_cost(load, costs, false_positives);
    let weight = reads / 1e9 * costs.compaction_bytes_per_s / load.write_bytes;
    (reads > 0.0 && load.write_bytes > 0.0 && weight.is_finite() && weight > 0.0).then_some(weight)
}

/// Returns k, for which 2^(k/4) is nearest to `weight`.
pub(super) fn nearest(weight: f64) -> i8 {
    let k = round(4.0 * ln(weight) / core::f64::consts::LN_2);
    k.clamp(-f64::from(MAX_EXPONENT), f64::from(MAX_EXPONENT)) as i8
}

/// Returns k for a cycle of `units` units, and the size curve that its schedule is made with: those in force, unless
/// those measured give a schedule that is cheaper by a twentieth.
pub(super) fn choose(
    units: u16,
    in_force: (i8, SizeCurve),
    measured: (Option<i8>, SizeCurve),
) -> (i8, SizeCurve) {
    let (wanted, curve) = (measured.0.unwrap_or(in_force.0), measured.1);
    let of = |(k, made_with): (i8, SizeCurve)| -> Cost {
        Schedule::new(units, Shape::Weighted(k), &made_with).cost(&curve)
    };
    let best = of((wanted, curve)).weighted(wanted) as f64;
    let keeps = of(in_force).weighted(wanted) as f64 <= GAIN * best;
    let (k, made_with) = if keeps { in_force } else { (wanted, curve) };
    (capped(units, k, &made_with), made_with)
}

/// Returns the least k, from `k` on, whose schedule keeps at most [`MOST_RUNS`] runs. More weight on reads never gives
/// more runs.
pub(super) fn capped(units: u16, mut k: i8, curve: &SizeCurve) -> i8 {
    let has_too_many = |k: i8| Schedule::new(units, Shape::Weighted(k), curve).planned_cost.runs > MOST_RUNS;
    let mut above = MAX_EXPONENT;
    if !has_too_many(k) {
        return k;
    }
    while k + 1 < above {
        let middle = k + (above - k) / 2;
        if has_too_many(middle) {
            k = middle;
        } else {
            above = middle;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_read_weight_is_read_time_over_merge_time() {
        // 1e6 lookups a second at 400 ns a run, beside 50 MB a second written; merges take 250 MB a second. One unit of
        // 2 MB is written in 0.04 s, in which a run costs 0.016 s; it is merged in 0.008 s.
        let load = LoadView { gets: 1e6, write_bytes: 50e6, ..LoadView::default() };
        let costs = CostView {
            probe_ns: 300.0,
            block_ns: 10_000.0,
            compaction_bytes_per_s: 250e6,
            ..CostView::default()
        };
        assert!((read_weight(&load, &costs, 0.01).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(read_weight(&LoadView::default(), &costs, 0.01), None);
        assert_eq!(read_weight(&LoadView { write_bytes: 0.0, ..load }, &costs, 0.01), None);
        assert_eq!(read_weight(&LoadView { gets: f64::NAN, ..load }, &costs, 0.01), None);
        assert_eq!(
            (nearest(1.0), nearest(2.0), nearest(0.841), nearest(1e9), nearest(1e-9)),
            (0, 4, -1, 32, -32)
        );
    }

    #[test]
    fn schedules_change_for_a_real_gain_only() {
        let plain = SizeCurve::default();
        assert_eq!(choose(64, (0, plain), (Some(1), plain)), (0, plain));
        assert_eq!(choose(64, (0, plain), (Some(16), plain)), (16, plain));
        assert_eq!(choose(64, (0, plain), (None, plain)), (0, plain));
        // The cheapest writes would keep more runs than a merge may have inputs.
        let (k, _) = choose(4096, (-32, plain), (Some(-32), plain));
        let runs = Schedule::new(4096, Shape::Weighted(k), &plain).cost(&plain).runs;
        assert!(k > -32 && runs <= MOST_RUNS, "{k} {runs}");
    }
}
