//! Texts of the page.

/// Text above the first table.
pub(super) const HEAD: &str = "# Drumlin beside other engines

Generated from the reports in `comparison/`; do not edit.

- `us/op` is elapsed microseconds per operation, the median of the usable rounds; lower is better. All threads start
  together. The time is that of the slowest thread up to its last answer, without the CPU time that it spent on
  generating keys, divided by the operations of all threads. After phases that write and those of `ycsb` it includes
  the settling that follows.
- *Settling* is the work that a phase leaves behind. Normally it is a flush, then a wait until no flush or compaction
  is pending; the policy may leave several sorted runs. After the phases of `ycsb` that are no load it is the wait
  alone. After a load that reads follow it is a compaction of the whole store into one sorted run, so compare loads
  only between commands with the same phases. `sorted runs` and `space amp` (disk space over live keys and values) are
  taken after settling.
- `report` links the report of the row: all rounds, versions and settings. `config` has the settings of an engine in its
  last phase, and `phase_config` those of each phase, if they differ.
- `vs ENGINE` is Drumlin's throughput over that of the other engine in the same round: median (least-most), or one
  number if there is one usable round. Above 1, Drumlin is faster. Each RocksDB form of the command has a median ratio;
  `vs RocksDB` is the lowest, `RocksDB form` names the form that has it, and `RocksDB us/op` is that of this form. With
  `--aa` Drumlin runs twice in each round, the second time as `drumlin#2`. Ratios take the geometric mean of both runs,
  and in the first table the times, p99.9 and peaks of Drumlin are medians over both. Ratios take the rounds in which
  both engines are usable, and `us/op` all usable rounds of its engine: with few usable rounds the two can disagree.
- The verdict of a row is the least favourable one over all RocksDB forms of its command. It is about throughput alone.
  - `better`: Drumlin is faster in every round, and by more than 5 % in the median.
  - `worse`: Drumlin is slower in every round, and by more than 5 % in the median.
  - `equal`: the median differs from 1 by at most 5 %.
  - `undecided`: the median differs from 1 by more than 5 %, but some round says the opposite.
  - `within A/A noise`: the rounds agree on more than 5 %, but in some round the two runs of Drumlin differ by as much
    as the median or more, say because a compaction fell into the phase of one.
  - `too few rounds`: Drumlin, its second run or the RocksDB form has fewer than three usable rounds.
  - `too short`: the phase has a thousand operations or more and took less than a tenth of a second.
- `p99.9 us` is microseconds a call, and `peak MiB` resident memory. Drumlin has the higher peak in most rows: its peaks
  include the mapped log and free memtables that it keeps for reuse. `p99.9 us` is that of all calls, from the end of
  the call before. In a phase of many operations one call in 16 is timed by itself and counts as 16, for all engines
  alike. With `--rate` it counts from the intended start. A call of `fillbatch` is a batch of 100 entries, and one of
  `multiget` asks for 32 keys.
- `CPU us/op` is CPU time of the process without the drawing of keys; background threads and settling are included.
  `write amp` is the bytes that flushes and compactions write to tables and value files over key and value bytes
  written, without the log. It is below 1 where memtables absorb overwrites. A phase with few writes shows a large
  one if any compaction falls into it.
