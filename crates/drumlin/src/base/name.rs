//! Name of a keyspace, which a rename changes while others read it.
//!
//! Code that may need the name for a message keeps a reference to the [`KeyspaceName`], and reads the text when it
//! writes the message. So a point lookup pays nothing for it.

use arc_swap::ArcSwap;
use drumlin_env::sync::Arc;
use std::fmt;

/// Name of a keyspace. Readers take no lock.
pub(crate) struct KeyspaceName(ArcSwap<String>);

impl KeyspaceName {
    pub(crate) fn new(text: &str) -> KeyspaceName {
        KeyspaceName(ArcSwap::from_pointee(text.to_owned()))
    }

    /// Returns the current name.
    pub(crate) fn text(&self) -> Arc<String> {
        self.0.load_full()
    }

    /// Replaces the name. The caller holds the control lock and has made the rename durable.
    pub(crate) fn set(&self, text: &str) {
        self.0.store(Arc::new(text.to_owned()));
    }
}

impl fmt::Display for KeyspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.load())
    }
}

impl fmt::Debug for KeyspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.0.load(), f)
    }
}
