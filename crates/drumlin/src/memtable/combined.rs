//! Combined merge operands of hot keys, so that lookups do not combine the same operands again.
//!
//! A memtable keeps every operand, because a snapshot may need any of them. A lookup that meets a long chain of
//! operands combines them by the operator's partial merge, and keeps the combined operand beside the list. The next
//! lookup uses it in place of those operands. Once there are many newer operands, a lookup combines them with it.
//!
//! A combined operand for the operands `low..=high` of a key is correct for any reader whose snapshot is `high` or
//! later:
//! - The lookup that made it saw all versions up to `high`, so no other version of the key comes in between.
//! - All of them were adjacent operands without an expiry of their own, and no range tombstone that the lookup saw
//!   was newer than `low`. A later range tombstone is newer than `high` and hides all of them.
//! - The operator guarantees that combining in steps equals combining at once.
//!
//! A reader with an earlier snapshot walks the chain. The number and size of combined operands are bounded, and their
//! bytes count as the memtable's.

use arc_swap::ArcSwap;
use drumlin_env::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use drumlin_types::{Seq, bug};
use std::collections::BTreeMap;

/// Number of operands that a lookup takes singly before it looks for a combined operand. Tests have few.
pub(crate) const LONG: usize = if cfg!(any(test, sim)) { 3 } else { 16 };

/// Maximum number of keys of a memtable that have a combined operand.
const MOST: usize = 64;
/// Maximum length in bytes of the key and of a combined operand. An operand that appends to a list grows, and each
/// combination copies it.
const LONGEST: usize = 4 << 10;

/// Combined operand of one key.
#[derive(Debug)]
pub(crate) struct CombinedOperand {
    /// Sequence number of the oldest operand.
    pub(crate) low: Seq,
    /// Sequence number of the newest operand.
    pub(crate) high: Seq,
    /// Combined operand.
    pub(crate) operand: Vec<u8>,
}

/// All combined operands of a memtable.
pub(super) struct CombinedOperands {
    by_key: ArcSwap<BTreeMap<Box<[u8]>, Arc<CombinedOperand>>>,
    update: Mutex<()>,
    bytes: AtomicUsize,
    /// Whether the operator could not combine two operands. It is then not asked again: mostly it has no partial merge.
    cannot: AtomicBool,
}

impl CombinedOperands {
    pub(super) fn new() -> CombinedOperands {
        CombinedOperands {
            by_key: ArcSwap::from_pointee(BTreeMap::new()),
            update: Mutex::new(()),
            bytes: AtomicUsize::new(0),
            cannot: AtomicBool::new(false),
        }
    }

    /// Returns the bytes that combined operands have taken. Never decreases.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl CombinedOperands {
    /// Returns the combined operand of `key` for a reader at `snapshot`.
    pub(super) fn get(&self, key: &[u8], snapshot: Seq) -> Option<Arc<CombinedOperand>> {
        let combined = self.by_key.load().get(key).cloned();
        combined.filter(|combined| combined.high <= snapshot || bug!("combined-newer-than-snapshot"))
    }

    /// Returns whether a combined operand of `key` would be kept. Otherwise a lookup need not combine its operands.
    pub(super) fn wants(&self, key: &[u8]) -> bool {
        if key.len() > LONGEST || self.cannot.load(Relaxed) {
            return false;
        }
        let by_key = self.by_key.load();
        by_key.len() < MOST || by_key.contains_key(key)
    }

    /// Combines the operands of `key` in `chain`, newest first, with `below`, whose operands directly precede them in
    /// age, and keeps the result. `combine` combines an older and a newer operand, if it can. Does nothing if a
    /// combined operand as new exists already.
    pub(super) fn keep(
        &self,
        key: &[u8],
        chain: &[(Seq, &[u8])],
        below: Option<&CombinedOperand>,
        mut combine: impl FnMut(&[u8], &[u8]) -> Option<Vec<u8>>,
    ) {
        let (Some((high, _)), Some((low, oldest))) = (chain.first(), chain.last()) else { return };
        let is_newer = |combined: &Arc<CombinedOperand>| combined.high >= *high;
        if self.by_key.load().get(key).is_some_and(is_newer) {
            return;
        }
        let (low, rest) = match below {
            Some(combined) => (combined.low, chain),
            None => (*low, &chain[..chain.len() - 1]),
        };
        let mut operand = below.map_or_else(|| oldest.to_vec(), |combined| combined.operand.clone());
        for (_, newer) in rest.iter().rev() {
            match combine(&operand, newer) {
                Some(next) if next.len() <= LONGEST => operand = next,
                Some(_) => return,
                None => return self.cannot.store(true, Relaxed),
            }
        }
        let Some(_update) = self.update.try_lock() else { return };
        let mut by_key = (**self.by_key.load()).clone();
        let before = match by_key.get(key) {
            Some(combined) if is_newer(combined) => return,
            Some(combined) => combined.operand.len(),
            None if by_key.len() == MOST => return,
            None => 0,
        };
        let more = if before == 0 { key.len() + size_of::<CombinedOperand>() } else { 0 };
        self.bytes.fetch_add(more + operand.len().saturating_sub(before), Relaxed);
        by_key.insert(key.into(), Arc::new(CombinedOperand { low, high: *high, operand }));
        self.by_key.store(Arc::new(by_key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lookups ask first, so that they do not combine operands in vain each time.
    #[test]
    fn what_would_not_be_kept_is_not_wanted() {
        let chain: [(Seq, &[u8]); 3] = [(3, b"c"), (2, b"b"), (1, b"a")];
        let join = |older: &[u8], newer: &[u8]| Some([older, newer].concat());
        let combined = CombinedOperands::new();
        for n in 0..MOST as u32 {
            assert!(combined.wants(&n.to_be_bytes()));
            combined.keep(&n.to_be_bytes(), &chain, None, join);
        }
        assert_eq!(combined.get(&[0; 4], 3).expect("kept").operand, b"abc");
        assert!(!combined.wants(b"one more key") && combined.wants(&[0; 4]));
        assert!(!CombinedOperands::new().wants(&[0; LONGEST + 1]));
        let cannot = CombinedOperands::new();
        cannot.keep(b"key", &chain, None, |_, _| None);
        assert!(!cannot.wants(b"key"), "the operator has no partial merge");
    }
}
