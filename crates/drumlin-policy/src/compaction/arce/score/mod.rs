//! The score of a candidate (Equations 9 to 11), the input of a decision, and the saved state.

pub(crate) mod formula;
pub(crate) mod scene;
pub(crate) mod state;
