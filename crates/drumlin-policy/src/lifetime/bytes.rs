//! Reading of saved bytes.

/// Takes the next `N` bytes off the front of `bytes`; `None` if there are fewer.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}
