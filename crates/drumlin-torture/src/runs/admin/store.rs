//! The store of the admin run: its path, how it opens, and what must hold of it at any time.

use crate::failure::{Failure, Verdict};
use drumlin::{AddI64, Builder, Db};
use drumlin_env::Env;
use drumlin_env::sync::Arc;

/// Path of the store.
pub(super) const STORE_PATH: &str = "/store";

/// Returns a function that turns an error of `what` into a failure.
pub(super) fn failed(what: &str) -> impl FnOnce(drumlin::Error) -> Failure + '_ {
    move |error| Verdict::Failed.of(format!("{what}: {error}"))
}

/// Returns a builder of the store at `path` with the operators that its keyspaces need.
pub(super) fn builder(env: Env, path: &str) -> Builder {
    let builder = [("memory_budget", "8MiB"), ("log_segment_bytes", "64KiB")]
        .into_iter()
        .try_fold(Db::builder(path).env(env), |builder, (name, value)| builder.set(name, value));
    let builder = builder.expect("legal options");
    let names = ["sum", "a"].into_iter();
    names.fold(builder, |builder, name| builder.merge_operator(name, Arc::new(AddI64::Text)))
}

/// Checks that `verify` finds nothing in `db`.
pub(super) fn sound(db: &Db) -> Result<(), Failure> {
    let report = db.verify().map_err(failed("verify"))?;
    report.findings.first().map_or(Ok(()), |finding| Err(Verdict::Unsound.of(format!("{finding:?}"))))
}
