//! Epoch-based reclamation: shared pointers that readers follow without reference counts.
//!
//! A reader *pins* the epochs of its store, follows any number of [`EpochPtr`]s, and unpins them. That takes one locked
//! instruction for all pointers. A writer that replaces the value of a pointer *retires* the old value. It is dropped
//! when no reader that may still use it is pinned (Fraser, "Practical lock-freedom", 2004, section 5.2.3).
//!
//! ```text
//! reader: pinned = now            writer: pointer = new
//!         load pointers                   tag = now           (retire)
//!         pinned = 0                      now += 1            (collect)
//!                                         drop what has a tag below every pinned epoch
//! ```
//!
//! Why this is safe: these accesses are sequentially consistent, and the states of threads are found behind a fence.
//! There are three kinds of readers:
//! - A reader whose pin the collector does not see yet pins after the collector looked, thus after the pointer changed.
//!   It follows the new pointer.
//! - A reader that has unpinned stored 0 with release order after its last use of the value.
//! - A reader that pinned an epoch above the tag read `now` after it was increased, which was after the tag was taken,
//!   thus after the pointer changed.
//!
//! When values are dropped:
//! - *Promptly*, for values that hold files or much memory ([`EpochPtr`]): by the call that retires them or, if readers
//!   are pinned, by the last such reader when it unpins. `waiting` asks readers for that. A reader that unpins at the
//!   same moment may miss it. Then the next call of [`Epochs::collect`] drops the value: maintenance and close call it.
//! - *In batches*, for blocks of the cache ([`EpochPtrs`]): when a thread has retired [`BATCH_BYTES`] of them, at its
//!   next unpin. The cache bounds the bytes of all threads by [`Epochs::retired_bytes`].
//!
//! A pin must be short: it delays the release of the memory, the file handles and the files of everything that is
//! retired meanwhile. A reader may read blocks while it is pinned, but does not call user code.
//!
//! Each store has its own epochs, so that readers of one store hold nothing of another back, and a simulated store
//! stays deterministic while others run beside it. A pointer knows the number of its epochs and yields nothing to a pin
//! of others.
//!
//! Invariants:
//! - Only the thread with the number of a `ThreadState` changes its `depth`, `pinned` and `due`, and adds to its list.
//! - The tags of a list never descend.
//! - Values are dropped while no lock of this module is held, since their destructors may retire others. Such a
//!   destructor may run at any unpin, under the locks of the caller. It takes no lock but that of the queue of obsolete
//!   files.

use super::prefetch::{LINE, prefetch};
use super::thread_number::{PerThread, give_back, take_number, thread_number};
use drumlin_env::sync::Arc;
use drumlin_env::sync::plain::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release, SeqCst},
};
use drumlin_env::sync::plain::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// Bytes of values that a thread retires before it collects them. A pinned reader may hold back more.
const BATCH_BYTES: usize = 64 << 10;
/// CPU cache lines that are prefetched at a hint.
const HINTED_LINES: usize = 3;

/// Number of the next store's epochs.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// When a retired value is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Promptly,
    InBatches { bytes: usize },
}

struct Retired {
    tag: u64,
    when: When,
    /// Only kept so that it is dropped together with this entry.
    _value: Arc<dyn Any + Send + Sync>,
}

/// What one thread has retired.
struct RetiredList {
    values: VecDeque<Retired>,
    /// Bytes of the values that are dropped in batches, and the sum at which they are collected.
    bytes: usize,
    collect_at: usize,
}

/// State of one thread.
#[repr(align(128))]
struct ThreadState {
    /// Epoch that the thread has pinned, or 0.
    pinned: AtomicU64,
    /// Number of pins of the thread.
    depth: AtomicU32,
    /// Whether the thread collects when it unpins.
    due: AtomicBool,
    retired: Mutex<RetiredList>,
}

impl Default for ThreadState {
    fn default() -> ThreadState {
        ThreadState {
            pinned: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            due: AtomicBool::new(false),
            retired: Mutex::new(RetiredList { values: VecDeque::new(), bytes: 0, collect_at: BATCH_BYTES }),
        }
    }
}

/// The epochs of a store.
pub(crate) struct Epochs {
    /// Tells these epochs from those of other stores.
    number: u64,
    /// The current epoch. It is never 0.
    now: AtomicU64,
    /// A reader that pinned an epoch below this one may hold back values that are to be dropped promptly.
    waiting: AtomicU64,
    threads: PerThread<ThreadState>,
    /// Number of retired values that are to be dropped promptly, and bytes of the others.
    prompt: AtomicUsize,
    bytes: AtomicUsize,
    /// Held by the thread that collects what all threads have retired.
    collecting: Mutex<()>,
}

