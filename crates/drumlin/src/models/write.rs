//! Concurrency models of parts of the write path.

use crate::write::{Published, Publisher};
use drumlin_env::sync::{Arc, Mutex, plain};
use plain::atomic::{AtomicU64, Ordering};
use shuttle::thread;

/// Three commits end in any order. Each is published after all earlier ones have ended, and a drain waits for all.
pub(super) fn commits_are_published_in_order() {
    let publisher = Arc::new(Publisher::new(Published::default()));
    // As in the commit lane, sequence numbers and places are assigned together.
    let lane = Arc::new(Mutex::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    let commits = [0, 1, 2].map(|_| {
        let (publisher, lane, ended) = (publisher.clone(), lane.clone(), ended.clone());
        thread::spawn(move || {
            let (seq, place) = {
                let mut last = lane.lock();
                *last += 1;
                (*last, publisher.enter(Published { seq: *last, logged: *last, log_end: *last }))
            };
            ended.fetch_or(1 << seq, Ordering::SeqCst);
            publisher.finish(place, || 0).expect("no commit fails");
            let before = (1..=seq).fold(0, |all, seq| all | 1 << seq);
            assert!(publisher.visible() >= seq, "#{seq} is acknowledged but not visible");
            assert_eq!(ended.load(Ordering::SeqCst) & before, before, "a commit before #{seq} has not ended");
        })
    });
    let begun = *lane.lock();
    publisher.drain().expect("no commit fails");
    assert!(publisher.visible() >= begun, "the drain did not wait for #{begun}");
    commits.into_iter().for_each(|commit| commit.join().expect("a commit"));
    assert_eq!(publisher.visible(), 3);
}
