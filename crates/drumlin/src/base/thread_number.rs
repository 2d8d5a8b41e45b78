//! Small numbers of threads, and values that each thread has for itself.
//!
//! A thread gets the smallest number that no other living thread has, and gives it back when it ends. Numbers therefore
//! stay small, and an array can hold a value for each thread: [`PerThread`]. Only the thread with a value's number
//! changes it, so it needs no locked instruction.
//!
//! A destructor of a thread-local value may use a store after the thread has given its number back. The thread then has
//! no number, and takes one for as long as it needs it.
//!
//! Invariants:
//! - No two threads have the same number at the same time.
//! - What a thread did before it gave a number back happens before what the next thread with this number does.

use drumlin_env::sync::OnceLock;
use drumlin_env::sync::plain::Mutex;
use drumlin_env::sync::plain::atomic::{Ordering::SeqCst, fence};
use std::cell::Cell;
use std::collections::BTreeSet;

/// Numbers that threads have given back, and the next number that no thread has had.
struct FreeNumbers {
    free: BTreeSet<usize>,
    next: usize,
}

static NUMBERS: Mutex<FreeNumbers> = Mutex::new(FreeNumbers { free: BTreeSet::new(), next: 0 });

/// In place of a number: the thread has had none yet.
const NONE: usize = usize::MAX;
/// In place of a number: the thread has given its number back.
const ENDED: usize = usize::MAX - 1;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(NONE) };
    /// Gives the thread's number back when it ends.
    static AT_EXIT: AtExit = const { AtExit };
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        match CURRENT.replace(ENDED) {
            NONE | ENDED => {}
            number => give_back(number),
        }
    }
}

/// Returns the number of this thread; `None` if the thread is ending and has given its number back.
#[inline]
pub(crate) fn thread_number() -> Option<usize> {
    match CURRENT.get() {
        NONE => first_number(),
        ENDED => None,
        number => Some(number),
    }
}

#[cold]
fn first_number() -> Option<usize> {
    if AT_EXIT.try_with(|_| ()).is_err() {
        CURRENT.set(ENDED);
        return None;
    }
    let number = take_number();
    CURRENT.set(number);
    Some(number)
}

/// Takes a number that no thread has. The caller must give it back.
#[cold]
pub(super) fn take_number() -> usize {
    let mut numbers = NUMBERS.lock();
    numbers.free.pop_first().unwrap_or_else(|| {
        numbers.next += 1;
        numbers.next - 1
    })
}

/// Gives back a number that was taken.
#[cold]
pub(super) fn give_back(number: usize) {
    NUMBERS.lock().free.insert(number);
}

/// Number of values in the first part of a [`PerThread`]. Each further part is as long as all parts before it.
const FIRST_PART: usize = 32;
/// Number of further parts: enough for 2^31 threads.
const FURTHER_PARTS: usize = 26;

/// A value for each thread, by its number. Further parts are made when a thread whose number lies in them first uses
/// its value.
pub(crate) struct PerThread<T> {
    first: Box<[T]>,
    further: [OnceLock<Box<[T]>>; FURTHER_PARTS],
}

impl<T: Default> PerThread<T> {
    pub(crate) fn new() -> PerThread<T> {
        let first = (0..FIRST_PART).map(|_| T::default()).collect();
        PerThread { first, further: [const { OnceLock::new() }; FURTHER_PARTS] }
    }

    /// Returns the value of the thread with this number. A thread that uses its value after this call is seen by
    /// [`iter`](PerThread::iter) in the order of the sequentially consistent operations of both.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &T {
        match self.first.get(number) {
            Some(value) => value,
            None => self.find(number),
        }
    }

    #[cold]
    fn find(&self, number: usize) -> &T {
        let part = (number / FIRST_PART).ilog2();
        let len = FIRST_PART << part;
        let values = self.further[part as usize].get_or_init(|| (0..len).map(|_| T::default()).collect());
        // Every thread whose fence comes after this one, in the total order of these fences, sees the part.
        fence(SeqCst);
        &values[number - len]
    }

    /// Returns all values that were made so far.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        fence(SeqCst);
        self.first.iter().chain(self.further.iter().filter_map(OnceLock::get).flatten())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "numbers belong to real threads")]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn living_threads_have_different_numbers_which_are_used_again() {
        let mine = thread_number().expect("a living thread");
        assert_eq!(thread_number(), Some(mine));
        let mut most = 0;
        for _ in 0..4 {
            let barrier = Barrier::new(5);
            let numbers: Vec<usize> = std::thread::scope(|scope| {
                let number = || {
                    let number = thread_number().expect("a living thread");
                    barrier.wait();
                    number
                };
                let threads: Vec<_> = (0..5).map(|_| scope.spawn(number)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let distinct: BTreeSet<usize> = numbers.iter().copied().chain([mine]).collect();
            assert_eq!(distinct.len(), 6);
            most = most.max(*numbers.iter().max().expect("five"));
        }
        // Other tests run beside this one, and a thread that is joined may still be about to give its number back.
        assert!(most < 1000, "{most}");
    }

    thread_local! {
        static LAST: Cell<Option<AtTheEnd>> = const { Cell::new(None) };
    }

    struct AtTheEnd(std::sync::mpsc::Sender<Option<usize>>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let _ = self.0.send(thread_number());
        }
    }

    #[test]
    fn a_thread_that_ends_has_no_number() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // Registered first, so destroyed last.
            LAST.set(Some(AtTheEnd(sender)));
            thread_number()
        });
        assert!(thread.join().expect("no panic").is_some());
        assert_eq!(receiver.recv().expect("the destructor has run"), None);
    }

    #[test]
    fn every_number_has_a_value_of_its_own() {
        let values: PerThread<Cell<usize>> = PerThread::new();
        let numbers: Vec<usize> = (0..200).chain([1 << 12, (1 << 14) + 7]).collect();
        for number in &numbers {
            values.get(*number).set(number + 1);
        }
        for number in &numbers {
            assert_eq!(values.get(*number).get(), number + 1);
        }
        assert_eq!(values.iter().filter(|value| value.get() > 0).count(), numbers.len());
    }
}
