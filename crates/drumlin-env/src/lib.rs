//! Drumlin's only door to the operating system.
