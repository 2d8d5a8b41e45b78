//! The filter bits of one new table, under a ceiling that keeps the budget.
//!
//! The price divides the budget over the tables that exist or are expected. The filters that are built differ from
//! that: compactions remove tables, estimates miss, and the price is of an earlier moment. So each build is checked
//! against the *ledger*, the filter bits of all live tables. A table with n keys may get at most
//!
//! ```text
//! max(average, ((average + slack) N - A) / n)
//! ```
//!
//! bits per key, where N is the number of keys of all tables with this one, and A the bits of all others. So no build
//! lifts the average bits per key above average + slack, except for the rounding to whole lines and to one bit. If
//! the average is above that after deletes or a lower option, each build lowers it.

use super::price::{Item, Price};
use super::{LEAST_BITS, MOST_BITS};
use core::fmt;

/// Largest excess of the average over the budget, in bits per key.
const SLACK: f64 = 1.0;
/// The same as a share of a budget that follows from the memory.
const SLACK_SHARE: f64 = 0.2;
/// Smallest optimal number of bits per key that is rounded up to one bit. One bit beats none while the price of a bit
/// is below 1 - rate(1) of the table's weight per key. At exactly that price, this number of bits is optimal for a
/// Bloom filter.
const ROUNDED_UP: f64 = 0.4800;

/// Share of the ledger's excess over the budget that the price makes up for. Most of an excess passes by itself: after
/// a large compaction the average is low until small runs have come. Making up for all of it gave those runs too many
/// bits.
const CORRECTION: f64 = 0.3;
/// Least share of the average for which the price is solved, however many bits tables have.
const LEAST_CORRECTED: f64 = 0.25;

/// Budget of filter bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// Average bits per key.
    pub average: f64,
    /// Largest excess over the average.
    pub slack: f64,
}

impl Budget {
    /// Returns the budget that an option sets.
    pub fn fixed(average: f64) -> Budget {
        Budget { average, slack: SLACK }
    }

    /// Returns the budget that follows from the memory: at most `most` bits per key, and at most `bytes` for `keys`
    /// keys.
    pub fn automatic(most: f64, bytes: f64, keys: f64) -> Budget {
        let average = if keys > 0.0 { most.min(8.0 * bytes / keys) } else { most };
        Budget { average, slack: SLACK.min(SLACK_SHARE * average) }
    }
}

impl Budget {
    /// Returns the average for which the price is solved: the budget's average, minus three tenths of the ledger's
    /// excess over it. A ledger below the budget counts as at most the slack below it. The result is at least a
    /// quarter of the budget's average. Tables that are seldom rewritten keep the bits of an earlier price. Without a
    /// correction they would hold the average at the ceiling, and small new tables, whose bits save most, would get
    /// the fewest.
    pub fn corrected(&self, ledger: &Ledger) -> f64 {
        let excess = if ledger.keys > 0.0 { ledger.average() - self.average } else { 0.0 };
        let excess = excess.max(-self.slack);
        (self.average - CORRECTION * excess).max(self.average * LEAST_CORRECTED)
    }
}

/// Keys and filter bits of the tables that share a budget, as of the end of all unfinished work.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Ledger {
    /// Distinct keys of each table, summed over all tables and expected outputs.
    pub keys: f64,
    /// Bits of all filters, as built, and bits reserved for expected outputs.
    pub bits: f64,
}

impl Ledger {
    /// Returns the average bits per key; 0 without keys.
    pub fn average(&self) -> f64 {
        if self.keys > 0.0 { self.bits / self.keys } else { 0.0 }
    }

    /// Returns the most bits per key for a new table with `keys` keys. The ledger has its keys, but not its bits.
    pub fn ceiling(&self, budget: Budget, keys: f64) -> f64 {
        if keys > 0.0 { budget.average.max(self.left(budget) / keys) } else { budget.average }
    }

    /// Returns the bits that are left up to the slack; negative above it.
    fn left(&self, budget: Budget) -> f64 {
        (budget.average + budget.slack) * self.keys - self.bits
    }
}

/// What decided the bits of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitsRule {
    /// The mode gives each table, or each table of a level, a number.
    Mode,
    /// No table has a weight yet, or the budget is below one bit for the densest table. The table gets the average.
    NoPrice,
    /// The price.
    Price,
    /// The price asks for more than the most bits.
    Most,
    /// The price asks for about one bit.
    OneBit,
    /// By the price, no filter is worth its bits.
    Worthless,
    /// The budget leaves less than the price asks for.
    Ceiling,
}

