//! Division of a plan into pieces, that is, subcompactions.
//!
//! 1. A file that overlaps no other input and no file expected to be folded becomes a piece of its own, a trivial
//!    move without I/O. The exception is a file with tombstones that compaction could drop.
//! 2. The other files are grouped by key into pieces of about equal bytes. Cuts are made at bounds of pieces under
//!    way and of files, and between those at interpolated keys. Any key lies between two user keys, so the versions
//!    and operands of a key stay together.
//! 3. No compacted piece extends over a moved file.

use super::overlaps::Overlaps;
use super::project;
use crate::digits::between;
use crate::share::KeyScale;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use drumlin_types::contract::{FileSpan, FileView, TreeView};
use drumlin_types::{Key, KeyRange, TableId};

/// Upper bound on the number of pieces of a plan.
const MOST_PIECES: u64 = 4096;

/// Piece under construction: its key range and its inputs, clipped to that range.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Key range of the piece.
    pub range: KeyRange,
    /// Inputs of the piece.
    pub inputs: Vec<FileSpan>,
    /// Estimated bytes of the inputs.
    pub bytes: u64,
    /// Whether the piece may be a trivial move.
    pub may_move: bool,
}

/// Bounds on the input bytes of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceBytes {
    /// Smallest input. Pieces of fewer bytes would spend much of their time on their install.
    pub least: u64,
    /// Largest input.
    pub most: u64,
}

impl PieceBytes {
    /// Bounds unless files are small.
    pub const USUAL: PieceBytes = PieceBytes { least: 8 << 20, most: 64 << 20 };
    /// Files of the target size that a piece may read. So one piece holds back only a few files.
    const FILES: u64 = 4;

    /// Returns the bounds for files of `file_bytes` bytes.
    pub fn of_files(file_bytes: u64) -> PieceBytes {
        let most = PieceBytes::USUAL.most.min(file_bytes.max(1).saturating_mul(PieceBytes::FILES));
        PieceBytes { least: PieceBytes::USUAL.least.min(most), most }
    }

    /// Returns the number of pieces of a plan that reads `total` bytes on `slots` slots.
    pub fn count(self, total: u64, slots: u32) -> u64 {
        piece_count(total, slots, self.least, self.most)
    }
}

/// Returns the target bytes of a piece for a plan that reads `total` bytes: two rounds of all slots, within the
/// bounds.
pub fn piece_bytes(total: u64, slots: u32, least: u64, most: u64) -> u64 {
    (total / (2 * u64::from(slots.max(1)))).max(least).min(most).max(1)
}

/// Returns the number of pieces for a plan that reads `total` bytes.
pub fn piece_count(total: u64, slots: u32, least: u64, most: u64) -> u64 {
    total.div_ceil(piece_bytes(total, slots, least, most)).clamp(1, MOST_PIECES)
}

/// Input, or file expected to be folded, with its file metadata.
#[derive(Clone, Debug)]
pub struct PieceFile {
    /// Part of the file that is taken; for a fold, the part that may be.
    pub span: FileSpan,
    /// The file, clipped to that part.
    pub file: FileView,
    /// Whether it is a whole file reference without tombstones that could be dropped.
    pub may_move: bool,
}

/// Combines `spans` with the metadata of their files in `tree`. `may_move` decides, for a file that is taken whole
/// and its level, whether it may be a trivial move.
pub(super) fn parts(
    tree: &TreeView,
    spans: &[FileSpan],
    may_move: impl Fn(&FileView, u8) -> bool,
) -> Vec<PieceFile> {
    let mut files: BTreeMap<(u8, TableId), Vec<&FileView>> = BTreeMap::new();
    for span in spans {
        files.entry((span.level, span.table)).or_default();
    }
    for (level, _, file) in tree.files() {
        if let Some(files) = files.get_mut(&(level, file.table)) {
            files.push(file);
        }
    }
    let mut parts = Vec::new();
    for span in spans {
        for file in files.get(&(span.level, span.table)).into_iter().flatten() {
            let Some(part) = project::part(file, &span.range) else { continue };
            let may_move = part.bounds == file.bounds && may_move(file, span.level);
            let span = FileSpan { range: part.bounds.clone(), ..span.clone() };
            parts.push(PieceFile { span, file: part, may_move });
        }
    }
    parts
}

/// Cuts `inputs` into `pieces` parts of about equal bytes, counting the bytes of `folds`. `edges` are preferred cut
/// keys, `breaks` mandatory ones.
pub fn cut(
    inputs: &[PieceFile],
    folds: &[PieceFile],
    pieces: u64,
    edges: Vec<Key>,
    mut breaks: Vec<Key>,
) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut merging: Vec<&PieceFile> = Vec::new();
    let met = Overlaps::of(inputs.iter().chain(folds).map(|part| &part.span.range));
    for part in inputs {
        let range = &part.span.range;
        // The count includes the file itself.
        if part.may_move && met.count(range) == 1 {
            breaks.push(range.start.clone());
            let inputs = vec![part.span.clone()];
            cuts.push(Cut { range: range.clone(), inputs, bytes: part.file.bytes, may_move: true });
        } else {
            merging.push(part);
        }
    }
    cuts.extend(cut_merge(&merging, folds, pieces, edges, breaks));
    cuts.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    cuts
}

