//! Candidates: the intervals of the age line that are scored.
//!
//! Every compaction that ARCE proposes is an interval of neighbours in age. For each width only the interval of
//! fewest bytes counts; among equal ones, the oldest. If all runs cover all keys this loses nothing, because with the
//! same number of runs removed a compaction of more bytes never scores higher. Where runs cover only some keys, or
//! differ in read cost (see `prices`), the interval that removes most read cost per byte counts as well. The lightest
//! interval may consist of cached runs that cost readers almost nothing.
//!
//! Busy runs split the line into segments. The size ratio rho excludes intervals whose oldest run is too large
//! compared with the others: rewriting that run would gain little for its bytes.

use crate::compaction::arce::candidates::cover::{Counts, Cover, CoverScale};
use alloc::vec::Vec;

/// One run, or one link of runs that are compacted together, with the figures that scores use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CandidatePart {
    pub(crate) bytes: f64,
    pub(crate) cover: Cover,
    /// Covered runs that it counts as: 0 to 1, more for links of several runs.
    pub(crate) weight: f64,
    /// Its read cost in uncached runs.
    pub(crate) cost: f64,
    /// Whether a compaction may take it.
    pub(crate) idle: bool,
}

/// An interval of the line, newest part first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub(crate) from: usize,
    /// End of the interval, exclusive.
    pub(crate) to: usize,
    pub(crate) bytes: f64,
    /// y: covered runs that it removes.
    pub(crate) removed: f64,
    /// Read cost, in uncached runs, that it removes. It is negative when small cached runs become one large run.
    pub(crate) relief: f64,
}

/// Every width up to this one is tried; beyond it, widths grow by a quarter.
const EVERY_WIDTH: usize = 16;

/// The search for candidates, with memory that is reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals {
    /// Bytes of the parts before each place.
    sums: Vec<f64>,
    /// Read cost of the parts before each place.
    costs: Vec<f64>,
    /// End of the segment of each part; a busy part has its own place here.
    ends: Vec<usize>,
    /// Number of parts before each place that do not count as exactly one run over all keys.
    partial: Vec<u32>,
    /// Number of keys of each part that its newer neighbours do not cover, by the number of neighbours.
    fresh: Vec<[Counts; EVERY_WIDTH]>,
}

impl Intervals {
    /// Fills `found` with the candidates of `line`, newest part first, that pass `rho`.
    pub(crate) fn list(
        &mut self,
        line: &[CandidatePart],
        scale: &CoverScale,
        rho: f64,
        found: &mut Vec<Candidate>,
    ) {
        found.clear();
        self.prepare(line, scale);
        let longest = self.ends.iter().enumerate().map(|(at, end)| end - at).max().unwrap_or(0);
        if self.partial.last() == Some(&0) {
            let mut width = 2;
            while width <= longest {
                self.of_width(line, scale, rho, width, found);
                width = if width < EVERY_WIDTH { width + 1 } else { width + width.div_ceil(4) };
            }
        } else {
            self.masked(line, scale, rho, found);
            let mut width = EVERY_WIDTH + EVERY_WIDTH / 4;
            while width <= longest {
                self.of_width(line, scale, rho, width, found);
                width += width.div_ceil(4);
            }
        }
        for (from, &to) in self.ends.iter().enumerate() {
            let begins = to > from + EVERY_WIDTH && (from == 0 || self.ends[from - 1] == from - 1);
            if begins && self.passes(line, rho, from, to) {
                found.extend(self.candidate(line, scale, from, to));
            }
        }
    }

    fn prepare(&mut self, line: &[CandidatePart], scale: &CoverScale) {
        self.sums.clear();
        self.costs.clear();
        self.partial.clear();
        let (mut bytes, mut cost, mut partial) = (0.0, 0.0, 0);
        for part in line {
            self.sums.push(bytes);
            self.costs.push(cost);
            self.partial.push(partial);
            bytes += part.bytes;
            cost += part.cost;
            partial += u32::from(part.weight != 1.0 || part.cover != scale.full);
        }
        self.sums.push(bytes);
        self.costs.push(cost);
        self.partial.push(partial);
        self.ends.clear();
        self.ends.resize(line.len(), 0);
        let mut end = line.len();
        for (at, part) in line.iter().enumerate().rev() {
            if !part.idle {
                end = at;
            }
            self.ends[at] = end;
        }
    }

