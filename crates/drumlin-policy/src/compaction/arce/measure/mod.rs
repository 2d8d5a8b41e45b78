//! What is measured: the operation mix and its changes, the cost model and what
//! operations and compactions cost, the rewrite budget.

pub(crate) mod drift;
pub(crate) mod estimate;
pub(crate) mod guard;
pub(crate) mod interference;
pub(crate) mod model;
pub(crate) mod prices;
