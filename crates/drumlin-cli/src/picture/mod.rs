//! Drawing of an LSM tree: one line per run, cut to the width of the terminal. Lines in a file or pipe are whole.
//!
//! ```text
//! default: leveling; 2 levels, 2 runs, 3 files, 12.0 MiB, 1,200 entries, 0 tombstones
//!   run     │ key range (width = bytes)          │ files       size  bits  sequence numbers  tag
//! L0    1 run, 1 file, 4.0 MiB (33 %)
//!   r9      │▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄│    1f    4.0 MiB  12.1  801..1200
//! L1    1 run, 2 files, 8.0 MiB (67 %)
//!   r4      │████████████████████████████████████│    2f    8.0 MiB   9.0  1..800
//!            a                                  z
//! ```
//!
//! The bar is the key space, scaled as described in [`axis`]. The height of a mark shows the bytes of the run in that
//! column, relative to the fullest column of the tree. The lowest mark stands for any small amount. The bar is followed
//! by the number of files, the bytes, the filter bits per key, the range of sequence numbers, the policy's tag, and the
//! numbers of narrowed files and of files that an unfinished compaction involves (`2 narrowed`, `1 busy`). The last
//! line shows the first key and the end of the key space.
//!
//! The line of a file shows its name, size and counts, then the bits per key and the false positive rate of its
//! filter. Recent lookups follow: those that found a version in the file, and those that did not (`vain`). The line
//! ends with the file's state, the range of its sequence numbers and its key bounds, of which the end is excluded.
//!
//! Below the tree are the value files, if there are any: totals of all files and of each lifetime class, and the
//! state of lifetime prediction.

mod axis;

use crate::escape::escape;
use crate::figures::{counted, size};
use crate::store::{FileRole, FileShape, KeyspaceShape, LevelShape, RunShape, ValueFileShape};
use axis::{Axis, files};
use std::collections::BTreeSet;

/// Columns of the bar.
const BAR_COLUMNS: usize = 36;
/// Columns to the left of the bar's edge.
const LEFT_COLUMNS: usize = 10;
/// Maximum characters of a key within a line.
const KEY_COLUMNS: usize = 16;
/// Bytes in memory from which on they are shown. An empty memtable has a few bytes of overhead, which are not shown.
const MEMORY_BYTES_SHOWN: u64 = 1024;
/// Marks of increasing height, up to the fullest column.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['.', ':', '-', '=', '+', '*', '#', '@'];
/// Colours of the levels in rotation, as SGR parameters.
const COLOURS: [&str; 6] = ["36", "32", "33", "35", "34", "31"];

/// Style of the drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    /// Draw only with ASCII characters.
    pub(crate) ascii: bool,
    /// Draw with colours.
    pub(crate) colour: bool,
    /// Draw a line for every file.
    pub(crate) files: bool,
    /// Columns to which lines are cut.
    pub(crate) columns: usize,
}

/// Assumed columns of a terminal that does not report its width.
pub(crate) const USUAL_COLUMNS: usize = 100;
/// Minimum columns to which lines are cut, so that the figures of a run stay visible.
const LEAST_COLUMNS: usize = 80;

/// Sums over files.
#[derive(Default)]
struct Totals {
    files: u64,
    bytes: u64,
    entries: u64,
    tombstones: u64,
    filter_bits: f64,
}

impl Totals {
    fn of<'a>(files: impl Iterator<Item = &'a FileShape>) -> Totals {
        files.fold(Totals::default(), |sum, file| Totals {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(file.bytes),
            entries: sum.entries.saturating_add(file.entries),
            tombstones: sum.tombstones.saturating_add(file.tombstones),
            filter_bits: sum.filter_bits + file.filter_bits * file.entries as f64,
        })
    }

    /// Returns the filter bits per entry.
    fn bits(&self) -> f64 {
        self.filter_bits / self.entries.max(1) as f64
    }
}

/// Returns all files of several trees.
pub(crate) fn files_of(shapes: &[KeyspaceShape]) -> impl Iterator<Item = &FileShape> {
    shapes.iter().flat_map(files)
}

