//! Requests of commits that find the commit lock taken.
//!
//! A commit that gets the lock also answers the requests that wait at that time ("flat combining", Hendler et al., SPAA
//! 2010). The lock then changes hands less often, and the state under it stays in the caches of one CPU core. Other
//! holders of the lock answer nothing; the threads that wait then try the lock themselves.
//!
//! A thread that is about to sleep until it gets the lock marks its request. Nobody serves a request with that mark:
//! the commit would be under way while its thread sleeps, and all later commits would wait for it.
//!
//! A request lies on the stack of its thread, which does not leave [`WaitingRequests::submit`] before it is answered.
//! The list grows at one end by compare-and-swap and is only taken as a whole, so it has no ABA problem.
//!
//! Invariants:
//! - A thread that takes the list has its requests for itself, and answers all of them. It holds the commit lock, so
//!   that commits get their order.
//! - Marking a request answered is the last access to it by another thread than its own.
//! - A panic in the reservation for another thread goes on in that thread. The thread that serves may have a
//!   reservation of its own, which a panic would lose.

use super::request::{Request, Reserved};
use crate::base::error::Result;
use drumlin_env::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// Answer to a request.
pub(super) enum Answer {
    Ended(Result<Reserved>),
    /// Too many commits are under way: the thread waits for room and asks again.
    RingFull,
}

/// What a thread finds in its request when it is answered.
enum RequestState {
    Answer(Answer),
    /// The reservation panicked.
    Panic(Box<dyn Any + Send>),
    /// The request was not served, since its thread sleeps until it gets the lock.
    NotServed,
}

// Requests are read by other threads, and answers come from them. The pointers of the list do not show this.
const _: () = {
    const fn is_sync<T: Sync>() {}
    const fn is_send<T: Send>() {}
    is_sync::<Request<'static>>();
    is_send::<RequestState>();
};

// States of a request.
const WAITING: u8 = 0;
/// Its thread sleeps until it gets the lock.
const ASLEEP: u8 = 1;
/// Another thread serves it.
const SERVED: u8 = 2;
const ANSWERED: u8 = 3;

/// A request of the list.
pub(super) struct Waiting<'r> {
    request: &'r Request<'r>,
    /// The next older request of the list.
    next: AtomicPtr<Waiting<'static>>,
    outcome: UnsafeCell<RequestState>,
    state: AtomicU8,
}

impl Waiting<'_> {
    /// Returns whether the request is answered.
    pub(super) fn is_answered(&self) -> bool {
        self.state.load(Acquire) == ANSWERED
    }

    /// Marks the request as that of a thread that sleeps until it gets the lock. Returns `false` if it is served.
    pub(super) fn mark_sleeping(&self) -> bool {
        self.state.compare_exchange(WAITING, ASLEEP, Relaxed, Relaxed).is_ok()
    }

    /// Claims the request for the thread that serves it. Returns `false` if its own thread sleeps.
    fn try_claim(&self) -> bool {
        self.state.compare_exchange(WAITING, SERVED, Relaxed, Relaxed).is_ok()
    }
}

/// The list of the requests, newest first.
#[derive(Default)]
pub(super) struct WaitingRequests {
    newest: AtomicPtr<Waiting<'static>>,
}

/// Keeps a thread from leaving its request while another one may use it. This waits only if the thread panics. In that
/// case a thread that serves takes the request with others, or has answered it already.
struct Stay<'w>(&'w Waiting<'w>);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        while !self.0.is_answered() {
            drumlin_env::yield_now();
        }
    }
}

