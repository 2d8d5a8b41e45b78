//! Ordered publishing: a commit becomes visible once it and every commit before it are in the log and in the memtables.
//!
//! A commit takes a place in a ring when its sequence numbers are reserved, works outside any lock, and then marks its
//! place done. The commit whose place is at the front publishes all done commits from there on. The others wait for it:
//! at first awake, since that mostly takes a few microseconds (`base/spin_wait.rs`), then asleep. (Pebble's commit
//! pipeline also publishes so; RocksDB does it for a write group.)
//!
//! ```text
//!            front                 entered
//!              |                      |
//!   published  | done  under way done |  free
//! ```
//!
//! Invariants:
//! - Only a thread that holds the lock `queue` moves the front. Mostly it is the one whose place is at the front, so
//!   the lock is mostly free.
//! - A place is taken again only after it was published, hence after its commit was done.
//! - After a failure the front stays where it is.
//!
//! Order of the accesses:
//! - A thread that holds the commit lock fills a place. The commit learns of its place from that thread and marks it
//!   done with release order. The publisher acquires the mark, so it sees the place, and what the commit wrote.
//! - Publishers follow each other under the lock `queue`, so `visible` covers the entries of all earlier commits.
//! - `visible` is stored before `front`. A commit that sees the front pass its place sees itself visible.
//! - `has_room` acquires `front`, so a place is filled again only after the publisher has read it.

use crate::base::cache_padded::CachePadded;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::spin_wait::SpinWait;
use drumlin_env::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release},
};
use drumlin_env::sync::{Condvar, Mutex, MutexGuard};
use drumlin_types::Seq;
use std::time::Duration;

/// Visibility and the log as they are after a commit, whether or not it is published yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitPoint {
    /// Last visible sequence number.
    pub(crate) seq: Seq,
    /// Last visible sequence number that is in the log. Later commits have `Durability::None`.
    pub(crate) logged: Seq,
    /// Global log position up to which every record is written.
    pub(crate) log_end: u64,
}

/// Maximum number of commits in flight. Further ones wait.
const PLACES: usize = 256;

/// If more commits than this sleep for each core, a commit that has to wait sleeps at once.
const CROWD_PER_CORE: u64 = 2;

/// One place of the ring.
#[derive(Default)]
struct RingSlot {
    /// Number of the last commit here that is done, plus one; 0 if there was none.
    done: AtomicU64,
    /// What is published with the commit.
    seq: AtomicU64,
    logged: AtomicU64,
    log_end: AtomicU64,
}

impl RingSlot {
    fn set(&self, state: CommitPoint) {
        self.seq.store(state.seq, Relaxed);
        self.logged.store(state.logged, Relaxed);
        self.log_end.store(state.log_end, Relaxed);
    }

    fn state(&self) -> CommitPoint {
        CommitPoint {
            seq: self.seq.load(Relaxed),
            logged: self.logged.load(Relaxed),
            log_end: self.log_end.load(Relaxed),
        }
    }
}

struct Queue {
    /// State after the last published commit.
    last: CommitPoint,
    failed: Option<Error>,
    /// Number of threads that sleep until `moved` is notified.
    waiters: u32,
}

/// A commit that takes longer than this is treated as stuck. It writes to memory and to the page cache, which the
/// kernel may delay.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);

/// Fields that change whenever commits are published, on their own cache lines.
struct Progress {
    visible: AtomicU64,
    /// Number of the first commit that is not published. Commits are numbered in their order.
    front: AtomicU64,
}

/// The ring of commits that are not published yet.
pub(crate) struct Publisher {
    progress: CachePadded<Progress>,
    /// Number of the next commit. Changed under the commit lock.
    entered: CachePadded<AtomicU64>,
    /// Whether `queue.failed` is set.
    has_failed: AtomicBool,
    places: Box<[CachePadded<RingSlot>]>,
    queue: CachePadded<Mutex<Queue>>,
    moved: Condvar,
    /// Longest time that a commit may take, in microseconds.
    longest: AtomicU64,
    /// Number of commits whose threads sleep.
    asleep: CachePadded<AtomicU64>,
    /// Number of commits whose threads sleep, above which it is crowded.
    crowd: u64,
}

impl Publisher {
    /// Creates a publisher for a machine with `cores` CPU cores. `last` is the state that commits continue from.
    pub(crate) fn new(last: CommitPoint, cores: usize) -> Publisher {
        Publisher::with_places(last, cores, PLACES)
    }

    /// Creates a publisher like `new`, with room for `places` commits in flight.
    pub(crate) fn with_places(last: CommitPoint, cores: usize, places: usize) -> Publisher {
        Publisher {
            crowd: CROWD_PER_CORE * cores as u64,
            progress: CachePadded(Progress { visible: AtomicU64::new(last.seq), front: AtomicU64::new(0) }),
            entered: CachePadded(AtomicU64::new(0)),
            has_failed: AtomicBool::new(false),
            places: (0..places).map(|_| CachePadded::default()).collect(),
            queue: CachePadded(Mutex::new(Queue { last, failed: None, waiters: 0 })),
            moved: Condvar::new(),
            asleep: CachePadded::default(),
            longest: AtomicU64::new(LONGEST_COMMIT.as_micros() as u64),
        }
    }

