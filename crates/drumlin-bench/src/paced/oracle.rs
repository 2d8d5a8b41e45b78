//! The oracle: the best fixed setting for each phase of a plan, found by running many of them.
//!
//! ARCE chooses its parameters while it runs. The oracle knows each phase beforehand and takes the best of many fixed
//! settings for it: parameters of ARCE, and the policies of published designs. Each setting runs through the whole
//! plan, so the oracle does not pay for changing from one to the next. An adaptive policy can still be faster than
//! the oracle: it may change within a phase, and start a phase with a tree that no fixed setting produces.
//!
//! Other engines run one compaction of a level at a time. So the designs also run with the option `pipeline=split`,
//! in which compactions wait for each other. Their papers measured them in this way.

use super::{Counted, Setup, mean};
use crate::engine::Result;
use crate::report::table::aligned;
use serde::Serialize;

/// Published designs, as policies.
pub const DESIGNS: [&str; 6] =
    ["1-leveling:static", "leveling:10", "lazy-leveling:10", "tiering:10", "universal", "ucs"];
/// Values of M, c and rho of ARCE's fixed parameters; q is 2.
const GAIN_INTERVALS: [&str; 5] = ["1", "8", "64", "512", "4096"];
const SLOW_ABOVE: [&str; 3] = ["8", "24", "none"];
const SIZE_RATIOS: [&str; 2] = ["1", "none"];

/// A setting that runs through the plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contender {
    /// Name in the results.
    pub name: String,
    /// Policy with its arguments.
    pub policy: String,
    /// Group whose best is a column of the table.
    pub group: Group,
}

/// Group of contenders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The adaptive policy.
    Adaptive,
    /// ARCE with fixed parameters.
    Parameters,
    /// A published design.
    Design,
    /// A published design without pipelining.
    Unpipelined,
}

/// Groups of fixed settings, with their headings.
const FIXED: [(Group, &str); 3] = [
    (Group::Parameters, "best fixed parameters"),
    (Group::Design, "best design"),
    (Group::Unpipelined, "best unpipelined"),
];

/// Returns `policy` and all settings that it is compared with.
pub fn contenders(policy: &str) -> Vec<Contender> {
    let contender =
        |name: &str, policy: &str, group| Contender { name: name.into(), policy: policy.into(), group };
    let mut all = vec![contender(policy, policy, Group::Adaptive)];
    for gain in GAIN_INTERVALS {
        for slow_above in SLOW_ABOVE {
            for size_ratio in SIZE_RATIOS {
                let tuple = format!("{gain}/{slow_above}/2/{size_ratio}");
                all.push(contender(&tuple, &format!("arce:{tuple}"), Group::Parameters));
            }
        }
    }
    for design in DESIGNS {
        all.push(contender(design, design, Group::Design));
        all.push(contender(&format!("{design} split"), design, Group::Unpipelined));
    }
    all
}

/// Runs `contender` through `plan`.
pub fn run(contender: &Contender, plan: &str, setup: &Setup) -> Result<Course> {
    let mut setup = setup.clone();
    if contender.group == Group::Unpipelined {
        setup.set.push(("pipeline".into(), "split".into()));
    }
    let counted = Counted::of(&contender.policy, plan, &setup)?;
    Ok(Course { name: contender.name.clone(), group: contender.group, counted })
}

/// Results of a contender.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Course {
    /// Name of the contender.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// Its results.
    pub counted: Counted,
}

/// The fastest contender of a group.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Best {
    /// Its group.
    pub group: Group,
    /// Name of the contender, or what the row combines.
    pub name: String,
    /// Nanoseconds per operation.
    pub nanos: f64,
}

/// A row of the table: a phase, or the whole plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Name of the phase, or what the row stands for.
    pub name: String,
    /// Nanoseconds per operation of the adaptive policy.
    pub nanos: f64,
    /// The best of each group of fixed settings.
    pub best: Vec<Best>,
}

