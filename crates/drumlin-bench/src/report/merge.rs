//! Option sets of the phases, and the combination of partial reports into one.
//!
//! A phase may run under other options than earlier ones, for example with less memory. A report has each set of
//! options once, with the names of the phases that ran under it. Names identify phases, so a report has each name
//! once per engine and round.

use super::model::{PhaseConfig, PhaseReport, Report, names};
use std::collections::BTreeMap;

/// Records that phase `name` ran under `options`, and moves this set to the end of `sets`.
pub fn note(sets: &mut Vec<PhaseConfig>, name: &str, options: BTreeMap<String, String>) {
    let mut set = match sets.iter().position(|set| set.options == options) {
        Some(position) => sets.remove(position),
        None => PhaseConfig { phases: Vec::new(), options },
    };
    if !set.phases.iter().any(|known| known == name) {
        set.phases.push(name.to_owned());
    }
    sets.push(set);
}

/// Adds the option sets of one run to those of earlier runs. The options of a phase's first round stand for all
/// rounds, because later ones differ in folder names at most.
pub fn add(sets: &mut Vec<PhaseConfig>, of_run: Vec<PhaseConfig>) {
    for PhaseConfig { phases, options } in of_run {
        for name in phases {
            if !sets.iter().any(|set| set.phases.contains(&name)) {
                note(sets, &name, options.clone());
            }
        }
    }
}

/// Returns a description of two usable phases with the same name, engine and round, if there are any.
pub fn duplicate(phases: &[PhaseReport]) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut usable = phases.iter().filter(|phase| phase.usable);
    let second = usable.find(|phase| !seen.insert((&phase.name, &phase.engine, phase.round)))?;
    let PhaseReport { name, engine, round, .. } = second;
    Some(format!(
        "duplicate phase {name} of {engine} in round {round}: it is not clear which of them ratios should take"
    ))
}

impl Report {
    /// Returns the sets of options of `engine`.
    fn sets(&self, engine: &str) -> Vec<PhaseConfig> {
        let of_engine = || self.phases.iter().filter(|phase| phase.engine == engine).cloned();
        let phases = || names(&of_engine().collect::<Vec<_>>(), |phase| &phase.name);
        let only =
            || self.config.get(engine).map(|set| PhaseConfig { phases: phases(), options: set.clone() });
        self.phase_config.get(engine).cloned().unwrap_or_else(|| only().into_iter().collect())
    }

    /// Sets `phase_config`. It omits engines with a single set of options, since `config` has that set.
    pub fn set_phase_config(&mut self, mut sets: BTreeMap<String, Vec<PhaseConfig>>) {
        sets.retain(|_, sets| sets.len() > 1);
        self.phase_config = sets;
    }

    /// Adds the report of another part of the same command. A phase whose name is taken gets `part` as a suffix.
    pub fn absorb(&mut self, mut other: Report, part: &str) {
        let taken = names(&self.phases, |phase| &phase.name);
        let rename = |name: &mut String| {
            if taken.contains(name) {
                *name = format!("{name} ({part})");
            }
        };
        other.phases.iter_mut().for_each(|phase| rename(&mut phase.name));
        other.phase_config.values_mut().flatten().flat_map(|set| &mut set.phases).for_each(rename);
        let mut all = BTreeMap::new();
        for engine in self.config.keys().chain(other.config.keys()) {
            let mut sets = self.sets(engine);
            add(&mut sets, other.sets(engine));
            all.insert(engine.clone(), sets);
        }
        self.config.extend(other.config);
        self.set_phase_config(all);
        self.phases.extend(other.phases);
        self.warnings.extend(other.warnings);
        self.machine.calibration.extend(other.machine.calibration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;

    fn options(memory: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("memory".to_owned(), memory.to_owned())])
    }

    #[test]
    fn each_set_of_options_is_kept_once() {
        let mut sets = Vec::new();
        for (name, memory) in [("load", "3g"), ("read", "16m"), ("load", "3g"), ("more", "3g")] {
            note(&mut sets, name, options(memory));
        }
        let shown = |sets: &[PhaseConfig]| {
            sets.iter()
                .map(|set| format!("{} {}", set.phases.join(","), set.options["memory"]))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&sets), ["read 16m", "load,more 3g"]);
        // The second round has another folder.
        add(
            &mut sets,
            vec![PhaseConfig { phases: vec!["load".into(), "new".into()], options: options("1g") }],
        );
        assert_eq!(shown(&sets), ["read 16m", "load,more 3g", "new 1g"]);
    }

    #[test]
    fn parts_of_a_report_keep_their_phases_apart() {
        let mut whole = made_up();
        whole.config.insert("drumlin".to_owned(), options("3g"));
        let mut part = whole.clone();
        part.config.insert("drumlin".to_owned(), options("16m"));
        part.phases[3].name = "dynamic II".to_owned();
        assert_eq!(duplicate(&whole.phases), None);
        whole.absorb(part, "slow");
        assert_eq!(duplicate(&whole.phases), None);
        let found = names(&whole.phases, |phase| &phase.name);
        let (a, b) = ("dynamic I A", "dynamic I B");
        assert_eq!(found, [a, b, "dynamic I A (slow)", "dynamic I B (slow)", "dynamic II"]);
        let sets = &whole.phase_config["drumlin"];
        assert_eq!(sets[0], PhaseConfig { phases: vec![a.into(), b.into()], options: options("3g") });
        assert_eq!((&*sets[1].phases[0], &sets[1].options), ("dynamic I A (slow)", &options("16m")));
        whole.phases.push(whole.phases[0].clone());
        let twice = duplicate(&whole.phases).expect("there twice");
        assert!(twice.starts_with("duplicate phase dynamic I A of drumlin in round 1"), "{twice}");
        whole.phases[0].usable = false;
        assert_eq!(duplicate(&whole.phases), None, "a noisy run and its repetition");
    }
}
