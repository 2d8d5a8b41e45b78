//! Typical scan length, estimated from finished scans. See `read_ahead`.

use drumlin_env::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Estimated length of the scans of a table, in bytes of blocks; 0 while unknown.
#[derive(Debug, Default)]
pub(super) struct ScanLength(AtomicU32);

/// Minimum change of the estimate per scan, in bytes.
const STEP: u32 = 128;
/// Ratio of an increase to a decrease.
const RAISE: u32 = 3;
/// Upper bound on the estimate, in bytes.
const LONGEST: u32 = 1 << 20;

impl ScanLength {
    /// Returns the estimate in bytes; 0 while unknown.
    pub(super) fn bytes(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Records a scan that read `bytes`. The first scan sets the estimate. Concurrent calls may lose an update.
    pub(super) fn ended(&self, bytes: u64) {
        let old = self.0.load(Relaxed);
        let step = (old / 32).max(STEP);
        let new = match u32::try_from(bytes).unwrap_or(LONGEST).min(LONGEST) {
            bytes if old == 0 => bytes,
            bytes if bytes > old => old + RAISE * step,
            _ => old.saturating_sub(step).max(1),
        };
        self.0.store(new.min(LONGEST), Relaxed);
    }
}
