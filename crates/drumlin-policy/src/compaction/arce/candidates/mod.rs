//! Candidate compactions: the runs in order of age, legal joins of them, the groups that cover them, and the flush
//! intervals in which they pay.

pub(crate) mod cover;
pub(crate) mod groups;
pub(crate) mod interval;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod sorted;
pub(crate) mod values;
