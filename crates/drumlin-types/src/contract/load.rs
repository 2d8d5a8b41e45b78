//! What a policy sees of the workload, of measured costs and of limits. Everything here is measured or
//! set by the user; nothing is assumed. Unknown figures are 0.

/// Observed load of one keyspace: decayed rates, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadView {
    /// Point lookups per second.
    pub gets: f64,
    /// Seeks (scans begun) per second.
    pub seeks: f64,
    /// Writes per second.
    pub writes: f64,
    /// Written user bytes per second.
    pub write_bytes: f64,
    /// Mean bytes of one written entry.
    pub entry_bytes: f64,
    /// Client threads seen active lately.
    pub clients: f64,
    /// Sealed memtables that wait for their flush.
    pub sealed_memtables: u32,
    /// Fill of the active memtable, 0..=1.
    pub memtable_fill: f64,
    /// Snapshots alive.
    pub snapshots: u32,
}

/// Measured costs, as running means; nanoseconds and bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CostView {
    /// Input bytes that a busy merge slot handles per second.
    pub merge_bytes_per_s: f64,
    /// Fixed cost of a merge piece: install and sync, ns.
    pub merge_fixed_ns: f64,
    /// Bytes of table output that a flush writes per second.
    pub flush_bytes_per_s: f64,
    /// Filter and fence probe of one run, ns.
    pub probe_ns: f64,
    /// Data block access, cached or not as they occur, ns.
    pub block_ns: f64,
    /// Placing one run's cursor in a seek, ns.
    pub cursor_ns: f64,
    /// Mean time of a point lookup, ns.
    pub get_ns: f64,
    /// Mean time of a seek with what follows it, ns.
    pub scan_ns: f64,
    /// Mean time of a write without waiting, ns.
    pub write_ns: f64,
}

/// Numbers that the user or the engine sets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitView {
    /// Size at which a memtable is sealed, bytes.
    pub memtable_bytes: u64,
    /// Size at which output files are cut, bytes.
    pub file_bytes: u64,
    /// Merge slots.
    pub slots: u32,
    /// Most runs a tree may have before writers stop.
    pub max_runs: u32,
    /// Bytes rewritten per flushed byte that elective merges may use.
    pub max_write_amp: f64,
    /// Disk budget in bytes; `u64::MAX` when there is none.
    pub disk_budget: u64,
    /// Bytes of disk in use by the store.
    pub disk_used: u64,
}

impl Default for LimitView {
    fn default() -> LimitView {
        LimitView {
            memtable_bytes: 64 << 20,
            file_bytes: 64 << 20,
            slots: 1,
            max_runs: 64,
            max_write_amp: 20.0,
            disk_budget: u64::MAX,
            disk_used: 0,
        }
    }
}
