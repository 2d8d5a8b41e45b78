//! Exhaustive test of the legality rules: all plans and all pairs of plans, on all trees of a few files that each hold
//! one version of one key.
//!
//! On such files the rules are exact, not only safe. A plan is legal if and only if R holds after it. A plan waits for
//! an earlier one if and only if R breaks when it is installed first.

use drumlin_types::contract::draw::plain_file;
use drumlin_types::contract::legal::{check, legal, spans, waits};
use drumlin_types::contract::{FileState, PieceId, PieceView, Plan, RunTag, RunView, Take, TreeView};
use drumlin_types::{Key, KeyRange, RunId, Seq, TableId, Ticket};

fn only_key() -> KeyRange {
    KeyRange::inclusive(b"k", b"k")
}

/// Adds a file, in a run of its own, whose versions lie in `min..=max`.
fn add(tree: &mut TreeView, level: u8, table: u64, min: Seq, max: Seq, state: FileState) {
    let mut file = plain_file(TableId(table), only_key(), min, max);
    file.state = state;
    let run = RunView { id: RunId(table), tag: RunTag::default(), files: vec![file] };
    tree.levels[usize::from(level)].runs.push(run);
}

/// Returns all assignments of levels to versions 1..=n in which no newer version lies deeper than an older one.
fn placements(n: usize, levels: u8) -> Vec<Vec<u8>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for older in placements(n - 1, levels) {
        for level in 0..=older.last().copied().unwrap_or(levels - 1) {
            let mut all = older.clone();
            all.push(level);
            found.push(all);
        }
    }
    found
}

/// Returns whether R holds: no newer version lies deeper than an older one.
fn holds(levels: &[u8]) -> bool {
    levels.windows(2).all(|pair| pair[1] <= pair[0])
}

fn moved(levels: &[u8], files: u32, out: u8) -> Vec<u8> {
    levels.iter().enumerate().map(|(i, &l)| if files >> i & 1 == 1 { out } else { l }).collect()
}

fn plan(files: u32, out: u8) -> Plan {
    let tables = (0..32).filter(|i| files >> i & 1 == 1);
    let take = tables.map(|i| Take { table: TableId(i + 1), range: only_key() });
    Plan::new(take.collect(), out, String::new())
}

/// Returns the projected tree with `taken` claimed by a plan to `out`, as later plans see it.
fn projected(levels: &[u8], taken: u32, out: u8) -> TreeView {
    let mut tree = TreeView::empty(usize::from(*levels.iter().max().unwrap().max(&out)) + 4);
    for (i, &level) in levels.iter().enumerate().filter(|(i, _)| taken >> i & 1 == 0) {
        add(&mut tree, level, i as u64 + 1, i as Seq + 1, i as Seq + 1, FileState::Free);
    }
    if taken != 0 {
        let (min, max) = (u64::from(taken.trailing_zeros()) + 1, u64::from(taken.ilog2()) + 1);
        add(&mut tree, out, 99, min, max, FileState::Coming(Ticket(1)));
    }
    check(&tree).unwrap();
    tree
}

#[derive(Default, PartialEq, Debug)]
struct Counts {
    plans: usize,
    legal: usize,
    pairs: usize,
    waiting: usize,
}

fn count(n: usize, depth: u8) -> Counts {
    let mut counts = Counts::default();
    for levels in placements(n, depth) {
        let tree = projected(&levels, 0, 0);
        for files in 1u32..1 << n {
            let deepest = (0..n).filter(|i| files >> i & 1 == 1).map(|i| levels[i]).max().unwrap();
            for out in deepest..depth {
                counts.plans += 1;
                let first = plan(files, out);
                let after = moved(&levels, files, out);
                let is_legal = legal(&tree, &first).is_ok();
                assert_eq!(is_legal, holds(&after), "{levels:?} {files:b} -> {out}");
                if is_legal {
                    counts.legal += 1;
                    count_seconds(&levels, &after, files, out, depth, &mut counts);
                }
            }
        }
    }
    counts
}

fn count_seconds(levels: &[u8], after: &[u8], files: u32, out: u8, depth: u8, counts: &mut Counts) {
    let n = levels.len();
    let tree = projected(levels, files, out);
    let inputs = spans(&projected(levels, 0, 0), &plan(files, out).take);
    let id = PieceId { ticket: Ticket(1), index: 0 };
    let earlier = [PieceView { id, range: only_key(), inputs, out, waits: Vec::new() }];
    for second in (1u32..1 << n).filter(|second| second & files == 0) {
        let deepest = (0..n).filter(|i| second >> i & 1 == 1).map(|i| levels[i]).max().unwrap();
        for to in deepest..depth {
            let next = plan(second, to);
            let is_legal = legal(&tree, &next).is_ok();
            assert_eq!(
                is_legal,
                holds(&moved(after, second, to)),
                "{levels:?} {files:b}->{out} {second:b}->{to}"
            );
            if is_legal {
                counts.pairs += 1;
                let must_wait = !waits(&spans(&tree, &next.take), to, &earlier).is_empty();
                let breaks = !holds(&moved(levels, second, to));
                assert_eq!(must_wait, breaks, "{levels:?} {files:b}->{out} {second:b}->{to}");
                counts.waiting += usize::from(must_wait);
            }
        }
    }
}

#[test]
fn the_rules_are_exact_on_single_versions() {
    let cases = [
        (2, 3, [34, 30, 35, 5]),
        (3, 3, [125, 96, 256, 34]),
        (4, 4, [1071, 640, 3415, 535]),
        (5, 4, [3332, 1630, 13205, 1985]),
    ];
    for (n, depth, [plans, legal, pairs, waiting]) in cases {
        assert_eq!(count(n, depth), Counts { plans, legal, pairs, waiting }, "{n} files, {depth} levels");
    }
}

#[test]
fn ranges_are_closed_to_what_lies_outside() {
    let beside = KeyRange::new(Key::new(b"l"), None);
    let mut tree = projected(&[1, 1], 0, 0);
    assert!(legal(&tree, &plan(0b10, 2)).is_err());
    tree.levels[1].runs[0].files[0].bounds = beside;
    assert!(legal(&tree, &plan(0b10, 2)).is_ok());
}
