//! Targets of the decision log: a file of entries, and the recorded policy call in an entry.

use super::fields::NUMBER;
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::decisions::{self, DecisionEntry, DecisionWriter, PolicyCall, VERSION};
use drumlin_format::limits::MAX_SEQ;
use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::{
    CostView, Decision, FileState, LimitView, LoadView, Pace, PaceScope, Pin, Place, Plan, PolicyInput,
    RunForecast, RunTag, RunView, Take, TicketView, TreeView,
};
use drumlin_types::{Key, KeyRange, RunId, TableId, Ticket};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "decisions",
        codecs: &["decisions", "frame", "file_header"],
        run: log,
        mend: mend_log,
        seeds: log_seeds,
        cost: 1,
    },
    Target {
        name: "policy-call",
        codecs: &["decisions"],
        run: policy_call,
        mend: mend::nothing,
        seeds: policy_call_seeds,
        cost: 1,
    },
];

/// Length of the file's header.
const HEADER_LEN: usize = 32;

fn log(input: &[u8]) -> bool {
    let Ok(log) = decisions::read(input, NUMBER) else { return false };
    assert!(log.version <= VERSION);
    assert!(log.entries.len() <= input.len() / 32, "more entries than there is room for");
    let (mut writer, mut again) = DecisionWriter::create(NUMBER);
    for entry in &log.entries {
        // The reader accepts longer entries, since other builds may have other limits; the writer refuses them.
        let Ok(bytes) = writer.append(entry) else { return true };
        again.extend(bytes);
    }
    assert_eq!(decisions::read(&again, NUMBER).map(|log| log.entries), Ok(log.entries.clone()));
    !log.entries.is_empty()
}

fn mend_log(input: &mut [u8]) {
    mend::header(input, NUMBER, HEADER_LEN);
    mend::frames(input, NUMBER, HEADER_LEN, None);
}

fn log_seeds() -> Vec<Vec<u8>> {
    let (mut writer, mut bytes) = DecisionWriter::create(NUMBER);
    for (micros, policy_call) in [(1, Vec::new()), (2, policy_call_seeds().remove(0))] {
        let text = |text: &str| text.to_owned();
        let entry = DecisionEntry {
            micros,
            keyspace: text("users"),
            what: text("ticket 1"),
            reason: text("runs 9 > 8"),
            policy_call,
        };
        bytes.extend(writer.append(&entry).expect("short"));
    }
    vec![bytes]
}

fn policy_call(input: &[u8]) -> bool {
    let Ok(call) = PolicyCall::decode(input) else { return false };
    // The recorded decision is only compared, never returned. So encode everything but the decision again.
    let nothing = Decision::default();
    let encode = |q: &PolicyCall| PolicyCall::encode(&q.policy, &q.state, &q.input.as_input(), &nothing);
    let again = encode(&call);
    let decoded = PolicyCall::decode(&again).expect("what was written can be read");
    assert_eq!(encode(&decoded), again);
    // An empty decision has the same length in any entry.
    let encoded = &again[..again.len() - EMPTY_DECISION_LEN];
    assert!(input.starts_with(encoded), "an input has more than one encoding");
    true
}

/// Length of a decision without plans, withdrawn tickets, write rate limit, forecast and search: one byte each.
const EMPTY_DECISION_LEN: usize = 5;

/// Returns recorded policy calls with a value in every field.
fn policy_call_seeds() -> Vec<Vec<u8>> {
    let bounds = |a: &[u8], b: Option<&[u8]>| KeyRange::new(Key::new(a), b.map(Key::new));
    let mut files = vec![
        plain_file(TableId(3), bounds(b"", Some(b"k")), 4, 9),
        plain_file(TableId(900), bounds(b"k", None), 1, MAX_SEQ),
    ];
    files[0].state = FileState::Leaving(Ticket(5));
    let mut tree = TreeView::empty(3);
    tree.levels[1].runs.push(RunView { id: RunId(7), tag: RunTag(vec![1, 2]), files });
    let take = vec![Take { table: TableId(3), range: bounds(b"a", Some(b"b")) }];
    let mut plan = Plan::new(take, 2, "runs 9 > 8".to_owned());
    plan.place = Place::Run(RunId(7));
    plan.deadline = Some(12);
    plan.may_fold = plan.take.clone();
    plan.piece_priority = vec![(KeyRange::all(), 3.5)];
    let plan_of = plan.clone();
    let ticket = TicketView {
        ticket: Ticket(5),
        plan: plan_of,
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
    let load = LoadView { gets: 1.5, snapshots: 3, counted: [7, 8, 1 << 40], ..LoadView::default() };
    let costs = CostView { busy_share: 0.5, ..CostView::default() };
    let pin = Some(Pin { gain_intervals: 8.0, slow_above: f64::INFINITY, passes: 2.0, size_ratio: 1.0 });
    let limits = LimitView { pin, ..LimitView::default() };
    let wanted = [Key::new(b"a"), Key::new(b"b")];
    let input = PolicyInput {
        tree: &tree,
        tickets: &[ticket],
        load: &load,
        costs: &costs,
        limits: &limits,
        wanted: &wanted,
        wanted_seeks: &wanted[1..],
        now: 99,
        seed: u64::MAX,
        frozen: true,
    };
    vec![
        PolicyCall::encode("tiering:4", b"", &input, &decision),
        PolicyCall::encode("arce", b"state", &input, &Decision::default()),
    ]
}
