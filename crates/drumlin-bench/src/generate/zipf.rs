//! Zipf-distributed ranks as in YCSB: the method of Gray et al., "Quickly generating billion-record synthetic
//! databases", with the skew `theta`.

use super::random::Random;

/// Skew of YCSB.
pub const YCSB_THETA: f64 = 0.99;
/// Number of items of YCSB's scrambled generator: ranks are drawn from this many items and then scattered.
const YCSB_ITEMS: u64 = 10_000_000_000;
/// Value of zeta for `YCSB_ITEMS` and `YCSB_THETA`.
const YCSB_ZETA: f64 = 26.469_028_201_783_02;

/// Draws ranks; rank 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
}

impl Zipf {
    /// Creates the generator of YCSB's scrambled zipfian distribution.
    pub fn ycsb() -> Zipf {
        Zipf { items: YCSB_ITEMS, theta: YCSB_THETA, zeta: YCSB_ZETA }
    }

    /// Creates a generator over `items` ranks, with the exact zeta.
    pub fn exact(items: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { items: 0, theta, zeta: 0.0 };
        zipf.grow(items);
        zipf
    }

    /// Grows to `items` ranks; the cost depends only on the number of new ones.
    pub fn grow(&mut self, items: u64) {
        let new = (self.items + 1)..=items;
        self.zeta += new.map(|i| 1.0 / (i as f64).powf(self.theta)).sum::<f64>();
        self.items = self.items.max(items);
    }

    /// Draws a rank below the number of items.
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
