//! Failures of a keyspace's flushes or compactions that follow one another. They are retried, so only calls that wait
//! for them return their error.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::Mutex;
use std::collections::VecDeque;

/// Number of consecutive failures after which a call that waits for the job returns an error.
const FAILURES_MAX: usize = 3;

/// Consecutive failures of one kind of job in one keyspace. A success ends them.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Streak>);

#[derive(Default)]
struct Streak {
    /// Numbers of the latest failures, oldest first. The store counts the failures of all its keyspaces.
    numbers: VecDeque<u64>,
    last: Option<Error>,
}

impl Streak {
    fn lacks_space(&self) -> bool {
        self.last.as_ref().is_some_and(|error| error.kind() == ErrorKind::NoSpace)
    }
}

impl Failures {
    /// Records the failure with this number in the store.
    pub(crate) fn failed(&self, number: u64, error: &Error) {
        let mut streak = self.0.lock();
        if streak.numbers.len() == FAILURES_MAX {
            streak.numbers.pop_front();
        }
        streak.numbers.push_back(number);
        streak.last = Some(error.clone());
    }

    /// Records a success.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = Streak::default();
    }

    /// Forgets the failures if the last one was for lack of disk space.
    pub(crate) fn space_freed(&self) {
        let mut streak = self.0.lock();
        if streak.lacks_space() {
            *streak = Streak::default();
        }
    }

    /// Returns the last error once [`FAILURES_MAX`] jobs in a row have failed since failure number `since`.
    pub(crate) fn check(&self, since: u64) -> Result<()> {
        let streak = self.0.lock();
        let is_full = streak.numbers.len() == FAILURES_MAX && streak.numbers[0] > since;
        match &streak.last {
            Some(error) if is_full => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the last error if it is a lack of disk space, since failure number `since`.
    pub(crate) fn check_space(&self, since: u64) -> Result<()> {
        let streak = self.0.lock();
        let is_new = streak.numbers.back().is_some_and(|number| *number > since);
        match &streak.last {
            Some(error) if is_new && streak.lacks_space() => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_in_a_row_count() {
        let (failures, error) = (Failures::default(), Error::new(ErrorKind::Io, "a disk"));
        for number in [1, 2] {
            failures.failed(number, &error);
        }
        failures.succeeded();
        for number in [3, 5] {
            failures.failed(number, &error);
            failures.check(0).expect("too few failed in a row");
        }
        failures.failed(9, &error);
        assert_eq!(failures.check(2).expect_err("three failed").kind(), ErrorKind::Io);
        failures.check(3).expect("one of them failed before");
        failures.space_freed();
        failures.check_space(0).expect("it was not for lack of space");
        failures.failed(10, &Error::new(ErrorKind::NoSpace, "a disk"));
        failures.check_space(10).expect("it failed before");
        assert!(failures.check_space(9).is_err() && failures.check(4).is_err());
        failures.space_freed();
        failures.check(0).expect("it has space");
    }
}
