//! Folds: combined merge operands of hot keys, so that lookups do not combine the same operands again.
//!
//! A memtable keeps every operand, because a snapshot may need any of them. A lookup that meets a long chain of
//! operands combines them by the operator's partial merge, and keeps the combined operand beside the list. The next
//! lookup uses it in place of those operands. Once there are many newer operands, a lookup combines them with it.
//!
//! A fold of the operands `low..=high` of a key is correct for any reader whose snapshot is `high` or later:
//! - The lookup that made it saw all versions up to `high`, so no other version of the key comes in between.
//! - All of them were adjacent operands without an expiry of their own, and no range tombstone that the lookup saw
//!   was newer than `low`. A later range tombstone is newer than `high` and hides all of them.
//! - The operator guarantees that combining in steps equals combining at once.
//!
//! A reader with an earlier snapshot walks the chain. The number and size of folds are bounded, and their bytes count
//! as the memtable's.

use arc_swap::ArcSwap;
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use drumlin_types::{Seq, bug};
use std::collections::BTreeMap;

/// Number of operands that a lookup takes singly before it looks for a fold. Tests have few.
pub(crate) const LONG: usize = if cfg!(any(test, sim)) { 3 } else { 16 };

/// Maximum number of keys of a memtable that have a fold.
const MOST: usize = 64;
/// Maximum length in bytes of the key and the operand of a fold. An operand that appends to a list grows, and each
/// fold copies it.
const LONGEST: usize = 4 << 10;

/// Combined operands of one key.
#[derive(Debug)]
pub(crate) struct Fold {
    /// Sequence number of the oldest operand.
    pub(crate) low: Seq,
    /// Sequence number of the newest operand.
    pub(crate) high: Seq,
    /// Combined operand.
    pub(crate) operand: Vec<u8>,
}

/// All folds of a memtable.
pub(super) struct Folds {
    by_key: ArcSwap<BTreeMap<Box<[u8]>, Arc<Fold>>>,
    update: Mutex<()>,
    bytes: AtomicUsize,
}

impl Folds {
    pub(super) fn new() -> Folds {
        Folds {
            by_key: ArcSwap::from_pointee(BTreeMap::new()),
            update: Mutex::new(()),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Returns the bytes that folds have taken. Never decreases.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Folds {
    /// Returns the fold of `key` for a reader at `snapshot`.
    pub(super) fn get(&self, key: &[u8], snapshot: Seq) -> Option<Arc<Fold>> {
        let fold = self.by_key.load().get(key).cloned();
        fold.filter(|fold| fold.high <= snapshot || bug!("fold-newer-than-snapshot"))
    }

    /// Keeps a fold of the operands of `key` in `chain`, newest first, and of those of `below`, which directly
    /// precede them in age. `join` combines an older and a newer operand, if it can. Does nothing if a fold as new
    /// exists already.
    pub(super) fn keep(
        &self,
        key: &[u8],
        chain: &[(Seq, &[u8])],
        below: Option<&Fold>,
        mut join: impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>>,
    ) {
        let (Some((high, _)), Some((low, oldest))) = (chain.first(), chain.last()) else { return };
        let is_newer = |fold: &Arc<Fold>| fold.high >= *high;
        if self.by_key.load().get(key).is_some_and(is_newer) {
            return;
        }
        let (low, rest) = match below {
            Some(fold) => (fold.low, chain),
            None => (*low, &chain[..chain.len() - 1]),
        };
        let mut operand = below.map_or_else(|| oldest.to_vec(), |fold| fold.operand.clone());
        for (_, newer) in rest.iter().rev() {
            match join(&operand, newer) {
                Some(joined) if joined.len() <= LONGEST && key.len() <= LONGEST => operand = joined,
                _ => return,
            }
        }
        let Some(_update) = self.update.try_lock() else { return };
        let mut by_key = (**self.by_key.load()).clone();
        let before = match by_key.get(key) {
            Some(fold) if is_newer(fold) => return,
            Some(fold) => fold.operand.len(),
            None if by_key.len() == MOST => return,
            None => 0,
        };
        let more = if before == 0 { key.len() + size_of::<Fold>() } else { 0 };
        self.bytes.fetch_add(more + operand.len().saturating_sub(before), Relaxed);
        by_key.insert(key.into(), Arc::new(Fold { low, high: *high, operand }));
        self.by_key.store(Arc::new(by_key));
    }
}
