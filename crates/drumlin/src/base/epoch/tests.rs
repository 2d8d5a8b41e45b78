//! Tests of epochs. They also run under Miri, which finds uses of freed memory and races.

use super::*;
use std::sync::atomic::AtomicUsize;

/// Value whose drop is counted and destroys what it holds.
struct Counted {
    content: AtomicU64,
    drops: Arc<AtomicUsize>,
}

const WHOLE: u64 = 0x5eed_5eed;

impl Counted {
    fn new(drops: &Arc<AtomicUsize>) -> Arc<Counted> {
        Arc::new(Counted { content: AtomicU64::new(WHOLE), drops: drops.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.content.store(0, Relaxed);
        self.drops.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_value_lasts_until_its_readers_unpin() {
    let (epochs, drops) = (Epochs::new(), Arc::new(AtomicUsize::new(0)));
    let dropped = || drops.load(Relaxed);
    let pointer = EpochPtr::new(Some(Counted::new(&drops)), &epochs);
    pointer.store(Some(Counted::new(&drops)), &epochs);
    assert_eq!(dropped(), 1, "nobody reads");
    let outer = epochs.pin();
    let value = pointer.load(&outer).expect("set");
    let inner = epochs.pin();
    pointer.store(None, &epochs);
    epochs.collect();
    drop(inner);
    assert_eq!((dropped(), value.content.load(Relaxed)), (1, WHOLE));
    assert!(pointer.load(&outer).is_none());
    drop(outer);
    assert_eq!(dropped(), 2, "the last reader drops it");
    pointer.store(Some(Counted::new(&drops)), &epochs);
    let kept = pointer.load_full(&epochs).expect("set");
    drop(pointer);
    assert_eq!((dropped(), kept.content.load(Relaxed)), (2, WHOLE));
    drop(kept);
    assert_eq!(dropped(), 3);
}

#[test]
fn blocks_are_dropped_in_batches() {
    let (epochs, drops) = (Epochs::new(), Arc::new(AtomicUsize::new(0)));
    let pointers = EpochPtrs::new(2, &epochs);
    let each = BATCH_BYTES / 4;
    for round in 0..8 {
        pointers.store(1, Some((Counted::new(&drops), ptr::null())), each, &epochs);
        // Past the end: nothing happens.
        pointers.store(2, Some((Counted::new(&Arc::default()), ptr::null())), each, &epochs);
        drop(epochs.pin());
        assert_eq!(drops.load(Relaxed), round / 4 * 4, "round {round}");
    }
    let pin = epochs.pin();
    assert!(pointers.load(0, &pin).is_none() && pointers.load(2, &pin).is_none());
    assert_eq!(pointers.load(1, &pin).expect("set").content.load(Relaxed), WHOLE);
    drop(pin);
    epochs.collect();
    assert_eq!(drops.load(Relaxed), 7);
}

#[test]
fn pointers_keep_their_epochs() {
    let [epochs, others] = [Epochs::new(), Epochs::new()];
    let pointer = EpochPtr::new(Some(Arc::new(1)), &epochs);
    assert!(pointer.load(&others.pin()).is_none() && pointer.load_full(&others).is_none());
    let stored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pointer.store(None, &others)));
    assert!(stored.is_err());
    assert_eq!(pointer.load(&epochs.pin()), Some(&1));
}

/// Values whose destructors retire further values.
struct Chain {
    next: EpochPtr<Chain>,
    epochs: Arc<Epochs>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Relaxed);
        self.next.store(None, &self.epochs);
    }
}

#[test]
fn destructors_may_retire() {
    let (epochs, drops) = (Epochs::new(), Arc::new(AtomicUsize::new(0)));
    let mut head = None;
    for _ in 0..20 {
        let next = EpochPtr::new(head.take(), &epochs);
        head = Some(Arc::new(Chain { next, epochs: epochs.clone(), drops: drops.clone() }));
    }
    let pointer = EpochPtr::new(head, &epochs);
    let pin = epochs.pin();
    pointer.store(None, &epochs);
    assert_eq!(drops.load(Relaxed), 0);
    drop(pin);
    assert_eq!(drops.load(Relaxed), 20);
}

/// Readers beside writers never see a dropped value, and every value is dropped in the end.
#[test]
#[expect(clippy::disallowed_methods, reason = "races need real threads")]
fn readers_see_whole_values() {
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let (epochs, drops) = (Epochs::new(), Arc::new(AtomicUsize::new(0)));
    let pointer = EpochPtr::new(Some(Counted::new(&drops)), &epochs);
    let pointers = EpochPtrs::new(3, &epochs);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (epochs, drops, pointer, pointers) = (&epochs, &drops, &pointer, &pointers);
            scope.spawn(move || {
                for round in 0..rounds {
                    let value = Some((Counted::new(drops), ptr::null()));
                    pointers.store(round % 3, value, BATCH_BYTES / 5, epochs);
                    if round % 4 == number {
                        pointer.store(Some(Counted::new(drops)), epochs);
                    }
                    drop(epochs.pin());
                }
            });
            scope.spawn(move || {
                for round in 0..rounds {
                    let pin = epochs.pin();
                    let seen = [pointer.load(&pin), pointers.load(round % 3, &pin)];
                    let kept = pointer.load_full(epochs);
                    for value in seen.into_iter().flatten().chain(kept.as_deref()) {
                        assert_eq!(value.content.load(Relaxed), WHOLE);
                    }
                }
            });
        }
    });
    epochs.collect();
    let made = 1 + 2 * rounds + 2 * (rounds / 4);
    assert_eq!(drops.load(Relaxed), made - 1 - 3, "what pointers lead to is left");
    drop((pointer, pointers));
    assert_eq!(drops.load(Relaxed), made);
}
