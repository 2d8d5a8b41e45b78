//! The segment run: the codec of log segments never returns a record that was not written.
//!
//! Each flip inverts one bit in a segment of random records, more often in a header than in a payload. The scanner
//! must then return only records that were written, up to the damage. Then a new segment with fewer or shorter
//! records overwrites the old one, as recycling does. The scan must return none of the old records behind the new
//! ones, and must ignore their synced marks.

use crate::failure::{Failure, Verdict};
use crate::parallel;
use drumlin_env::Random;
use drumlin_format::log::{
    RecordHeader, RecordKind, SEGMENT_HEADER_LEN, SegmentHeader, SegmentScanner, encode_record, later_mark,
};
use drumlin_types::LogNumber;

/// Number of bits flipped in each segment.
const FLIPS: u64 = 400;
/// Bytes of a record besides its payload.
const HEAD: usize = 32;

/// A scanned record: its offset, header and payload.
type Shown = (u64, RecordHeader, Vec<u8>);

/// Results of the run.
#[derive(Debug, Default)]
pub struct Figures {
    segments: u64,
    flips: u64,
    /// Failures, each with its seed.
    pub failures: Vec<(u64, Failure)>,
}

impl Figures {
    /// Returns the figure line.
    pub fn line(&self) -> String {
        let (segments, flips, silent) = (self.segments, self.flips, self.failures.len());
        format!("segment: segments {segments}, flips {flips}, silent {silent}")
    }
}

fn scan(bytes: &[u8], header: SegmentHeader) -> Vec<Shown> {
    let shown = SegmentScanner::new(bytes, header).map(|r| (r.offset, r.header, r.payload.to_vec()));
    shown.collect()
}

/// Writes `count` records over `bytes`; returns the records that a scan must return.
fn write(
    bytes: &mut Vec<u8>,
    header: &SegmentHeader,
    count: u64,
    random: &mut Random,
) -> Result<Vec<Shown>, Failure> {
    let mut new = header.encode();
    new.resize(SEGMENT_HEADER_LEN, 0);
    let mut shown = Vec::new();
    let mut first_seq = 1 + random.below(1000);
    for _ in 0..count {
        let mut payload = vec![0; random.index(120)];
        random.fill(&mut payload);
        let operations = 1 + random.below(20) as u32;
        let record =
            RecordHeader { kind: RecordKind::Batch, synced_mark: header.base, first_seq, count: operations };
        let offset = new.len() as u64;
        encode_record(&mut new, header.number, offset, &record, &payload)
            .map_err(|e| Verdict::Failed.of(e.what))?;
        shown.push((offset, record, payload));
        first_seq += u64::from(operations);
    }
    bytes.resize(bytes.len().max(new.len()), 0);
    bytes[..new.len()].copy_from_slice(&new);
    Ok(shown)
}

/// Damages one segment, then recycles it.
pub fn one(seed: u64) -> Result<(), Failure> {
    let mut random = Random::new(seed, "segment");
    let number = 1 + random.below(1000);
    let header = SegmentHeader {
        number: LogNumber(number),
        base: random.below(1 << 20),
        predecessor: None,
        file_len: 0,
    };
    let mut bytes = Vec::new();
    let written = write(&mut bytes, &header, 3 + random.below(6), &mut random)?;
    if scan(&bytes, header) != written {
        return Err(Verdict::Wrong.of("a scan of a sound segment differs from what was written"));
    }
    for _ in 0..FLIPS {
        let (offset, _, payload) = &written[random.index(written.len())];
        let reach = if random.chance(3, 4) { HEAD } else { HEAD + payload.len() };
        let (at, bit) = (*offset as usize + random.index(reach), random.below(8));
        bytes[at] ^= 1 << bit;
        let found = scan(&bytes, header);
        if !written.starts_with(&found) {
            return Err(
                Verdict::Silent.of(format!("bit {bit} of byte {at} yields a record that was not written"))
            );
        }
        bytes[at] ^= 1 << bit;
    }
    let next = SegmentHeader { number: LogNumber(number + 1 + random.below(3)), ..header };
    let fewer = random.below(written.len() as u64);
    let again = write(&mut bytes, &next, fewer, &mut random)?;
    if scan(&bytes, next) != again {
        return Err(Verdict::Silent.of("a recycled segment shows records from before recycling"));
    }
    let end = again.last().map_or(SEGMENT_HEADER_LEN as u64, |(offset, _, _)| offset + 1);
    match later_mark(&bytes, next.number, end) {
        None => Ok(()),
        Some(mark) => Err(Verdict::Silent.of(format!("mark {mark} from before recycling counts"))),
    }
}

/// Runs `count` seeds from `first` on.
pub fn run(first: u64, count: u64) -> Figures {
    let mut figures = Figures::default();
    for (number, result) in parallel::each(count, move |number| one(first.wrapping_add(number))) {
        match result {
            Ok(()) => {
                figures.segments += 1;
                figures.flips += FLIPS;
            }
            Err(failure) => figures.failures.push((first.wrapping_add(number), failure)),
        }
    }
    figures
}
