//! Sticky error of a cursor: every call after the first error returns it again, so an error never looks like the end
//! of the data.

use crate::base::error::{Error, Result};

/// First error of a cursor, if any.
#[derive(Default)]
pub(crate) struct Sticky(Option<Error>);

impl Sticky {
    /// Returns the kept error, if there is one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Passes `result` on and keeps its error.
    #[inline]
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.0 = Some(error.clone());
        }
        result
    }
}