    /// Sets the longest time that a commit may take.
    #[cfg(test)]
    pub(crate) fn set_longest(&self, longest: Duration) {
        self.longest.store(longest.as_micros() as u64, Relaxed);
    }

    /// Returns whether a thread waits for commits.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.queue.lock().waiters > 0
    }

    /// Returns the last visible sequence number.
    pub(crate) fn visible(&self) -> Seq {
        self.progress.visible.load(Acquire)
    }

    /// Returns the visible state and the log position, as of one moment.
    pub(crate) fn last_published(&self) -> CommitPoint {
        self.queue.lock().last
    }

    fn place(&self, number: u64) -> &RingSlot {
        &self.places[number as usize % self.places.len()]
    }

    fn is_done(&self, number: u64) -> bool {
        self.place(number).done.load(Acquire) == number + 1
    }

    /// Returns the number of commits that are not published, given the `order` in which to load the front.
    fn under_way(&self, order: Ordering) -> u64 {
        self.entered.load(Relaxed) - self.progress.front.load(order)
    }

    /// Returns whether more than [`CROWD_PER_CORE`] commits for each core sleep. A thread that has to wait should then
    /// sleep at once.
    pub(crate) fn is_crowded(&self) -> bool {
        self.asleep.load(Relaxed) > self.crowd
    }

    /// Calls `wait`, in which the thread of a commit sleeps. It counts as asleep until it runs again.
    pub(crate) fn asleep<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.asleep.fetch_add(1, Relaxed);
        let result = wait();
        self.asleep.fetch_sub(1, Relaxed);
        result
    }

    /// Returns whether a place is free. Called under the commit lock.
    pub(crate) fn has_room(&self) -> bool {
        drumlin_types::bug!("ring-overrun") || self.under_way(Acquire) < self.places.len() as u64
    }

    /// Waits until a place may be free. The caller does not hold the commit lock, which a commit that fails may want.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        loop {
            self.publish_done(&mut queue);
            if self.under_way(Relaxed) < self.places.len() as u64 {
                return Ok(());
            }
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            queue = self.sleep(queue);
        }
    }

    /// Sleeps until the front moves or a commit fails.
    fn sleep<'q>(&self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        queue.waiters += 1;
        queue = self.asleep(|| self.moved.wait(queue));
        queue.waiters -= 1;
        queue
    }

    /// Takes the next place for a commit that leads to `state`, and returns the number of the commit. Called in commit
    /// order, under the commit lock, while there [is room](Publisher::has_room).
    pub(crate) fn enter(&self, state: CommitPoint) -> u64 {
        let number = self.entered.load(Relaxed);
        self.place(number).set(state);
        self.entered.store(number + 1, Release);
        number
    }

    /// Publishes the commits at the front that are done.
    fn publish_done(&self, queue: &mut Queue) {
        let first = self.progress.front.load(Relaxed);
        let mut front = first;
        while queue.failed.is_none()
            && (self.is_done(front)
                || drumlin_types::bug!("publish-out-of-order") && front < self.entered.load(Acquire))
        {
            queue.last = self.place(front).state();
            front += 1;
        }
        if front > first {
            self.progress.visible.store(queue.last.seq, Release);
            self.progress.front.store(front, Release);
        }
        if (front > first || queue.failed.is_some()) && queue.waiters > 0 {
            self.moved.notify_all();
        }
    }

    /// Returns whether commit `number`, which is done, is published. Publishes it if it is at the front.
    fn try_publish(&self, number: u64) -> bool {
        if self.progress.front.load(Acquire) == number
            && let Some(mut queue) = self.queue.try_lock()
        {
            self.publish_done(&mut queue);
        }
        self.progress.front.load(Acquire) > number
    }

    /// Reports commit `number` done and waits until it is published. Returns the microseconds that it waited, by the
    /// clock `now`.
    pub(crate) fn finish(&self, number: u64, now: impl Fn() -> u64) -> Result<u64> {
        self.place(number).done.store(number + 1, Release);
        if self.try_publish(number) {
            return Ok(0);
        }
        let began = now();
        let mut wait = SpinWait::new(!self.is_crowded());
        while !self.has_failed.load(Acquire) && wait.spin() {
            if self.try_publish(number) {
                return Ok(now().saturating_sub(began));
            }
        }
        let mut queue = self.queue.lock();
        loop {
            self.publish_done(&mut queue);
            if self.progress.front.load(Relaxed) > number {
                return Ok(now().saturating_sub(began));
            }
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            queue = self.sleep(queue);
        }
    }

    /// Ends commit `number` without publishing it or any commit behind it, because of `error`. The failure is recorded
    /// and the commit marked done under one lock, so that no other commit publishes it in between.
    pub(crate) fn abandon(&self, number: u64, error: Error) {
        let mut queue = self.queue.lock();
        self.fail_under(&mut queue, error);
        self.place(number).done.store(number + 1, Release);
        self.moved.notify_all();
    }

    /// Waits until every commit that already has a place has finished, successfully or not. Returns an error if one
    /// takes longer than a commit may.
    pub(crate) fn wait_ended(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        let end = self.entered.load(Acquire);
        let under_way =
            || (self.progress.front.load(Relaxed)..end).filter(|number| !self.is_done(*number)).count();
        loop {
            self.publish_done(&mut queue);
            let before = under_way();
            if before == 0 {
                // A place that was marked done since the call above.
                self.publish_done(&mut queue);
                return Ok(());
            }
            queue.waiters += 1;
            let longest = Duration::from_micros(self.longest.load(Relaxed));
            let (next, has_passed) = self.moved.wait_timeout(queue, longest);
            queue = next;
            queue.waiters -= 1;
            if has_passed && under_way() == before {
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

    /// Returns whether a commit failed, so that no later one is published.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }

    /// Returns the failure after which no commit can be published.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.has_failed().then(|| self.queue.lock().failed.clone()).flatten()
    }

    fn fail_under(&self, queue: &mut Queue, error: Error) {
        queue.failed.get_or_insert(error);
        self.has_failed.store(true, Release);
    }

    /// Records that a commit failed after it took its place. No later commit can be published.
    pub(crate) fn fail(&self, error: Error) {
        self.fail_under(&mut self.queue.lock(), error);
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
        let publisher = Publisher::new(CommitPoint::default(), 4);
        publisher.drain().expect("nothing is under way");
        let places = [1, 2].map(|seq| publisher.enter(CommitPoint { seq, logged: seq, log_end: seq }));
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
        let third = publisher.enter(CommitPoint { seq: 3, logged: 3, log_end: 3 });
        publisher.fail(Error::new(ErrorKind::Io, "a disk"));
        publisher.set_longest(Duration::from_millis(1));
        let goes_on = publisher.drain().expect_err("the third commit has not finished");
        assert_eq!(goes_on.kind(), ErrorKind::Busy, "{goes_on}");
        publisher.finish(third, || 0).expect_err("the commit failed");
        publisher.wait_ended().expect("nothing is under way");
        assert_eq!(publisher.drain().expect_err("a commit failed").kind(), ErrorKind::Io);
    }

    fn enter(publisher: &Publisher, seq: Seq) -> u64 {
        publisher.enter(CommitPoint { seq, logged: seq, log_end: seq })
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a commit waits on another thread")]
    fn a_full_ring_makes_further_commits_wait() {
        let publisher = Publisher::with_places(CommitPoint::default(), 4, 2);
        let commits: Vec<u64> = (1..=2).map(|seq| enter(&publisher, seq)).collect();
        assert!(!publisher.has_room());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| publisher.wait_for_room());
            while !publisher.is_awaited() {
                std::thread::yield_now();
            }
            publisher.finish(commits[0], || 0).expect("published");
            waits.join().expect("no panic").expect("there is room");
        });
        assert!(publisher.has_room());
        enter(&publisher, 3);
        assert!(!publisher.has_room());
        publisher.fail(Error::new(ErrorKind::Io, "a disk"));
        assert_eq!(publisher.wait_for_room().expect_err("nothing moves any more").kind(), ErrorKind::Io);
        assert_eq!(publisher.last_published().seq, 1);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "commits end on several threads")]
    fn many_threads_go_many_times_round_the_ring() {
        let (publisher, lane) = (Publisher::with_places(CommitPoint::default(), 4, 3), Mutex::new(0));
        let commits = if cfg!(miri) { 100 } else { 5_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..commits {
                        let (seq, place) = loop {
                            let mut last = lane.lock();
                            if publisher.has_room() {
                                *last += 1;
                                break (*last, enter(&publisher, *last));
                            }
                            drop(last);
                            publisher.wait_for_room().expect("no commit fails");
                        };
                        publisher.finish(place, || 0).expect("published");
                        assert!(publisher.visible() >= seq);
                    }
                });
            }
        });
        let seq = 4 * commits;
        assert_eq!(publisher.last_published(), CommitPoint { seq, logged: seq, log_end: seq });
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a commit waits on another thread")]
    fn a_commit_that_waits_for_an_earlier_one_says_how_long() {
        let publisher = Publisher::new(CommitPoint::default(), 4);
        let [first, second] =
            [1, 2].map(|seq| publisher.enter(CommitPoint { seq, logged: seq, log_end: seq }));
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
