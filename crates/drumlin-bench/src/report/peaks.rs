//! Peaks of resident memory that differ between engines.

use super::model::{CONTROL, PhaseReport, names};
use crate::compare::Spread;

/// Ratio of the peaks of two engines above which they differ.
const APART: f64 = 1.10;

/// Returns a line for each phase in which the engines with the least and the most peak memory differ, with their
/// medians over the usable rounds. An engine and its control run are one.
pub(crate) fn unequal(phases: &[PhaseReport]) -> Vec<String> {
    names(phases, |phase| &phase.name).iter().filter_map(|name| of_phase(phases, name)).collect()
}

fn of_phase(phases: &[PhaseReport], name: &str) -> Option<String> {
    let usable: Vec<&PhaseReport> =
        phases.iter().filter(|phase| phase.name == name && phase.usable).collect();
    let engine = |phase: &PhaseReport| phase.engine.trim_end_matches(CONTROL).to_owned();
    let mut peaks: Vec<(f64, String)> = Vec::new();
    for phase in &usable {
        let engine_here = engine(phase);
        if peaks.iter().any(|(_, known)| *known == engine_here) {
            continue;
        }
        let of_engine = usable.iter().filter(|other| engine(other) == engine_here);
        let bytes = of_engine.filter_map(|other| other.rss_peak_bytes).map(|bytes| bytes as f64);
        let Some(peak) = Spread::of(bytes.collect()) else { continue };
        peaks.push((peak.median, engine_here));
    }
    peaks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((least, lean), (most, fat)) = (peaks.first()?, peaks.last()?);
    let mib = |bytes: &f64| bytes / 1048576.0;
    (most / least > APART).then(|| {
        format!(
            "{name}: peak memory differs by more than 10 %: {lean} {:.0} MiB, {fat} {:.0} MiB",
            mib(least),
            mib(most)
        )
    })
}

/// Returns whether a warning is about unequal peaks. Older reports have other words for it.
pub(crate) fn is_about(warning: &str) -> bool {
    warning.contains(": peak memory differs") || warning.contains(": memory_unequal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_with_the_least_and_the_most_are_named() {
        let phase = |engine: &str, round, mib: u64| PhaseReport {
            name: "load".to_owned(),
            engine: engine.to_owned(),
            round,
            usable: round < 4,
            rss_peak_bytes: Some(mib << 20),
            ..PhaseReport::default()
        };
        let mut phases = vec![phase("drumlin", 1, 300), phase("drumlin#2", 1, 280), phase("drumlin", 4, 900)];
        assert!(unequal(&phases).is_empty(), "one engine");
        phases.extend([phase("rocksdb", 1, 150), phase("rocksdb-tuned", 1, 200)]);
        let told = unequal(&phases);
        assert_eq!(told, ["load: peak memory differs by more than 10 %: rocksdb 150 MiB, drumlin 290 MiB"]);
        assert!(is_about(&told[0]) && is_about("load: memory_unequal, peaks from 1 to 2 MiB"));
        assert!(unequal(&[phase("a", 1, 100), phase("b", 1, 109)]).is_empty());
    }
}
