//! What went wrong in a run, and how to see it again.

use std::fmt;

/// What kind of wrong it is. The words are those of `docs/design/testing.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Acknowledged at the promised durability, yet gone.
    Lost,
    /// A deleted or overwritten version is back.
    Resurrected,
    /// The state matches no prefix of the commits.
    Hole,
    /// A part of a batch.
    Split,
    /// The store does not open.
    Unopenable,
    /// An answer is not the oracle's.
    Wrong,
    /// User bytes in a message.
    Leaked,
    /// A call failed that should not have.
    Failed,
    /// An order rule was broken.
    Order,
    /// `verify` found something in a sound store.
    Unsound,
    /// Recovery left files that nothing refers to.
    Orphan,
    /// Two option sets gave different answers.
    Diverged,
    /// Damage was answered as truth.
    Silent,
    /// Damage was found, and blamed on another file.
    Misnamed,
    /// Something panicked.
    Panic,
}

impl Verdict {
    /// A failure of this kind.
    pub fn of(self, what: impl Into<String>) -> Failure {
        Failure { verdict: self, what: what.into(), at: None }
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub verdict: Verdict,
    /// What was seen.
    pub what: String,
    /// The number of the operation, where that is known.
    pub at: Option<usize>,
}

impl Failure {
    /// The same failure, seen at operation `at` unless that is known better.
    #[must_use]
    pub fn at(mut self, at: usize) -> Failure {
        self.at.get_or_insert(at);
        self
    }

    /// The same failure with a word about where.
    #[must_use]
    pub fn within(mut self, place: &str) -> Failure {
        self.what = format!("{place}: {}", self.what);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = format!("{:?}", self.verdict).to_lowercase();
        write!(f, "{verdict}: {}", self.what)?;
        self.at.map_or(Ok(()), |at| write!(f, " (operation {at})"))
    }
}
