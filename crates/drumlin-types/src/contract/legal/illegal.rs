//! Errors of illegal plans. The messages name files, ranges and numbers.

use crate::contract::draw::Extent;
use crate::contract::flight::FileSpan;
use crate::contract::plan::Take;
use crate::{KeyRange, RunId, TableId};
use alloc::boxed::Box;
use core::fmt;

/// A conflict: moving the input would invert its age order with a file that stays behind.
#[derive(Clone, PartialEq, Debug)]
pub struct Conflict {
    /// The input, clipped to the part that the plan takes.
    pub input: FileSpan,
    /// The file that stays behind, with its whole bounds.
    pub other: FileSpan,
    /// Keys that both files cover.
    pub overlap: KeyRange,
    /// Output level of the plan.
    pub out: u8,
}

/// Reason why a plan is refused.
#[derive(Clone, PartialEq, Debug)]
pub enum Illegal {
    /// The plan has no inputs.
    Empty,
    /// No file of the tree matches this take.
    Missing(Take),
    /// The file does not exist yet, or an earlier plan has claimed it.
    Busy(FileSpan),
    /// Two takes name the same keys of one table.
    Twice {
        /// Number of the table.
        table: TableId,
        /// Keys that are named twice.
        range: KeyRange,
    },
    /// The tree has no such output level.
    NoLevel {
        /// The output level.
        out: u8,
        /// Number of levels of the tree.
        levels: usize,
    },
    /// An input lies below the output level.
    Upward {
        /// The input.
        input: FileSpan,
        /// The output level.
        out: u8,
    },
    /// A file named in `may_fold` is not in the output level.
    Fold {
        /// The file.
        file: FileSpan,
        /// The output level.
        out: u8,
    },
    /// The run named for the output is in another level.
    Place {
        /// The run.
        run: RunId,
        /// Level of the run.
        level: u8,
        /// The output level.
        out: u8,
    },
    /// The run tag exceeds [`RunTag::MAX`](crate::contract::RunTag::MAX).
    Tag {
        /// Length of the tag in bytes.
        length: usize,
    },
    /// Breaks rule L1: a file that stays behind lies between an input and the output level.
    Between(Box<Conflict>),
    /// Breaks rule L2: a file that stays behind in an input's level is not newer than the input.
    NotNewer(Box<Conflict>),
}

impl Illegal {
    /// Returns the short name of the broken rule, for counters.
    pub fn rule(&self) -> &'static str {
        match self {
            Illegal::Empty => "empty",
            Illegal::Missing(_) => "missing",
            Illegal::Busy(_) => "busy",
            Illegal::Twice { .. } => "twice",
            Illegal::NoLevel { .. } | Illegal::Upward { .. } => "level",
            Illegal::Fold { .. } => "fold",
            Illegal::Place { .. } => "place",
            Illegal::Tag { .. } => "tag",
            Illegal::Between(_) => "L1",
            Illegal::NotNewer(_) => "L2",
        }
    }
}

impl core::error::Error for Illegal {}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("illegal: ")?;
        match self {
            Illegal::Empty => f.write_str("the plan takes nothing"),
            Illegal::Missing(take) => write!(f, "no file {}:[{}]", take.table, Extent(&take.range)),
            Illegal::Busy(file) => write!(f, "{} is not free", Named(file)),
            Illegal::Twice { table, range } => write!(f, "{table}:[{}] is taken twice", Extent(range)),
            Illegal::NoLevel { out, levels } => write!(f, "no level {out}: the tree has {levels}"),
            Illegal::Upward { input, out } => write!(f, "{} lies below the output level {out}", Named(input)),
            Illegal::Fold { file, out } => write!(f, "{} to fold is not in level {out}", Named(file)),
            Illegal::Place { run, level, out } => write!(f, "run {run} is in level {level}, not {out}"),
            Illegal::Tag { length } => {
                write!(f, "a tag of {length} bytes: at most {}", crate::contract::RunTag::MAX)
            }
            Illegal::Between(c) => write!(
                f,
                "{} stays behind, overlaps {}, and lies between L{} and L{}",
                Named(&c.other),
                Extent(&c.overlap),
                c.input.level,
                c.out
            ),
            Illegal::NotNewer(c) => write!(
                f,
                "{} stays behind, overlaps {}, and is not newer (#{} <= #{})",
                Named(&c.other),
                Extent(&c.overlap),
                c.other.min_seq,
                c.input.max_seq
            ),
        }
    }
}

/// Displays a file by level and keys.
struct Named<'a>(&'a FileSpan);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}:[{}]", self.0.level, Extent(&self.0.range))
    }
}
