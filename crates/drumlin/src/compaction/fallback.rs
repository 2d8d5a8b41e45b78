//! A policy that panics is replaced, and the store goes on.
//!
//! Policies promise not to panic. Should one do it all the same, on a tree that nobody thought of, its
//! decision is lost and `universal` decides in its place until the store is closed: it knows no state, copes
//! with every tree, and bounds the number of runs. The next open tries the policy that was asked for again.
//! What the policy would have said is not shown: a message may hold user keys.

use super::control::KeyspaceControl;
use drumlin_types::contract::{Decision, PolicyInput};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The policy that takes over.
const FALLBACK: &str = "universal";

/// What the policy of `keyspace` decides, or what its successor does after a panic.
pub(super) fn decide(keyspace: &mut KeyspaceControl, input: &PolicyInput<'_>) -> Decision {
    // What the panic leaves of the policy is thrown away unseen.
    if let Ok(decision) = catch_unwind(AssertUnwindSafe(|| keyspace.policy.decide(input))) {
        return decision;
    }
    let name = catch_unwind(AssertUnwindSafe(|| keyspace.policy.name()));
    let name = name.unwrap_or_else(|_| "a policy".to_owned());
    let Ok(policy) = drumlin_policy::by_name(FALLBACK) else { return Decision::default() };
    keyspace.set_policy(policy);
    (keyspace.fallen, keyspace.stands_in_for) = (Some(name.clone()), Some(name));
    // Asked again at once, as `due`.
    Decision::default()
}

#[cfg(test)]
mod tests {
    use crate::db::Db;
    use crate::event::{Event, EventListener};
    use drumlin_env::MemEnv;
    use drumlin_env::sync::{Arc, Mutex};
    use drumlin_types::contract::{CompactionPolicy, Decision, PolicyInput};
    use std::path::Path;

    #[derive(Debug)]
    struct Fails;

    impl CompactionPolicy for Fails {
        fn name(&self) -> String {
            "arce:9/24/2/1".to_owned()
        }

        fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
            assert!(input.tree.runs() < 3, "three runs are too many");
            Decision::default()
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
        let mem = MemEnv::new(5);
        let heard = Arc::new(Heard::default());
        let builder = Db::builder(Path::new("/store")).env(mem.env()).listener(heard.clone());
        let db = builder.open().unwrap();
        let keys = db.keyspace_with("main", &[("memtable_bytes", "32KiB")]).unwrap();
        {
            let mut control = keys.store.control.lock();
            control.keyspaces.iter_mut().for_each(|keyspace| keyspace.set_policy(Box::new(Fails)));
        }
        let put = |n: u32| {
            keys.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 200]).unwrap();
        };
        (0..3000).for_each(put);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert_eq!(keys.policy(), "universal");
        assert!(db.metrics().merges > 0, "the successor merges");
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
