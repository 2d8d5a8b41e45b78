//! The policy guard: all calls of a keyspace's policy go through it, and it catches panics.
//!
//! After a panic the policy is never called again, and every call returns a default. `fallback` then replaces the
//! policy.

use drumlin_types::contract::{
    CompactionPolicy, Decision, LevelDesign, LimitView, Outcome, PolicyInput, RunTag, TreeView,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The policy of a keyspace. After a panic it returns defaults.
#[derive(Debug)]
pub(crate) struct PolicyGuard {
    policy: Box<dyn CompactionPolicy>,
    name: String,
    has_failed: Cell<bool>,
}

impl PolicyGuard {
    pub(crate) fn new(policy: Box<dyn CompactionPolicy>) -> PolicyGuard {
        let mut guard = PolicyGuard { policy, name: "a policy".to_owned(), has_failed: Cell::new(false) };
        guard.name = guard.name();
        guard
    }

    /// Returns the address of the policy, which distinguishes policies of the same name.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(&*self.policy).cast::<()>().addr()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Records a panic that happened elsewhere on behalf of the policy.
    pub(crate) fn fail(&self) {
        self.has_failed.set(true);
    }

    /// Returns the result of `query`, or `plain` if the policy has panicked, now or earlier. The policy's state after a
    /// panic is never used.
    fn query<T>(&self, plain: T, query: impl FnOnce(&dyn CompactionPolicy) -> T) -> T {
        if self.has_failed.get() {
            return plain;
        }
        catch_unwind(AssertUnwindSafe(|| query(&*self.policy))).unwrap_or_else(|_| {
            self.fail();
            plain
        })
    }

    /// The same for calls that may change the policy.
    fn update<T>(&mut self, plain: T, update: impl FnOnce(&mut dyn CompactionPolicy) -> T) -> T {
        if self.has_failed.get() {
            return plain;
        }
        catch_unwind(AssertUnwindSafe(|| update(&mut *self.policy))).unwrap_or_else(|_| {
            self.fail();
            plain
        })
    }

    pub(crate) fn name(&self) -> String {
        self.query(None, |policy| Some(policy.name())).unwrap_or_else(|| self.name.clone())
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        self.query(Vec::new(), |policy| policy.save())
    }

    pub(crate) fn explain(&self) -> String {
        self.query(String::new(), |policy| policy.explain())
    }

    pub(crate) fn design(&self, tree: &TreeView, limits: &LimitView) -> Vec<LevelDesign> {
        self.query(Vec::new(), |policy| policy.design(tree, limits))
    }

    pub(crate) fn flush_tag(&mut self, bytes: u64, tree: &TreeView) -> RunTag {
        self.update(RunTag::default(), |policy| policy.flush_tag(bytes, tree))
    }

    pub(crate) fn observe(&mut self, outcome: &Outcome) {
        self.update((), |policy| policy.observe(outcome));
    }

    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.update((), |policy| policy.freeze(frozen));
    }

    pub(super) fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.update(Decision::default(), |policy| policy.decide(input))
    }
}
