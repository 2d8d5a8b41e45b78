//! Prefetches: requests for cache lines that are about to be read. Several of them wait for memory at the same time,
//! where reads that depend on each other would wait one after the other.

/// Bytes of a CPU cache line.
pub(crate) const LINE: usize = 64;

/// Requests the cache line at `address`, which may be any address.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch may name any address, and changes nothing.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
