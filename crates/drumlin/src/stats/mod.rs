//! Statistics for policies: load and costs, as decayed means.
//!
//! Most operations only change thread-local counters. One operation in 64 on average is sampled at random: it is
//! timed, its key is kept for a while, and its thread adds the counts since its last sample to the meter.
//!
//! - [`Meter`]: load of a keyspace.
//! - [`Costs`]: durations of operations and compactions, for the whole store.
//! - [`LookupCounts`]: outcomes of point lookups, exact.
//! - [`LookupDensity`]: where the point lookups of a keyspace are, sampled.
//! - [`TableLives`]: how long the tables of a keyspace live.
//! - [`OperationCounts`]: writes and scans, exact.

mod costs;
mod density;
mod lives;
mod lookups;
mod meter;
mod operations;
mod running;

pub(crate) use costs::{Costs, Stopwatch};
pub(crate) use density::LookupDensity;
#[cfg(test)]
pub(crate) use lives::KNOWN_TABLES;
pub(crate) use lives::TableLives;
pub(crate) use lookups::{DecayEpochs, LookupCounts};
pub(crate) use meter::{EACH, LOOK, Meter, OperationKind, SampledStore, fresh_store};
pub(crate) use operations::OperationCounts;
pub(crate) use running::OneRunning;

use drumlin_types::Key;
use drumlin_types::contract::LoadView;

/// Load of a keyspace at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) load: LoadView,
    /// The same load, with the rates of the last few seconds.
    pub(crate) lately: LoadView,
    /// Keys of recent point lookups, sorted.
    pub(crate) wanted: Vec<Key>,
    /// Start keys of recent scans, sorted.
    pub(crate) wanted_seeks: Vec<Key>,
}
