//! Encoding of a policy call with its complete input and its decision.
//!
//! ```text
//! call       policy slice | state slice | input | decision
//!
//! input      levels: count of (runs: count of run) | tickets: count of ticket
//!            | load: 10 f64, sealed memtables, snapshots, gets, seeks, writes
//!            | costs: 13 f64
//!            | limits: memtable bytes, file bytes, slots, cores, max runs, write amplification f64, disk
//!              budget, disk used, pin u8, 4 f64 if pin is 1, enough u8
//!            | wanted: count of slice | wanted seeks: count of slice | now | seed u64 | frozen u8
//! run        id | tag slice | files: count of file
//! file       table | range | bytes, entries, keys, tombstones, range tombstones, smallest seq, largest seq
//!            | filter bits, false-positive rate, empty, found, dead: f64 each
//!            | state u8 (0 free, 1 settling, 2 leaving, 3 coming), ticket unless free; 3 with ticket 0: unavailable
//! ticket     number | plan | pieces, pieces done, bytes, bytes done
//! plan       take: count of (table, range) | may fold: count of (table, range) | out u8
//!            | place u8, run if 1 | tag slice | deadline u8, number if 1 | priority f64
//!            | piece priority: count of (range, f64) | reason slice
//! decision   plans: count of plan | withdraw: count of ticket number
//!            | pace u8, and if 1: scope u8, 4 f64, hard stop u8, covered u8, f64 if covered is 1
//!            | forecast: count of (born, dies, bytes) | search u8
//! range      start slice | 1 | end slice, or start slice | 0: no end
//! ```
//!
//! `count of x` is a varint followed by that many x. Numbers without a stated width are varints. Floats are stored as
//! the 64 bits of an IEEE 754 number, so that a repeated call sees exactly the same input.
//!
//! The encoder destructures every struct, so that a struct with a new field does not compile until the field is
//! encoded. A change of the layout must raise the [version](super::VERSION) of the log. A test ties the encoded bytes
//! to that number.

use crate::MAX_BOUND_LEN;
use crate::bytes::{Reader, put_bool, put_slice, put_u64, put_varint};
use crate::error::Corruption;
use crate::limits::{MAX_LEN, MAX_MICROS, MAX_NUMBER, MAX_POSITION, MAX_SEQ};
use alloc::string::String;
use alloc::vec::Vec;
use drumlin_types::contract::{
    CostView, Decision, FileState, FileView, LevelView, LimitView, LoadView, LookupStats, Pace, PaceScope,
    Pin, Place, Plan, PolicyInput, RunForecast, RunTag, RunView, Take, TicketView, TreeView,
};
use drumlin_types::{Key, KeyRange, RunId, TableId, Ticket};

/// Maximum number of a file or run in an input. Outputs of unfinished compactions have numbers above those of real
/// files and runs.
const MAX_PROJECTED: u64 = 1 << 63;

/// An owned [`PolicyInput`].
#[derive(Clone, PartialEq, Debug)]
pub struct InputCopy {
    tree: TreeView,
    tickets: Vec<TicketView>,
    load: LoadView,
    costs: CostView,
    limits: LimitView,
    wanted: Vec<Key>,
    wanted_seeks: Vec<Key>,
    now: u64,
    seed: u64,
    frozen: bool,
}

impl InputCopy {
    /// Returns the input that the policy saw.
    #[must_use]
    pub fn as_input(&self) -> PolicyInput<'_> {
        PolicyInput {
            tree: &self.tree,
            tickets: &self.tickets,
            load: &self.load,
            costs: &self.costs,
            limits: &self.limits,
            wanted: &self.wanted,
            wanted_seeks: &self.wanted_seeks,
            now: self.now,
            seed: self.seed,
            frozen: self.frozen,
        }
    }
}

/// A decision as plain data. A requested search is recorded only as a flag.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DecisionCopy {
    plans: Vec<Plan>,
    withdraw: Vec<Ticket>,
    pace: Option<Pace>,
    forecast: Vec<RunForecast>,
    search: bool,
}

impl From<&Decision> for DecisionCopy {
    fn from(decision: &Decision) -> DecisionCopy {
        let Decision { plans, withdraw, pace, forecast, search } = decision;
        DecisionCopy {
            plans: plans.clone(),
            withdraw: withdraw.clone(),
            pace: pace.clone(),
            forecast: forecast.clone(),
            search: search.is_some(),
        }
    }
}

