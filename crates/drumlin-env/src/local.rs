//! Thread-local working memory.
//!
//! Two cases cannot use the thread's value and get a new one. The destructor of another thread-local value may use
//! the store after this thread's value has been destroyed. Code that uses the value may also call code that uses it
//! again.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Runs `work` on this thread's value of `key`, or on a new value where that one is destroyed or borrowed.
#[inline]
pub fn with<T: Default, R>(key: &'static LocalKey<RefCell<T>>, work: impl FnOnce(&mut T) -> R) -> R {
    let mut work = Some(work);
    let done = key.try_with(|value| {
        let mut value = value.try_borrow_mut().ok()?;
        work.take().map(|work| work(&mut value))
    });
    match (done, work) {
        (Ok(Some(result)), _) => result,
        (_, Some(work)) => work(&mut T::default()),
        (_, None) => unreachable!("work that was begun has a result"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::mpsc::{Sender, channel};

    thread_local! {
        static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        static LAST: Cell<Option<AtTheEnd>> = const { Cell::new(None) };
    }

    struct AtTheEnd(Sender<usize>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let _ = self.0.send(with(&KEPT, |kept| kept.len()));
        }
    }

    #[test]
    fn a_value_is_kept_and_one_in_use_is_left_alone() {
        with(&KEPT, |kept| kept.push(1));
        with(&KEPT, |kept| {
            assert_eq!(*kept, [1]);
            with(&KEPT, |other| assert!(other.is_empty()));
        });
    }

    #[test]
    fn what_is_gone_is_made_anew() {
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            // Registered first, so destroyed last.
            LAST.set(Some(AtTheEnd(sender)));
            with(&KEPT, |kept| kept.push(1));
        });
        thread.join().expect("no panic");
        assert!(receiver.recv().expect("the destructor has run") <= 1);
    }
}
