//! What the engine observes, for policies: load and costs as decayed means.

use drumlin_types::Key;
use drumlin_types::contract::LoadView;

/// What is known of a keyspace's load at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) load: LoadView,
    /// Recently wanted keys, sorted.
    pub(crate) wanted: Vec<Key>,
}