fn cut_merge(
    merging: &[&PieceFile],
    folds: &[PieceFile],
    pieces: u64,
    mut edges: Vec<Key>,
    mut breaks: Vec<Key>,
) -> Vec<Cut> {
    let Some(hull) = merging.iter().map(|p| p.span.range.clone()).reduce(|a, b| a.hull(&b)) else {
        return Vec::new();
    };
    let files: Vec<&FileView> =
        merging.iter().map(|part| &part.file).chain(folds.iter().map(|part| &part.file)).collect();
    breaks.sort();
    for file in &files {
        edges.push(file.bounds.start.clone());
        edges.extend(file.bounds.end.clone());
    }
    edges.extend(breaks.iter().cloned());
    let inside = |edge: &Key| *edge > hull.start && hull.is_before_end(edge);
    edges.retain(inside);
    edges.sort();
    edges.dedup();
    let total: u64 = files.iter().map(|f| f.bytes).sum();
    let target = (total / pieces.max(1)).max(1);
    let gaps = refined(&hull, &edges, &files, target);
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (hull.start.clone(), 0);
    for (at, (gap, weight)) in gaps.iter().enumerate() {
        bytes += weight;
        let is_last = at + 1 == gaps.len();
        let forced = gap.end.as_ref().is_some_and(|end| breaks.binary_search(end).is_ok());
        // Cut before the next gap if half of it would make the piece too large.
        let next = gaps.get(at + 1).map_or(0, |(_, weight)| weight / 2);
        if bytes + next > target || forced || is_last {
            ranges.push(KeyRange::new(core::mem::replace(&mut start, Key::empty()), gap.end.clone()));
            start = gap.end.clone().unwrap_or_else(Key::empty);
            bytes = 0;
        }
    }
    pieces_of(merging, ranges)
}

/// Returns the gaps between `edges` in `hull` with the bytes in each. Wide gaps are divided at interpolated keys.
fn refined(hull: &KeyRange, edges: &[Key], files: &[&FileView], target: u64) -> Vec<(KeyRange, u64)> {
    let starts = [&hull.start].into_iter().chain(edges);
    let ends = edges.iter().map(Some).chain([hull.end.as_ref()]);
    let plain: Vec<KeyRange> = starts.zip(ends).map(|(a, b)| KeyRange::new(a.clone(), b.cloned())).collect();
    let weights = weights(files, &plain);
    let mut gaps = Vec::new();
    for (gap, weight) in plain.into_iter().zip(weights) {
        let parts = weight.div_ceil(target).min(MOST_PIECES);
        let mut from = gap.start.clone();
        for part in 1..parts {
            let Some(key) = between(&gap, part, parts).filter(|key| *key > from) else { continue };
            gaps.push((KeyRange::new(from, Some(key.clone())), weight / parts));
            from = key;
        }
        gaps.push((KeyRange::new(from, gap.end), weight / parts.max(1)));
    }
    gaps
}

/// Returns the index range of those `ranges` that share keys with `range`. `ranges` are disjoint and sorted.
fn meeting(ranges: &[KeyRange], range: &KeyRange) -> core::ops::Range<usize> {
    let first = ranges.partition_point(|r| r.end.as_ref().is_some_and(|end| *end <= range.start));
    let past = ranges.partition_point(|r| range.is_before_end(&r.start));
    first..past.max(first)
}

/// Returns the bytes of `files` in each of `gaps`.
fn weights(files: &[&FileView], gaps: &[KeyRange]) -> Vec<u64> {
    let mut weights = vec![0; gaps.len()];
    for file in files {
        let scale = KeyScale::of(&file.bounds);
        for at in meeting(gaps, &file.bounds) {
            weights[at] += (file.bytes as f64 * scale.share_of(&file.bounds, &gaps[at])) as u64;
        }
    }
    weights
}

