//! Locks and atomics for the whole project. This one module decides what implements them.
//!
//! The locks are those of the standard library, without poisoning. A panic while a lock is held is caught where the
//! panicking job was started. The state behind every lock stays valid at each point where a panic can happen. A
//! second error type at every `lock()` would only hide the first failure.
//!
//! Builds with `--cfg shuttle` use the types of shuttle, a model checker that chooses the next thread at each lock
//! and each atomic operation. Two uses stay outside of a model and take [`plain`] in every build. One is state that
//! outlives one execution of a model, such as statics. The other is the internal state of this crate, whose calls are
//! single steps to the engine.

#[cfg(not(shuttle))]
use std::sync as made_of;

#[cfg(shuttle)]
use shuttle::sync as made_of;

mod locks;

pub use locks::*;

/// The same types from the standard library, in every build.
#[cfg(not(shuttle))]
pub mod plain {
    pub use super::locks::*;
}

#[cfg(shuttle)]
pub mod plain;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_panic_under_the_lock_does_not_poison_it() {
        let mutex = Arc::new(Mutex::new(1));
        let shared = mutex.clone();
        let outcome = std::thread::spawn(move || {
            *shared.lock() = 2;
            let _guard = shared.lock_for_panic();
            panic!("expected by the test");
        })
        .join();
        assert!(outcome.is_err());
        assert_eq!(*mutex.lock(), 2);
        assert!(mutex.try_lock().is_some());
    }

    impl<T> Mutex<T> {
        fn lock_for_panic(&self) -> MutexGuard<'_, T> {
            self.lock()
        }
    }

    #[test]
    fn waiting_ends_with_a_notification_or_the_timeout() {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let (guard, timed_out) = pair.1.wait_timeout(pair.0.lock(), Duration::from_micros(1));
        assert!(timed_out && !*guard);
        drop(guard);
        let other = pair.clone();
        let thread = std::thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let mut guard = pair.0.lock();
        while !*guard {
            guard = pair.1.wait(guard);
        }
        drop(guard);
        thread.join().unwrap();
    }
}