/// A policy call with its decision.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicyCall {
    /// Name of the policy, with arguments.
    pub policy: String,
    /// Saved state of the policy before the call.
    pub state: Vec<u8>,
    /// Input of the call.
    pub input: InputCopy,
    /// Decision that the call returned.
    pub decision: DecisionCopy,
}

impl PolicyCall {
    /// Encodes a policy call.
    #[must_use]
    pub fn encode(policy: &str, state: &[u8], input: &PolicyInput<'_>, decision: &Decision) -> Vec<u8> {
        let mut out = Vec::new();
        put_slice(&mut out, policy.as_bytes());
        put_slice(&mut out, state);
        put_input(&mut out, input);
        put_decision(&mut out, decision);
        out
    }

    /// Decodes a policy call.
    ///
    /// # Errors
    /// Fails when the bytes are no valid policy call.
    pub fn decode(bytes: &[u8]) -> Result<PolicyCall, Corruption> {
        let mut reader = Reader::new(bytes);
        let call = PolicyCall {
            policy: text(&mut reader)?,
            state: reader.slice()?.to_vec(),
            input: input(&mut reader)?,
            decision: decision(&mut reader)?,
        };
        reader.finish()?;
        Ok(call)
    }
}

fn put_f64(out: &mut Vec<u8>, value: f64) {
    put_u64(out, value.to_bits());
}

fn f64(reader: &mut Reader<'_>) -> Result<f64, Corruption> {
    reader.u64().map(f64::from_bits)
}

fn text(reader: &mut Reader<'_>) -> Result<String, Corruption> {
    let damage = reader.damage("text is not UTF-8");
    core::str::from_utf8(reader.slice()?).map(String::from).map_err(|_| damage)
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    list.iter().for_each(|item| put(out, item));
}

