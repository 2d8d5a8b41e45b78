//! Tests of the drawings of trees.

use super::*;

/// Parses a tree from lines like `L1 r4 tag: 1..9 a-m 400`; a line `1..9 m-z 400` adds a file to the same run. Bytes
/// are in KiB, an end of `$` means no end, and a trailing `n` or `b` makes a file narrowed or busy.
fn tree(name: &str, text: &str) -> KeyspaceShape {
    let mut shape =
        KeyspaceShape { name: name.to_owned(), policy: "arce".to_owned(), ..KeyspaceShape::default() };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words = match line.split_once(": ") {
            None => line,
            Some((run, words)) => {
                start_run(&mut shape, run);
                words
            }
        };
        let run = shape.levels.last_mut().and_then(|level| level.runs.last_mut()).expect("a run was begun");
        run.files.push(file(words, run.files.len() as u64));
    }
    shape
}

fn start_run(shape: &mut KeyspaceShape, text: &str) {
    let words: Vec<_> = text.split(' ').collect();
    let level = words[0][1..].parse().expect("a level");
    if shape.levels.last().is_none_or(|last| last.level != level) {
        shape.levels.push(LevelShape { level, ..LevelShape::default() });
    }
    let id = words[1][1..].parse().expect("a run");
    let tag = words.get(2).unwrap_or(&"").as_bytes().to_vec();
    let runs = &mut shape.levels.last_mut().expect("just pushed").runs;
    runs.push(RunShape { id, tag, files: Vec::new() });
}

fn file(text: &str, table: u64) -> FileShape {
    let words: Vec<_> = text.split(' ').collect();
    let (min, max) = words[0].split_once("..").expect("sequence numbers");
    let (first, end) = words[1].split_once('-').expect("keys");
    let kib: u64 = words[2].parse().expect("a size");
    let flags = words.get(3).unwrap_or(&"");
    FileShape {
        table,
        first: first.as_bytes().to_vec(),
        end: (end != "$").then(|| end.as_bytes().to_vec()),
        bytes: kib << 10,
        entries: kib * 10,
        tombstones: kib / 100,
        range_tombstones: 0,
        min_seq: min.parse().expect("a number"),
        max_seq: max.parse().expect("a number"),
        narrowed: flags.contains('n'),
        filter_bits: 4.0 + table as f64,
        filter_false_positive_rate: 0.14,
        filter_skipped: false,
        lookups_empty: if flags.contains('b') { 300.0 } else { 0.0 },
        state: if flags.contains('b') { FileRole::Input(3) } else { FileRole::Free },
        ..FileShape::default()
    }
}

fn assert_picture(shape: &KeyspaceShape, style: Style, expected: &str) {
    let drawn = draw(shape, style);
    assert!(drawn.lines().all(|line| line.chars().count() <= USUAL_COLUMNS), "too wide:\n{drawn}");
    assert_eq!(drawn, expected, "\n{drawn}");
}

const PLAIN: Style = Style { ascii: false, colour: false, files: false, columns: USUAL_COLUMNS };

fn leveled() -> KeyspaceShape {
    tree(
        "default",
        "L0 r12: 901..1000 a-z 100
         L0 r11: 801..900 a-z 100
         L1 r9 up: 501..800 a-m 300
         501..800 m-z 100 n
         L3 r4: 1..250 a-g 800
         1..500 g-m 800 b
         40..480 p-$ 800",
    )
}

#[test]
fn a_leveled_tree() {
    assert_picture(&leveled(), PLAIN, include_str!("testdata/leveled.txt"));
}

#[test]
fn the_same_in_ascii_with_files() {
    assert_picture(
        &leveled(),
        Style { ascii: true, files: true, ..PLAIN },
        include_str!("testdata/leveled_ascii_files.txt"),
    );
}

#[test]
fn a_run_is_drawn_where_its_keys_lie() {
    let shape = tree(
        "users",
        "L6 r1: 1..9 a-f 512
         L6 r2: 10..19 f-k 512
         L6 r3: 20..29 k-$ 1024",
    );
    assert_picture(&shape, PLAIN, include_str!("testdata/places.txt"));
}

#[test]
fn an_empty_tree_is_one_line() {
    let expected = "default: arce; 0 levels, 0 runs, 0 files, 0 B, 0 entries, 0 tombstones\n";
    assert_picture(&tree("default", ""), PLAIN, expected);
}

#[test]
fn long_names_keys_and_numbers_stay_within_the_width() {
    let long = "k".repeat(300);
    let mut shape = tree(&long, &format!("L0 r18446744073709551615 {long}: 1..9 {long}-{long}x 1"));
    let file = &mut shape.levels[0].runs[0].files[0];
    (file.min_seq, file.max_seq, file.bytes, file.entries) = (u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX);
    let whole = draw(&shape, Style { files: true, columns: usize::MAX, ..PLAIN });
    assert!(whole.lines().nth(3).expect("a run").ends_with(&long), "{whole}");
    for ascii in [false, true] {
        let drawn = draw(&shape, Style { ascii, files: true, ..PLAIN });
        assert_eq!(drawn.lines().count(), 6, "{drawn}");
        assert!(drawn.lines().all(|line| line.chars().count() <= USUAL_COLUMNS), "{drawn}");
    }
}

#[test]
fn colours_go_around_the_bar_alone() {
    let drawn = draw(&tree("default", "L1 r1: 1..2 a-b 1"), Style { colour: true, ..PLAIN });
    let bar = "█".repeat(BAR_COLUMNS);
    assert!(drawn.contains(&format!("│\x1b[32m{bar}\x1b[0m│")), "{drawn:?}");
    assert_eq!(drawn.matches('\x1b').count(), 2);
}
