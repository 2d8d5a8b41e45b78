//! The drumlin command.
fn main() {}