fn list<T>(
    reader: &mut Reader<'_>,
    item: impl Fn(&mut Reader<'_>) -> Result<T, Corruption>,
) -> Result<Vec<T>, Corruption> {
    // Each item takes at least one byte. The list grows with the items read, not with the claimed count.
    let count = reader.count(1)?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Ok(items)
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_bool(out, value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

fn option<T>(
    reader: &mut Reader<'_>,
    item: impl FnOnce(&mut Reader<'_>) -> Result<T, Corruption>,
) -> Result<Option<T>, Corruption> {
    if reader.bool()? { item(reader).map(Some) } else { Ok(None) }
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_slice(out, &range.start);
    put_option(out, range.end.as_ref(), |out, end| put_slice(out, end));
}

fn key(reader: &mut Reader<'_>) -> Result<Key, Corruption> {
    reader.slice_up_to(MAX_BOUND_LEN).map(Key::new)
}

fn range(reader: &mut Reader<'_>) -> Result<KeyRange, Corruption> {
    Ok(KeyRange::new(key(reader)?, option(reader, key)?))
}

fn put_input(out: &mut Vec<u8>, input: &PolicyInput<'_>) {
    let PolicyInput { tree, tickets, load, costs, limits, wanted, wanted_seeks, now, seed, frozen } = *input;
    let TreeView { levels } = tree;
    put_list(out, levels, |out, LevelView { runs }| put_list(out, runs, put_run));
    put_list(out, tickets, put_ticket);
    put_load(out, load);
    put_costs(out, costs);
    put_limits(out, limits);
    put_list(out, wanted, |out, key| put_slice(out, key));
    put_list(out, wanted_seeks, |out, key| put_slice(out, key));
    put_varint(out, now);
    put_u64(out, seed);
    put_bool(out, frozen);
}

fn input(reader: &mut Reader<'_>) -> Result<InputCopy, Corruption> {
    let levels = list(reader, |reader| Ok(LevelView { runs: list(reader, run)? }))?;
    Ok(InputCopy {
        tree: TreeView { levels },
        tickets: list(reader, ticket)?,
        load: load(reader)?,
        costs: costs(reader)?,
        limits: limits(reader)?,
        wanted: list(reader, key)?,
        wanted_seeks: list(reader, key)?,
        now: reader.varint_up_to(MAX_MICROS)?,
        seed: reader.u64()?,
        frozen: reader.bool()?,
    })
}

fn put_run(out: &mut Vec<u8>, RunView { id, tag, files }: &RunView) {
    put_varint(out, id.0);
    put_slice(out, &tag.0);
    put_list(out, files, put_file);
}

fn run(reader: &mut Reader<'_>) -> Result<RunView, Corruption> {
    Ok(RunView {
        id: RunId(reader.varint_up_to(MAX_PROJECTED)?),
        tag: tag(reader)?,
        files: list(reader, file)?,
    })
}

fn tag(reader: &mut Reader<'_>) -> Result<RunTag, Corruption> {
    Ok(RunTag(reader.slice_up_to(RunTag::MAX)?.to_vec()))
}

fn put_file(out: &mut Vec<u8>, view: &FileView) {
    let FileView { table, bounds, bytes, entries, keys, tombstones, range_tombstones, .. } = view;
    let FileView { min_seq, max_seq, filter_bits, fp_rate, lookups, state, .. } = view;
    let LookupStats { empty, found, dead } = lookups;
    put_varint(out, table.0);
    put_range(out, bounds);
    for count in [bytes, entries, keys, tombstones, range_tombstones, min_seq, max_seq] {
        put_varint(out, *count);
    }
    [filter_bits, fp_rate, empty, found, dead].iter().for_each(|rate| put_f64(out, **rate));
    let (code, ticket) = match state {
        FileState::Free => (0, None),
        FileState::Settling(ticket) => (1, Some(ticket)),
        FileState::Leaving(ticket) => (2, Some(ticket)),
        FileState::Coming(ticket) => (3, Some(ticket)),
        // No ticket has the number 0.
        FileState::Unavailable => (3, Some(&Ticket(0))),
    };
    out.push(code);
    ticket.into_iter().for_each(|ticket| put_varint(out, ticket.0));
}

fn file(reader: &mut Reader<'_>) -> Result<FileView, Corruption> {
    Ok(FileView {
        table: TableId(reader.varint_up_to(MAX_PROJECTED)?),
        bounds: range(reader)?,
        bytes: reader.varint_up_to(MAX_LEN)?,
        entries: reader.varint_up_to(MAX_LEN)?,
        keys: reader.varint_up_to(MAX_LEN)?,
        tombstones: reader.varint_up_to(MAX_LEN)?,
        range_tombstones: reader.varint_up_to(MAX_LEN)?,
        min_seq: reader.varint_up_to(MAX_SEQ)?,
        max_seq: reader.varint_up_to(MAX_SEQ)?,
        filter_bits: f64(reader)?,
        fp_rate: f64(reader)?,
        lookups: LookupStats { empty: f64(reader)?, found: f64(reader)?, dead: f64(reader)? },
        state: file_state(reader)?,
    })
}

fn file_state(reader: &mut Reader<'_>) -> Result<FileState, Corruption> {
    let damage = reader.damage("file in an impossible state");
    let make = match reader.u8()? {
        0 => return Ok(FileState::Free),
        1 => FileState::Settling,
        2 => FileState::Leaving,
        3 => FileState::Coming,
        _ => return Err(damage),
    };
    Ok(match make(Ticket(reader.varint_up_to(MAX_NUMBER)?)) {
        FileState::Coming(Ticket(0)) => FileState::Unavailable,
        state => state,
    })
}

fn put_ticket(out: &mut Vec<u8>, view: &TicketView) {
    let TicketView { ticket, plan, pieces, pieces_done, bytes, bytes_done } = view;
    put_varint(out, ticket.0);
    put_plan(out, plan);
    let counts = [u64::from(*pieces), u64::from(*pieces_done), *bytes, *bytes_done];
    counts.iter().for_each(|count| put_varint(out, *count));
}

fn ticket(reader: &mut Reader<'_>) -> Result<TicketView, Corruption> {
    Ok(TicketView {
        ticket: Ticket(reader.varint_up_to(MAX_NUMBER)?),
        plan: plan(reader)?,
        pieces: reader.varint_u32()?,
        pieces_done: reader.varint_u32()?,
        bytes: reader.varint_up_to(MAX_LEN)?,
        bytes_done: reader.varint_up_to(MAX_LEN)?,
    })
}

fn put_take(out: &mut Vec<u8>, Take { table, range }: &Take) {
    put_varint(out, table.0);
    put_range(out, range);
}

fn take(reader: &mut Reader<'_>) -> Result<Take, Corruption> {
    Ok(Take { table: TableId(reader.varint_up_to(MAX_PROJECTED)?), range: range(reader)? })
}

fn put_plan(out: &mut Vec<u8>, plan: &Plan) {
    let Plan { take, may_fold, out: level, place, tag, deadline, priority, piece_priority, reason } = plan;
    put_list(out, take, put_take);
    put_list(out, may_fold, put_take);
    out.push(*level);
    let run = match place {
        Place::NewRun => None,
        Place::Run(run) => Some(run.0),
    };
    put_option(out, run, put_varint);
    put_slice(out, &tag.0);
    put_option(out, *deadline, put_varint);
    put_f64(out, *priority);
    put_list(out, piece_priority, |out, (range, value)| {
        put_range(out, range);
        put_f64(out, *value);
    });
    put_slice(out, reason.as_bytes());
}

fn plan(reader: &mut Reader<'_>) -> Result<Plan, Corruption> {
    Ok(Plan {
        take: list(reader, take)?,
        may_fold: list(reader, take)?,
        out: reader.u8()?,
        place: option(reader, |reader| reader.varint_up_to(MAX_PROJECTED))?
            .map_or(Place::NewRun, |run| Place::Run(RunId(run))),
        tag: tag(reader)?,
        deadline: option(reader, |reader| reader.varint_up_to(MAX_POSITION))?,
        priority: f64(reader)?,
        piece_priority: list(reader, |reader| Ok((range(reader)?, f64(reader)?)))?,
        reason: text(reader)?,
    })
}

fn put_load(out: &mut Vec<u8>, load: &LoadView) {
    let LoadView { gets, seeks, writes, write_bytes, entry_bytes, clients, memtable_fill, .. } = load;
    let LoadView { sealed_memtables, snapshots, read_bytes, waited, vain_share, counted, .. } = load;
    let rates = [gets, seeks, writes, write_bytes, entry_bytes, clients, memtable_fill, read_bytes, waited];
    rates.iter().chain(&[vain_share]).for_each(|rate| put_f64(out, **rate));
    put_varint(out, u64::from(*sealed_memtables));
    put_varint(out, u64::from(*snapshots));
    counted.iter().for_each(|count| put_varint(out, *count));
}

fn load(reader: &mut Reader<'_>) -> Result<LoadView, Corruption> {
    Ok(LoadView {
        gets: f64(reader)?,
        seeks: f64(reader)?,
        writes: f64(reader)?,
        write_bytes: f64(reader)?,
        entry_bytes: f64(reader)?,
        clients: f64(reader)?,
        memtable_fill: f64(reader)?,
        read_bytes: f64(reader)?,
        waited: f64(reader)?,
        vain_share: f64(reader)?,
        sealed_memtables: reader.varint_u32()?,
        snapshots: reader.varint_u32()?,
        counted: [
            reader.varint_up_to(MAX_SEQ)?,
            reader.varint_up_to(MAX_SEQ)?,
            reader.varint_up_to(MAX_SEQ)?,
        ],
    })
}

fn put_costs(out: &mut Vec<u8>, costs: &CostView) {
    let CostView {
        compaction_bytes_per_s, compaction_fixed_ns, flush_bytes_per_s, probe_ns, block_ns, ..
    } = costs;
    let CostView { cursor_ns, cursor_cached_ns, seek_blocks, fetch_ns, get_ns, .. } = costs;
    let CostView { scan_ns, write_ns, busy_share, .. } = costs;
    let speeds = [compaction_bytes_per_s, compaction_fixed_ns, flush_bytes_per_s, probe_ns, block_ns];
    let cursors = [cursor_ns, cursor_cached_ns, seek_blocks, fetch_ns];
    let times = [get_ns, scan_ns, write_ns, busy_share];
    speeds.iter().chain(&cursors).chain(&times).for_each(|cost| put_f64(out, **cost));
}

fn costs(reader: &mut Reader<'_>) -> Result<CostView, Corruption> {
    Ok(CostView {
        compaction_bytes_per_s: f64(reader)?,
        compaction_fixed_ns: f64(reader)?,
        flush_bytes_per_s: f64(reader)?,
        probe_ns: f64(reader)?,
        block_ns: f64(reader)?,
        cursor_ns: f64(reader)?,
        cursor_cached_ns: f64(reader)?,
        seek_blocks: f64(reader)?,
        fetch_ns: f64(reader)?,
        get_ns: f64(reader)?,
        scan_ns: f64(reader)?,
        write_ns: f64(reader)?,
        busy_share: f64(reader)?,
    })
}

fn put_limits(out: &mut Vec<u8>, limits: &LimitView) {
    let LimitView { memtable_bytes, file_bytes, slots, cores, max_runs, max_write_amp, .. } = limits;
    let LimitView { disk_budget, disk_used, pin, enough, .. } = limits;
    put_varint(out, *memtable_bytes);
    put_varint(out, *file_bytes);
    put_varint(out, u64::from(*slots));
    put_varint(out, u64::from(*cores));
    put_varint(out, u64::from(*max_runs));
    put_f64(out, *max_write_amp);
    put_varint(out, *disk_budget);
    put_varint(out, *disk_used);
    put_option(out, *pin, |out, Pin { gain_intervals, slow_above, passes, size_ratio }| {
        [gain_intervals, slow_above, passes, size_ratio].iter().for_each(|number| put_f64(out, *number));
    });
    out.push(*enough);
}

fn limits(reader: &mut Reader<'_>) -> Result<LimitView, Corruption> {
    Ok(LimitView {
        memtable_bytes: reader.varint_up_to(MAX_LEN)?,
        file_bytes: reader.varint_up_to(MAX_LEN)?,
        slots: reader.varint_u32()?,
        cores: reader.varint_u32()?,
        max_runs: reader.varint_u32()?,
        max_write_amp: f64(reader)?,
        disk_budget: reader.varint_u64()?,
        disk_used: reader.varint_u64()?,
        pin: option(reader, |reader| {
            let [gain_intervals, slow_above] = [f64(reader)?, f64(reader)?];
            Ok(Pin { gain_intervals, slow_above, passes: f64(reader)?, size_ratio: f64(reader)? })
        })?,
        enough: reader.u8()?,
    })
}

fn put_decision(out: &mut Vec<u8>, decision: &Decision) {
    let Decision { plans, withdraw, pace, forecast, search } = decision;
    put_list(out, plans, put_plan);
    put_list(out, withdraw, |out, ticket| put_varint(out, ticket.0));
    put_option(out, pace.as_ref(), put_pace);
    put_list(out, forecast, |out, RunForecast { born, dies, bytes }| {
        [u64::from(*born), u64::from(*dies), *bytes].iter().for_each(|number| put_varint(out, *number));
    });
    put_bool(out, search.is_some());
}

fn decision(reader: &mut Reader<'_>) -> Result<DecisionCopy, Corruption> {
    Ok(DecisionCopy {
        plans: list(reader, plan)?,
        withdraw: list(reader, |reader| reader.varint_up_to(MAX_NUMBER).map(Ticket))?,
        pace: option(reader, pace)?,
        forecast: list(reader, |reader| {
            let (born, dies) = (reader.varint_u32()?, reader.varint_u32()?);
            Ok(RunForecast { born, dies, bytes: reader.varint_up_to(MAX_LEN)? })
        })?,
        search: reader.bool()?,
    })
}

fn put_pace(out: &mut Vec<u8>, pace: &Pace) {
    let Pace { scope, slow, stop, passes, drain, hard_stop, covered } = pace;
    put_bool(out, *scope == PaceScope::All);
    [slow, stop, passes, drain].iter().for_each(|number| put_f64(out, **number));
    put_bool(out, *hard_stop);
    put_option(out, *covered, put_f64);
}

fn pace(reader: &mut Reader<'_>) -> Result<Pace, Corruption> {
    Ok(Pace {
        scope: if reader.bool()? { PaceScope::All } else { PaceScope::Level0 },
        slow: f64(reader)?,
        stop: f64(reader)?,
        passes: f64(reader)?,
        drain: f64(reader)?,
        hard_stop: reader.bool()?,
        covered: option(reader, f64)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use drumlin_types::contract::draw::plain_file;

    /// Returns an input and a decision with a value in every field.
    fn drawn() -> (TreeView, Vec<TicketView>, Decision) {
        let bounds = |a: &[u8], b: Option<&[u8]>| KeyRange::new(Key::new(a), b.map(Key::new));
        let mut files = vec![
            plain_file(TableId(3), bounds(b"", Some(b"k")), 4, 9),
            plain_file(TableId(900), bounds(b"k", None), 1, MAX_SEQ),
        ];
        files[0].state = FileState::Leaving(Ticket(5));
        files[1].lookups = LookupStats { empty: 0.5, found: f64::MAX, dead: 2.0 };
        let run = RunView { id: RunId(7), tag: RunTag(vec![1, 2]), files };
        let mut tree = TreeView::empty(3);
        tree.levels[1].runs.push(run);
        let mut plan = Plan::new(
            vec![Take { table: TableId(3), range: bounds(b"a", Some(b"b")) }],
            2,
            "runs 9 > 8".to_string(),
        );
        plan.place = Place::Run(RunId(7));
        plan.deadline = Some(12);
        plan.priority = -0.25;
        plan.may_fold = plan.take.clone();
        plan.piece_priority = vec![(KeyRange::all(), 3.5)];
        let ticket = TicketView {
            ticket: Ticket(5),
            plan: plan.clone(),
            pieces: 4,
            pieces_done: 1,
            bytes: 1 << 40,
            bytes_done: 77,
        };
        let decision = Decision {
            plans: vec![plan],
            withdraw: vec![Ticket(1), Ticket(2)],
            pace: Some(Pace { covered: Some(4.5), ..Pace::free(PaceScope::All, 64.0) }),
            forecast: vec![RunForecast { born: 1, dies: 9, bytes: 1 << 33 }],
            search: None,
        };
        (tree, vec![ticket], decision)
    }

    fn encoded() -> (Vec<u8>, DecisionCopy) {
        let (tree, tickets, decision) = drawn();
        let load = LoadView {
            gets: 1.5,
            snapshots: 3,
            counted: [7, 8, 1 << 40],
            read_bytes: 2.5,
            vain_share: 0.25,
            ..LoadView::default()
        };
        let costs = CostView { write_ns: f64::MIN_POSITIVE, busy_share: 0.5, ..CostView::default() };
        let pin = Some(Pin { gain_intervals: 8.0, slow_above: f64::INFINITY, passes: 2.0, size_ratio: 1.0 });
        let limits = LimitView { pin, ..LimitView::default() };
        let wanted = [Key::new(b"a"), Key::new(b"b")];
        let input = PolicyInput {
            tree: &tree,
            tickets: &tickets,
            load: &load,
            costs: &costs,
            limits: &limits,
            wanted: &wanted,
            wanted_seeks: &wanted[1..],
            now: 99,
            seed: u64::MAX,
            frozen: true,
        };
        let bytes = PolicyCall::encode("tiering:4", b"state", &input, &decision);
        let call = PolicyCall::decode(&bytes).expect("just made");
        assert_eq!(call.policy, "tiering:4");
        assert_eq!(call.state, b"state");
        assert_eq!(call.input.tree, tree);
        assert_eq!(call.input.tickets, tickets);
        assert_eq!(call.input.load, load);
        assert_eq!(call.input.costs, costs);
        assert_eq!(call.input.limits, limits);
        assert_eq!(call.input.wanted_seeks, wanted[1..]);
        assert_eq!(call.input.wanted, wanted);
        let again = call.input.as_input();
        assert_eq!((again.now, again.seed, again.frozen), (99, u64::MAX, true));
        assert_eq!(PolicyCall::encode("tiering:4", b"state", &again, &decision), bytes);
        (bytes, call.decision)
    }

    #[test]
    fn policy_calls_read_back() {
        let (_, decision) = encoded();
        assert_eq!(decision, DecisionCopy::from(&drawn().2));
    }

    #[test]
    fn outputs_of_unfinished_compactions_read_back() {
        let mut output = plain_file(TableId(MAX_PROJECTED), KeyRange::all(), 1, 2);
        output.state = FileState::Coming(Ticket(6));
        let mut bytes = Vec::new();
        put_run(&mut bytes, &RunView { id: RunId(MAX_PROJECTED), tag: RunTag(vec![]), files: vec![output] });
        let read = run(&mut Reader::new(&bytes)).expect("a run");
        assert_eq!((read.id.0, read.files[0].table.0), (MAX_PROJECTED, MAX_PROJECTED));
    }

    /// Every build of one version can decode the policy calls of that version, so a change of the bytes needs a new
    /// version.
    #[test]
    fn the_layout_belongs_to_the_version() {
        let (bytes, _) = encoded();
        let found = (crate::decisions::VERSION, bytes.len(), crate::checksum::checksum(0, 0, &[&bytes]));
        assert_eq!(
            found,
            (5, 588, 93_504_233),
            "the layout of policy calls changed: raise the version of the decision log"
        );
    }

    #[test]
    fn hostile_bytes_give_an_error() {
        let (bytes, _) = encoded();
        for at in 0..bytes.len() {
            assert!(PolicyCall::decode(&bytes[..at]).is_err(), "cut at {at}");
            for mask in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= mask;
                // The result may be an error or another policy call, but never a panic.
                let _ = PolicyCall::decode(&damaged);
            }
        }
    }
}
