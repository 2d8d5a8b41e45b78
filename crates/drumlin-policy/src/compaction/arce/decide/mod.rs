//! The decision: parameters, search, plans, what readers never look at, and the explanation.

pub(crate) mod explain;
pub(crate) mod neglect;
pub(crate) mod outlook;
pub(crate) mod plans;
pub(crate) mod policy;
pub(crate) mod returns;
pub(crate) mod search;
pub(crate) mod switches;
pub(crate) mod tickets;
