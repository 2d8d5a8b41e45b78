//! Concurrency models of parts of the write path.

use crate::write::{CommitPoint, Publisher};
use drumlin_env::sync::atomic::{AtomicU64, Ordering};
use drumlin_env::sync::{Arc, Mutex};
use shuttle::thread;

/// Three commits end in any order. Each is published after all earlier ones have ended, and a drain waits for all.
pub(super) fn commits_are_published_in_order() {
    // One commit has to wait for room.
    let publisher = Arc::new(Publisher::with_places(CommitPoint::default(), 4, 2));
    // As under the commit lock, sequence numbers and places are assigned together.
    let lock = Arc::new(Mutex::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    let commits = [0, 1, 2].map(|_| {
        let (publisher, lock, ended) = (publisher.clone(), lock.clone(), ended.clone());
        thread::spawn(move || {
            let (seq, number) = loop {
                let mut last = lock.lock();
                if publisher.has_room() {
                    *last += 1;
                    let state = CommitPoint { seq: *last, logged: *last, log_end: *last };
                    break (*last, publisher.enter(state));
                }
                drop(last);
                publisher.wait_for_room().expect("no commit fails");
            };
            ended.fetch_or(1 << seq, Ordering::SeqCst);
            publisher.finish(number, || 0).expect("no commit fails");
            let before = (1..=seq).fold(0, |all, seq| all | 1 << seq);
            assert!(publisher.visible() >= seq, "#{seq} is acknowledged but not visible");
            assert_eq!(ended.load(Ordering::SeqCst) & before, before, "a commit before #{seq} has not ended");
        })
    });
    let begun = *lock.lock();
    publisher.drain().expect("no commit fails");
    assert!(publisher.visible() >= begun, "the drain did not wait for #{begun}");
    commits.into_iter().for_each(|commit| commit.join().expect("a commit"));
    assert_eq!(publisher.visible(), 3);
}
