//! What the store reports about itself, as plain data. These types define the output of `--json`.

use serde::Serialize;

/// Result of a verification.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Verification {
    /// Number of tables read.
    pub(crate) tables: u64,
    /// Number of blocks read.
    pub(crate) blocks: u64,
    /// Number of entries read.
    pub(crate) entries: u64,
    /// Number of bytes read.
    pub(crate) bytes: u64,
    /// Number of log records read.
    pub(crate) log_records: u64,
    /// Number of keys whose versions were compared between levels.
    pub(crate) keys: u64,
    /// Damage found; empty if the store is intact.
    pub(crate) findings: Vec<Finding>,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Finding {
    /// File that contains the damage.
    pub(crate) file: String,
    /// Offset in the file, if known.
    pub(crate) offset: Option<u64>,
    /// Description of the damage.
    pub(crate) what: String,
}

/// Result of a repair.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RepairReport {
    /// Whether the repair has proven that no data is lost.
    pub(crate) nothing_lost: bool,
    /// Whether the old store was closed in order.
    pub(crate) was_closed: bool,
    /// Number of commits read from the log.
    pub(crate) commits: u64,
    /// Keyspaces of the new store.
    pub(crate) keyspaces: Vec<RepairedKeyspace>,
    /// Files of the old store that were read.
    pub(crate) files: Vec<RepairedFile>,
    /// Descriptions of lost or doubtful data.
    pub(crate) findings: Vec<String>,
    /// Other remarks.
    pub(crate) notes: Vec<String>,
}

/// A keyspace of a repaired store.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RepairedKeyspace {
    /// Name of the keyspace.
    pub(crate) name: String,
    /// Number of keys with their latest value.
    pub(crate) certain: u64,
    /// Number of keys with a value that may be outdated.
    pub(crate) doubtful: u64,
    /// Number of entries known to be lost.
    pub(crate) lost: u64,
    /// Whether more entries may be lost.
    pub(crate) lost_more: bool,
}

/// A file of the old store from which a repair has read as much as possible.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct RepairedFile {
    /// Name of the file.
    pub(crate) name: String,
    /// Number of entries read.
    pub(crate) entries: u64,
    /// Number of entries known to be lost.
    pub(crate) lost: u64,
    /// Number of unreadable parts.
    pub(crate) damages: u64,
}

/// A decision of a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct DecisionRecord {
    /// Time of the decision in microseconds since the Unix epoch.
    pub(crate) micros: u64,
    /// Keyspace of the decision.
    pub(crate) keyspace: String,
    /// Description of the decision.
    pub(crate) what: String,
    /// Reason, with the numbers that led to the decision.
    pub(crate) reason: String,
}

/// Result of re-running the logged policy calls.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct DecisionReplay {
    /// Number of decisions that were re-run.
    pub(crate) decisions: u64,
    /// Descriptions of the decisions that differ from the log.
    pub(crate) differing: Vec<String>,
    /// Calls that could not be re-run, with reasons.
    pub(crate) left_out: Vec<String>,
}

/// Description of an engine option.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct OptionRow {
    /// Name, as `--set` takes it.
    pub(crate) name: &'static str,
    /// Scope: `store` or `keyspace`.
    pub(crate) scope: &'static str,
    /// Unit of the value; empty for plain numbers and words.
    pub(crate) unit: &'static str,
    /// Default value.
    pub(crate) default: String,
    /// Description of the allowed values.
    pub(crate) bounds: String,
    /// Whether the option can be changed while the store is open.
    pub(crate) live: bool,
    /// Whether the option is for experts only.
    pub(crate) expert: bool,
    /// Description of the option.
    pub(crate) about: &'static str,
}
