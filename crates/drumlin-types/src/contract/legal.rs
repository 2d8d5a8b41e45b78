//! Legality.
