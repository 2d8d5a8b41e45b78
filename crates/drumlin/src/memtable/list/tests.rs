//! Tests of the list with a complete, locked or wrong guide: results stay correct, and the guide recovers.

use super::*;

/// Returns the numbers below `count` in random order.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 5u64;
    for i in (1..numbers.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        numbers.swap(i, (state >> 33) as usize % (i + 1));
    }
    numbers
}

/// Number of entries. Under Miri, enough for a second leaf.
const COUNT: u64 = if cfg!(miri) { 44 } else { 5000 };

/// Name, with a function that makes a key and a sequence number.
type Style = (&'static str, fn(u64) -> (Vec<u8>, Seq));

/// Ways to make a key and a sequence number from a number, each difficult for the guide in its own way.
const STYLES: [Style; 5] = [
    ("the digits tell all apart", |n| ((n << 40).to_be_bytes().to_vec(), 1 + n)),
    ("a long common beginning", |n| (format!("a-long-common-beginning-{n:08}").into_bytes(), 1)),
    ("versions of one key", |n| (b"the one key".to_vec(), 1 + n)),
    ("versions of few keys", |n| (vec![(n % 3) as u8; 9], 1 + n)),
    ("keys that begin alike", |n| (vec![0; (n / 50) as usize], 1 + n % 50)),
];

fn insert_all(list: &List, numbers: &[u64], style: fn(u64) -> (Vec<u8>, Seq)) {
    for &n in numbers {
        let (key, seq) = style(n);
        list.insert(&key, seq, Kind::Put, &n.to_le_bytes());
    }
}

/// Checks that every entry is found, and so is the one before it.
fn answers_are_right(list: &List, numbers: &[u64], style: fn(u64) -> (Vec<u8>, Seq)) {
    let mut sorted: Vec<(Vec<u8>, core::cmp::Reverse<Seq>)> = Vec::new();
    for &n in numbers {
        let (key, seq) = style(n);
        let entry = list.get(&key, seq).expect("inserted");
        assert_eq!((entry.seq, entry.value), (seq, &n.to_le_bytes()[..]));
        sorted.push((key, core::cmp::Reverse(seq)));
    }
    sorted.sort();
    let mut before = list.head();
    for (key, core::cmp::Reverse(seq)) in &sorted {
        let place = EntryPosition { key, seq: *seq };
        assert!(list.search(&place).0 == before);
        before = before.next().expect("as many nodes as entries");
        assert!(before.place() == place);
    }
    assert!(before.next().is_none());
}

/// With one writer every node has a slot, and the guide returns the exact node before each place.
#[test]
fn one_writer_misses_nothing() {
    let ascending: Vec<u64> = (0..COUNT).collect();
    let descending: Vec<u64> = (0..COUNT).rev().collect();
    for (name, style) in STYLES.into_iter().step_by(if cfg!(miri) { 2 } else { 1 }) {
        let orders = [&shuffled(COUNT), &ascending, &descending];
        for order in orders.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let list = List::new();
            insert_all(&list, order, style);
            let census = list.guide.check();
            assert_eq!((census.nodes, census.slots, census.missed), (order.len(), order.len(), 0), "{name}");
            assert!(cfg!(miri) || (3..=5).contains(&census.levels), "{name}: {census:?}");
            answers_are_right(&list, order, style);
            for &n in order.iter().take(if cfg!(miri) { 5 } else { 500 }) {
                let (key, seq) = style(n);
                let place = EntryPosition { key: &key, seq };
                let hint = list.guide.node_before(&place, &list.guide.spot(&place));
                assert!(hint.unwrap_or(list.head()) == list.search(&place).0, "{name}: a walk was needed");
            }
        }
    }
}

/// Entries in ascending order fill their leaves.
#[test]
fn ascending_entries_are_packed() {
    let list = List::new();
    for n in 0..COUNT {
        list.insert(&n.to_be_bytes(), 1, Kind::Put, b"");
    }
    let guide_bytes = list.bytes() as u64 - COUNT * 32;
    assert!(guide_bytes < COUNT * 21 + 8000, "{guide_bytes} bytes for {COUNT} entries");
}

/// While the lock above the leaves is held, splits do not happen and nodes are missed; nothing else changes.
/// Afterwards the next writers repair the guide.
#[test]
fn a_lame_guide_costs_time_only() {
    for (_, style) in STYLES.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
        let numbers = shuffled(COUNT);
        let (first, rest) = numbers.split_at(numbers.len() / 4);
        let (second, third) = rest.split_at(rest.len() / 3);
        let list = List::new();
        insert_all(&list, first, style);
        let held = list.guide.hold();
        insert_all(&list, second, style);
        let census = list.guide.check();
        assert_eq!((census.nodes, census.slots), (first.len() + second.len(), first.len()));
        assert_eq!(census.missed, second.len());
        answers_are_right(&list, &numbers[..census.nodes], style);
        drop(held);
        insert_all(&list, third, style);
        let census = list.guide.check();
        assert_eq!(census.nodes, numbers.len());
        assert_eq!(census.nodes - census.slots, census.missed);
        assert!(census.missed * 10 < census.nodes, "{census:?}");
        answers_are_right(&list, &numbers, style);
    }
}

