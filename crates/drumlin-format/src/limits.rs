//! Upper bounds on the numbers that a valid file can hold.
//!
//! A checksum proves that bytes are unchanged since they were written. It does not prove that a correct writer wrote
//! them. Each decoder therefore bounds every number that it returns. The bounds lie far above what any store reaches,
//! and low enough that sums cannot overflow 64 bits. That holds for 2^20 of the largest counts, and for the largest
//! number plus any block of reserved numbers. Encoders reject larger values.

use drumlin_types::Seq;

/// Maximum number of a file or run. At a million new ones per second, it suffices for two thousand years.
pub const MAX_NUMBER: u64 = 1 << 56;
/// Maximum id of a keyspace.
pub const MAX_KEYSPACE: u32 = 1 << 31;
/// Maximum sequence number. At a billion writes per second, it suffices for two years.
pub const MAX_SEQ: Seq = 1 << 56;
/// Maximum log position, over all segments: 64 PiB.
pub const MAX_POSITION: u64 = 1 << 56;
/// Maximum length of a file, and maximum number of entries in one: 16 TiB, or 2^44 entries.
pub const MAX_LEN: u64 = 1 << 44;
/// Maximum time, in microseconds since 1970: nine thousand years.
pub const MAX_MICROS: u64 = 1 << 58;
/// Maximum rate, in bits per key or lookups.
pub const MAX_RATE: f32 = 1e15;
