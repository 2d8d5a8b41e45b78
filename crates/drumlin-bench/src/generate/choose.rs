//! Which id an operation touches.
//!
//! A [`Target`] says how ids are drawn and a [`Chooser`] draws them. Ids are given to entries in the order of their
//! insertion. A thread sees the ids that were there when the phase began and those that it inserted itself; with `n`
//! threads, thread `t` inserts `base + t`, `base + t + n`, and so on. So what a thread does depends on the seed alone
//! and not on how far the others are.

use super::random::{Random, fnv1a64};
use super::zipf::{YCSB_THETA, Zipf};
use serde::{Deserialize, Serialize};

/// How ids are drawn.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The next id that was never used.
    New,
    /// Every id from 0 on, in order.
    Ascending,
    /// Any id that was inserted, all alike.
    Uniform,
    /// Any id below a number, inserted or not, all alike.
    Below(u64),
    /// Popular ids more often, scattered over the ids as YCSB does.
    Zipf {
        /// The skew.
        theta: f64,
    },
    /// The newest ids more often.
    Latest,
    /// The middle ids more often: a normal distribution with this share of the ids as deviation.
    Normal {
        /// Standard deviation as a share of the number of ids.
        sigma: f64,
    },
}

/// The ids that one thread knows.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Ids below this were used when the phase began.
    pub base: u64,
    /// Ids that the thread added since.
    pub own: u64,
    /// The thread.
    pub thread: u64,
    /// Threads of the phase.
    pub threads: u64,
    /// Inserts that the thread is expected to make in all, for the size of scattered distributions.
    pub expected: u64,
}

impl Population {
    /// How many ids the thread knows.
    pub fn len(&self) -> u64 {
        self.base + self.own
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id at `position` of those that the thread knows, oldest first.
    pub fn id(&self, position: u64) -> u64 {
        match position.checked_sub(self.base) {
            None => position,
            Some(own) => self.base + self.thread + own * self.threads,
        }
    }

    /// Adds an id.
    pub fn insert(&mut self) -> u64 {
        self.own += 1;
        self.id(self.len() - 1)
    }
}

/// Draws ids for one target and one thread.
#[derive(Clone, Debug)]
pub struct Chooser {
    target: Target,
    zipf: Option<Zipf>,
    /// Ids that `Ascending` has given, counted over all threads' shares.
    given: u64,
}

impl Chooser {
    /// A chooser for `target`.
    pub fn new(target: Target, population: &Population) -> Chooser {
        let zipf = match target {
            Target::Zipf { theta } if theta == YCSB_THETA => Some(Zipf::ycsb()),
            Target::Zipf { theta } => Some(Zipf::exact(population.base.max(1), theta)),
            Target::Latest => Some(Zipf::exact(population.len().max(1), YCSB_THETA)),
            _ => None,
        };
        Chooser { target, zipf, given: population.thread }
    }

    /// The next id; `None` when there is none to draw from.
    pub fn next(&mut self, random: &mut Random, population: &mut Population) -> Option<u64> {
        let known = population.len();
        match self.target {
            Target::New => return Some(population.insert()),
            Target::Below(n) => return (n > 0).then(|| random.below(n)),
            _ if known == 0 => return None,
            _ => {}
        }
        Some(match self.target {
            Target::Ascending => {
                let given = self.given;
                self.given += population.threads;
                given % known
            }
            Target::Zipf { .. } => {
                let ids = population.base + 2 * population.expected;
                loop {
                    let rank = self.zipf.as_ref()?.draw(random);
                    let position = fnv1a64(rank) % ids.max(1);
                    if position < known {
                        break population.id(position);
                    }
                }
            }
            Target::Latest => {
                let zipf = self.zipf.as_mut()?;
                zipf.grow(known);
                population.id(known - 1 - zipf.draw(random).min(known - 1))
            }
            Target::Normal { sigma } => loop {
                // Box and Muller; 1 - u is never 0.
                let radius = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
                let angle = (std::f64::consts::TAU * random.fraction()).cos();
                let position = known as f64 * (0.5 + sigma * radius * angle);
                if (0.0..known as f64).contains(&position) {
                    break population.id(position as u64);
                }
            },
            Target::New | Target::Below(_) | Target::Uniform => population.id(random.below(known)),
        })
    }
}