/// Returns a row for each phase, one for the plan with the best setting of each phase (the oracle), and one for the
/// plan with the best single setting. The first course is that of the adaptive policy.
pub fn rows(courses: &[Course]) -> Vec<Row> {
    let Some(adaptive) = courses.first() else { return Vec::new() };
    let phases = &adaptive.counted.phases;
    let fastest = |group: Group, nanos: &dyn Fn(&Course) -> f64| {
        let of_group = courses.iter().filter(|course| course.group == group);
        let best = of_group.min_by(|a, b| nanos(a).total_cmp(&nanos(b)))?;
        Some(Best { group, name: best.name.clone(), nanos: nanos(best) })
    };
    let bests = |nanos: &dyn Fn(&Course) -> f64| {
        FIXED.iter().filter_map(|(group, _)| fastest(*group, nanos)).collect::<Vec<Best>>()
    };
    let mut rows: Vec<Row> = Vec::new();
    for (at, phase) in phases.iter().enumerate() {
        let best = bests(&|course| course.counted.phases.get(at).map_or(f64::INFINITY, |phase| phase.nanos));
        rows.push(Row { name: phase.name.clone(), nanos: phase.nanos, best });
    }
    let combined = |group: Group| {
        let mut chosen = phases.clone();
        for (phase, row) in chosen.iter_mut().zip(&rows) {
            phase.nanos = row.best.iter().find(|best| best.group == group)?.nanos;
        }
        Some(Best { group, name: "the best of each phase".to_owned(), nanos: mean(&chosen) })
    };
    let nanos = adaptive.counted.nanos;
    let oracle = FIXED.iter().filter_map(|(group, _)| combined(*group)).collect();
    rows.push(Row { name: "oracle".to_owned(), nanos, best: oracle });
    rows.push(Row { name: "plan".to_owned(), nanos, best: bests(&|course| course.counted.nanos) });
    rows
}

/// Formats the rows. `policy` is the name of the adaptive policy.
pub fn table(rows: &[Row], policy: &str) -> String {
    let mut cells = vec![vec!["phase".to_owned(), format!("{policy} us")]];
    for (_, heading) in FIXED {
        cells[0].extend([heading, "us", "speed"].map(str::to_owned));
    }
    for row in rows {
        let mut line = vec![row.name.clone(), format!("{:.2}", row.nanos / 1e3)];
        for Best { name, nanos, .. } in &row.best {
            line.extend([name.clone(), format!("{:.2}", nanos / 1e3), format!("{:.2}", nanos / row.nanos)]);
        }
        cells.push(line);
    }
    aligned(&cells, 1)
        + "speed: that of the adaptive policy over that of the fixed setting; above 1, the adaptive policy is faster\n"
}

#[cfg(test)]
mod tests {
    use super::super::PhaseCount;
    use super::super::shown::tests::phase_of;
    use super::*;

    fn course(name: &str, group: Group, nanos: [f64; 2]) -> Course {
        let phases: Vec<PhaseCount> =
            ["A", "B"].into_iter().zip(nanos).map(|(name, nanos)| phase_of(name, nanos)).collect();
        let counted = Counted { policy: name.into(), nanos: mean(&phases), merged: 0.0, phases };
        Course { name: name.into(), group, counted }
    }

    #[test]
    fn the_oracle_takes_the_best_setting_of_each_phase() {
        let courses = [
            course("arce", Group::Adaptive, [2000.0, 4000.0]),
            course("1/8/2/1", Group::Parameters, [1000.0, 9000.0]),
            course("64/8/2/1", Group::Parameters, [3000.0, 5000.0]),
            course("ucs", Group::Design, [8000.0, 8000.0]),
        ];
        let rows = rows(&courses);
        let of = |name: &str| rows.iter().find(|row| row.name == name).expect("a row");
        let best = |name: &str| of(name).best.iter().map(|b| (b.name.as_str(), b.nanos)).collect::<Vec<_>>();
        assert_eq!(best("A"), [("1/8/2/1", 1000.0), ("ucs", 8000.0)]);
        assert_eq!(best("B"), [("64/8/2/1", 5000.0), ("ucs", 8000.0)]);
        assert_eq!(best("oracle"), [("the best of each phase", 3000.0), ("the best of each phase", 8000.0)]);
        assert_eq!(best("plan"), [("64/8/2/1", 4000.0), ("ucs", 8000.0)]);
        assert_eq!(of("plan").nanos, 3000.0);
        let text = table(&rows, "arce");
        let plan = text.lines().find(|line| line.starts_with("plan ")).expect("a line");
        let words: Vec<&str> = plan.split_whitespace().collect();
        assert_eq!(words, ["plan", "3.00", "64/8/2/1", "4.00", "1.33", "ucs", "8.00", "2.67"]);
    }

    #[test]
    fn each_setting_runs_through_a_plan() {
        let all = contenders("arce");
        let names: std::collections::BTreeSet<&str> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!((all.len(), names.len()), (43, 43));
        let setup = Setup { entries: 2000, ..Setup::default() };
        let some = all.iter().filter(|c| ["arce", "8/24/2/1", "ucs", "ucs split"].contains(&c.name.as_str()));
        let courses: Vec<Course> = some.map(|c| run(c, "I", &setup).expect("a course")).collect();
        let rows = rows(&courses);
        assert_eq!(rows.len(), courses[0].counted.phases.len() + 2);
        assert!(rows.iter().all(|row| row.best.len() == FIXED.len()), "{rows:?}");
    }
}
