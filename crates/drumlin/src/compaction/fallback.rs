//! Replacing a policy that panics, so that the store goes on.
//!
//! Policies promise not to panic. If one does, on a tree that its author did not expect, its
//! [guard](super::policy_guard) returns default answers for it. Before the next decision, `universal` replaces it until
//! the store is closed. `universal` has no state, handles every tree, and bounds the number of runs. The next open
//! tries the configured policy again. The panic message is not shown, because it may hold user keys.

use super::control::KeyspaceControl;
use drumlin_types::contract::{Decision, PolicyInput};

/// The policy that takes over.
const FALLBACK: &str = "universal";

/// Returns the decision of the policy of `keyspace`. A policy that has panicked, now or since its last call, is
/// replaced.
pub(super) fn decide(keyspace: &mut KeyspaceControl, input: &PolicyInput<'_>) -> Decision {
    let decision = keyspace.policy.decide(input);
    if !keyspace.policy.has_failed() {
        return decision;
    }
    let name = keyspace.policy.name();
    let Ok(policy) = drumlin_policy::by_name(FALLBACK) else { return Decision::default() };
    keyspace.set_policy(policy);
    (keyspace.failed_policy, keyspace.stands_in_for) = (Some(name.clone()), Some(name));
    // The new policy is called at once, because the keyspace is due.
    Decision::default()
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::base::event::{Event, EventListener};
    use drumlin_env::MemEnv;
    use drumlin_env::sync::{Arc, Mutex};
    use drumlin_types::contract::{
        CompactionPolicy, Decision, LevelDesign, LimitView, Outcome, PolicyInput, RunTag, SearchTask,
        TreeView,
    };
    use std::path::Path;

    /// A policy that panics in call `at`, once it has observed three flushes.
    #[derive(Debug)]
    struct Fails {
        at: &'static str,
        flushes: u32,
    }

    impl Fails {
        fn meet(&self, at: &str) {
            assert!(self.at != at || self.flushes < 3, "planted panic after three flushes");
        }
    }

    struct Search;

    impl SearchTask for Search {
        fn step(&mut self) -> Option<Vec<u8>> {
            panic!("planted panic of a search");
        }
    }

    impl CompactionPolicy for Fails {
        fn name(&self) -> String {
            self.meet("name");
            "arce:9/24/2/1".to_owned()
        }

        fn decide(&mut self, _: &PolicyInput<'_>) -> Decision {
            self.meet("decide");
            let search = (self.at == "search").then(|| Box::new(Search) as Box<dyn SearchTask>);
            Decision { search, ..Decision::default() }
        }

        fn observe(&mut self, outcome: &Outcome) {
            self.flushes += u32::from(matches!(outcome, Outcome::Flushed { .. }));
            self.meet("observe");
        }

        fn design(&self, _: &TreeView, _: &LimitView) -> Vec<LevelDesign> {
            self.meet("design");
            Vec::new()
        }

        fn flush_tag(&mut self, _: u64, _: &TreeView) -> RunTag {
            self.meet("flush_tag");
            RunTag::default()
        }

        fn save(&self) -> Vec<u8> {
            self.meet("save");
            Vec::new()
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<Event>>);

    impl EventListener for Heard {
        fn on_event(&self, event: &Event) {
            self.0.lock().push(event.clone());
        }
    }

    #[test]
    fn a_panic_ends_the_policy_and_not_the_store() {
        for at in ["decide", "name", "observe", "design", "flush_tag", "save", "search"] {
            a_panic_ends_the_policy(at);
        }
    }

    fn a_panic_ends_the_policy(at: &'static str) {
        let mem = MemEnv::new(5);
        let heard = Arc::new(Heard::default());
        let builder = Db::builder(Path::new("/store")).env(mem.env()).listener(heard.clone());
        let db = builder.open().unwrap();
        let keys = db.keyspace_with("main", &[("memtable_bytes", "32KiB")]).unwrap();
        {
            let mut control = keys.store.control.lock();
            control
                .keyspaces
                .iter_mut()
                .for_each(|keyspace| keyspace.set_policy(Box::new(Fails { at, flushes: 0 })));
        }
        let put = |n: u32| {
            keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 200]).unwrap();
        };
        (0..3000).for_each(put);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(keys.policy(), "universal", "{at}");
        assert!(db.metrics().compactions > 0, "the new policy made no compaction");
        let events = heard.0.lock().clone();
        let fell =
            |event: &&Event| matches!(event, Event::PolicyFailed { policy, .. } if policy == "arce:9/24/2/1");
        assert_eq!(events.iter().filter(fell).count(), 1, "{events:?}");
        assert_eq!(keys.iter().count(), 3000);
        drop(keys);
        db.close().unwrap();
        let db = Db::builder(Path::new("/store")).env(mem.env()).open().unwrap();
        assert_eq!(db.keyspace("main").unwrap().policy(), "arce:9/24/2/1", "the next open tries again");
    }
}