/// Returns a cut for each of `ranges` that contains some part of `merging`.
fn pieces_of(merging: &[&PieceFile], ranges: Vec<KeyRange>) -> Vec<Cut> {
    let mut taken: Vec<(Vec<FileSpan>, u64, bool)> = vec![(Vec::new(), 0, true); ranges.len()];
    for part in merging {
        let scale = KeyScale::of(&part.file.bounds);
        for at in meeting(&ranges, &part.span.range) {
            let Some(range) = part.span.range.intersect(&ranges[at]) else { continue };
            let (inputs, bytes, may_move) = &mut taken[at];
            *bytes += (part.file.bytes as f64 * scale.share_inside(&part.file.bounds, &range)) as u64;
            *may_move = inputs.is_empty() && part.may_move && range == part.span.range;
            inputs.push(FileSpan { range, ..part.span.clone() });
        }
    }
    let cuts = ranges.into_iter().zip(taken).filter(|(_, (inputs, ..))| !inputs.is_empty());
    cuts.map(|(range, (inputs, bytes, may_move))| Cut { range, inputs, bytes, may_move }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_types::TableId;
    use drumlin_types::contract::draw::plain_file;

    const MIB: u64 = 1 << 20;

    #[test]
    fn plans_have_two_pieces_for_each_slot_within_bounds() {
        let counts = |mib: u64| PieceBytes::of_files(64 * MIB).count(mib * MIB, 1);
        assert_eq!([4, 16, 64, 128, 1024].map(counts), [1, 2, 2, 2, 16]);
        assert_eq!(PieceBytes::of_files(64 * MIB).count(256 * MIB, 4), 8);
        assert_eq!(PieceBytes::of_files(MIB).count(64 * MIB, 1), 16, "small files have small pieces");
    }

    fn part(table: u64, from: u32, to: u32, bytes: u64) -> PieceFile {
        let range = KeyRange::new(Key::new(&from.to_be_bytes()), Some(Key::new(&to.to_be_bytes())));
        let mut file = plain_file(TableId(table), range.clone(), 1, 9);
        file.bytes = bytes;
        let span = FileSpan { level: 1, table: TableId(table), range, min_seq: 1, max_seq: 9 };
        PieceFile { span, file, may_move: true }
    }

    #[test]
    fn pieces_follow_total_and_slots() {
        for (total, slots, count) in [
            (256 * MIB, 1, 4),
            (256 * MIB, 16, 32),
            (1024 * MIB, 16, 32),
            (30 * 1024 * MIB, 2, 480),
            (12 * MIB, 4, 2),
        ] {
            assert_eq!(piece_count(total, slots, 8 * MIB, 64 * MIB), count, "{total} {slots}");
        }
    }

    #[test]
    fn pieces_cover_every_input_once() {
        let inputs = [
            part(1, 0, 1 << 20, 64 * MIB),
            part(2, 0, 1 << 20, 64 * MIB),
            part(3, 1 << 19, 1 << 21, 32 * MIB),
        ];
        let cuts = cut(&inputs, &[], 10, Vec::new(), Vec::new());
        assert!((8..=12).contains(&cuts.len()), "{}", cuts.len());
        for input in &inputs {
            let mine = cuts.iter().flat_map(|c| &c.inputs).filter(|s| s.table == input.span.table);
            let mut at = input.span.range.start.clone();
            for span in mine {
                assert_eq!(span.range.start, at);
                at = span.range.end.clone().unwrap();
            }
            assert_eq!(Some(at), input.span.range.end);
        }
        let most = cuts.iter().map(|c| c.bytes).max().unwrap();
        assert!(most <= 2 * 160 * MIB / 10, "{most}");
    }

    /// Decimal digits cover a small part of all byte values. Interpolated by raw bytes, some pieces would get all
    /// keys and others none.
    #[test]
    fn pieces_of_text_are_as_even_as_those_of_numbers() {
        let key = |n: u32| Key::new(alloc::format!("user{n:010}").as_bytes());
        let input = |table: u64, from: u32, to: u32| {
            let PieceFile { mut span, mut file, .. } = part(table, 0, 1, MIB * u64::from(to - from) / 1000);
            span.range = KeyRange::new(key(from), Some(key(to)));
            file.bounds = span.range.clone();
            PieceFile { span, file, may_move: false }
        };
        let inputs = [input(1, 0, 2_559_999), input(2, 1000, 2_400_000), input(3, 700_000, 1_900_000)];
        let cuts = cut(&inputs, &[], 24, Vec::new(), Vec::new());
        let counted: u64 = inputs.iter().map(|part| part.file.bytes).sum();
        for cut in &cuts {
            // The actual bytes: every key of an input has the same size.
            let below = |end: &Key| {
                (0..32).rev().fold(0u32, |n, bit| {
                    let next = n | 1 << bit;
                    if next <= 2_560_000 && key(next) <= *end { next } else { n }
                })
            };
            let inside =
                cut.inputs.iter().map(|s| below(s.range.end.as_ref().unwrap()) - below(&s.range.start));
            let bytes = MIB * u64::from(inside.sum::<u32>()) / 1000;
            assert!(bytes.abs_diff(cut.bytes) < counted / 2400, "{bytes} of {}", cut.bytes);
        }
        let most = cuts.iter().map(|c| c.bytes).max().unwrap();
        assert!((20..=28).contains(&cuts.len()) && most < counted / 12, "{} {most}", cuts.len());
    }

    #[test]
    fn what_overlaps_nothing_moves_whole() {
        let inputs = [part(1, 0, 100, 64 * MIB), part(2, 200, 300, 64 * MIB)];
        let cuts = cut(&inputs, &[], 10, Vec::new(), Vec::new());
        assert!(cuts.len() == 2 && cuts.iter().all(|c| c.may_move));
        // The file expected to be folded cuts the first input; the second one is still moved.
        let cuts = cut(&inputs, &[part(3, 50, 150, 64 * MIB)], 4, Vec::new(), Vec::new());
        assert_eq!(cuts.iter().filter(|c| c.may_move).count(), 1);
        assert!(cuts.len() > 2);
    }
}