impl fmt::Display for BitsRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BitsRule::Mode => "mode",
            BitsRule::NoPrice => "no price yet",
            BitsRule::Price => "price",
            BitsRule::Most => "most bits",
            BitsRule::OneBit => "one bit",
            BitsRule::Worthless => "not worth a filter",
            BitsRule::Ceiling => "ceiling",
        })
    }
}

/// Bits per key of a new table, and what decided them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Allotment {
    /// Bits per key; 0 for no filter.
    pub bits: f64,
    /// What decided them.
    pub rule: BitsRule,
}

/// What a new table gets, apart from the ceiling.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Wish {
    /// These bits per key.
    Bits(f64),
    /// What the price says for the table's weight; the average if there is no price.
    Priced(Option<Price>),
}

/// Returns the bits of a new table.
pub fn allot(wish: Wish, table: &Item, budget: Budget, ledger: &Ledger) -> Allotment {
    if budget.average <= 0.0 || table.keys <= 0.0 {
        return Allotment { bits: 0.0, rule: BitsRule::Mode };
    }
    let wanted = match wish {
        Wish::Bits(bits) => Allotment { bits: bits.min(MOST_BITS), rule: BitsRule::Mode },
        Wish::Priced(None) => Allotment { bits: budget.average, rule: BitsRule::NoPrice },
        Wish::Priced(Some(price)) => priced(&price, table, ledger.average() < budget.average),
    };
    let ceiling = ledger.ceiling(budget, table.keys);
    let bounded = match wanted.bits > ceiling {
        true => Allotment { bits: ceiling, rule: BitsRule::Ceiling },
        false => wanted,
    };
    let bits = rounded(bounded.bits);
    // With a budget below one bit, rounding all tables up would take up to twice the budget, and using the slack as
    // well would take as much again. So a table is rounded up only within the budget.
    match bits > bounded.bits && bits * table.keys > budget.average * ledger.keys - ledger.bits {
        true => Allotment { bits: 0.0, rule: BitsRule::Ceiling },
        false => Allotment { bits, ..bounded },
    }
}

fn priced(price: &Price, table: &Item, is_below_budget: bool) -> Allotment {
    let bits = price.bits(table, is_below_budget);
    let rule = match bits {
        0.0 => BitsRule::Worthless,
        LEAST_BITS => BitsRule::OneBit,
        MOST_BITS => BitsRule::Most,
        _ => BitsRule::Price,
    };
    Allotment { bits, rule }
}

