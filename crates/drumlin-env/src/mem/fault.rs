//! Fault rules of the simulated disk: what fails, and when.

use crate::kinds::FileKind;
use crate::random::Random;

use super::node::SyncFailure;

/// An operation of [`crate::Fs`] or [`crate::File`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum Op {
    CreateDir,
    RemoveDir,
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
    /// All operations.
    pub const ALL: [Op; 22] = [
        Op::CreateDir,
        Op::RemoveDir,
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

    /// Returns whether the operation makes something durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Op::SyncData | Op::SyncAll | Op::SyncDir)
    }
}

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call fails with this operating system error code and has no effect. A sync or close that fails this way
    /// loses data as [`SyncFailure::Lost`] describes. [`crate::Fs`] repeats a call after `EINTR`, so do not make
    /// `EINTR` sticky.
    Fail(i32),
    /// A read or write transfers about half of its bytes; [`crate::File`] continues it.
    Short,
    /// A write transfers about half of its bytes and fails with this code.
    Partial(i32),
    /// A sync fails with this code and treats the data as the [`SyncFailure`] says. For a directory, `Reverts` acts
    /// as `Lost`.
    FailSync(i32, SyncFailure),
    /// A read returns one wrong bit.
    FlipBit,
    /// A read returns bytes from another place in the file.
    Misdirected,
    /// A read returns the content before the last change.
    Stale,
}

impl Effect {
    /// Returns whether the effect can happen to this operation.
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

/// Selects which of the matching calls a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call with this I/O index.
    Index(u64),
    /// The `n`th matching call, counted from 0; fires once.
    Nth(u64),
    /// The `n`th matching call, counted from 0, and all later ones.
    From(u64),
    /// One in `n` matching calls, drawn from the seed.
    OneIn(u64),
}

/// A fault rule: which calls fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Operation to match; `None` matches all.
    pub op: Option<Op>,
    /// Kind of file to match; `None` matches all. Calls on directories have no kind.
    pub kind: Option<FileKind>,
    /// Which of the matching calls fail.
    pub when: When,
    /// What happens to them.
    pub effect: Effect,
}

/// A fault that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// I/O index of the call.
    pub index: u64,
    /// The operation.
    pub op: Op,
    /// Kind of the file.
    pub kind: Option<FileKind>,
    /// What happened.
    pub effect: Effect,
}

/// Rules in force.
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

    /// Returns the effect of the first rule that hits the call. Every rule counts the calls that it matches.
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

    /// Returns a draw below `bound`, for the details of an effect.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}
