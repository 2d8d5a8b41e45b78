//! Every decision that Drumlin takes: compaction policies, pure and deterministic.
