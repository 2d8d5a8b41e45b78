//! Results of a course as a text table and as JSON.

use super::{Deepest, Foreseen, Missed, PhaseCount, Setup, course, mean};
use crate::engine::Result;
use serde::Serialize;
use std::fmt::Write;

/// Results of a plan under one policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Counted {
    /// Name of the policy.
    pub policy: String,
    /// Mean virtual nanoseconds per operation.
    pub nanos: f64,
    /// Mean blocks written by compactions per operation.
    pub merged: f64,
    /// Phases without the load.
    pub phases: Vec<PhaseCount>,
}

impl Counted {
    /// Runs `plan` under `policy`.
    pub fn of(policy: &str, plan: &str, setup: &Setup) -> Result<Counted> {
        let phases = course(policy, plan, setup)?;
        let operations: f64 = phases.iter().map(|phase| phase.operations as f64).sum();
        let merged: f64 = phases.iter().map(|phase| phase.merged * phase.operations as f64).sum();
        let merged = merged / operations.max(1.0);
        Ok(Counted { policy: policy.to_owned(), nanos: mean(&phases), merged, phases })
    }

    /// Formats the results as a table. Includes the reads by extra runs if they were counted, and the policy state at
    /// the end of each phase if `explain` is set. `first` is the mean of the policy called `name`.
    pub fn text(&self, first: f64, name: &str, explain: bool) -> String {
        let wide = self.wide();
        let mut text = format!(
            "{}: {:.2} us per operation, {:.2} of {name}; {:.3} blocks compacted\n\
             {:<wide$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>12}{:>7}{:>7}{:>11}  runs of levels\n",
            self.policy,
            self.nanos / 1e3,
            self.nanos / first,
            self.merged,
            "phase",
            "us",
            "fetched",
            "flushed",
            "merged",
            "waits",
            "waited ms",
            "put p99.9",
            "runs",
            "space",
            "predicted",
        );
        for phase in &self.phases {
            let predicted = phase.predicted.map_or("-".to_owned(), |nanos| format!("{:.2}", nanos / 1e3));
            let levels: Vec<String> = phase.levels.iter().map(u64::to_string).collect();
            let _ = writeln!(
                text,
                "{:<wide$}{:>9.2}{:>9.3}{:>9.4}{:>9.4}{:>9}{:>11.1}{:>12.1}{:>7.1}{:>7.2}{predicted:>11}  {}",
                phase.name,
                phase.nanos / 1e3,
                phase.fetched,
                phase.flushed,
                phase.merged,
                phase.waits.0,
                phase.waits.1,
                phase.put_p999 / 1e3,
                phase.mean_runs,
                phase.space,
                levels.join(" "),
            );
        }
        if self.phases.iter().any(|phase| !phase.deepest.is_empty()) {
            self.depths(&mut text);
        }
        for phase in self.phases.iter().filter(|_| explain) {
            let _ = write!(text, "\nat the end of {}:\n{}\n", phase.name, phase.state);
            let Foreseen { held, changed } = phase.foreseen;
            for (which, Missed { merges, mean, most }) in [("this load", held), ("another load", changed)] {
                if merges > 0 {
                    let _ = writeln!(
                        text,
                        "{merges} compactions planned for {which} missed their due time by {mean:.2} flush intervals \
                         on average, {most:.1} at most"
                    );
                }
            }
        }
        text
    }

    /// Returns the width of the phase name column, including a space.
    fn wide(&self) -> usize {
        self.phases.iter().map(|phase| phase.name.len() + 1).fold(10, usize::max)
    }

    /// Appends the reads by extra runs and the deepest places.
    fn depths(&self, text: &mut String) {
        let wide = self.wide();
        let _ = writeln!(
            text,
            "\n{:<wide$}{:>7}{:>12}{:>9}{:>9}{:>9}{:>9}",
            "phase", "reads", "extra runs", "share", "us", "fetched", "p99"
        );
        for (phase, reads) in self.phases.iter().flat_map(|p| p.reads.iter().map(move |reads| (p, reads))) {
            let _ = writeln!(
                text,
                "{:<wide$}{:>7}{:>12}{:>9.3}{:>9.2}{:>9.3}{:>9.1}",
                phase.name,
                reads.kind,
                reads.extra,
                reads.share,
                reads.nanos / 1e3,
                reads.fetched,
                reads.p99 / 1e3,
            );
        }
        let number = |runs: Option<u64>| runs.map_or("-".to_owned(), |runs| runs.to_string());
        let _ = writeln!(text, "\n{:<wide$}most runs at one key: level runs/design/limit", "phase");
        for phase in &self.phases {
            let level =
                |d: &Deepest| format!("L{} {}/{}/{}", d.level, d.runs, number(d.design), number(d.most));
            let levels: Vec<String> = phase.deepest.iter().map(level).collect();
            let _ = writeln!(text, "{:<wide$}{}", phase.name, levels.join("  "));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::paced::ReadsAt;

    /// A phase of ten operations that takes `nanos` for each.
    pub(in crate::paced) fn phase_of(name: &str, nanos: f64) -> PhaseCount {
        PhaseCount {
            name: name.into(),
            operations: 10,
            nanos,
            fetched: 1.0,
            flushed: 0.5,
            merged: 0.5,
            waits: (0, 0.0),
            put_p999: 1000.0,
            mean_runs: 3.0,
            space: 1.5,
            levels: vec![2, 1],
            reads: Vec::new(),
            deepest: Vec::new(),
            predicted: None,
            foreseen: Foreseen {
                held: Missed { merges: 12, mean: 0.25, most: 2.0 },
                changed: Missed::default(),
            },
            state: "a tuple".into(),
        }
    }

    fn counted(reads: Vec<ReadsAt>, deepest: Vec<Deepest>) -> Counted {
        let phase = PhaseCount { reads, deepest, ..phase_of("r=25,u=50,p=25", 2000.0) };
        Counted { policy: "leveling".into(), nanos: 2000.0, merged: 0.5, phases: vec![phase] }
    }

    #[test]
    fn depths_are_shown_where_they_were_counted() {
        let plain = counted(Vec::new(), Vec::new()).text(4000.0, "arce", false);
        assert!(plain.starts_with("leveling: 2.00 us per operation, 0.50 of arce; 0.500 blocks compacted\n"));
        assert!(!plain.contains("extra runs") && !plain.contains("a tuple"), "{plain}");
        let reads =
            ReadsAt { kind: "get", extra: "1-2", share: 0.25, nanos: 13_000.0, fetched: 0.98, p99: 25_000.0 };
        let deepest = Deepest { level: 1, runs: 5, design: Some(4), most: None };
        let text = counted(vec![reads], vec![deepest]).text(4000.0, "arce", true);
        let columns = |start: &str| {
            let rows = text.lines().filter(|line| line.starts_with(start));
            rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let [_, reads, deepest] = &columns("r=25,u=50,p=25 ")[..] else { panic!("three rows: {text}") };
        assert_eq!(reads, "r=25,u=50,p=25 get 1-2 0.250 13.00 0.980 25.0");
        assert_eq!(deepest, "r=25,u=50,p=25 L1 5/4/-");
        let end = "\nat the end of r=25,u=50,p=25:\na tuple\n12 compactions planned for this load missed \
             their due time by 0.25 flush intervals on average, 2.0 at most\n";
        assert!(text.ends_with(end), "{text}");
    }
}
