//! Replay of recorded requests: the trace determines the shares of reads and writes, the keys and the sizes.

use super::{Action, After, Phase, Workload};
use crate::engine::Result;
use crate::generate::keys::KeyForm;
pub use crate::generate::trace::Form;
use crate::generate::trace::{Requests, TraceSource};
use std::path::Path;

/// Returns a workload that replays the file once on an empty store. A `scale` below 1 replays that fraction from the
/// start.
pub fn workload(path: &Path, form: Form, sizes: Option<&Path>, scale: f64) -> Result<Workload> {
    let source = TraceSource { path: path.to_owned(), form, sizes: sizes.map(Path::to_owned) };
    let mut requests = Requests::open(&source)?;
    let mut count = 0;
    while requests.next_request()?.is_some() {
        count += 1;
    }
    let name = path.file_name().map_or("trace".into(), |name| name.to_string_lossy());
    let name = name.split('.').next().unwrap_or("trace");
    let replay =
        Phase::of("replay", super::scaled(count, scale), Action::Replay).on_empty().then(After::Idle);
    Ok(Workload {
        name: format!("trace {name}"),
        keys: KeyForm::Block,
        value_bytes: 4096,
        value_ratio: 0.5,
        trace: Some(source),
        phases: vec![replay],
    })
}
