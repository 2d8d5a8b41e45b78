//! Parts of ARCE that can be switched off, to measure what each of them brings.
//!
//! They stand behind the policy's colon: `arce:no-park,no-rho`, also behind a fixed tuple. All are on by
//! default, and nobody but an experiment should switch any off.

use alloc::string::String;
use core::fmt;

/// What is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switches {
    /// Merges must be balanced in size.
    pub(crate) rho: bool,
    /// Merges under way are given up when their rest no longer pays.
    pub(crate) park: bool,
    /// Short merges come in between of long ones.
    pub(crate) between: bool,
    /// A short merge goes before the long one that it is part of.
    pub(crate) first: bool,
    /// Searches look ahead by the size of the tree and the length of phases, not always 400 windows.
    pub(crate) horizon: bool,
    /// Merges that make room are chosen by how even they are, not by how quickly they remove runs.
    pub(crate) even: bool,
    /// Runs count by the wanted keys that they cover, not as whole runs.
    pub(crate) masks: bool,
    /// Runs cost readers by their sizes, not all the same.
    pub(crate) prices: bool,
    /// What readers lose while a merge runs counts as a whole, not by half as in the paper's code.
    pub(crate) whole: bool,
}

impl Switches {
    pub(crate) const ALL: Switches = Switches {
        rho: true,
        park: true,
        between: true,
        first: true,
        horizon: true,
        even: true,
        masks: true,
        prices: true,
        whole: true,
    };

    fn named(&mut self) -> [(&'static str, &mut bool); 9] {
        [
            ("no-rho", &mut self.rho),
            ("no-park", &mut self.park),
            ("no-between", &mut self.between),
            ("no-first", &mut self.first),
            ("no-horizon", &mut self.horizon),
            ("no-even", &mut self.even),
            ("no-masks", &mut self.masks),
            ("no-prices", &mut self.prices),
            ("no-whole", &mut self.whole),
        ]
    }

    /// Switches off what `name` names. Whether there is such a part.
    pub(crate) fn off(&mut self, name: &str) -> bool {
        let mut is_known = false;
        for (own, switch) in self.named() {
            if own == name {
                (*switch, is_known) = (false, true);
            }
        }
        is_known
    }

    /// The names that there are.
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
