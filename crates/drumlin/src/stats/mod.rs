//! What the engine observes, for policies: load and costs as decayed means.
//!
//! Most operations pass with one decrement of a number of their thread. One in 64, drawn at random, stands
//! for the others: it is counted 64 times, timed, and its key is kept for a while.
//!
//! - [`Meter`]: the load of a keyspace.
//! - [`Costs`]: how long things take, for the whole store.
//! - [`LookupCounts`]: what point lookups met, exactly.

mod costs;
mod lookups;
mod meter;
mod running;

pub(crate) use costs::{Costs, Stopwatch};
pub(crate) use lookups::LookupCounts;
pub(crate) use meter::{EACH, Kind, LOOK, Meter, SampledStore, fresh_store};
pub(crate) use running::OneRunning;

use drumlin_types::Key;
use drumlin_types::contract::LoadView;

/// What is known of a keyspace's load at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) load: LoadView,
    /// The same with the rates of the last few seconds.
    pub(crate) lately: LoadView,
    /// Keys that point lookups wanted lately, sorted.
    pub(crate) wanted: Vec<Key>,
    /// Keys at which scans began lately, sorted.
    pub(crate) wanted_seeks: Vec<Key>,
}
