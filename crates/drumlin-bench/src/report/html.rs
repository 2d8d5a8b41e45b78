//! page
use super::model::Report;
/// page
pub fn page(_report: &Report) -> String { String::new() }