    fn passes(&self, line: &[CandidatePart], rho: f64, from: usize, to: usize) -> bool {
        let oldest = line[to - 1].bytes;
        rho.is_infinite() || oldest <= rho * (self.sums[to] - self.sums[from] - oldest)
    }

    /// Adds the interval of `width` parts with fewest bytes and, where read costs differ, the one with most relief
    /// per byte.
    fn of_width(
        &self,
        line: &[CandidatePart],
        scale: &CoverScale,
        rho: f64,
        width: usize,
        found: &mut Vec<Candidate>,
    ) {
        let (mut least, mut light) = (f64::INFINITY, None);
        let (mut most, mut dense) = (0.0, None);
        let is_even = scale.is_uniform();
        let count = (line.len() + 1).saturating_sub(width);
        // From the oldest on, so that the oldest of equal intervals wins.
        for (from, end) in self.ends[..count].iter().enumerate().rev() {
            let to = from + width;
            if *end < to {
                continue;
            }
            let bytes = self.sums[to] - self.sums[from];
            if bytes < least && self.passes(line, rho, from, to) {
                (least, light) = (bytes, Some(from));
            }
            if !is_even {
                // Treats the output as one covered run, which is exact unless runs cover only some keys.
                let relief = self.costs[to] - self.costs[from] - scale.cost(bytes, 1.0);
                let per_byte = relief / bytes.max(1.0);
                if per_byte > most && self.passes(line, rho, from, to) {
                    (most, dense) = (per_byte, Some(from));
                }
            }
        }
        let both = light.into_iter().chain(dense.filter(|dense| Some(*dense) != light));
        found.extend(both.filter_map(|from| self.candidate(line, scale, from, from + width)));
    }

    /// For each part and each small distance, counts the keys that none of the nearest newer neighbours covers: the
    /// growth of the union when the part joins them.
    fn count_fresh(&mut self, line: &[CandidatePart]) {
        self.fresh.clear();
        self.fresh.resize(line.len(), [[0; 2]; EVERY_WIDTH]);
        for (at, (part, fresh)) in line.iter().zip(&mut self.fresh).enumerate() {
            let (mut rest, mut counts) = (part.cover, part.cover.counts());
            fresh[0] = counts;
            for (newer, fresh) in line[..at].iter().rev().zip(&mut fresh[1..]) {
                if counts == [0; 2] {
                    break;
                }
                rest.remove(&newer.cover, &mut counts);
                *fresh = counts;
            }
        }
    }

    /// Adds, for each small width, the lightest interval that removes anything, and the one with most relief per
    /// byte.
    fn masked(&mut self, line: &[CandidatePart], scale: &CoverScale, rho: f64, found: &mut Vec<Candidate>) {
        const NONE: Candidate = Candidate { from: 0, to: 0, bytes: f64::INFINITY, removed: 0.0, relief: 0.0 };
        let mut light = [NONE; EVERY_WIDTH + 1];
        let mut dense = light;
        self.count_fresh(line);
        let (any_ratio, is_even) = (rho.is_infinite(), scale.is_uniform());
        for (from, end) in self.ends.iter().enumerate() {
            let to = (*end).min(from + EVERY_WIDTH).max(from);
            let (mut covered, mut weight) = ([0; 2], 0.0);
            let (bytes_before, costs_before) = (self.sums[from], self.costs[from]);
            let parts = line[from..to].iter().zip(&self.fresh[from..to]);
            let sums = self.sums[from + 1..].iter().zip(&self.costs[from + 1..]);
            let best = light[1..].iter_mut().zip(&mut dense[1..]);
            for (at, (((part, fresh), (sum, cost)), (light, dense))) in parts.zip(sums).zip(best).enumerate()
            {
                let fresh = fresh[at % EVERY_WIDTH];
                covered = [covered[0] + fresh[0], covered[1] + fresh[1]];
                weight += part.weight;
                let bytes = sum - bytes_before;
                // A link of several runs may be compacted alone; the ratio then has no other runs to compare with.
                if at > 0 && !any_ratio && part.bytes > rho * (bytes - part.bytes) {
                    continue;
                }
                let left = scale.counted(covered);
                let removed = weight - left;
                if removed <= LEAST {
                    continue;
                }
                let relief = if is_even { removed } else { cost - costs_before - scale.cost(bytes, left) };
                let candidate = || Candidate { from, to: from + at + 1, bytes, removed, relief };
                if bytes <= light.bytes {
                    *light = candidate();
                }
                if dense.to == 0 || relief * dense.bytes >= dense.relief * bytes {
                    *dense = candidate();
                }
            }
        }
        for (light, dense) in light.into_iter().zip(dense).filter(|(light, _)| light.to > 0) {
            found.push(light);
            found.extend(Some(dense).filter(|dense| *dense != light));
        }
    }