/// Rounds bits below `LEAST_BITS` up to it, or down to none below the threshold of the price.
fn rounded(bits: f64) -> f64 {
    match bits {
        bits if bits >= LEAST_BITS => bits,
        bits if bits >= ROUNDED_UP => LEAST_BITS,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;
    use crate::filter::price::solve;
    use crate::filter::rate::BLOOM;
    use std::vec::Vec;

    #[test]
    fn the_ceiling_keeps_the_budget() {
        let budget = Budget::fixed(4.0);
        let ledger = |bits| Ledger { keys: 1000.0, bits };
        assert_eq!(ledger(4100.0).ceiling(budget, 100.0), 9.0);
        assert_eq!(ledger(4700.0).ceiling(budget, 100.0), 4.0);
        let rest = Ledger { keys: 900.0, bits: 4700.0 };
        assert!((rest.average() - 5.222).abs() < 1e-3);
        assert_eq!(Ledger { keys: 1000.0, bits: 4700.0 + 400.0 }.average(), 5.1, "the build lowers it");
    }

    #[test]
    fn the_price_makes_up_for_a_part_of_earlier_ones() {
        let budget = Budget::fixed(4.0);
        let ledger = |bits| Ledger { keys: 100.0, bits };
        let corrected = [400.0, 450.0, 380.0, 0.0, 900.0, 1600.0].map(|bits| budget.corrected(&ledger(bits)));
        assert!(
            corrected.iter().zip([4.0, 3.85, 4.06, 4.3, 2.5, 1.0]).all(|(a, b)| (a - b).abs() < 1e-9),
            "{corrected:?}"
        );
        assert_eq!(budget.corrected(&Ledger::default()), 4.0);
    }

    #[test]
    fn each_rule_says_its_name() {
        let budget = Budget::fixed(4.0);
        let ledger = Ledger { keys: 1000.0, bits: 0.0 };
        let tables: Vec<Item> =
            [1000.0, 100.0, 10.0, 1.0].iter().map(|&weight| Item { keys: 10.0, weight }).collect();
        let price = solve(&tables, 160.0, BLOOM);
        let given = |weight| allot(Wish::Priced(price), &Item { keys: 10.0, weight }, budget, &ledger);
        assert_eq!(given(1e9), Allotment { bits: 16.0, rule: BitsRule::Most });
        assert_eq!(
            (given(100.0).rule, given(10.0).rule, given(1.0).rule),
            (BitsRule::Price, BitsRule::OneBit, BitsRule::Worthless)
        );
        assert_eq!(given(1.0).bits, 0.0);
        let item = tables[0];
        assert_eq!(
            allot(Wish::Priced(None), &item, budget, &ledger),
            Allotment { bits: 4.0, rule: BitsRule::NoPrice }
        );
        assert_eq!(
            allot(Wish::Bits(7.0), &item, budget, &ledger),
            Allotment { bits: 7.0, rule: BitsRule::Mode }
        );
        let full = Ledger { keys: 1000.0, bits: 4960.0 };
        assert_eq!(
            allot(Wish::Bits(7.0), &item, budget, &full),
            Allotment { bits: 4.0, rule: BitsRule::Ceiling }
        );
        assert_eq!(allot(Wish::Bits(7.0), &item, Budget::fixed(0.0), &ledger).bits, 0.0);
    }

    /// Half a bit per key: half of the tables get one bit.
    #[test]
    fn tables_rounded_up_stay_within_the_budget() {
        let budget = Budget::automatic(10.0, 1e6, 16e6);
        assert_eq!(budget, Budget { average: 0.5, slack: 0.1 });
        let mut ledger = Ledger::default();
        for table in 1..=100 {
            ledger.keys += 160_000.0;
            let item = Item { keys: 160_000.0, weight: 1.0 };
            let Allotment { bits, .. } = allot(Wish::Bits(0.5), &item, budget, &ledger);
            ledger.bits += bits * item.keys;
            assert!(ledger.average() <= 0.6 + 1e-9, "{} after {table} tables", ledger.average());
        }
        assert!(ledger.average() > 0.49, "{}", ledger.average());
    }

    #[test]
    fn automatic_budgets_follow_memory_and_keys() {
        assert_eq!(Budget::automatic(10.0, 1e6, 0.0), Budget { average: 10.0, slack: 1.0 });
        assert_eq!(Budget::automatic(10.0, 1e6, 1e5).average, 10.0);
        assert_eq!(Budget::automatic(10.0, 1e6, 4e6), Budget { average: 2.0, slack: 0.4 });
    }

    /// Tables come and go at random. The average never exceeds budget and slack by a build, and each build falls
    /// towards it when it starts above.
    #[test]
    fn random_trees_stay_below_the_ceiling() {
        let mut random = SplitMix::new(5);
        for average in [0.6, 2.0, 4.0, 10.0] {
            let budget = Budget::fixed(average);
            let mut tables: Vec<(Item, f64)> = Vec::new();
            for _ in 0..2000 {
                if tables.len() > 30 || (tables.len() > 5 && random.one_in(3)) {
                    let at = random.below(tables.len());
                    tables.swap_remove(at);
                    continue;
                }
                let table = Item {
                    keys: 1.0 + random.below(1000) as f64,
                    weight: 1.0 + random.below(100_000) as f64,
                };
                let all: Vec<Item> = tables.iter().map(|(item, _)| *item).chain([table]).collect();
                let keys: f64 = all.iter().map(|item| item.keys).sum();
                let before: f64 = tables.iter().map(|(item, bits)| item.keys * bits).sum();
                let price = solve(&all, average * keys, BLOOM);
                let ledger = Ledger { keys, bits: before };
                let bits = allot(Wish::Priced(price), &table, budget, &ledger).bits;
                assert!(bits == 0.0 || (LEAST_BITS..=MOST_BITS).contains(&bits));
                let after = (before + bits * table.keys) / keys;
                let old = before / (keys - table.keys).max(1.0);
                let most = (average + budget.slack).max(old);
                assert!(after <= most + 1e-9, "{after} after {old}, {bits} bits");
                tables.push((table, bits));
            }
        }
    }
}
