//! Choice of the id that an operation accesses.
//!
//! A [`Target`] is a distribution of ids, and a [`Chooser`] draws from it. Entries get ids in the order of their
//! insertion. A thread can draw the ids that existed when the phase began and those that it inserted itself. With `n`
//! threads, thread `t` inserts `base + t`, `base + t + n`, and so on. So the operations of a thread depend only on
//! the seed, not on the progress of other threads.

use super::random::{Random, fnv1a64};
use super::zipf::{YCSB_THETA, Zipf};
use serde::{Deserialize, Serialize};

/// Distribution of ids.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The next unused id.
    New,
    /// All ids from 0, in order.
    Ascending,
    /// Any inserted id, with equal probability.
    Uniform,
    /// Any id below the number, inserted or not, with equal probability.
    Below(u64),
    /// Zipf distribution, scattered over the ids as in YCSB.
    Zipf {
        /// Skew.
        theta: f64,
    },
    /// Newer ids more often.
    Latest,
    /// Ids in the middle more often: a normal distribution around the middle id.
    Normal {
        /// Standard deviation as a share of the number of ids.
        sigma: f64,
    },
}

/// The ids that one thread can draw.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Ids below this were used when the phase began.
    pub base: u64,
    /// Number of ids that the thread has inserted since.
    pub own: u64,
    /// Number of the thread.
    pub thread: u64,
    /// Number of threads in the phase.
    pub threads: u64,
    /// Total number of inserts expected from the thread; determines the range of scattered distributions.
    pub expected: u64,
}

impl Population {
    /// Returns the number of ids that the thread can draw.
    pub fn len(&self) -> u64 {
        self.base + self.own
    }

    /// Returns whether there is no id to draw.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id at `position` of those that the thread can draw, oldest first.
    pub fn id(&self, position: u64) -> u64 {
        match position.checked_sub(self.base) {
            None => position,
            Some(own) => self.base + self.thread + own * self.threads,
        }
    }

    /// Inserts a new id and returns it.
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
    /// Next position of `Ascending`. Threads interleave: each advances by the number of threads.
    given: u64,
}

impl Chooser {
    /// Creates a chooser for `target`.
    pub fn new(target: Target, population: &Population) -> Chooser {
        let zipf = match target {
            Target::Zipf { theta } if theta == YCSB_THETA => Some(Zipf::ycsb()),
            Target::Zipf { theta } => Some(Zipf::exact(population.base.max(1), theta)),
            Target::Latest => Some(Zipf::exact(population.len().max(1), YCSB_THETA)),
            _ => None,
        };
        Chooser { target, zipf, given: population.thread }
    }

    /// Returns the next id; `None` if there is no id to draw.
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
                // Box-Muller transform; 1 - u is never 0.
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
