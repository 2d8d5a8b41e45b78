//! Candidate compactions: runs ordered by age, the requested keys that they cover, the intervals to compact, the
//! bytes that these rewrite, and the order of their pieces.

pub(crate) mod cover;
pub(crate) mod groups;
pub(crate) mod interval;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod sorted;
pub(crate) mod values;
