//! Reports of a run: the model that becomes JSON, and the tables and pages made from it.

pub mod html;
pub mod merge;
pub mod model;
mod oracle;
pub(crate) mod peaks;
pub mod progress;
pub mod svg;
pub mod table;
pub mod tsv;

#[cfg(test)]
pub(crate) mod tests;