/// A search that starts from a stale or wrong spot still ends at the right place.
#[test]
fn any_spot_will_do() {
    let list = List::new();
    let numbers = shuffled(COUNT);
    let style = STYLES[1].1;
    insert_all(&list, &numbers, style);
    let places: Vec<(Vec<u8>, Seq)> =
        numbers.iter().take(if cfg!(miri) { 6 } else { 40 }).map(|&n| style(n)).collect();
    for (from, from_seq) in &places {
        let spot = list.guide.spot(&EntryPosition { key: from, seq: *from_seq });
        for (key, seq) in &places {
            let place = EntryPosition { key, seq: *seq };
            let found = list.search(&place);
            assert!(list.search_from(&place, &spot) == found);
            if from > key {
                // The search moves left slot by slot, so it ends at the exact node.
                assert!(list.guide.node_before(&place, &spot).unwrap_or(list.head()) == found.0);
            }
        }
    }
}

/// Leaves that other searches cannot reach yet from above are found over the links between blocks.
#[test]
fn split_leaves_are_found_from_the_left() {
    let list = List::new();
    let numbers = shuffled(if cfg!(miri) { COUNT } else { COUNT / 10 });
    let style = STYLES[0].1;
    insert_all(&list, &numbers, style);
    list.guide.forget_all_but_the_first_leaf();
    for &n in &numbers {
        let (key, seq) = style(n);
        let place = EntryPosition { key: &key, seq };
        let hint = list.guide.node_before(&place, &list.guide.spot(&place));
        assert!(hint.unwrap_or(list.head()) == list.search(&place).0);
    }
    answers_are_right(&list, &numbers, style);
}

/// The next writer rebuilds a leaf that has missed several nodes from the list, full or not. A node that got its slot
/// that way gets no second one.
#[test]
fn a_leaf_catches_up() {
    let list = List::new();
    insert_all(&list, &[10, 20, 30], STYLES[0].1);
    let held = list.guide.hold();
    insert_all(&list, &[1, 2, 3, 4, 5, 25, 26, 27], STYLES[0].1);
    drop(held);
    assert_eq!((list.guide.check().slots, list.guide.check().missed), (3, 8));
    insert_all(&list, &[28], STYLES[0].1);
    assert_eq!((list.guide.check().slots, list.guide.check().missed), (12, 0));
    let node = list.head().next().expect("not empty");
    list.show_to_guide(node, list.guide.spot(&node.place()));
    assert_eq!(list.guide.check().slots, 12);
}

/// A writer whose neighbours are no longer adjacent continues from there.
#[test]
fn stale_neighbours_will_do() {
    let list = List::new();
    insert_all(&list, &[10, 30], STYLES[0].1);
    let (key, seq) = STYLES[0].1(20);
    let place = EntryPosition { key: &key, seq };
    let (before, after) = list.search(&place);
    insert_all(&list, &[15, 16, 17, 25], STYLES[0].1);
    let node = NodeRef::allocate(&list.arena, &place, Kind::Put, &20u64.to_le_bytes());
    link(node, before, after);
    answers_are_right(&list, &[10, 15, 16, 17, 20, 25, 30], STYLES[0].1);
}

/// Another writer may rebuild a leaf between the link of a node and its slot, and begin a new leaf with the node. The
/// node then gets no second slot in the leaf before.
#[test]
fn the_first_node_of_a_leaf_gets_no_second_slot() {
    for (name, style) in STYLES {
        let list = List::new();
        insert_all(&list, &shuffled(COUNT), style);
        let before = list.guide.check();
        let lows = list.guide.lows();
        assert!(!lows.is_empty(), "{name}: one leaf");
        lows.into_iter().for_each(|low| list.show_to_guide(low, list.guide.spot(&low.place())));
        assert_eq!(list.guide.check(), before, "{name}");
    }
}

/// Entries that are appended behind a recorded part are not reported.
#[test]
fn appends_behind_a_skipped_part_are_not_reported() {
    let list = List::new();
    for n in 0..100u64 {
        list.insert(&n.to_be_bytes(), n + 1, Kind::Put, b"");
    }
    let walk = || {
        let first = list.head().next().expect("an entry");
        list.record(first, None, 101);
    };
    walk();
    assert_eq!(list.skips.load().len(), 1);
    for n in 100..110u64 {
        list.insert(&n.to_be_bytes(), n + 100, Kind::Put, b"");
        walk();
    }
    assert_eq!((list.skips.reports(), list.skips.load().len()), (0, 1));
    // An entry in the part is reported. Its key is too long to bound a record.
    list.insert(&[&50u64.to_be_bytes()[..], &[0; 2000]].concat(), 300, Kind::Put, b"");
    assert_eq!((list.skips.reports(), list.skips.load().len()), (1, 0));
}

/// Four writers collide: order and shape hold, and most nodes have slots.
#[test]
#[expect(clippy::disallowed_methods, reason = "races real threads")]
fn writers_collide() {
    for (name, style) in STYLES.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
        let list = List::new();
        let numbers = shuffled(COUNT);
        std::thread::scope(|scope| {
            for part in numbers.chunks(numbers.len().div_ceil(4)) {
                let list = &list;
                scope.spawn(move || insert_all(list, part, style));
            }
        });
        answers_are_right(&list, &numbers, style);
        let census = list.guide.check();
        assert_eq!(census.nodes, numbers.len(), "{name}");
        assert!(census.slots * 2 > census.nodes, "{name}: {census:?}");
    }
}
