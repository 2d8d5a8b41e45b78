//! The first error of a cursor, kept: every later call gives it again, so that an error never looks like
//! the end of the data.

use crate::error::{Error, Result};

/// The first error, once there is one.
#[derive(Default)]
pub(crate) struct Sticky(Option<Error>);

impl Sticky {
    /// The kept error, if there is one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Passes `result` on, keeping its error.
    #[inline]
    pub(crate) fn keep<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.0 = Some(error.clone());
        }
        result
    }
}
