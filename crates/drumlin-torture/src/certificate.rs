//! Strict serializability check: decides whether one order of all operations explains every answer.
//!
//! Threads record their operations, each with the ticks of one shared counter at its begin and its end. The store's
//! sequence numbers give each commit its place in the order, so the check does not search for an order:
//!
//! 1. The commits' sequence numbers are dense. A commit that ended before another began comes first.
//! 2. Every read has a moment: a sequence number between commits at which all its answers were true. The moment is
//!    not before any commit that ended before the read began, and not after any commit that began after the read
//!    ended.
//! 3. A read that ended before another began has an earlier moment or the same one. The check takes the reads in the
//!    order of their begins and gives each the earliest moment that the rules allow. This finds an assignment
//!    whenever one exists, since an earlier moment never reduces the choices of a later read.
//!
//! The proof of a pass is the assignment itself; the proof of a failure is the read without a moment.

use crate::failure::{Failure, Verdict};

/// A sequence number of the store.
pub type Seq = u64;
/// Number of a key.
pub type KeyId = usize;
/// Number of a value; no two puts of a history share one. `None` is an absent key.
pub type Value = Option<u64>;

/// Duration of an operation, in ticks of the shared counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Tick before its first step.
    pub began: u64,
    /// Tick after its last step.
    pub ended: u64,
}

/// A committed batch. Its operations have consecutive sequence numbers that end at `last`.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Time of the commit.
    pub span: Span,
    /// Sequence number of its last operation.
    pub last: Seq,
    /// Writes of each operation: one key, or the same value to several keys.
    pub writes: Vec<Vec<(KeyId, Value)>>,
}

/// Answers that share one moment.
#[derive(Clone, Debug)]
pub struct Read {
    /// Time of the read; for a snapshot, the time when it was taken.
    pub span: Span,
    /// Moment of the read, where the store reports it.
    pub at: Option<Seq>,
    /// Answers of the read.
    pub answers: Vec<(KeyId, Value)>,
}

/// Operations of all threads, on a store that was empty at first.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Commits.
    pub commits: Vec<Commit>,
    /// Reads.
    pub reads: Vec<Read>,
}

impl Commit {
    fn first(&self) -> Seq {
        self.last + 1 - self.writes.len() as u64
    }
}

impl History {
    /// Adds the operations of another thread.
    pub fn extend(&mut self, other: History) {
        self.commits.extend(other.commits);
        self.reads.extend(other.reads);
    }

    /// Checks the whole history; returns the versions of each key, for the check of the final state.
    pub fn check(mut self) -> Result<Versions, Failure> {
        self.commits.sort_unstable_by_key(|commit| commit.last);
        self.reads.sort_unstable_by_key(|read| read.span.began);
        let bounds = Bounds::new(&self.commits)?;
        let versions = Versions::new(&self.commits);
        let mut order = Order::default();
        for read in &self.reads {
            let earliest = bounds.earliest(read.span.began).max(order.before(read.span.began));
            let latest = bounds.latest(read.span.ended);
            let moment = versions.moment(read, earliest, latest, &bounds.ends).ok_or_else(|| {
                let what = format!("no moment in #{earliest}..=#{latest} explains {read:?}");
                Verdict::Wrong.of(what)
            })?;
            order.add(read.span.ended, moment);
        }
        Ok(versions)
    }
}

/// Bounds on the moments of a read, from the commits around it.
struct Bounds {
    /// Ends of commits, each with the highest sequence number acknowledged by then; both increase.
    acknowledged: Vec<(u64, Seq)>,
    /// Begins of commits, each with the sequence number up to which all commits had begun by then; both increase.
    begun: Vec<(u64, Seq)>,
    /// Last sequence number of each commit, and 0: the moments between commits.
    ends: Vec<Seq>,
}

impl Bounds {
    fn new(commits: &[Commit]) -> Result<Bounds, Failure> {
        let (mut last, mut ends) = (0, vec![0]);
        for commit in commits {
            if commit.first() != last + 1 {
                let what = format!("sequence numbers are not dense: #{last}, then {commit:?}");
                return Err(Verdict::Wrong.of(what));
            }
            last = commit.last;
            ends.push(last);
        }
        let mut acknowledged: Vec<(u64, Seq)> = commits.iter().map(|c| (c.span.ended, c.last)).collect();
        acknowledged.sort_unstable();
        let mut highest = 0;
        for (_, seq) in &mut acknowledged {
            highest = highest.max(*seq);
            *seq = highest;
        }
        let mut latest_begin = 0;
        let begun = commits.iter().map(|commit| {
            latest_begin = commit.span.began.max(latest_begin);
            (latest_begin, commit.last)
        });
        let bounds = Bounds { begun: begun.collect(), acknowledged, ends };
        match commits.iter().find(|commit| bounds.earliest(commit.span.began) >= commit.first()) {
            Some(commit) => {
                Err(Verdict::Wrong.of(format!("a commit that began later comes first: {commit:?}")))
            }
            None => Ok(bounds),
        }
    }

