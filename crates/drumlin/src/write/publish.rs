//! Ordered publishing: a commit becomes visible once it and every commit before it are in the log and in the memtables.
//!
//! A commit takes a place in the queue when its sequence numbers are reserved, works outside any lock, and reports that
//! it is done. The commit that completes the head of the queue publishes the whole finished prefix.

use crate::base::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Condvar, Mutex, atomic};
use drumlin_types::Seq;
use std::collections::VecDeque;
use std::time::Duration;

/// State of the log and of visibility after a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// Last visible sequence number.
    pub(crate) seq: Seq,
    /// Last visible sequence number that is in the log. Later commits have `Durability::None`.
    pub(crate) logged: Seq,
    /// Global log position up to which every record is written.
    pub(crate) log_end: u64,
}

struct QueuedCommit {
    after: Published,
    done: bool,
}

struct Queue {
    places: VecDeque<QueuedCommit>,
    /// Number of the place at the front.
    front: u64,
    published: Published,
    failed: Option<Error>,
    waiters: u32,
}

/// A commit that takes longer than this is treated as stuck. It writes to memory and to the page cache, which the
/// kernel may delay.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);

impl Queue {
    /// Returns the number of places before `end` whose commits have not finished.
    fn under_way(&self, end: u64) -> usize {
        let before = end.saturating_sub(self.front) as usize;
        self.places.iter().take(before).filter(|place| !place.done).count()
    }
}

/// The queue of unpublished commits.
pub(crate) struct Publisher {
    visible: atomic::AtomicU64,
    queue: Mutex<Queue>,
    moved: Condvar,
    /// Longest time that a commit may take, in microseconds.
    longest: atomic::AtomicU64,
}

impl Publisher {
    pub(crate) fn new(published: Published) -> Publisher {
        Publisher {
            visible: atomic::AtomicU64::new(published.seq),
            queue: Mutex::new(Queue {
                places: VecDeque::new(),
                front: 0,
                published,
                failed: None,
                waiters: 0,
            }),
            moved: Condvar::new(),
            longest: atomic::AtomicU64::new(LONGEST_COMMIT.as_micros() as u64),
        }
    }

    /// Sets the longest time that a commit may take.
    #[cfg(test)]
    pub(crate) fn set_longest(&self, longest: Duration) {
        self.longest.store(longest.as_micros() as u64, atomic::Ordering::Relaxed);
    }

