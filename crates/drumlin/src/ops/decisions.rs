//! Access to the decision log: `explain`, which covers earlier opens of the store too, and the replay of logged
//! decisions.

use crate::base::decisions::{DecisionRecord, RECORDS_KEPT, ReplayReport};
use crate::store::Store;
use drumlin_format::decisions::{DecisionCopy, PolicyCall, VERSION};
use drumlin_format::error::DecodeError;
use drumlin_types::contract::PolicyError;
use std::collections::BTreeMap;

impl Store {
    /// Returns the latest decisions, oldest first, including those of earlier opens of the store.
    pub(crate) fn explain(&self) -> Vec<DecisionRecord> {
        let mut records: Vec<DecisionRecord> =
            self.decisions.earlier(&self.files.env).into_iter().map(DecisionRecord::from).collect();
        records.extend(self.control.lock().decisions.records());
        records.drain(..records.len().saturating_sub(RECORDS_KEPT));
        records
    }

    /// Repeats every logged policy decision that this build can read. A policy is pure, so the decisions must be equal.
    pub(crate) fn replay_decisions(&self) -> ReplayReport {
        self.write_decisions();
        let mut report = ReplayReport::default();
        let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
        for log in self.decisions.all(&self.files.env) {
            let log = match log {
                Ok(log) => log,
                Err(newer @ DecodeError::NewerFormat { .. }) => {
                    report.left_out.push(format!("a decision log: {newer}"));
                    continue;
                }
                // The log is advisory: damaged files are skipped.
                Err(DecodeError::Corruption(_)) => continue,
            };
            for entry in log.entries.iter().filter(|entry| !entry.policy_call.is_empty()) {
                if log.version != VERSION {
                    let why = format!(
                        "the decision log has version {}, this build can replay version {VERSION}",
                        log.version
                    );
                    *left_out.entry(why).or_default() += 1;
                    continue;
                }
                match PolicyCall::decode(&entry.policy_call).map(|call| is_repeated(&call)) {
                    Ok(Ok(true)) => {}
                    Ok(Err(PolicyError(why))) => {
                        *left_out.entry(why).or_default() += 1;
                        continue;
                    }
                    Ok(Ok(false)) | Err(_) => {
                        let what = format!("{}: {} at {}", entry.keyspace, entry.reason, entry.micros);
                        report.differing.push(what);
                    }
                }
                report.decisions += 1;
            }
        }
        let line = |(why, count): (String, u64)| format!("{count} left out: {why}");
        report.left_out.extend(left_out.into_iter().map(line));
        report
    }
}

/// Returns whether the policy of `policy_call`, restored to its logged state, makes the logged decision again.
///
/// # Errors
/// When this build has no such policy, or the policy cannot restore the state.
fn is_repeated(call: &PolicyCall) -> Result<bool, PolicyError> {
    let mut policy = drumlin_policy::by_name(&call.policy)?;
    if !call.state.is_empty() {
        policy.restore(&call.state)?;
    }
    Ok(DecisionCopy::from(&policy.decide(&call.input.as_input())) == call.decision)
}