    /// Returns the highest sequence number acknowledged before `tick`.
    fn earliest(&self, tick: u64) -> Seq {
        before(&self.acknowledged, tick)
    }

    /// Returns the sequence number up to which all commits had begun before `tick`.
    fn latest(&self, tick: u64) -> Seq {
        before(&self.begun, tick)
    }
}

/// Returns the sequence number of the last entry of `rising` before `tick`; 0 if none.
fn before(rising: &[(u64, Seq)], tick: u64) -> Seq {
    let count = rising.partition_point(|(when, _)| *when < tick);
    count.checked_sub(1).map_or(0, |last| rising[last].1)
}

/// Moments of ended reads, as lower bounds for reads that begin later.
#[derive(Default)]
struct Order {
    /// Ends and moments not yet in `passed`.
    pending: std::collections::BinaryHeap<std::cmp::Reverse<(u64, Seq)>>,
    passed: Seq,
}

impl Order {
    fn add(&mut self, ended: u64, moment: Seq) {
        self.pending.push(std::cmp::Reverse((ended, moment)));
    }

    /// Returns the latest moment of a read that ended before `tick`; never decreases.
    fn before(&mut self, tick: u64) -> Seq {
        while let Some(std::cmp::Reverse((_, moment))) = self.pending.peek().filter(|next| next.0.0 < tick) {
            self.passed = self.passed.max(*moment);
            self.pending.pop();
        }
        self.passed
    }
}

/// Versions of every key, oldest first.
#[derive(Debug, Default)]
pub struct Versions {
    keys: Vec<Vec<(Seq, Value)>>,
    /// Last sequence number of the history.
    pub last: Seq,
}

impl Versions {
    fn new(commits: &[Commit]) -> Versions {
        let mut versions = Versions::default();
        for commit in commits {
            for (seq, operation) in (commit.first()..).zip(&commit.writes) {
                for (key, value) in operation {
                    if versions.keys.len() <= *key {
                        versions.keys.resize(*key + 1, Vec::new());
                    }
                    versions.keys[*key].push((seq, *value));
                }
            }
            versions.last = commit.last;
        }
        versions
    }

    /// Returns the value of `key` at `seq`.
    pub fn get(&self, key: KeyId, seq: Seq) -> Value {
        let versions = self.keys.get(key)?;
        let count = versions.partition_point(|(at, _)| *at <= seq);
        versions.get(count.checked_sub(1)?)?.1
    }

