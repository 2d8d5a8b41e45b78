//! The weight of a table in the division of filter bits: how many lookups probe it in vain.
//!
//! The weight is the observed number, which is decayed over time, plus a prior. The prior assumes that every run is
//! probed alike, over its part of the keys. It is ten thousand lookups for all keyspaces that share a budget, divided
//! over them by their keys. In the mode `mnemosyne+`, a tenth of the keyspace's lookups is added. So a table that
//! nobody has probed still has a filter, and a load that moves to other keys meets filters there. Simulated, a
//! smaller prior cost more when the load moved, and a larger one more while it stayed.

/// Share of a keyspace's lookups that the prior corresponds to.
const PRIOR_SHARE: f64 = 0.1;
/// Lookups that the prior of all keyspaces with one budget corresponds to, in addition.
const PRIOR_LOOKUPS: f64 = 1e4;

/// How filter bits are divided over tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Every table gets the average.
    Uniform,
    /// By the capacities of the levels that the compaction policy designs, as if each run were probed alike (Dayan,
    /// Athanassoulis, Idreos: *Monkey*, SIGMOD 2017). Level 0 always gets the average. Other levels, under a policy
    /// without capacities: as `Mnemosyne`.
    Monkey,
    /// As `Mnemosyne`. Meant for the mean price of the coming shapes of the tree (Mo et al., *How to Grow an
    /// LSM-tree?*, SIGMOD 2025, section 5.4), which no compaction policy foresees yet.
    MonkeyDynamic,
    /// By the sizes of the tables, as if each run were probed alike (Zhu et al., *Mnemosyne*, SIGMOD 2025).
    Mnemosyne,
    /// By the sizes of the tables and the observed lookups (*Mnemosyne+*, the same paper).
    MnemosynePlus,
}

/// Recent lookups of a keyspace and its size.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct KeyspaceLoad {
    /// Lookups, decayed.
    pub lookups: f64,
    /// Distinct keys of all its tables.
    pub keys: f64,
}

/// Returns the prior of one run over all keys of a keyspace, in a store with `all_keys` keys. `mode` decides whether
/// lookups count.
pub fn prior(mode: Allocation, load: &KeyspaceLoad, all_keys: f64) -> f64 {
    let lookups = if mode == Allocation::MnemosynePlus { PRIOR_SHARE * load.lookups.max(0.0) } else { 0.0 };
    lookups + PRIOR_LOOKUPS * load.keys / all_keys.max(1.0)
}

/// Returns the weight of a run that all of `lookups` probe in vain: the unit of prices.
pub fn all_lookups(lookups: f64) -> f64 {
    (1.0 + PRIOR_SHARE) * lookups.max(0.0) + PRIOR_LOOKUPS
}

/// Returns the weight of a table that `empty` lookups probed in vain. `share` is its share of the keyspace's keys, by
/// its bounds, and `prior` that of its keyspace.
pub fn weight(mode: Allocation, empty: f64, share: f64, prior: f64) -> f64 {
    let observed = if mode == Allocation::MnemosynePlus && empty.is_finite() { empty.max(0.0) } else { 0.0 };
    observed + prior * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prior_is_a_tenth_of_the_lookups_and_ten_thousand() {
        let load = KeyspaceLoad { lookups: 1e6, keys: 500.0 };
        let prior_of = |mode| prior(mode, &load, 500.0);
        let plus = Allocation::MnemosynePlus;
        assert!((weight(plus, 0.0, 0.01, prior_of(plus)) - 1100.0).abs() < 1e-9);
        assert!((weight(plus, 5000.0, 0.01, prior_of(plus)) - 6100.0).abs() < 1e-9);
        assert!((weight(plus, f64::NAN, 0.01, prior_of(plus)) - 1100.0).abs() < 1e-9);
        assert!(
            (weight(Allocation::Mnemosyne, 5000.0, 0.01, prior_of(Allocation::Mnemosyne)) - 100.0).abs()
                < 1e-9
        );
    }
}
