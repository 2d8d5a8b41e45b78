//! Torture.