    /// Returns the earliest moment from `earliest` to `latest` at which all answers of `read` are true.
    fn moment(&self, read: &Read, earliest: Seq, latest: Seq, ends: &[Seq]) -> Option<Seq> {
        let first = ends.partition_point(|end| *end < earliest);
        let mut moments = ends[first..].iter().copied().take_while(|end| *end <= latest);
        moments.find(|moment| {
            read.at.is_none_or(|at| at == *moment)
                && read.answers.iter().all(|(key, value)| self.get(*key, *moment) == *value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_env::Random;
    use std::slice::from_ref;

    fn put(began: u64, ended: u64, last: Seq, key: KeyId, value: Value) -> Commit {
        Commit { span: Span { began, ended }, last, writes: vec![vec![(key, value)]] }
    }

    fn read(began: u64, ended: u64, key: KeyId, value: Value) -> Read {
        Read { span: Span { began, ended }, at: None, answers: vec![(key, value)] }
    }

    fn check(commits: &[Commit], reads: &[Read]) -> bool {
        History { commits: commits.to_vec(), reads: reads.to_vec() }.check().is_ok()
    }

    #[test]
    fn each_rule_refuses_what_breaks_it() {
        let one = put(1, 4, 1, 0, Some(7));
        assert!(check(from_ref(&one), &[read(5, 6, 0, Some(7))]));
        assert!(!check(from_ref(&one), &[read(5, 6, 0, None)]), "an acknowledged write is not seen");
        assert!(check(from_ref(&one), &[read(2, 3, 0, None), read(2, 3, 0, Some(7))]), "side by side");
        assert!(!check(&[put(5, 6, 1, 0, Some(7))], &[read(1, 2, 0, Some(7))]), "a write from the future");
        let back = [read(2, 3, 0, Some(7)), read(4, 5, 0, None)];
        assert!(!check(&[put(1, 9, 1, 0, Some(7))], &back), "time goes back between two reads");
        assert!(!check(&[put(1, 2, 2, 0, Some(7)), put(3, 4, 1, 0, Some(8))], &[]), "the later comes first");
        assert!(!check(&[put(1, 2, 2, 0, Some(7))], &[]), "a gap in front");
        let batch = Commit {
            span: Span { began: 1, ended: 9 },
            last: 2,
            writes: vec![vec![(0, Some(1))], vec![(1, Some(2))]],
        };
        let both = |a, b| Read { answers: vec![(0, a), (1, b)], ..read(2, 3, 0, None) };
        assert!(check(from_ref(&batch), &[both(Some(1), Some(2)), both(None, None)]));
        assert!(!check(from_ref(&batch), &[both(Some(1), None)]), "half of a batch");
        let told = Read { at: Some(1), ..both(Some(1), None) };
        assert!(!check(&[batch], &[told]), "a snapshot inside a batch");
    }

    /// Tries every assignment of moments to the reads.
    fn by_force(history: &History) -> bool {
        let mut commits = history.commits.clone();
        commits.sort_by_key(|commit| commit.last);
        let versions = Versions::new(&commits);
        let in_order = commits
            .iter()
            .enumerate()
            .all(|(i, later)| commits[..i].iter().all(|earlier| later.span.ended >= earlier.span.began));
        let count = history.reads.len();
        let moments = commits.len() as u64 + 1;
        in_order
            && (0..moments.pow(count as u32)).any(|mut code| {
                let at: Vec<Seq> = (0..count)
                    .map(|_| {
                        let digit = code % moments;
                        code /= moments;
                        digit
                    })
                    .collect();
                history.reads.iter().enumerate().all(|(i, read)| {
                    let answers = read.answers.iter().all(|(key, value)| versions.get(*key, at[i]) == *value);
                    let beside = commits.iter().all(|c| {
                        (c.span.ended >= read.span.began || c.last <= at[i])
                            && (read.span.ended >= c.span.began || c.last > at[i])
                    });
                    let ordered = history
                        .reads
                        .iter()
                        .enumerate()
                        .all(|(j, other)| other.span.ended >= read.span.began || at[j] <= at[i]);
                    answers && beside && ordered
                })
            })
    }

    #[test]
    fn small_histories_are_judged_as_by_trying_every_order() {
        let mut random = Random::new(0x51, "certificate");
        let mut passed = 0;
        for _ in 0..4000 {
            let mut span = || {
                let began = random.below(20);
                Span { began: 2 * began, ended: 2 * (began + random.below(6)) + 1 }
            };
            let mut spans: Vec<Span> = (0..7).map(|_| span()).collect();
            // Most random orders of commits contradict their times, so draw times that often agree.
            spans[..4].sort_by_key(|span| span.began);
            let commits = (1..=4).zip(&spans).map(|(last, span)| {
                let value = random.chance(3, 4).then_some(last);
                Commit { span: *span, last, writes: vec![vec![(random.index(2), value)]] }
            });
            let commits: Vec<Commit> = commits.collect();
            let reads = spans[4..].iter().map(|span| {
                let mut answer = |key| {
                    let written =
                        commits.iter().filter(|c| c.writes[0][0].0 == key).map(|c| c.writes[0][0].1);
                    let values: Vec<Value> = written.chain([None]).collect();
                    (key, values[random.index(values.len())])
                };
                let answers =
                    if answer(0).1.is_some() { vec![answer(0)] } else { vec![answer(0), answer(1)] };
                Read { span: *span, at: None, answers }
            });
            let reads = reads.collect();
            let history = History { commits, reads };
            let expected = by_force(&history);
            passed += u32::from(expected);
            let answer = history.clone().check();
            assert_eq!(answer.is_ok(), expected, "{history:?}: {answer:?}");
        }
        assert!((400..3600).contains(&passed), "{passed} of 4000 pass: both verdicts are met");
    }
}
