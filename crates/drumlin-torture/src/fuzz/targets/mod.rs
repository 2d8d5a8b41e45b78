//! The targets: one function from bytes to "accepted" for each decoder.

mod block;
mod decisions;
mod engine;
mod fields;
mod log;
mod manifest;
mod plain;
mod store;
mod table;
mod value;

use super::target::Target;

/// Returns all targets.
pub fn all() -> Vec<Target> {
    let of_formats = [
        plain::TARGETS,
        log::TARGETS,
        manifest::TARGETS,
        decisions::TARGETS,
        block::TARGETS,
        table::TARGETS,
        value::TARGETS,
    ];
    let of_engine = [engine::TARGETS, store::TARGETS];
    [of_formats.concat(), of_engine.concat()].concat()
}
