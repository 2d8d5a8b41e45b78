//! The policy call: the policy object, its plans, searches, runs that nobody reads, the returns of compactions, and
//! explanations.

pub(crate) mod explain;
pub(crate) mod neglect;
pub(crate) mod outlook;
pub(crate) mod plans;
pub(crate) mod policy;
pub(crate) mod returns;
pub(crate) mod search;
pub(crate) mod switches;
pub(crate) mod tickets;
