//! What can go wrong on the simulated disk, and when.

use crate::fs::FileKind;
use crate::random::Random;

use super::node::SyncFailure;

/// An operation of [`crate::Fs`] or [`crate::File`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum Op {
    CreateDir,
    Create,
    Open,
    OpenWrite,
    Rename,
    Link,
    Unlink,
    SyncDir,
    List,
    Exists,
    Lock,
    FreeSpace,
    FileLen,
    Read,
    Write,
    Allocate,
    SetLen,
    Len,
    SyncData,
    SyncAll,
    Close,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 21] = [
        Op::CreateDir,
        Op::Create,
        Op::Open,
        Op::OpenWrite,
        Op::Rename,
        Op::Link,
        Op::Unlink,
        Op::SyncDir,
        Op::List,
        Op::Exists,
        Op::Lock,
        Op::FreeSpace,
        Op::FileLen,
        Op::Read,
        Op::Write,
        Op::Allocate,
        Op::SetLen,
        Op::Len,
        Op::SyncData,
        Op::SyncAll,
        Op::Close,
    ];

    /// Whether the operation makes something durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Op::SyncData | Op::SyncAll | Op::SyncDir)
    }
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call fails with this code of the operating system and has no effect. A sync, or a close, that
    /// fails so loses data as [`SyncFailure::Lost`] says. `EINTR` is called again by [`crate::Fs`]: do not
    /// make it sticky.
    Fail(i32),
    /// A read or write transfers about half of its bytes; [`crate::File`] goes on from there.
    Short,
    /// A write transfers about half of its bytes and fails with this code.
    Partial(i32),
    /// A sync fails with this code and does that to the data. For a directory, reverting is as losing.
    FailSync(i32, SyncFailure),
    /// A read returns one wrong bit.
    FlipBit,
    /// A read returns bytes from another place in the file.
    Misdirected,
    /// A read returns what was there before the last change.
    Stale,
}

impl Effect {
    /// Whether the effect can happen to this operation.
    pub fn applies_to(self, op: Op) -> bool {
        match self {
            Effect::Fail(_) => true,
            Effect::Short => matches!(op, Op::Read | Op::Write),
            Effect::Partial(_) => op == Op::Write,
            Effect::FailSync(..) => op.is_sync(),
            Effect::FlipBit | Effect::Misdirected | Effect::Stale => op == Op::Read,
        }
    }
}

/// Which of the matching calls a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call with this I/O index.
    Index(u64),
    /// The `n`th matching call, from 0, once.
    Nth(u64),
    /// The `n`th matching call, from 0, and all after it.
    From(u64),
    /// One in `n` matching calls, drawn from the seed.
    OneIn(u64),
}

/// A rule: which calls fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Only this operation.
    pub op: Option<Op>,
    /// Only files of this kind. Calls on directories have none.
    pub kind: Option<FileKind>,
    /// Which of the matching calls.
    pub when: When,
    /// What happens.
    pub effect: Effect,
}

/// A fault that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The I/O index of the call.
    pub index: u64,
    /// The operation.
    pub op: Op,
    /// The file's kind.
    pub kind: Option<FileKind>,
    /// What happened.
    pub effect: Effect,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Faults {
    rules: Vec<(Fault, u64)>,
    random: Random,
    pub(crate) fired: Vec<Fired>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Faults {
        Faults { rules: Vec::new(), random: Random::new(seed, "faults"), fired: Vec::new() }
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.rules.push((fault, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// What happens to the call: the effect of the first rule that hits it. Every rule counts the calls that
    /// it matches.
    pub(crate) fn judge(&mut self, index: u64, op: Op, kind: Option<FileKind>) -> Option<Effect> {
        let mut hit = None;
        for (fault, matched) in &mut self.rules {
            let matches = fault.op.is_none_or(|wanted| wanted == op)
                && (fault.kind.is_none() || fault.kind == kind)
                && fault.effect.applies_to(op);
            if !matches {
                continue;
            }
            let nth = *matched;
            *matched += 1;
            let now = match fault.when {
                When::Index(wanted) => wanted == index,
                When::Nth(wanted) => wanted == nth,
                When::From(first) => nth >= first,
                When::OneIn(n) => self.random.chance(1, n),
            };
            if now && hit.is_none() {
                hit = Some(fault.effect);
            }
        }
        if let Some(effect) = hit {
            self.fired.push(Fired { index, op, kind, effect });
        }
        hit
    }

    /// A draw below `bound`, for the details of an effect.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}