impl WaitingRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.newest.load(Acquire).is_null()
    }

    /// Adds `request` to the list and calls `wait`, which returns once the request is answered. `wait` may answer the
    /// list itself, under the commit lock. It returns the answer to a request that it marked as
    /// [asleep](Waiting::mark_sleeping). It does not panic while its request may be on the list.
    pub(super) fn submit<'r>(
        &self,
        request: &'r Request<'r>,
        wait: impl FnOnce(&Waiting<'_>) -> Option<Answer>,
    ) -> Answer {
        let waiting = Waiting {
            request,
            next: AtomicPtr::new(ptr::null_mut()),
            outcome: UnsafeCell::new(RequestState::NotServed),
            state: AtomicU8::new(WAITING),
        };
        let own = {
            let stay = Stay(&waiting);
            // The lifetime ends when the request is answered, before this block ends.
            let address = ptr::from_ref(&waiting).cast_mut().cast::<Waiting<'static>>();
            let mut newest = self.newest.load(Relaxed);
            loop {
                waiting.next.store(newest, Relaxed);
                match self.newest.compare_exchange_weak(newest, address, AcqRel, Relaxed) {
                    Ok(_) => break,
                    Err(other) => newest = other,
                }
            }
            wait(stay.0)
        };
        match waiting.outcome.into_inner() {
            RequestState::Answer(answer) => answer,
            RequestState::Panic(payload) => resume_unwind(payload),
            // Only a thread that marked its request as sleeping is not served, and `wait` then gave its own answer.
            // Asking again is always safe.
            RequestState::NotServed => own.unwrap_or(Answer::RingFull),
        }
    }

    /// Answers all requests of the list, oldest first. The caller holds the commit lock.
    pub(super) fn answer_all(&self, mut answer: impl FnMut(&Request<'_>) -> Answer) {
        let mut newest = self.newest.swap(ptr::null_mut(), AcqRel);
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: the request was on the list, so it is not answered and still on its thread's stack. The swap
            // above acquires all insertions.
            let next = unsafe { (*newest).next.swap(oldest, Relaxed) };
            oldest = std::mem::replace(&mut newest, next);
        }
        while !oldest.is_null() {
            // SAFETY: as above. `answer` takes a request of any lifetime, so it cannot keep it.
            let waiting = unsafe { &*oldest };
            let outcome = match waiting.try_claim() {
                true => catch_unwind(AssertUnwindSafe(|| RequestState::Answer(answer(waiting.request))))
                    .unwrap_or_else(RequestState::Panic),
                false => RequestState::NotServed,
            };
            oldest = waiting.next.load(Relaxed);
            // SAFETY: the thread of the request reads `outcome` only once it is answered, and no third thread has the
            // request.
            unsafe { *waiting.outcome.get() = outcome };
            // The last access.
            waiting.state.store(ANSWERED, Release);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the requests come from several threads")]
mod tests {
    use super::*;
    use drumlin_env::sync::Mutex;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn request(operations: u64) -> Request<'static> {
        Request { keyspaces: &[], operations, record_len: None, only_deletes: false }
    }

    fn reserved(first_seq: u64) -> Reserved {
        let memtables = Default::default();
        Reserved { first_seq, log: None, memtables, number: 0, sealed: false, waited: 0 }
    }

    /// Threads ask for numbers, as commits do. The one that has the lock gives them out. Some requests are sent back.
    #[test]
    fn each_request_is_answered_once() {
        let (waiting, last) = (WaitingRequests::default(), Mutex::new(0));
        let (threads, requests) = if cfg!(miri) { (3, 30) } else { (8, 5_000) };
        let give = |last: &mut u64, request: &Request<'_>| {
            *last += 1;
            match last.is_multiple_of(5) {
                true => Answer::RingFull,
                false => Answer::Ended(Ok(reserved(*last * 100 + request.operations))),
            }
        };
        let serve = |last: &mut u64| waiting.answer_all(|request| give(last, request));
        let ask = |number: u64| {
            let request = request(number);
            let mut looks = 0;
            let answer = waiting.submit(&request, |waiting| {
                while !waiting.is_answered() {
                    looks += 1;
                    if looks == 3 && waiting.mark_sleeping() {
                        let mut last = last.lock();
                        serve(&mut last);
                        return Some(give(&mut last, &request));
                    }
                    match last.try_lock() {
                        Some(mut last) => serve(&mut last),
                        None => std::thread::yield_now(),
                    }
                }
                None
            });
            match answer {
                Answer::Ended(answer) => Some(answer.expect("no request fails").first_seq),
                Answer::RingFull => None,
            }
        };
        let mut got: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|number| {
                    scope.spawn(move || {
                        let answers: Vec<u64> = (0..requests).filter_map(|_| ask(number)).collect();
                        assert!(answers.iter().all(|answer| answer % 100 == number), "another's answer");
                        answers
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        got.iter_mut().for_each(|answer| *answer /= 100);
        got.sort_unstable();
        let given = threads * requests;
        assert_eq!(got, (1..=given).filter(|number| number % 5 != 0).collect::<Vec<u64>>());
    }

    #[test]
    fn a_panic_goes_on_in_the_thread_whose_request_panics() {
        let waiting = WaitingRequests::default();
        let (older, newer) = (request(1), request(2));
        let outer = catch_unwind(AssertUnwindSafe(|| {
            waiting.submit(&older, |older_waits| {
                let inner = waiting.submit(&newer, |newer_waits| {
                    waiting.answer_all(|request| match request.operations {
                        1 => panic!("at request 1"),
                        number => Answer::Ended(Ok(reserved(number))),
                    });
                    assert!(older_waits.is_answered() && newer_waits.is_answered());
                    None
                });
                assert!(matches!(inner, Answer::Ended(Ok(Reserved { first_seq: 2, .. }))));
                None
            })
        }));
        let payload = outer.err().expect("it panics");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"at request 1"));
    }

    #[test]
    fn a_request_of_a_sleeping_thread_is_not_served() {
        let (waiting, request) = (WaitingRequests::default(), request(1));
        let answer = waiting.submit(&request, |waits| {
            assert!(waits.mark_sleeping());
            waiting.answer_all(|_| panic!("served"));
            assert!(waits.is_answered());
            Some(Answer::Ended(Ok(reserved(7))))
        });
        assert!(matches!(answer, Answer::Ended(Ok(Reserved { first_seq: 7, .. }))));
    }
}
