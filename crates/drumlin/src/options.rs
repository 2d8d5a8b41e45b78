//! Temporary options.
use crate::error::*;
use drumlin_format::compression::Compression;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability { None, Buffered, Sync }
#[derive(Clone, Default, Debug)]
pub(crate) struct Options(Vec<(String, String)>);
#[derive(Clone, Default, Debug)]
pub(crate) struct KeyspaceOptions(Vec<(String, String)>);
pub fn option_table() -> String { String::new() }
macro_rules! common { ($t:ident) => { impl $t {
    pub(crate) fn from_pairs(p: &[(String, String)]) -> Result<$t> { Ok($t(p.to_vec())) }
    pub(crate) fn to_pairs(&self) -> Vec<(String, String)> { self.0.clone() }
    pub(crate) fn set(&mut self, n: &str, v: &str) -> Result<()> { self.0.retain(|x| x.0 != n); self.0.push((n.into(), v.into())); Ok(()) }
    fn num(&self, n: &str, d: u64) -> u64 { self.0.iter().find(|x| x.0 == n).and_then(|x| x.1.parse().ok()).unwrap_or(d) }
} } }
common!(Options); common!(KeyspaceOptions);
impl Options {
    pub(crate) fn memory_budget(&self) -> u64 { self.num("memory_budget", 512 << 20) }
    pub(crate) fn durability(&self) -> Durability { Durability::Buffered }
    pub(crate) fn file_bytes(&self) -> u64 { self.num("file_bytes", 64 << 20) }
    pub(crate) fn max_runs(&self) -> u64 { self.num("max_runs", 64) }
    pub(crate) fn max_write_amp(&self) -> f64 { 20.0 }
    pub(crate) fn memtable_bytes(&self) -> u64 { self.num("memtable_bytes", 0) }
    pub(crate) fn workers(&self) -> u64 { self.num("workers", 0) }
    pub(crate) fn log_segment_bytes(&self) -> u64 { self.num("log_segment_bytes", 16 << 20) }
    pub(crate) fn write_timeout_micros(&self) -> u64 { 60_000_000 }
}
impl KeyspaceOptions {
    pub(crate) fn compaction(&self) -> String { self.0.iter().find(|x| x.0 == "compaction").map_or("1-leveling".into(), |x| x.1.clone()) }
    pub(crate) fn ttl_seconds(&self) -> u64 { self.num("ttl_seconds", 0) }
    pub(crate) fn block_bytes(&self) -> u64 { self.num("block_bytes", 4096) }
    pub(crate) fn filter_bits(&self) -> Option<f64> { None }
    pub(crate) fn compression_at(&self, _level: u8, _bottom: bool) -> Compression { Compression::None }
}
