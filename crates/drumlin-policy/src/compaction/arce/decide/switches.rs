//! Parts of ARCE that can be switched off, to measure what each one contributes.
//!
//! They follow the policy's name after a colon, as in `arce:no-park,no-rho`, or follow fixed parameters. All parts
//! are on by default. Only experiments switch any off: without the feature `experiments` no name does.

use alloc::string::String;
use core::fmt;

/// The parts that are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switches {
    /// Compactions must be balanced in size.
    pub(crate) rho: bool,
    /// Running compactions are withdrawn when their rest no longer pays.
    pub(crate) withdraw: bool,
    /// Short compactions may run between the pieces of long ones.
    pub(crate) between: bool,
    /// A short compaction goes before the long one that it is part of.
    pub(crate) first: bool,
    /// Searches look ahead by the size of the tree and the length of phases, instead of always 400 flush intervals.
    pub(crate) horizon: bool,
    /// Compactions that make room are chosen by evenness, not by how fast they remove runs.
    pub(crate) even: bool,
    /// Runs count by the requested keys that they cover, not as whole runs.
    pub(crate) masks: bool,
    /// The read cost of a run depends on its size.
    pub(crate) prices: bool,
    /// The read slowdown during a compaction counts in full, not by half as in the paper's code.
    pub(crate) whole: bool,
    /// Readers pay a part of a compaction's time before it starts.
    pub(crate) paid: bool,
}

impl Switches {
    pub(crate) const ALL: Switches = Switches {
        rho: true,
        withdraw: true,
        between: true,
        first: true,
        horizon: true,
        even: true,
        masks: true,
        prices: true,
        whole: true,
        paid: true,
    };

    fn named(&mut self) -> [(&'static str, &mut bool); 10] {
        [
            ("no-rho", &mut self.rho),
            ("no-park", &mut self.withdraw),
            ("no-between", &mut self.between),
            ("no-first", &mut self.first),
            ("no-horizon", &mut self.horizon),
            ("no-even", &mut self.even),
            ("no-masks", &mut self.masks),
            ("no-prices", &mut self.prices),
            ("no-whole", &mut self.whole),
            ("no-paid", &mut self.paid),
        ]
    }

    /// Switches off the part called `name`. Returns whether there is such a part.
    pub(crate) fn off(&mut self, name: &str) -> bool {
        let mut is_known = false;
        for (own, switch) in self.named() {
            if own == name {
                (*switch, is_known) = (false, true);
            }
        }
        is_known
    }

    /// Returns the names of all switches.
    pub(crate) fn names() -> String {
        let mut all = Switches::ALL;
        let names = all.named().map(|(name, _)| String::from(name));
        names.join(", ")
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = *self;
        let mut off = own.named().into_iter().filter(|(_, on)| !**on);
        if let Some((name, _)) = off.next() {
            f.write_str(name)?;
        }
        off.try_for_each(|(name, _)| write!(f, ",{name}"))
    }
}

#[cfg(test)]
pub(crate) mod tests;
