//! Locks and atomics for the whole project, so that one place decides what they are made of.
//!
//! The locks are those of the standard library without poisoning. A panic while a lock is held is caught
//! where the job that panicked was started, and the state behind every lock is kept valid at each point where
//! a panic can happen; a second error type at every `lock()` would only hide the first failure. A model
//! checker can replace the types in this module without a change anywhere else.

use std::sync::PoisonError;
use std::time::Duration;

pub use std::sync::atomic;
pub use std::sync::{Arc, MutexGuard, OnceLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// Mutual exclusion that does not poison.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// The value, when nobody else can hold the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// The value, through exclusive access instead of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Many readers or one writer; does not poison.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// The value, when nobody else can hold the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, through exclusive access instead of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place to wait for a change of what a [`Mutex`] protects.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition variable nobody waits on.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], for at most `timeout`; the flag says that the time ran out.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
