//! ARCE.
pub(crate) mod cover;
pub(crate) mod guard;
pub(crate) mod interval;
pub(crate) mod model;
pub(crate) mod real;
pub(crate) mod rollout;
pub(crate) mod score;
