//! Every byte that Drumlin puts on disk.
