//! Changes of options of an open store and its keyspaces. A change takes effect at once and is durable.
//!
//! One call changes all of its options or none. It reads the old values under the control lock, so no change of another
//! thread is lost.

use crate::base::error::{Error, ErrorKind, Result};
use crate::compaction::control::Control;
use crate::keyspace::KeyspaceState;
use crate::options::{Adaptation, KeyspaceOptions, Options};
use crate::store::Store;
use drumlin_env::sync::Arc;
use drumlin_format::manifest::{Change, Edit, MAX_NAME_LEN};
use drumlin_types::contract::CompactionPolicy;

impl Store {
    /// Changes an option of the open store.
    pub(crate) fn set_option(&self, name: &str, value: &str) -> Result<()> {
        self.health.check_open()?;
        let early = drumlin_types::bug!("options-read-early").then(|| self.options.load_full());
        let mut control = self.control.lock();
        let mut options = Options::clone(&early.unwrap_or_else(|| self.options.load_full()));
        options.set(name, value)?;
        if Options::defs().iter().any(|def| def.name == name && !def.live) {
            let what = format!("{name} can only be set when the store is opened: pass it to the builder");
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        let change = Change::StoreOption { name: name.to_owned(), value: value.to_owned() };
        self.append_edit(&mut control, Edit { changes: vec![change] }, || {})?;
        if name == "disk_budget" {
            let log = self.commit_lock.state.lock().log.bytes_on_disk();
            self.disk_budget.set_limit(options.disk_budget, log);
        }
        self.throttles.background.limit(options.background_rate);
        self.options.store(Arc::new(options));
        drop(control);
        // Lanes may wait for a limit that this change has lifted.
        self.forget_shortage(|| {});
        self.clear_space_errors();
        if name == "disk_budget" {
            self.call_policies_for_space();
        }
        self.log_found_space();
        self.background.progressed();
        Ok(())
    }

    /// Changes options of a keyspace, including its compaction policy. Changes all of them or none.
    pub(crate) fn set_keyspace_options(
        &self,
        keyspace: &Arc<KeyspaceState>,
        wanted: &[(String, String)],
    ) -> Result<()> {
        self.health.check_open()?;
        if wanted.is_empty() {
            return Ok(());
        }
        let early = drumlin_types::bug!("options-read-early").then(|| keyspace.options.load_full());
        let mut control = self.control.lock();
        if !drumlin_types::bug!("edits-not-validated") {
            keyspace.check_alive()?;
        }
        let old = early.unwrap_or_else(|| keyspace.options.load_full());
        let mut options = KeyspaceOptions::clone(&old);
        wanted.iter().try_for_each(|(name, value)| options.set(name, value))?;
        let sets = |option: &str| wanted.iter().any(|(name, _)| name == option);
        let mut policy = sets("compaction").then(|| policy_named(&options.compaction)).transpose()?;
        // A policy that is in use already goes on with what it has learned.
        if options.compaction == old.compaction
            && let Some(entry) = control.keyspace(keyspace)
        {
            policy = policy.filter(|p| entry.policy.has_failed() || p.name() != entry.policy.name());
        }
        let mut changes: Vec<Change> = wanted
            .iter()
            .map(|(name, value)| Change::KeyspaceOption {
                id: keyspace.id,
                name: name.clone(),
                value: value.clone(),
            })
            .collect();
        // Saves the policy state in the same edit, so that a frozen policy stays frozen after a crash.
        let (adapts, frozen) = (sets("adaptation"), options.adaptation == Adaptation::Frozen);
        let entry = control.keyspace(keyspace).filter(|_| adapts && policy.is_none());
        let state = match &mut policy {
            Some(policy) => {
                policy.freeze(frozen);
                Some((policy.name(), policy.save()))
            }
            None => entry.map(|entry| {
                entry.policy.freeze(frozen);
                entry.durable_policy()
            }),
        };
        changes.extend(state.map(|(name, blob)| Change::Policy { keyspace: keyspace.id, name, blob }));
        // And what was learned about values, for the same reason.
        let lifetimes = if adapts { self.lifetimes.saved(keyspace.id) } else { None };
        changes.extend(lifetimes.map(|blob| Change::ValueLifetimes { keyspace: keyspace.id, blob }));
        if let Err(error) = self.append_edit(&mut control, Edit { changes }, || {}) {
            if let Some(entry) = control.keyspace(keyspace) {
                entry.policy.freeze(entry.is_frozen());
            }
            return Err(error);
        }
        self.note_options(&mut control, keyspace, policy.is_some(), &options);
        keyspace.set_options(&self.options.load(), options);
        self.lifetimes.freeze(keyspace.id, frozen);
        if let Some(entry) = control.keyspace(keyspace) {
            if adapts && frozen {
                entry.end_search();
            }
            policy.into_iter().for_each(|policy| entry.set_policy(policy));
            entry.call_policy_soon();
        }
        self.refresh_pace(&control);
        drop(control);
        self.background.progressed();
        Ok(())
    }

    /// Adds changes of the policy and of its adaptation to the decision log. `has_new_policy`: the policy was replaced.
    fn note_options(
        &self,
        control: &mut Control,
        keyspace: &KeyspaceState,
        has_new_policy: bool,
        options: &KeyspaceOptions,
    ) {
        let old = keyspace.options.load();
        if has_new_policy || options.compaction != old.compaction {
            self.note_option(control, keyspace, format!("policy {}", options.compaction));
        }
        if options.adaptation != old.adaptation {
            self.note_option(control, keyspace, format!("adaptation {}", options.adaptation.name()));
        }
    }

    /// Adds a change of the policy or its adaptation to the decision log.
    fn note_option(&self, control: &mut Control, keyspace: &KeyspaceState, what: String) {
        control.decisions.note(self.files.now(), &keyspace.name(), what, "set by the user".to_owned());
    }
}

/// Creates the policy that the option `compaction` names.
pub(super) fn policy_named(name: &str) -> Result<Box<dyn CompactionPolicy>> {
    let refuse = |what| Error::new(ErrorKind::InvalidOption, what);
    let policy = drumlin_policy::by_name(name).map_err(|e| refuse(e.0))?;
    // The manifest stores the policy's state under the name that the policy reports.
    if policy.name().len() > MAX_NAME_LEN {
        return Err(refuse(format!("compaction: the name of a policy has at most {MAX_NAME_LEN} bytes")));
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use crate::api::db::Db;
    use crate::api::keyspace::Keyspace;
    use crate::base::error::ErrorKind;
    use drumlin_env::MemEnv;
    use drumlin_format::manifest::{Change, Edit};

    /// Returns the address of the policy in use.
    fn policy(keys: &Keyspace) -> usize {
        let mut control = keys.store.control.lock();
        control.keyspace(&keys.state).expect("its control").policy.address()
    }

    #[test]
    fn a_policy_that_is_set_again_goes_on() {
        let mem = MemEnv::new(1);
        let db = Db::builder("/s").env(mem.env()).open().expect("open");
        let keys = db.keyspace("k").expect("keyspace");
        let first = policy(&keys);
        db.keyspace_with("k", &[("compaction", "arce"), ("adaptation", "frozen")]).expect("options");
        assert_eq!(policy(&keys), first, "what the policy had learned is lost");
        keys.set_policy("leveling").expect("another policy");
        assert!(keys.policy().starts_with("leveling"), "{}", keys.policy());
    }

    /// Builds with the feature `experiments` write an option that others lack into every manifest.
    #[test]
    fn a_store_opens_unless_it_has_an_option_set_that_this_build_lacks() {
        let has_option = cfg!(feature = "experiments");
        for (values, opens) in
            [(&["none"][..], true), (&["8/24/2/1", "none"], true), (&["none", "8/24/2/1"], has_option)]
        {
            let mem = MemEnv::new(1);
            let db = Db::builder("/s").env(mem.env()).open().expect("open");
            let keys = db.keyspace("k").expect("keyspace");
            for value in values {
                let (name, value) = ("arce_pin".to_owned(), (*value).to_owned());
                let change = Change::KeyspaceOption { id: keys.state.id, name, value };
                let mut control = keys.store.control.lock();
                keys.store.append_edit(&mut control, Edit { changes: vec![change] }, || {}).expect("an edit");
            }
            drop(keys);
            db.close().expect("close");
            match Db::builder("/s").env(mem.env()).open() {
                Ok(_) => assert!(opens, "{values:?}"),
                Err(error) => {
                    assert!(!opens && error.kind() == ErrorKind::InvalidOption, "{values:?}: {error}");
                    assert!(
                        error.to_string().contains("\"k\" has arce_pin = 8/24/2/1, which this"),
                        "{error}"
                    );
                }
            }
            let repaired = crate::repair::repair_in(&mem.env(), "/s", "/t", |_| {}).expect("a repair");
            let not_kept = repaired.findings.iter().filter(|finding| finding.contains("arce_pin"));
            assert_eq!(not_kept.count(), usize::from(!opens), "{values:?}: {:?}", repaired.findings);
        }
    }
}
