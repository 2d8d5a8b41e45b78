//! Parser of a policy's arguments: the part of its name after the colon.

use alloc::format;
use alloc::vec::Vec;
use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;
use drumlin_types::contract::PolicyError;

pub(super) struct Arguments<'a> {
    pub(super) policy: &'static str,
    pub(super) text: &'a str,
    /// Whether `hard-stop` was the last argument; `text` does not include it.
    pub(super) hard_stop: bool,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(policy: &'static str, text: &'a str) -> Arguments<'a> {
        let rest = text
            .strip_suffix("hard-stop")
            .and_then(|r| if r.is_empty() { Some(r) } else { r.strip_suffix(',') });
        Arguments { policy, text: rest.unwrap_or(text), hard_stop: rest.is_some() }
    }

    pub(super) fn error(&self, what: impl Display) -> PolicyError {
        PolicyError(format!("{} = {}: {what}", self.policy, self.text))
    }

    pub(super) fn none(&self) -> Result<(), PolicyError> {
        if self.text.is_empty() { Ok(()) } else { Err(self.error("takes no arguments")) }
    }

    /// Parses the whole text as one number.
    pub(super) fn number<T>(
        &self,
        name: &str,
        default: T,
        bounds: RangeInclusive<T>,
    ) -> Result<T, PolicyError>
    where
        T: FromStr + PartialOrd + Display,
    {
        if self.text.is_empty() { Ok(default) } else { self.bounded(self.text, name, &bounds) }
    }

    /// Parses comma-separated numbers.
    pub(super) fn numbers<T>(
        &self,
        text: &str,
        name: &str,
        bounds: RangeInclusive<T>,
    ) -> Result<Vec<T>, PolicyError>
    where
        T: FromStr + PartialOrd + Display,
    {
        text.split(',').map(|part| self.bounded(part, name, &bounds)).collect()
    }

    pub(super) fn bounded<T>(
        &self,
        text: &str,
        name: &str,
        bounds: &RangeInclusive<T>,
    ) -> Result<T, PolicyError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let number = text.parse().ok().filter(|n| bounds.contains(n));
        number
            .ok_or_else(|| self.error(format_args!("{name} must be {} to {}", bounds.start(), bounds.end())))
    }
}
