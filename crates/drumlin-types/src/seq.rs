//! Sequence numbers and entry kinds.

/// A sequence number: the position of one operation in the store's commit order. The first is 1.
pub type Seq = u64;

/// What an entry says about its key. The numbers are part of the disk format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// An operand for the keyspace's merge operator.
    Merge = 2,
    /// A value that ends by itself: eight bytes little endian, the expiry time in microseconds since
    /// the Unix epoch, then the value.
    PutExpiring = 3,
    /// The value lives in a value file; the entry holds the encoded pointer.
    PutPointer = 4,
    /// A range tombstone. Kept apart from the other entries; the value is the end of the range.
    DeleteRange = 5,
}

impl Kind {
    /// All kinds, for drivers that iterate them.
    pub const ALL: [Kind; 6] =
        [Kind::Delete, Kind::Put, Kind::Merge, Kind::PutExpiring, Kind::PutPointer, Kind::DeleteRange];

    /// The kind stored as `byte`, if there is one.
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
        assert_eq!(Kind::from_u8(6), None);
    }
}
