//! Values in CPU cache lines of their own.

use std::ops::Deref;

/// A value that shares no cache line with its neighbours, because other threads change those. Processors fetch lines in
/// pairs, hence twice their 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
