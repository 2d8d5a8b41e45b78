//! Text form of trees and plans, with parser and printer, and the runner of the text tests.
//!
//! ```text
//! L0: [a..z #41-50]  L1: [a..f #30-41][f..m #31-40 64M] | [p..z #35-60 t9]  L2: [a..z #1-29 .7]
//! ```
//!
//! A file is written as `[bounds #sequence-numbers ...]`. Bounds are half open; an omitted side is unbounded. Optional
//! parts are the file's size, its table (`t9`), and its state with the ticket (the scheduled compaction) that holds
//! it. For ticket 7: `.7` settling, `~7` leaving, `^7` coming.
//!
//! Tables and runs are numbered from 1 in the order of reading. A file joins the run before it when its bounds follow
//! that run's last file; otherwise it begins a new run. `|` forces a new run.
//!
//! A plan is written as `L1:[a..m] t9 t3[c..d] -> L2`: the input files, then the output level. A file is named by level
//! and bounds, or by table. A second pair of brackets clips it to a key range. ` in r5` at the end names an existing
//! output run. Keys consist of letters, digits and `_`.
//!
//! A text test is a file of cases separated by blank lines. A case holds commands, a line of dashes, and the expected
//! output. [`replay`] runs the cases. [`text_test!`](crate::text_test) defines the test function; it rewrites the file
//! when `DRUMLIN_BLESS` is set.

use super::plan::{Place, Plan, Take};
use super::tree::{FileState, FileView, LevelView, LookupStats, RunTag, RunView, TreeView};
use crate::{Key, KeyRange, LEVELS, RunId, Seq, TableId, Ticket};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Displays a range as `a..m`, `a..` or `..m`.
pub struct Extent<'a>(
    /// The range.
    pub &'a KeyRange,
);

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..", self.0.start)?;
        self.0.end.as_ref().map_or(Ok(()), |end| write!(f, "{end:?}"))
    }
}

/// Displays a tree as text. Levels without files are omitted.
pub struct Drawing<'a>(
    /// The tree.
    pub &'a TreeView,
);

impl fmt::Display for Drawing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tables = 0;
        let mut gap = "";
        for (level, runs) in self.0.levels.iter().enumerate().filter(|(_, l)| l.files().next().is_some()) {
            write!(f, "{gap}L{level}:")?;
            gap = "  ";
            let mut last: Option<&FileView> = None;
            for run in &runs.runs {
                if let (Some(last), Some(first)) = (last, run.files.first())
                    && !last.bounds.is_before_end(&first.bounds.start)
                {
                    f.write_str(" |")?;
                }
                for file in &run.files {
                    tables += 1;
                    draw_file(f, file, TableId(tables))?;
                }
                last = run.files.last().or(last);
            }
        }
        Ok(())
    }
}

fn draw_file(f: &mut fmt::Formatter<'_>, file: &FileView, expected: TableId) -> fmt::Result {
    write!(f, " [{} #{}", Extent(&file.bounds), file.min_seq)?;
    if file.max_seq != file.min_seq {
        write!(f, "-{}", file.max_seq)?;
    }
    if file.bytes > 0 {
        write!(f, " {}", Bytes(file.bytes))?;
    }
    if file.table != expected {
        write!(f, " {}", file.table)?;
    }
    match file.state {
        FileState::Free => {}
        FileState::Settling(ticket) => write!(f, " .{}", ticket.0)?,
        FileState::Leaving(ticket) => write!(f, " ~{}", ticket.0)?,
        FileState::Coming(ticket) => write!(f, " ^{}", ticket.0)?,
        FileState::Unavailable => f.write_str(" !")?,
    }
    f.write_str("]")
}

/// Displays a byte count in the largest binary unit that represents it exactly: `64M`, `100B`.
pub struct Bytes(
    /// The count.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, shift): &&(char, u32)| self.0 != 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().rev().find(fits) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}B", self.0),
        }
    }
}

const UNITS: [(char, u32); 4] = [('B', 0), ('K', 10), ('M', 20), ('G', 30)];