- RocksDB is called through C, entry by entry, and has no coroutines, without which `async_io` does not help MultiGet.
  Its forms: [the benchmark's README](../../compare/README.md). Space amplification counts log files.
- The data fits into the memory, but for `dynamic` and the four phases with 16 MiB. `ops` is the number of operations,
  and `--num` that of the puts of a load and of possible keys. A load of `micro` draws each key at random from these,
  as in db_bench, so 63 % (1 - 1/e) of them exist after it. `overwrite` makes twice as many puts, drawn the same way.
  Unless the command or the row's name says otherwise: keys of 16 bytes,
  values of 100 bytes, no compression, 64 MiB memtables, 10 filter bits per key, 3 GiB of memory, a log that is not
  synced, one flush and one compaction at a time (`max_background_jobs = 2`), and one client thread. `ycsb` has keys of
  about 23 bytes, each once, and updates that write a whole value; `values` has keys of 256 bytes and values of 4 KiB.
  Each engine has these settings as far as it knows them, RocksDB and fjall most, redb its cache and LMDB none; what
  memory they use differs. Drumlin divides its filter bits unevenly over the runs.
- redb and LMDB begin a read transaction for every call, and a put of theirs is a transaction of its own, so their loads
  commit once for each entry.
- Lookups, seeks and scans of `micro` make a pass first that does not count: as many operations as one counted pass, or
  one scan. `readwhilewriting` makes it without the writer. `ycsb`, `dynamic` and `values` have no such pass: the first
  reads of a block come from the page cache. `open` opens a store that nothing has cached. `readuncached`,
  `readuncached16` and `multiget` have 16 MiB and read past the page cache, and `readpagecache` has 16 MiB and reads
  through it.
- `dynamic` has entries of about 1 KiB, memtables of 2 MiB and memory for a tenth of the data; its phases mix scans,
  updates and lookups differently ([benchmarks](../benchmarks.md)).
- Phases: `fillrandom` puts random keys, `fillbatch` in batches of 100; `fillsync` puts 20,000 keys of a loaded store
  again and syncs each put; `overwrite` puts keys again and ends with a compaction of the whole store. `readrandom`
  looks up keys of the store, `readmissing` absent ones, `readwhilewriting` keys for 20 seconds beside a thread that
  writes at a rate. `seekrandom` seeks and takes ten entries, `scan50` fifty, `readseq` scans all, up to 20 times and
  about 20 million entries. Lookups and seeks make two passes of `--reads` operations. `open` opens the store and looks
  up a key, five times. `values` writes each value once (`first`), writes keys again (`update`), looks up (`get`) and
  scans.
- To repeat a row, check out its commit, build (`cd compare && cargo build --release`), and run `drumlin-compare
  COMMAND --db FOLDER` on a machine with as many cores, with the folder on a disk. Rows of different machines do not
  compare, nor do times of different reports.
";
/// Head of the first table.
pub(super) const FIRST_TABLE: &str = "\
| phase | report | machine | vs RocksDB | RocksDB form | verdict | Drumlin us/op | RocksDB us/op \
| p99.9 us (Drumlin, RocksDB) | peak MiB (Drumlin, RocksDB) | vs fjall | vs redb | vs LMDB | commit | command |
|---|---|---|---|---|---|---:|---:|---|---|---:|---:|---:|---|---|
";

/// Text above the goals.
pub(super) const GOALS: &str = "
## Goals

A goal is the ratio Drumlin/RocksDB that must be reached (`>=`) or not exceeded (`<=`), against the RocksDB form that
does best. The first line of a goal has the report that decides. Further lines, `for information`, have the ratios of
other reports with the same phase. Reports have the sizes of their commands, which stand in the table above.
`drumlin-compare goals` uses ten million records (two million with values of 1000 bytes, four million before the
overwrite), and five million operations for each phase of YCSB. Client CPU time is that of the threads that call the
engine.

- `met`: the median reaches the target, and neither `undecided` nor `within A/A noise` applies.
- `undecided`: the median reaches the target, but the rounds leave a doubt. Either the target requires Drumlin to be
  ahead (above 1 with `>=`, below 1 with `<=`), and it is not ahead of every RocksDB form in every round and by more
  than 5 % in the median. Or the target does not, the median differs from 1 by more than 5 %, rounds lie on both sides
  of 1, and some round misses the target. Or some round misses the target, and the median reaches it by less than two
  runs of Drumlin differ in some round.
- `missed`: the median does not reach the target. `missed by less than 5 %`: it lies within 5 % of it.
- `within A/A noise`: the median reaches the target, but in some round two runs of Drumlin differ by as much in this
  quantity as the median does from 1. `missed, within A/A noise`: the median misses the target by less than two runs
  of Drumlin differ in some round.
- `too few rounds` and `too short`, as in the table above: the report decides nothing.
- `not measured`: there is no report that decides.

Reasons for the missed ones: [performance](../design/performance.md#beside-rocksdb).

| goal | quantity | target | report | ratio | RocksDB form | verdict |
|---|---|---|---|---|---|---|
";

/// Text above the reports that were measured in an older way.
pub(super) const OLDER: &str = "
## Older reports

These were measured by older versions of the program.
";

/// Differences of the reports of each older method, latest method first. They apply to all methods before it too.
pub(super) const OLD: [(u64, &str); 2] = [
    (
        1,
        "The order of the engines rotated from round to round, so an engine always ran after the same one. Each phase of
`ycsb` ended with a flush. How many calls were timed depended on the engine's speed. `rocksdb-deferred` compacted level
0 at 256 MiB, so it did not defer compactions. The tuned forms kept keys and values of a data block apart, which makes
their seeks and scans of small values 5 to 12 % slower. Reports: ",
    ),
    (
        0,
        "In these, in addition, the time in which a client was descheduled between batches of 256 calls did not count,
which favours phases with more threads than cores. A timed call counts once: where calls take less than 2
us, the first 1024 of a thread weigh 16 times as much in `p99.9` as later ones, and the first call after the generation
of keys is timed too often. `readseq` is one scan. The phases of `ycsb` that only read do not settle. What the writer of
`readwhilewriting` wrote does not count as written. `config` has the settings of the last phase alone. Reports: ",
    ),
];
