//! Ordered publishing: a commit becomes visible once it and every commit before it are in the log and in
//! the memtables.
//!
//! A commit takes a place in the queue when its sequence numbers are reserved, works outside any lock,
//! and reports done. Whoever finds the head of the queue done publishes the whole finished prefix.

use crate::error::{Error, Result};
use drumlin_env::sync::{Condvar, Mutex, atomic};
use drumlin_types::Seq;
use std::collections::VecDeque;

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

    /// A commit failed after it took its place: nothing behind it can be published any more.
    pub(crate) fn fail(&self, error: Error) {
        let mut queue = self.queue.lock();
        queue.failed.get_or_insert(error);
        self.moved.notify_all();
    }
}
