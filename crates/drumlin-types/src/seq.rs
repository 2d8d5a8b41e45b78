//! Sequence numbers and entry kinds.

/// Sequence number: the position of one operation in the store's commit order. The first is 1.
pub type Seq = u64;

/// Type of an entry. The numbers are part of the disk format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A point tombstone: deletes the key.
    Delete = 0,
    /// A value for the key.
    Put = 1,
    /// An operand for the keyspace's merge operator.
    Merge = 2,
    /// A value that expires: eight bytes little endian, the expiry time in microseconds since the Unix epoch, then
    /// the value. Once expired it is a deletion.
    PutExpiring = 3,
    /// A value stored in a value file. The entry holds the encoded pointer to it.
    PutPointer = 4,
    /// A range tombstone. Its value is the end of the range. Range tombstones are stored apart from the other entries.
    DeleteRange = 5,
    /// A merge operand that expires: eight bytes as in [`Kind::PutExpiring`], then the operand. An expired operand has
    /// no effect, as if it had never been written. Older and newer versions of the key are unaffected.
    MergeExpiring = 6,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 7] = [
        Kind::Delete,
        Kind::Put,
        Kind::Merge,
        Kind::PutExpiring,
        Kind::PutPointer,
        Kind::DeleteRange,
        Kind::MergeExpiring,
    ];

    /// Returns the kind that `byte` encodes, or `None` when there is none.
    pub fn from_u8(byte: u8) -> Option<Kind> {
        Kind::ALL.get(byte as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_u8(7), None);
    }
}
