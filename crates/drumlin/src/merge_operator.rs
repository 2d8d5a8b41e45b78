//! The seam for merge operands: a keyspace's operator folds them into a value when the key is read.

/// Folds merge operands into values. Associative and free of side effects.
pub trait MergeOperator: Send + Sync {
    /// A stable name; it is stored with the keyspace.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, on top of `base` (`None`: the key did not exist).
    /// `None` means that the operands cannot be applied: the read fails.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that stands for all of `operands`, oldest first, if there is one.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}