    /// Returns whether a thread waits for commits.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.queue.lock().waiters > 0
    }

    /// Returns the last visible sequence number.
    pub(crate) fn visible(&self) -> Seq {
        self.visible.load(atomic::Ordering::Acquire)
    }

    /// Returns the visible state and the log position, as of one moment.
    pub(crate) fn published(&self) -> Published {
        self.queue.lock().published
    }

    /// Takes the next place and returns its number. Called in commit order, under the commit lock.
    pub(crate) fn enter(&self, after: Published) -> u64 {
        let mut queue = self.queue.lock();
        queue.places.push_back(QueuedCommit { after, done: false });
        queue.front + queue.places.len() as u64 - 1
    }

    /// Reports `place` done and waits until it is published. Returns the microseconds that it waited, by the clock
    /// `now`.
    pub(crate) fn finish(&self, place: u64, now: impl Fn() -> u64) -> Result<u64> {
        let mut queue = self.queue.lock();
        let at = (place - queue.front) as usize;
        queue.places[at].done = true;
        let mut moved = false;
        while queue.failed.is_none()
            && queue.places.front().is_some_and(|p| p.done || drumlin_types::bug!("publish-out-of-order"))
        {
            let next = queue.places.pop_front().expect("seen");
            queue.front += 1;
            queue.published = next.after;
            self.visible.store(next.after.seq, atomic::Ordering::Release);
            moved = true;
        }
        if (moved || queue.failed.is_some()) && queue.waiters > 0 {
            self.moved.notify_all();
        }
        if queue.front > place {
            return Ok(0);
        }
        let began = now();
        while queue.front <= place {
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            queue.waiters += 1;
            queue = self.moved.wait(queue);
            queue.waiters -= 1;
        }
        Ok(now().saturating_sub(began))
    }

    /// Ends `place` without publishing it or any commit behind it, because of `error`. Both happen in one step, so that
    /// no other commit publishes the place in between.
    pub(crate) fn abandon(&self, place: u64, error: Error) {
        let mut queue = self.queue.lock();
        queue.failed.get_or_insert(error);
        let at = (place - queue.front) as usize;
        queue.places[at].done = true;
        self.moved.notify_all();
    }

    /// Waits until every commit that already has a place has finished, successfully or not. Returns an error if one
    /// takes longer than a commit may.
    pub(crate) fn wait_ended(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        let end = queue.front + queue.places.len() as u64;
        loop {
            let under_way = queue.under_way(end);
            if under_way == 0 {
                return Ok(());
            }
            queue.waiters += 1;
            let longest = Duration::from_micros(self.longest.load(atomic::Ordering::Relaxed));
            let (next, has_passed) = self.moved.wait_timeout(queue, longest);
            queue = next;
            queue.waiters -= 1;
            if has_passed && queue.under_way(end) == under_way {
                return Err(Error::new(ErrorKind::Busy, "a write has been running for over 60 s"));
            }
        }
    }

    /// Waits until every commit that already has a place is published. Returns an error if one failed, or takes longer
    /// than a commit may.
    pub(crate) fn drain(&self) -> Result<()> {
        self.wait_ended()?;
        match &self.queue.lock().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Records that a commit failed after it took its place. No later commit can be published.
    pub(crate) fn fail(&self, error: Error) {
        let mut queue = self.queue.lock();
        queue.failed.get_or_insert(error);
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::sync::atomic::{AtomicBool, Ordering};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "commits end on other threads")]
    fn who_drains_waits_for_every_commit_that_began() {
        let publisher = Publisher::new(Published::default());
        publisher.drain().expect("nothing is under way");
        let places = [1, 2].map(|seq| publisher.enter(Published { seq, logged: seq, log_end: seq }));
        let (queue, ended) = (&publisher, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let [first, second] = places;
            scope.spawn(|| {
                publisher.drain().expect("both commits finish");
                assert!(ended.load(Ordering::SeqCst), "the first commit has not finished");
            });
            scope.spawn(move || queue.finish(second, || 0).expect("published after the first commit"));
            ended.store(true, Ordering::SeqCst);
            publisher.finish(first, || 0).expect("the first commit is published");
        });
        let third = publisher.enter(Published { seq: 3, logged: 3, log_end: 3 });
        publisher.fail(Error::new(ErrorKind::Io, "a disk"));
        publisher.set_longest(Duration::from_millis(1));
        let goes_on = publisher.drain().expect_err("the third commit has not finished");
        assert_eq!(goes_on.kind(), ErrorKind::Busy, "{goes_on}");
        publisher.finish(third, || 0).expect_err("the commit failed");
        publisher.wait_ended().expect("nothing is under way");
        assert_eq!(publisher.drain().expect_err("a commit failed").kind(), ErrorKind::Io);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a commit waits on another thread")]
    fn a_commit_that_waits_for_an_earlier_one_says_how_long() {
        let publisher = Publisher::new(Published::default());
        let [first, second] = [1, 2].map(|seq| publisher.enter(Published { seq, logged: seq, log_end: seq }));
        let (queue, now) = (&publisher, drumlin_env::sync::atomic::AtomicU64::new(7));
        let waited = std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.finish(second, || now.fetch_add(5, Ordering::SeqCst)));
            while !queue.is_awaited() {
                std::thread::yield_now();
            }
            assert_eq!(queue.finish(first, || unreachable!("it does not wait")).expect("published"), 0);
            waits.join().expect("no panic").expect("published")
        });
        assert_eq!(waited, 5);
    }
}
