//! Replay of recorded requests: the shares of reads and writes, the keys and the sizes are the trace's own.

use super::{Action, After, Phase, TraceSource, Workload};
use crate::engine::Result;
use crate::generate::keys::KeyForm;
use crate::generate::trace::Requests;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a trace file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Block requests, one key for each request start.
    Block,
    /// Block requests, one key for each block of 4 KiB that they touch.
    Blocks4k,
    /// Requests with text keys.
    Keys,
    /// Object ids in request order.
    Ids,
}

/// Replays the file once on an empty store. `scale` below 1 replays that share of it, from its start.
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