/// State that this thread may use: its own or, while the thread ends, that of a number that it has taken for a while.
struct OwnState<'e> {
    state: &'e ThreadState,
    /// Number to give back.
    taken: Option<usize>,
}

impl Drop for OwnState<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(number) = self.taken {
            give_back(number);
        }
    }
}

impl Epochs {
    pub(crate) fn new() -> Arc<Epochs> {
        let number = NEXT.fetch_add(1, Relaxed);
        Arc::new(Epochs {
            number,
            now: AtomicU64::new(1),
            waiting: AtomicU64::new(0),
            threads: PerThread::new(),
            prompt: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            collecting: Mutex::new(()),
        })
    }

    /// Returns the state that this thread may use.
    #[inline]
    fn own_state(&self) -> OwnState<'_> {
        match thread_number() {
            Some(number) => OwnState { state: self.threads.get(number), taken: None },
            None => {
                let number = take_number();
                OwnState { state: self.threads.get(number), taken: Some(number) }
            }
        }
    }

    /// Pins this thread. Pins nest: only the end of the outermost one drops values.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        let own = self.own_state();
        let depth = own.state.depth.load(Relaxed);
        own.state.depth.store(depth + 1, Relaxed);
        if depth == 0 {
            own.state.pinned.swap(self.now.load(SeqCst), SeqCst);
        }
        Pin { epochs: self, own, not_send: PhantomData }
    }

    /// Drops all retired values that no reader can use any more.
    pub(crate) fn collect(&self) {
        if self.prompt.load(Relaxed) > 0 || self.bytes.load(Relaxed) > 0 {
            self.collect_under(self.collecting.lock());
        }
    }

    /// Collects, unless another thread does so now.
    pub(crate) fn try_collect(&self) {
        if let Some(collecting) = self.collecting.try_lock() {
            self.collect_under(collecting);
        }
    }

    fn collect_under(&self, collecting: MutexGuard<'_, ()>) {
        let free: Vec<Retired> = self.threads.iter().flat_map(|state| self.take_free(state).0).collect();
        drop(collecting);
        drop(free);
    }

    /// Returns whether values that are to be dropped promptly wait for a reader.
    pub(crate) fn holds_back(&self) -> bool {
        self.prompt.load(Relaxed) > 0
    }

    /// Returns the bytes of retired blocks.
    pub(crate) fn retired_bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Begins a new epoch. Returns the oldest pinned epoch, or the largest number if no thread is pinned.
    fn oldest_pin(&self) -> u64 {
        self.now.fetch_add(1, SeqCst);
        let pinned = self.threads.iter().map(|state| state.pinned.load(SeqCst));
        pinned.filter(|pinned| *pinned != 0).min().unwrap_or(u64::MAX)
    }

    /// Retires a value to which no pointer leads any more.
    fn retire(&self, when: When, value: Arc<dyn Any + Send + Sync>) {
        let own = self.own_state();
        let state = own.state;
        let mut list = state.retired.lock();
        let tag = self.now.load(SeqCst);
        list.values.push_back(Retired { tag, when, _value: value });
        let is_due = match when {
            When::Promptly => {
                self.prompt.fetch_add(1, Relaxed);
                true
            }
            When::InBatches { bytes } => {
                self.bytes.fetch_add(bytes, Relaxed);
                list.bytes += bytes;
                list.bytes >= list.collect_at
            }
        };
        drop(list);
        if when == When::Promptly && state.depth.load(Relaxed) == 0 {
            self.collect_of(state);
        } else if is_due {
            state.due.store(true, Relaxed);
        }
    }

    /// Drops the values that a thread retired and no reader can use any more.
    fn collect_of(&self, state: &ThreadState) {
        loop {
            let (free, is_asked) = self.take_free(state);
            if free.is_empty() && !is_asked {
                return;
            }
        }
    }

    /// Takes the values that no reader can use. Also returns whether readers were asked to drop the others promptly.
    /// The caller then looks again, since the reader that it waits for may have unpinned meanwhile.
    fn take_free(&self, state: &ThreadState) -> (Vec<Retired>, bool) {
        let mut list = state.retired.lock();
        if list.values.is_empty() {
            return (Vec::new(), false);
        }
        let oldest = self.oldest_pin();
        let count = list.values.partition_point(|retired| retired.tag < oldest);
        let free: Vec<Retired> = list.values.drain(..count).collect();
        let (mut prompt, mut freed) = (0, 0);
        for retired in &free {
            match retired.when {
                When::Promptly => prompt += 1,
                When::InBatches { bytes } => freed += bytes,
            }
        }
        self.prompt.fetch_sub(prompt, Relaxed);
        self.bytes.fetch_sub(freed, Relaxed);
        list.bytes -= freed;
        // The remaining values wait for a reader. Checking them at each unpin would cost more than it gains.
        list.collect_at = list.bytes + BATCH_BYTES;
        let last = list.values.iter().rfind(|retired| retired.when == When::Promptly);
        let asked = last.map_or(0, |retired| retired.tag + 1);
        (free, self.waiting.fetch_max(asked, SeqCst) < asked)
    }

    /// Does what the thread of `state` was asked to do when it unpins `epoch`.
    #[cold]
    fn unpinned(&self, state: &ThreadState, epoch: u64) {
        if state.due.load(Relaxed) {
            state.due.store(false, Relaxed);
            self.collect_of(state);
        }
        if epoch < self.waiting.load(Relaxed) {
            self.collect();
        }
    }
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epochs({}, now {})", self.number, self.now.load(Relaxed))
    }
}