/// Returns the drawing of `shape` as newline-terminated lines.
pub(crate) fn draw(shape: &KeyspaceShape, style: Style) -> String {
    let style = Style { columns: style.columns.max(LEAST_COLUMNS), ..style };
    let drawing = Drawing::new(shape, style);
    let mut lines = vec![drawing.headline(shape)];
    lines.extend(memory_line(shape));
    if drawing.total.files > 0 {
        lines.push(drawing.column_heads());
    }
    for level in shape.levels.iter().filter(|level| !level.runs.is_empty()) {
        lines.push(drawing.level_line(level));
        for run in &level.runs {
            lines.push(drawing.run_line(level.level, run));
            if style.files {
                lines.extend(run.files.iter().map(|file| cut_to(&file_line(file), style.columns)));
            }
        }
    }
    lines.extend(span_line(shape));
    lines.extend(value_lines(shape));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

struct Drawing {
    axis: Axis,
    total: Totals,
    /// Bytes of the fullest column of any run.
    fullest: f64,
    style: Style,
}

impl Drawing {
    fn new(shape: &KeyspaceShape, style: Style) -> Drawing {
        let axis = Axis::new(shape, BAR_COLUMNS);
        let mut drawing = Drawing { axis, total: Totals::of(files(shape)), fullest: 0.0, style };
        let runs = shape.levels.iter().flat_map(|level| &level.runs);
        drawing.fullest = runs.flat_map(|run| drawing.columns(run)).fold(0.0, f64::max);
        drawing
    }

    /// Returns the bytes of `run` in each column.
    fn columns(&self, run: &RunShape) -> [f64; BAR_COLUMNS] {
        let mut columns = [0.0; BAR_COLUMNS];
        run.files.iter().for_each(|file| self.axis.add(file, &mut columns));
        columns
    }

    fn headline(&self, shape: &KeyspaceShape) -> String {
        let levels = shape.levels.iter().filter(|level| !level.runs.is_empty()).count();
        let runs: usize = shape.levels.iter().map(|level| level.runs.len()).sum();
        let line = format!(
            "{}: {}; {}, {}, {}, {}, {}, {}",
            escape(shape.name.as_bytes()),
            escape(shape.policy.as_bytes()),
            counted(levels as u64, "level"),
            counted(runs as u64, "run"),
            counted(self.total.files, "file"),
            size(self.total.bytes),
            counted(self.total.entries, "entry"),
            counted(self.total.tombstones, "tombstone"),
        );
        cut_to(&line, self.style.columns)
    }

    /// Returns the line that names the columns of the runs.
    fn column_heads(&self) -> String {
        let edge = if self.style.ascii { '|' } else { '│' };
        let (run, bar) = (padded("  run", LEFT_COLUMNS), padded(" key range (width = bytes)", BAR_COLUMNS));
        format!("{run}{edge}{bar}{edge}{:>6} {:>10}  bits  sequence numbers  tag", "files", "size")
    }

    fn level_line(&self, level: &LevelShape) -> String {
        let total = Totals::of(level.runs.iter().flat_map(|run| run.files.iter()));
        let share = match self.total.bytes {
            0 => 0.0,
            all => total.bytes as f64 * 100.0 / all as f64,
        };
        format!(
            "{:<5} {}, {}, {} ({share:.0} %)",
            format!("L{}", level.level),
            counted(level.runs.len() as u64, "run"),
            counted(total.files, "file"),
            size(total.bytes),
        )
    }

    fn run_line(&self, level: u8, run: &RunShape) -> String {
        let total = Totals::of(run.files.iter());
        let edge = if self.style.ascii { '|' } else { '│' };
        let min_seq = run.files.iter().map(|file| file.min_seq).min().unwrap_or(0);
        let max_seq = run.files.iter().map(|file| file.max_seq).max().unwrap_or(0);
        let label = format!("  r{}", run.id);
        let (files, size, bits) = (total.files, size(total.bytes), total.bits());
        let facts = format!("{files:>5}f {size:>10} {bits:>5.1}  {min_seq}..{max_seq}{}", marks(run));
        let rest = cut_to(&facts, self.style.columns - LEFT_COLUMNS - BAR_COLUMNS - 2);
        let bar = self.coloured(level, &self.bar(run));
        format!("{}{edge}{bar}{edge}{rest}", padded(&label, LEFT_COLUMNS))
    }

    fn bar(&self, run: &RunShape) -> String {
        let marks = if self.style.ascii { ASCII } else { BLOCKS };
        let mark = |bytes: f64| match bytes / self.fullest * marks.len() as f64 {
            height if height > 0.0 => marks[(height.ceil() as usize).clamp(1, marks.len()) - 1],
            _ => ' ',
        };
        self.columns(run).map(mark).iter().collect()
    }

    fn coloured(&self, level: u8, text: &str) -> String {
        if !self.style.colour {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", COLOURS[usize::from(level) % COLOURS.len()])
    }
}

/// Returns a line for each class of value files, and one for all of them.
fn value_lines(shape: &KeyspaceShape) -> Vec<String> {
    let line = |title: &str, files: &[&ValueFileShape]| {
        let sum = |part: fn(&ValueFileShape) -> u64| files.iter().map(|file| part(file)).sum::<u64>();
        let (bytes, referenced) = (sum(|file| file.bytes), sum(|file| file.referenced_bytes));
        let garbage = 100.0 * bytes.saturating_sub(referenced) as f64 / bytes.max(1) as f64;
        format!(
            "{title:<10}{}, {}, {}, {garbage:.0} % known garbage",
            counted(files.len() as u64, "file"),
            size(bytes),
            counted(sum(|file| file.entries), "record"),
        )
    };
    let all: Vec<&ValueFileShape> = shape.value_files.iter().collect();
    if all.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![line("values", &all)];
    let classes: BTreeSet<u8> = all.iter().map(|file| file.class).collect();
    for class in classes.iter().filter(|_| classes.len() > 1) {
        let of_class: Vec<&ValueFileShape> =
            all.iter().filter(|file| file.class == *class).copied().collect();
        lines.push(line(&format!("  class {class}"), &of_class));
    }
    lines.extend(shape.value_lifetimes.iter().map(|learned| format!("  lifetimes: {learned}")));
    lines
}

/// Returns the line about memtables, if there is data in memory.
fn memory_line(shape: &KeyspaceShape) -> Option<String> {
    let bytes = shape.active_bytes.saturating_add(shape.sealed_bytes);
    let waiting = counted(shape.sealed_memtables as u64, "memtable");
    (bytes >= MEMORY_BYTES_SHOWN || shape.sealed_memtables > 0)
        .then(|| format!("mem   {} in memory, {waiting} sealed", size(bytes)))
}

/// Returns the tag of a run and the numbers of its narrowed and busy files.
fn marks(run: &RunShape) -> String {
    let mut text = String::new();
    if !run.tag.is_empty() {
        text.push_str(&format!("  {}", escape(&run.tag)));
    }
    let narrowed = run.files.iter().filter(|file| file.narrowed).count();
    let busy = run.files.iter().filter(|file| is_busy(file)).count();
    for (count, state) in [(narrowed, "narrowed"), (busy, "busy")] {
        if count > 0 {
            text.push_str(&format!("  {count} {state}"));
        }
    }
    text
}

/// Returns whether an unfinished compaction involves the file.
fn is_busy(file: &FileShape) -> bool {
    file.state != FileRole::Free
}

fn file_line(file: &FileShape) -> String {
    let end = file.end.as_deref().map_or("end".to_owned(), short_key);
    let mut facts = format!(
        "    {:06}.tbl  {}, {}, {}",
        file.table,
        size(file.bytes),
        counted(file.entries, "entry"),
        counted(file.tombstones, "tombstone"),
    );
    if file.filter_bits > 0.0 {
        let passed = 100.0 * file.filter_false_positive_rate;
        facts.push_str(&format!("  {:.1} bits, {passed:.1} %", file.filter_bits));
    }
    if file.filter_skipped {
        facts.push_str(" (skipped)");
    }
    if file.lookups_empty + file.lookups_found > 0.0 {
        facts.push_str(&format!("  {:.0} found, {:.0} vain", file.lookups_found, file.lookups_empty));
    }
    if file.narrowed {
        facts.push_str("  narrowed");
    }
    if is_busy(file) {
        facts.push_str(&format!("  {}", file.state));
    }
    facts.push_str(&format!("  {}..{}", file.min_seq, file.max_seq));
    facts.push_str(&format!("  [{} .. {end})", short_key(&file.first)));
    facts
}

/// Returns the last line: the first key below the left edge of the bar, and the end of the keys below the right edge.
fn span_line(shape: &KeyspaceShape) -> Option<String> {
    let first = files(shape).map(|file| &file.first).min()?;
    // A file without an end key extends beyond every end key.
    let unbounded = files(shape).any(|file| file.end.is_none());
    let end = files(shape).filter_map(|file| file.end.as_ref()).max().filter(|_| !unbounded);
    let (first, end) =
        (cut_to(&escape(first), BAR_COLUMNS / 2 - 1), end.map_or("end".to_owned(), |e| escape(e)));
    let end = cut_to(&end, BAR_COLUMNS / 2 - 1);
    let gap = BAR_COLUMNS - first.chars().count() - end.chars().count();
    Some(format!("{}{first}{}{end}", " ".repeat(LEFT_COLUMNS + 1), " ".repeat(gap)))
}

fn short_key(key: &[u8]) -> String {
    if key.is_empty() { "(empty)".to_owned() } else { cut_to(&escape(key), KEY_COLUMNS) }
}

/// Returns the first `columns` characters of `text`; if it is longer, the last one is `~`.
fn cut_to(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns - 1).chain(['~']).collect()
}

fn padded(text: &str, columns: usize) -> String {
    format!("{:<columns$}", cut_to(text, columns))
}

#[cfg(test)]
mod tests;
