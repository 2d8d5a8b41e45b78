//! Ordered publishing: a commit becomes visible once it and every commit before it are in the log and in
//! the memtables.
//!
//! A commit takes a place in the queue when its sequence numbers are reserved, works outside any lock,
//! and reports done. Whoever finds the head of the queue done publishes the whole finished prefix.

use crate::error::{Error, ErrorKind, Result};
use drumlin_env::sync::{Condvar, Mutex, atomic};
use drumlin_types::Seq;
use std::collections::VecDeque;
use std::time::Duration;

/// Where the log and the visible state stand after a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// Last visible sequence number.
    pub(crate) seq: Seq,
    /// Global log position up to which every record is written.
    pub(crate) log_end: u64,
}

struct Place {
    after: Published,
    done: bool,
}

struct Queue {
    places: VecDeque<Place>,
    /// Number of the front place.
    front: u64,
    published: Published,
    failed: Option<Error>,
    waiters: u32,
}

/// A commit writes to memory alone; so long only one takes that will never end.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);

/// The queue of unpublished commits.
pub(crate) struct Publisher {
    visible: atomic::AtomicU64,
    queue: Mutex<Queue>,
    moved: Condvar,
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
        }
    }

    /// Last visible sequence number.
    pub(crate) fn visible(&self) -> Seq {
        self.visible.load(atomic::Ordering::Acquire)
    }

    /// Visible state and log position, of one moment.
    pub(crate) fn published(&self) -> Published {
        self.queue.lock().published
    }

    /// Takes the next place. Called in commit order, under the commit lane's lock.
    pub(crate) fn enter(&self, after: Published) -> u64 {
        let mut queue = self.queue.lock();
        queue.places.push_back(Place { after, done: false });
        queue.front + queue.places.len() as u64 - 1
    }

    /// Reports `place` done and waits until it is published.
    pub(crate) fn finish(&self, place: u64) -> Result<()> {
        let mut queue = self.queue.lock();
        let at = (place - queue.front) as usize;
        queue.places[at].done = true;
        let mut moved = false;
        while queue.failed.is_none() && queue.places.front().is_some_and(|p| p.done) {
            let next = queue.places.pop_front().expect("seen");
            queue.front += 1;
            queue.published = next.after;
            self.visible.store(next.after.seq, atomic::Ordering::Release);
            moved = true;
        }
        if moved && queue.waiters > 0 {
            self.moved.notify_all();
        }
        while queue.front <= place {
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            queue.waiters += 1;
            queue = self.moved.wait(queue);
            queue.waiters -= 1;
        }
        Ok(())
    }

    /// Waits until every commit that took a place is published. An error when one failed, or takes longer than a commit can.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        while !queue.places.is_empty() {
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            let front = queue.front;
            queue.waiters += 1;
            let (next, has_passed) = self.moved.wait_timeout(queue, LONGEST_COMMIT);
            queue = next;
            queue.waiters -= 1;
            if has_passed && queue.front == front {
                return Err(Error::new(ErrorKind::Bug, "a write that began does not end"));
            }
        }
        Ok(())
    }

    /// A commit failed after it took its place: nothing behind it can be published any more.
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
        let places = [1, 2].map(|seq| publisher.enter(Published { seq, log_end: seq }));
        let (queue, ended) = (&publisher, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let [first, second] = places;
            scope.spawn(|| {
                publisher.drain().expect("both end");
                assert!(ended.load(Ordering::SeqCst), "the first is still under way");
            });
            scope.spawn(move || queue.finish(second).expect("once the first is there"));
            ended.store(true, Ordering::SeqCst);
            publisher.finish(first).expect("the first");
        });
        publisher.enter(Published { seq: 3, log_end: 3 });
        publisher.fail(Error::new(ErrorKind::Io, "a disk"));
        assert_eq!(publisher.drain().expect_err("it failed").kind(), ErrorKind::Io);
    }
}