    /// Returns the interval as a candidate, if it removes anything.
    fn candidate(
        &self,
        line: &[CandidatePart],
        scale: &CoverScale,
        from: usize,
        to: usize,
    ) -> Option<Candidate> {
        let (removed, left) = if self.partial[to] == self.partial[from] {
            ((to - from - 1) as f64, 1.0)
        } else {
            let (mut union, mut weight) = (Cover::default(), 0.0);
            for part in &line[from..to] {
                union.union(&part.cover);
                weight += part.weight;
            }
            let left = scale.runs(&union);
            (weight - left, left)
        };
        let bytes = self.sums[to] - self.sums[from];
        let relief = self.relief(scale, from, to, removed, left);
        (removed > LEAST).then_some(Candidate { from, to, bytes, removed, relief })
    }

    /// Returns the read cost that a compaction removes if its output counts as `left` covered runs.
    fn relief(&self, scale: &CoverScale, from: usize, to: usize, removed: f64, left: f64) -> f64 {
        if scale.is_uniform() {
            return removed;
        }
        self.costs[to] - self.costs[from] - scale.cost(self.sums[to] - self.sums[from], left)
    }
}

/// Removed runs up to this are rounding errors: less than one sampled key.
const LEAST: f64 = 1e-9;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::compaction::arce::measure::model::paper::MIB;
    use crate::random::SplitMix;

    /// Returns a scale with full samples of both kinds.
    pub(crate) fn full_scale() -> CoverScale {
        CoverScale::new(256, 256, [1.0, 1.0])
    }

    pub(crate) fn line(mib: &[f64]) -> Vec<CandidatePart> {
        let cover = full_scale().full;
        mib.iter()
            .map(|mib| CandidatePart { bytes: mib * MIB, cover, weight: 1.0, cost: 1.0, idle: true })
            .collect()
    }

    fn sizes(line: &[CandidatePart], rho: f64) -> Vec<f64> {
        let mut found = Vec::new();
        Intervals::default().list(line, &full_scale(), rho, &mut found);
        found.iter().map(|c| c.bytes / MIB).collect()
    }

    #[test]
    fn the_line_of_the_paper() {
        let line = line(&[2.0, 2.0, 2.0, 2.0, 20.0, 24.0, 400.0, 4096.0]);
        assert_eq!(sizes(&line, f64::INFINITY), [4.0, 6.0, 8.0, 28.0, 52.0, 452.0, 4548.0]);
        assert_eq!(sizes(&line, 1.0), [4.0, 6.0, 8.0, 50.0, 52.0]);
        let mut found = Vec::new();
        Intervals::default().list(&line, &full_scale(), f64::INFINITY, &mut found);
        // Of equal pairs the oldest is listed.
        assert_eq!((found[0].from, found[0].to), (2, 4));
    }

    /// Returns a random line with full or partial covers and some busy parts.
    fn drawn(dice: &mut SplitMix, partial: bool) -> Vec<CandidatePart> {
        let scale = full_scale();
        let count = 2 + dice.below(14);
        let parts = (0..count).map(|_| {
            let mut cover = scale.full;
            if partial && dice.one_in(2) {
                cover.points = crate::compaction::arce::candidates::cover::Mask::first(dice.below(257));
            }
            let bytes = (1 + dice.below(64)) as f64;
            let weight = scale.runs(&cover);
            CandidatePart { bytes, cover, weight, cost: scale.cost(bytes, weight), idle: !dice.one_in(6) }
        });
        parts.collect()
    }

    /// Returns every interval of idle parts that passes rho, by brute force.
    pub(crate) fn all(line: &[CandidatePart], rho: f64) -> Vec<Candidate> {
        let scale = full_scale();
        let mut all = Vec::new();
        for from in 0..line.len() {
            for to in from + 2..=line.len() {
                let parts = &line[from..to];
                let bytes: f64 = parts.iter().map(|p| p.bytes).sum();
                let oldest = parts.last().unwrap().bytes;
                if !parts.iter().all(|p| p.idle) || oldest > rho * (bytes - oldest) {
                    continue;
                }
                let covers: Vec<Cover> = parts.iter().map(|p| p.cover).collect();
                let removed = scale.removed(&covers);
                all.push(Candidate { from, to, bytes, removed, relief: removed });
            }
        }
        all
    }

    #[test]
    fn pruned_lists_hold_the_lightest_of_every_width() {
        let mut dice = SplitMix::new(11);
        for round in 0..600 {
            let line = drawn(&mut dice, round % 2 == 1);
            let rho = if dice.one_in(2) { 1.0 } else { f64::INFINITY };
            let mut found = Vec::new();
            Intervals::default().list(&line, &full_scale(), rho, &mut found);
            let all = all(&line, rho);
            for candidate in &found {
                let same = all.iter().find(|c| (c.from, c.to) == (candidate.from, candidate.to)).unwrap();
                assert_eq!(candidate.bytes, same.bytes);
                assert!((candidate.removed - same.removed).abs() < 1e-9);
            }
            for width in 2..=line.len() {
                let useful = all.iter().filter(|c| c.to - c.from == width && c.removed > LEAST);
                let least = useful.map(|c| c.bytes).fold(f64::INFINITY, f64::min);
                let listed = found.iter().filter(|c| c.to - c.from == width);
                assert_eq!(least, listed.map(|c| c.bytes).fold(f64::INFINITY, f64::min), "width {width}");
            }
        }
    }

    /// Beyond 16, widths grow by a quarter, and the whole segment is listed at any width.
    #[test]
    fn long_lines_are_pruned_to_the_lightest_of_growing_widths() {
        const WIDTHS: [usize; 7] = [16, 20, 25, 32, 40, 50, 63];
        let (mut dice, mut grown, mut whole) = (SplitMix::new(12), 0, 0);
        for _ in 0..200 {
            let mut line = line(&[0.0; 70][..17 + dice.below(54)]);
            for part in &mut line {
                (part.bytes, part.idle) = ((1 + dice.below(64)) as f64, !dice.one_in(50));
            }
            // An oldest run that is larger than all others together.
            if let Some(oldest) = line.last_mut().filter(|_| dice.one_in(2)) {
                oldest.bytes = 1e5;
            }
            let rho = [1.0, 0.2, f64::INFINITY][dice.below(3)];
            let mut found = Vec::new();
            Intervals::default().list(&line, &full_scale(), rho, &mut found);
            let all = all(&line, rho);
            let is_end = |at: usize| line.get(at).is_none_or(|part| !part.idle);
            let is_whole = |c: &Candidate| is_end(c.to) && is_end(c.from.wrapping_sub(1));
            for width in 2..=line.len() {
                let of_width = |c: &&Candidate| c.to - c.from == width;
                let listed: Vec<&Candidate> = found.iter().filter(of_width).collect();
                // Of equal intervals the oldest counts as the lightest.
                let least = all.iter().filter(of_width).reduce(|a, b| if b.bytes <= a.bytes { b } else { a });
                let is_tried = width <= 16 || WIDTHS.contains(&width);
                let segments = all.iter().filter(of_width).filter(|c| width > 16 && is_whole(c));
                let lightest = least.filter(|_| is_tried);
                let expected: Vec<&Candidate> = lightest.into_iter().chain(segments).collect();
                assert_eq!(listed, expected, "width {width}, rho {rho}");
                grown += u32::from(width > 16 && is_tried && least.is_some());
                whole += u32::from(!is_tried && !listed.is_empty());
            }
        }
        assert!(grown > 100 && whole > 20, "{grown} {whole}");
    }
}
