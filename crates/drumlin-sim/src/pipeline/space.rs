//! Output size of a compaction.
//!
//! Without overwrites, input sizes add up. Otherwise keys are drawn evenly from a universe. Of u keys in a range, a
//! file of n entries there holds each with probability n/u, so files of n_i entries are compacted to u (1 - prod(1 -
//! n_i/u)).

/// Returns the bytes that remain when files of `parts` bytes are compacted. `universe` is the bytes of all keys in
/// their range, or `None` for a load without overwrites.
pub fn merged_bytes(parts: &[u64], universe: Option<u64>) -> u64 {
    let sum: u64 = parts.iter().sum();
    let Some(universe) = universe.filter(|u| *u > 0) else { return sum };
    let whole = universe as f64;
    let missing: f64 = parts.iter().map(|n| (1.0 - *n as f64 / whole).max(0.0)).product();
    let most = parts.iter().copied().max().unwrap_or(0);
    ((whole * (1.0 - missing)) as u64).clamp(most, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwrites_merge_and_others_add_up() {
        assert_eq!(merged_bytes(&[100, 200], None), 300);
        assert_eq!(merged_bytes(&[500, 500], Some(1000)), 750);
        assert_eq!(merged_bytes(&[1000, 10], Some(1000)), 1000);
        assert_eq!(merged_bytes(&[], Some(1000)), 0);
    }
}
