//! Failures of a run, and how to reproduce them.

use std::fmt;

/// Category of a failure. The terms are those of `docs/design/testing.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// A write acknowledged at the promised durability is gone.
    Lost,
    /// A deleted or overwritten version reappeared.
    Resurrected,
    /// The state matches no prefix of the commits.
    Hole,
    /// The store holds only a part of a batch.
    Split,
    /// The store does not open.
    Unopenable,
    /// An answer differs from the oracle's.
    Wrong,
    /// A message contains user bytes.
    Leaked,
    /// A call failed that should have succeeded.
    Failed,
    /// A durability order rule was broken.
    Order,
    /// `verify` reported damage in a sound store.
    Unsound,
    /// Recovery left files that nothing refers to.
    Orphan,
    /// Two option sets gave different answers.
    Diverged,
    /// The store returned a damaged value without an error.
    Silent,
    /// The store detected damage but named the wrong file.
    Misnamed,
    /// The store does not resume although the fault is over.
    Stuck,
    /// A panic occurred.
    Panic,
}

impl Verdict {
    /// Returns a failure of this kind.
    pub fn of(self, what: impl Into<String>) -> Failure {
        Failure { verdict: self, what: what.into(), at: None, part: None }
    }
}

/// A failure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Category.
    pub verdict: Verdict,
    /// Description of what was observed.
    pub what: String,
    /// Number of the operation, where known.
    pub at: Option<usize>,
    /// Number of the part of the case that failed, if the run can repeat a part alone.
    pub part: Option<u64>,
}

impl Failure {
    /// Sets the number of the operation, unless it is set already.
    #[must_use]
    pub fn at(mut self, at: usize) -> Failure {
        self.at.get_or_insert(at);
        self
    }

    /// Sets the number of the part of the case.
    #[must_use]
    pub fn in_part(mut self, part: u64) -> Failure {
        self.part = Some(part);
        self
    }

    /// Prefixes the description with a place.
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