/// While a thread has a pin, values that it reads from an [`EpochPtr`] stay alive.
pub(crate) struct Pin<'e> {
    epochs: &'e Epochs,
    own: OwnState<'e>,
    /// A pin belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        let state = self.own.state;
        let depth = state.depth.load(Relaxed) - 1;
        state.depth.store(depth, Relaxed);
        if depth == 0 {
            let epoch = state.pinned.load(Relaxed);
            state.pinned.store(0, Release);
            if state.due.load(Relaxed) || epoch < self.epochs.waiting.load(Relaxed) {
                self.epochs.unpinned(state, epoch);
            }
        }
    }
}

/// A pointer from [`Arc::into_raw`], with one reference count; or null.
struct RawPtr<T>(AtomicPtr<T>, PhantomData<Arc<T>>);

impl<T: Send + Sync + 'static> RawPtr<T> {
    fn new(value: Option<Arc<T>>) -> RawPtr<T> {
        RawPtr(AtomicPtr::new(RawPtr::into_raw(value)), PhantomData)
    }

    fn into_raw(value: Option<Arc<T>>) -> *mut T {
        value.map_or(ptr::null_mut(), |value| Arc::into_raw(value).cast_mut())
    }

    /// Borrows the value.
    ///
    /// # Safety
    /// `pin` belongs to the epochs that each call of `replace` is given.
    #[inline]
    unsafe fn load<'p>(&'p self, _pin: &'p Pin<'_>) -> Option<&'p T> {
        // SAFETY: the pointer has a reference count of its own. It is given up in two places. `replace` retires it, so
        // it lasts until the pin ends, as the head of this file says. `drop` has the pointer for itself, so nobody
        // borrows from it any more.
        unsafe { self.0.load(SeqCst).as_ref() }
    }

    /// Returns the value with a reference count of its own.
    ///
    /// # Safety
    /// `pin` belongs to the epochs that each call of `replace` is given.
    unsafe fn load_full(&self, _pin: &Pin<'_>) -> Option<Arc<T>> {
        let value = self.0.load(SeqCst).cast_const();
        if value.is_null() {
            return None;
        }
        // SAFETY: the pointer comes from `Arc::into_raw`, and its reference count lasts until the pin ends.
        unsafe {
            Arc::increment_strong_count(value);
            Some(Arc::from_raw(value))
        }
    }

    fn replace(&self, value: Option<Arc<T>>, when: When, epochs: &Epochs) {
        let old = self.0.swap(RawPtr::into_raw(value), SeqCst);
        if !old.is_null() {
            // SAFETY: the pointer comes from `Arc::into_raw`, and the swap took its reference count.
            epochs.retire(when, unsafe { Arc::from_raw(old) });
        }
    }
}

impl<T> Drop for RawPtr<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: the pointer comes from `Arc::into_raw`. Nobody can borrow from it or replace it any more.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}

/// Shared pointer to a value, or to none, that readers follow without a reference count.
pub(crate) struct EpochPtr<T: Send + Sync + 'static> {
    /// Number of the epochs that old values are retired to.
    epochs: u64,
    value: RawPtr<T>,
}

