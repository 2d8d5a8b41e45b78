//! RocksDB's statistics from its log: exact bytes of flushes and compactions, at no cost to its callers.
//!
//! Each job writes lines `EVENT_LOG_v1 {json}`. The job number of `flush_started` distinguishes flushes from
//! compactions. No event has the bytes that compactions read from blob files, so the bytes read omit them. RocksDB's
//! optional statistics would slow its readers, so they stay off, as by default.

use drumlin_bench::engine::{Counters, Stall};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Totals over the events so far.
#[derive(Default)]
struct Sums {
    flush_jobs: BTreeSet<u64>,
    flushed: u64,
    merged: u64,
    /// Bytes of blobs that compactions wrote.
    blobs: u64,
    merge_read: u64,
    merges: u64,
    moves: u64,
    entries: u64,
    fast_crc: bool,
    jemalloc: bool,
}

/// Receiver of the log lines.
#[derive(Default)]
pub struct Log(Mutex<Sums>);

impl Log {
    /// Processes one line.
    pub fn line(&self, line: &str) {
        // After a panic in another thread the totals are still valid numbers.
        let mut sums = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, text)) = line.split_once("EVENT_LOG_v1 ") {
            if let Ok(event) = serde_json::from_str(text.trim()) {
                sums.event(&event);
            }
        } else if line.contains("Fast CRC32 supported: Supported") {
            sums.fast_crc = true;
        } else if line.contains("Jemalloc supported: 1") {
            sums.jemalloc = true;
        }
    }

    /// Returns whether checksums use the processor's CRC32 instruction, and whether memory comes from jemalloc.
    pub fn build(&self) -> (bool, bool) {
        let sums = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (sums.fast_crc, sums.jemalloc)
    }

    /// Returns the totals as counters.
    pub fn counters(&self) -> Counters {
        let sums = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Counters {
            flush_bytes: Some(sums.flushed),
            merge_bytes: Some(sums.merged),
            gc_bytes: Some(sums.blobs),
            read_merge_bytes: Some(sums.merge_read),
            merges: Some(sums.merges),
            moves: Some(sums.moves),
            merge_entries: Some(sums.entries),
            ..Counters::default()
        }
    }
}

impl Sums {
    fn event(&mut self, event: &Value) {
        let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        match event.get("event").and_then(Value::as_str) {
            Some("flush_started") => {
                self.flush_jobs.insert(number("job"));
            }
            Some("table_file_creation") if self.flush_jobs.contains(&number("job")) => {
                self.flushed += number("file_size");
            }
            Some("blob_file_creation") => match self.flush_jobs.contains(&number("job")) {
                true => self.flushed += number("total_blob_bytes"),
                false => self.blobs += number("total_blob_bytes"),
            },
            Some("compaction_started") => self.merge_read += number("input_data_size"),
            Some("compaction_finished") => {
                self.merges += 1;
                self.merged += number("total_output_size");
                self.entries += number("num_input_records");
            }
            Some("trivial_move") => self.moves += number("files"),
            _ => {}
        }
    }
}

/// Returns the write stalls from the texts of `rocksdb.dbstats` (milliseconds) and `rocksdb.cfstats` (counts).
pub fn stalls(db_stats: &str, cf_stats: &str) -> Option<BTreeMap<String, Stall>> {
    let time = db_stats.lines().find_map(|line| line.strip_prefix("Cumulative stall: "))?;
    let mut seconds = 0.0;
    for part in time.split(' ').next()?.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    let counts = cf_stats.lines().find_map(|line| line.strip_prefix("Write Stall (count): "));
    let total = |name: &str| -> u64 {
        let pairs = counts.unwrap_or_default().split(", ").filter_map(|pair| pair.split_once(": "));
        pairs.filter(|(n, _)| *n == name).filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
    };
    let count = total("total-delays") + total("total-stops");
    Some(BTreeMap::from([("all".to_owned(), Stall { count, seconds })]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_told_from_merges() {
        let log = Log::default();
        for line in [
            "EVENT_LOG_v1 {\"time_micros\":1,\"job\":2,\"event\":\"flush_started\"}",
            "[default] EVENT_LOG_v1 \
             {\"cf_name\":\"default\",\"job\":2,\"event\":\"table_file_creation\",\"file_size\":70}",
            "EVENT_LOG_v1 {\"job\":3,\"event\":\"compaction_started\",\"input_data_size\":70}",
            "EVENT_LOG_v1 {\"job\":3,\"event\":\"table_file_creation\",\"file_size\":60}",
            "EVENT_LOG_v1 \
             {\"job\":3,\"event\":\"compaction_finished\",\"total_output_size\":60,\"num_input_records\":5}",
            "EVENT_LOG_v1 {\"job\":2,\"event\":\"blob_file_creation\",\"total_blob_bytes\":900}",
            "EVENT_LOG_v1 {\"job\":3,\"event\":\"blob_file_creation\",\"total_blob_bytes\":40}",
            "EVENT_LOG_v1 {broken",
        ] {
            log.line(line);
        }
        let counters = log.counters();
        assert_eq!(
            (counters.flush_bytes, counters.merge_bytes, counters.merge_entries),
            (Some(970), Some(60), Some(5))
        );
        assert_eq!(counters.gc_bytes, Some(40));
    }

    #[test]
    fn stalls_from_the_texts() {
        let db = "Cumulative WAL: 1\nCumulative stall: 00:01:2.500 H:M:S, 0.0 percent\n";
        let cf = "Write Stall (count): total-delays: 3, total-stops: 1\n";
        let all = stalls(db, cf).expect("both lines");
        assert_eq!(all["all"], Stall { count: 4, seconds: 62.5 });
        assert_eq!(stalls("", cf), None);
    }
}
