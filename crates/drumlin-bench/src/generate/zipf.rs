//! Ids drawn by popularity, as YCSB does: the method of Gray and others, "Quickly generating billion-record synthetic
//! databases", with the skew `theta`.

use super::random::Random;

/// The skew of YCSB.
pub const YCSB_THETA: f64 = 0.99;
/// Items of YCSB's scrambled generator, over which ranks are drawn before they are scattered.
const YCSB_ITEMS: u64 = 10_000_000_000;
/// The zeta of that many items at that skew.
const YCSB_ZETA: f64 = 26.469_028_201_783_02;

/// Draws ranks: 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
}

impl Zipf {
    /// The generator behind YCSB's scrambled zipfian.
    pub fn ycsb() -> Zipf {
        Zipf { items: YCSB_ITEMS, theta: YCSB_THETA, zeta: YCSB_ZETA }
    }

    /// Over `items` ranks, with the exact zeta.
    pub fn exact(items: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { items: 0, theta, zeta: 0.0 };
        zipf.grow(items);
        zipf
    }

    /// Takes more items in, at the cost of the new ones.
    pub fn grow(&mut self, items: u64) {
        let new = (self.items + 1)..=items;
        self.zeta += new.map(|i| 1.0 / (i as f64).powf(self.theta)).sum::<f64>();
        self.items = self.items.max(items);
    }

    /// A rank below the number of items.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let items = self.items as f64;
        let zeta2 = 1.0 + 0.5f64.powf(self.theta);
        let alpha = 1.0 / (1.0 - self.theta);
        let eta = (1.0 - (2.0 / items).powf(1.0 - self.theta)) / (1.0 - zeta2 / self.zeta);
        ((items * (eta * u - eta + 1.0).powf(alpha)) as u64).min(self.items - 1)
    }
}