impl<T: Send + Sync + 'static> EpochPtr<T> {
    /// Creates a pointer to `value`, whose readers pin `epochs`.
    pub(crate) fn new(value: Option<Arc<T>>, epochs: &Epochs) -> EpochPtr<T> {
        EpochPtr { epochs: epochs.number, value: RawPtr::new(value) }
    }

    /// Borrows the value. Returns `None` if there is none, or if the pin is one of other epochs.
    #[inline]
    pub(crate) fn load<'p>(&'p self, pin: &'p Pin<'_>) -> Option<&'p T> {
        // SAFETY: the pin is one of the pointer's epochs, and `store` retires to no others.
        (pin.epochs.number == self.epochs).then(|| unsafe { self.value.load(pin) })?
    }

    /// Returns the value with a reference count of its own.
    pub(crate) fn load_full(&self, epochs: &Epochs) -> Option<Arc<T>> {
        let pin = epochs.pin();
        // SAFETY: the pin is one of the pointer's epochs, and `store` retires to no others.
        (epochs.number == self.epochs).then(|| unsafe { self.value.load_full(&pin) })?
    }

    /// Replaces the value. The old one is dropped promptly.
    ///
    /// # Panics
    /// If `epochs` are not those of the pointer.
    pub(crate) fn store(&self, value: Option<Arc<T>>, epochs: &Epochs) {
        assert_eq!(epochs.number, self.epochs, "a pointer keeps its epochs");
        self.value.replace(value, When::Promptly, epochs);
    }
}

/// One of many pointers, and a hint: the address of what readers of the value read next. With the hint, a reader can
/// prefetch both at once. The hint may be outdated; it is only ever prefetched.
#[repr(align(16))]
struct HintedPtr<T> {
    value: RawPtr<T>,
    hint: AtomicPtr<u8>,
}

/// Many pointers like [`EpochPtr`], to values that hold nothing but memory. Clones share the pointers.
pub(crate) struct EpochPtrs<T: Send + Sync + 'static> {
    /// Number of the epochs that old values are retired to.
    epochs: u64,
    values: Arc<[HintedPtr<T>]>,
}

impl<T: Send + Sync + 'static> Clone for EpochPtrs<T> {
    fn clone(&self) -> EpochPtrs<T> {
        EpochPtrs { epochs: self.epochs, values: self.values.clone() }
    }
}

impl<T: Send + Sync + 'static> EpochPtrs<T> {
    /// Creates `count` pointers to no value, whose readers pin `epochs`.
    pub(crate) fn new(count: usize, epochs: &Epochs) -> EpochPtrs<T> {
        let none = |_| HintedPtr { value: RawPtr::new(None), hint: AtomicPtr::new(ptr::null_mut()) };
        EpochPtrs { epochs: epochs.number, values: (0..count).map(none).collect() }
    }

    /// Returns whether `other` is a clone of these pointers.
    pub(crate) fn is(&self, other: &EpochPtrs<T>) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.values)
    }

    /// Borrows the value of pointer `at`. Returns `None` if there is none, if the pin is one of other epochs, or if
    /// there is no such pointer.
    #[inline]
    pub(crate) fn load<'p>(&'p self, at: usize, pin: &'p Pin<'_>) -> Option<&'p T> {
        let pointer = self.values.get(at)?;
        // SAFETY: the pin is one of the pointers' epochs, and `store` retires to no others.
        (pin.epochs.number == self.epochs).then(|| unsafe { pointer.value.load(pin) })?
    }

    /// Prefetches pointer `at` itself.
    #[inline]
    pub(crate) fn prefetch_pointer(&self, at: usize) {
        prefetch(self.values.as_ptr().wrapping_add(at));
    }

    /// Prefetches the value of pointer `at` and the memory at its hint.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        if let Some(pointer) = self.values.get(at) {
            prefetch(pointer.value.0.load(Relaxed));
            let hint = pointer.hint.load(Relaxed);
            // Prefetches of unmapped memory walk the page table.
            if !hint.is_null() {
                (0..HINTED_LINES).for_each(|line| prefetch(hint.wrapping_add(line * LINE)));
            }
        }
    }

    /// Replaces the value of pointer `at`, if there is such a pointer. `hint` is the address that readers of the value
    /// go on to. The old value holds `bytes` of memory and is dropped together with others.
    ///
    /// # Panics
    /// If `epochs` are not those of the pointers.
    pub(crate) fn store(&self, at: usize, value: Option<(Arc<T>, *const u8)>, bytes: usize, epochs: &Epochs) {
        assert_eq!(epochs.number, self.epochs, "a pointer keeps its epochs");
        if let Some(pointer) = self.values.get(at) {
            let (value, hint) = value.map_or((None, ptr::null()), |(value, hint)| (Some(value), hint));
            pointer.hint.store(hint.cast_mut(), Relaxed);
            pointer.value.replace(value, When::InBatches { bytes }, epochs);
        }
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for EpochPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochPtr({:p})", self.value.0.load(Relaxed))
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for EpochPtrs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochPtrs({})", self.values.len())
    }
}

#[cfg(test)]
mod tests;
