//! Whether it pays to merge extra runs of a level in place (downforce.md 3.6).
//!
//! Policies propose such plans with a negative priority, whenever a level has more runs than they mean it to have.
//! Extra runs are how plans get on without waiting, so merging them at once would undo that. It pays when what reads
//! would spend on them in the next minute is more than the merge takes of a slot; or when nothing else is to be done.

use super::tickets::Flight;
use super::{Mode, Scene};
use crate::share::share;
use drumlin_types::contract::{FileSpan, TreeView};

/// Seconds over which reads must win back the merge.
const HORIZON: f64 = 60.0;
/// Written bytes per second below which a keyspace counts as idle.
const IDLE: f64 = 1024.0;

/// Whether merging `spans` in place is worth it.
pub fn pays(flight: &Flight, scene: &Scene<'_>, tree: &TreeView, spans: &[FileSpan]) -> bool {
    if scene.settings.mode != Mode::Pipelined {
        return flight.tickets.is_empty();
    }
    if flight.tickets.is_empty() && scene.costs.inflow < IDLE {
        return true;
    }
    let bytes: f64 = spans
        .iter()
        .map(|span| {
            let files = tree.levels.get(usize::from(span.level)).into_iter().flat_map(|level| level.files());
            let meant = files.filter(|f| f.table == span.table && f.bounds.overlaps(&span.range));
            meant.map(|f| f.bytes as f64 * share(&f.bounds, &span.range)).sum::<f64>()
        })
        .sum();
    let extra = spans.len().saturating_sub(1).min(1) as f64;
    extra * scene.costs.extra_run * HORIZON > bytes * scene.costs.rewrite
}