fn parse_bytes(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let (_, shift) = UNITS.iter().find(|(name, _)| *name == unit)?;
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a tree from its text form. The result has [`LEVELS`] levels.
pub fn parse_tree(text: &str) -> Result<TreeView, String> {
    let mut tree = TreeView::empty(LEVELS);
    let mut level: Option<usize> = None;
    let (mut tables, mut runs, mut fresh) = (0, 0, true);
    let mut rest = text.trim();
    while let Some(next) = rest.chars().next() {
        let end = match next {
            'L' => {
                let end = rest.find(':').ok_or_else(|| format!("no ':' after {rest:?}"))?;
                level =
                    Some(number(&rest[1..end]).filter(|&l| l < LEVELS).ok_or(format!("no level {rest:?}"))?);
                fresh = true;
                end
            }
            '|' => {
                fresh = true;
                0
            }
            '[' => {
                let end = rest.find(']').ok_or_else(|| format!("no ']' after {rest:?}"))?;
                tables += 1;
                let file = parse_file(&rest[1..end], TableId(tables))?;
                let home = &mut tree.levels[level.ok_or("a file before the first level")?];
                push_file(home, file, core::mem::take(&mut fresh), &mut runs);
                end
            }
            _ => return Err(format!("cannot read {rest:?}")),
        };
        rest = rest[end + 1..].trim_start();
    }
    Ok(tree)
}

fn push_file(level: &mut LevelView, file: FileView, fresh: bool, runs: &mut u64) {
    let follows =
        |run: &RunView| run.files.last().is_some_and(|l| !l.bounds.is_before_end(&file.bounds.start));
    if let Some(run) = level.runs.last_mut().filter(|run| !fresh && follows(run)) {
        run.files.push(file);
    } else {
        *runs += 1;
        level.runs.push(RunView { id: RunId(*runs), tag: RunTag::default(), files: Vec::from([file]) });
    }
}

fn parse_file(text: &str, table: TableId) -> Result<FileView, String> {
    let mut words = text.split_whitespace();
    let bounds = parse_range(words.next().unwrap_or_default())?;
    let mut file = plain_file(table, bounds, 1, 1);
    for word in words {
        let bad = || format!("cannot read {word:?} in [{text}]");
        let (mark, rest) = word.split_at_checked(1).ok_or_else(bad)?;
        let ticket = || number(rest).map(|n| Ticket(n as u64)).ok_or_else(bad);
        match mark {
            "#" => {
                let (min, max) = rest.split_once('-').unwrap_or((rest, rest));
                file.min_seq = min.parse().map_err(|_| bad())?;
                file.max_seq = max.parse().map_err(|_| bad())?;
            }
            "t" => file.table = TableId(rest.parse().map_err(|_| bad())?),
            "." => file.state = FileState::Settling(ticket()?),
            "~" => file.state = FileState::Leaving(ticket()?),
            "^" => file.state = FileState::Coming(ticket()?),
            "!" => file.state = FileState::Unavailable,
            _ => {
                file.bytes = parse_bytes(word).ok_or_else(bad)?;
                file.entries = file.bytes >> 10;
                file.keys = file.entries;
            }
        }
    }
    Ok(file)
}

/// Returns a free file without statistics.
pub fn plain_file(table: TableId, bounds: KeyRange, min_seq: Seq, max_seq: Seq) -> FileView {
    FileView {
        table,
        bounds,
        bytes: 0,
        entries: 0,
        keys: 0,
        tombstones: 0,
        range_tombstones: 0,
        min_seq,
        max_seq,
        filter_bits: 10.0,
        fp_rate: 0.01,
        lookups: LookupStats::default(),
        state: FileState::Free,
    }
}

fn parse_range(text: &str) -> Result<KeyRange, String> {
    let (start, end) = text.split_once("..").ok_or_else(|| format!("no range: {text:?}"))?;
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
        return Err(format!("keys may hold only letters, digits and '_': {text:?}"));
    }
    Ok(KeyRange::new(Key::new(start.as_bytes()), (!end.is_empty()).then(|| Key::new(end.as_bytes()))))
}

/// Parses a plan from its text form. Files named by level and bounds are looked up in `tree`.
pub fn parse_plan(tree: &TreeView, text: &str) -> Result<Plan, String> {
    let (takes, target) = text.split_once("->").ok_or_else(|| format!("no output level in {text:?}"))?;
    let take = takes.split_whitespace().map(|word| parse_take(tree, word)).collect::<Result<_, _>>()?;
    let mut words = target.split_whitespace();
    let level = words.next().and_then(|w| w.strip_prefix('L')).and_then(number);
    let out = level.and_then(|l| u8::try_from(l).ok()).ok_or_else(|| format!("no level: {target:?}"))?;
    let mut plan = Plan::new(take, out, String::new());
    match (words.next(), words.next()) {
        (None, _) => {}
        (Some("in"), Some(run)) => {
            let id = run.strip_prefix('r').and_then(number).ok_or_else(|| format!("no run: {run:?}"))?;
            plan.place = Place::Run(RunId(id as u64));
        }
        (Some(word), _) => return Err(format!("cannot read {word:?}")),
    }
    Ok(plan)
}

fn parse_take(tree: &TreeView, word: &str) -> Result<Take, String> {
    let bad = || format!("no such file: {word:?}");
    let (name, ranges) = word.split_once('[').unwrap_or((word, ""));
    let mut ranges = ranges.trim_end_matches(']').split("][").filter(|r| !r.is_empty()).map(parse_range);
    let table = match name.strip_prefix('t').and_then(number) {
        Some(table) => TableId(table as u64),
        None => {
            let level =
                name.strip_prefix('L').and_then(|n| n.strip_suffix(':')).and_then(number).ok_or_else(bad)?;
            let bounds = ranges.next().ok_or_else(bad)??;
            let is_meant =
                |(l, _, f): &(u8, &RunView, &FileView)| usize::from(*l) == level && f.bounds == bounds;
            tree.files().find(is_meant).ok_or_else(bad)?.2.table
        }
    };
    let file = tree.files().find(|(_, _, f)| f.table == table);
    let whole = file.map_or_else(KeyRange::all, |(_, _, f)| f.bounds.clone());
    Ok(Take { table, range: ranges.next().unwrap_or(Ok(whole))? })
}

/// Formats a plan's inputs, output level and output run as text. A file is named by level and bounds, or by table where
/// several files of the level have the same bounds.
pub fn show_plan(tree: &TreeView, plan: &Plan) -> String {
    let mut text = String::new();
    for take in &plan.take {
        match tree.files().find(|(_, _, f)| f.table == take.table) {
            Some((level, _, file)) => {
                let alike = |(l, _, f): &(u8, &RunView, &FileView)| *l == level && f.bounds == file.bounds;
                text += &match tree.files().filter(alike).count() {
                    1 => format!("L{level}:[{}]", Extent(&file.bounds)),
                    _ => take.table.to_string(),
                };
                if let Some(part) = file.bounds.intersect(&take.range).filter(|part| *part != file.bounds) {
                    text += &format!("[{}]", Extent(&part));
                }
            }
            None => text += &take.table.to_string(),
        }
        text += " ";
    }
    text += &format!("-> L{}", plan.out);
    if let Place::Run(run) = plan.place {
        text += &format!(" in {run}");
    }
    text
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok()
}

/// Runs every case of a text test through `run` and returns the file with the actual output. Lines that begin with
/// `#` are kept and are not passed to `run`.
pub fn replay(text: &str, mut run: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, case) in text.trim().split("\n\n").enumerate() {
        if at > 0 {
            out.push_str("\n\n");
        }
        let mut command = String::new();
        let mut dashes = false;
        for line in case.trim_matches('\n').lines() {
            if line.starts_with("----") {
                dashes = true;
                break;
            }
            out.push_str(line);
            out.push('\n');
            if !line.starts_with('#') {
                command.push_str(line);
                command.push('\n');
            }
        }
        if dashes || !command.is_empty() {
            out.push_str("----\n");
            out.push_str(run(&command).trim_end());
        } else {
            out.truncate(out.trim_end().len());
        }
    }
    out.push('\n');
    out
}

/// Defines a test that replays a text file through a function from a case's commands to their output.
///
/// `$path` is relative to the package. With `DRUMLIN_BLESS=1` the test writes the actual output to the file.
#[macro_export]
macro_rules! text_test {
    ($name:ident, $path:literal, $run:expr) => {
        #[test]
        fn $name() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/", $path);
            let expected = std::fs::read_to_string(path).unwrap_or_default();
            let actual = $crate::contract::draw::replay(&expected, $run);
            if std::env::var_os("DRUMLIN_BLESS").is_some() {
                std::fs::write(path, &actual).expect("the text file can be written");
            } else {
                let differs = actual.lines().zip(expected.lines()).position(|(new, old)| new != old);
                let line = differs.unwrap_or_else(|| actual.lines().count().min(expected.lines().count()));
                assert!(
                    actual == expected,
                    "{path}:{}: expected {:?}, got {:?}; to accept the new output: cargo xtask bless -p {} --test NAME",
                    line + 1,
                    expected.lines().nth(line),
                    actual.lines().nth(line),
                    env!("CARGO_PKG_NAME"),
                );
            }
        }
    };
}
