//! Registry of compaction policies, and the code that the presets share.
//!
//! A preset is a fixed rule for the shape of the tree. It sees runs and sizes and proposes compactions
//! in order of preference. It does not deal with plans in flight: `round` projects the tree, drops files that are not
//! free, closes each proposal and emits only legal plans. Each preset also copes with any tree that another policy
//! left behind, and comes to rest: once flushes stop, it proposes nothing after a finite number of compactions.
//!
//! - [`by_name`], [`names`]: the registry. A new policy is one entry in `REGISTRY`. `chaos` is in it only with the
//!   feature `experiments`.
//! - `leveling`: the shortest example of a leveled preset; `tiering`, of a tiered one.
//! - `rule`: the trait `Rule` of a preset, and what it sees. `preset` makes a policy of a rule and adds the write rate
//!   limit. `round` selects plans from the rule's proposals.
//! - `stack`: runs as the presets count them, and whole-run closure. `in_place`: intra-level compaction, for rules that
//!   name the levels in `Rule::tidied`. `leveling::surplus` does the same with whole runs.
//! - `reason`: formats byte counts and run counts. The reason of every plan must contain a number.
//! - `arguments`: the part of a name after the colon.
//!
//! The order of proposals decides which plan is admitted first. Of the number `Plan::priority` the scheduler uses the
//! sign alone: a negative one marks an intra-level compaction of extra runs, which comes last and only if it pays.

mod adaptive_ucs;
mod arce;
mod arguments;
#[cfg(feature = "experiments")]
mod chaos;
mod fluid;
pub(crate) mod growth;
mod in_place;
mod lazy_leveling;
mod leveling;
mod one_leveling;
mod preset;
mod reason;
mod round;
mod rule;
mod stack;
mod tiering;
mod ucs;
mod universal;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use arguments::Arguments;
use drumlin_types::contract::{CompactionPolicy, PolicyError};

/// Registry entry of one policy.
pub struct RegistryEntry {
    /// Name of the policy, without arguments.
    pub name: &'static str,
    /// Arguments that may follow the name after a colon; empty for none.
    pub arguments: &'static str,
    /// One-line description.
    pub doc: &'static str,
    build: fn(&Arguments<'_>) -> Result<Box<dyn CompactionPolicy>, PolicyError>,
}

/// Every policy, in the order in which lists show them.
static REGISTRY: &[RegistryEntry] = &[
    RegistryEntry {
        name: "arce",
        arguments: if cfg!(feature = "experiments") { "[M/c/q/rho][,no-..]" } else { "[M/c/q/rho]" },
        doc: "no fixed shape: runs the compaction with the best gain for reads per cost, and limits writes (ArceKV)",
        build: arce::build,
    },
    RegistryEntry {
        name: "1-leveling",
        arguments: "[static|dynamic|T]",
        doc: "one run per level, compacted file by file in order of least overlap (RocksDB)",
        build: one_leveling::build,
    },
    RegistryEntry {
        name: "leveling",
        arguments: "[T]",
        doc: "one run per level, each T times the one above, compacted whole",
        build: leveling::build,
    },
    RegistryEntry {
        name: "tiering",
        arguments: "[T]",
        doc: "up to T runs per level, compacted together into one run of the next",
        build: tiering::build,
    },
    RegistryEntry {
        name: "lazy-leveling",
        arguments: "[T]",
        doc: "tiering above the last filled level, which is one run",
        build: lazy_leveling::build,
    },
    RegistryEntry {
        name: "fluid",
        arguments: "[r/K]",
        doc: "separate growth r and run count K for each level (Moose)",
        build: fluid::build,
    },
    RegistryEntry {
        name: "universal",
        arguments: "",
        doc: "runs in order of age, compacted by size ratio and space amplification (RocksDB)",
        build: universal::build,
    },
    RegistryEntry {
        name: "ucs",
        arguments: "[w]",
        doc: "runs bucketed by size: leveled for w < 0, tiered for w > 0 (Cassandra)",
        build: ucs::build,
    },
    RegistryEntry {
        name: "adaptive-ucs",
        arguments: "",
        doc: "ucs whose w follows the load, level by level, every five minutes (DataStax)",
        build: adaptive_ucs::build,
    },
    RegistryEntry {
        name: "vertiorizon",
        arguments: "[S[/w]|paper]",
        doc: "the schedule that costs least for the measured load, at a space of about S (Vertiorizon)",
        build: growth::vertiorizon,
    },
    RegistryEntry {
        name: "horizontal-leveling",
        arguments: "[l[/S]]",
        doc: "at most l runs above the last level, with the fewest bytes written (Vertiorizon)",
        build: growth::leveling,
    },
    RegistryEntry {
        name: "horizontal-tiering",
        arguments: "[l[/S]]",
        doc: "each flush written at most l times above the last level, with the fewest runs (Vertiorizon)",
        build: growth::tiering,
    },
    RegistryEntry {
        name: "horizontal-lazy",
        arguments: "[T[/L]]",
        doc: "lazy leveling of L levels with the schedule of horizontal-tiering above the last one",
        build: growth::lazy,
    },
    #[cfg(feature = "experiments")]
    RegistryEntry {
        name: "chaos",
        arguments: "",
        doc: "random legal plans and write rate limits, for tests",
        build: chaos::build,
    },
];

/// Returns the registered policies.
pub fn names() -> &'static [RegistryEntry] {
    REGISTRY
}

/// Builds the policy `name[:arguments]`. With `hard-stop` as the last argument a preset stops writers outright at its
/// limit, as the system that it is modelled on does.
pub fn by_name(name: &str) -> Result<Box<dyn CompactionPolicy>, PolicyError> {
    let (policy, arguments) = name.split_once(':').unwrap_or((name, ""));
    match REGISTRY.iter().find(|entry| entry.name == policy) {
        Some(entry) => (entry.build)(&Arguments::new(entry.name, arguments)),
        None => Err(PolicyError(format!(
            "compaction = {name}: no such policy;{} there are {}",
            meant(policy),
            listed()
        ))),
    }
}

/// Returns the part of an error message that names the policy which `policy` probably means, if there is one.
fn meant(policy: &str) -> String {
    let nearest = drumlin_types::nearest(REGISTRY.iter().map(|entry| entry.name), policy);
    nearest.map_or_else(String::new, |name| format!(" the nearest is {name};"))
}

fn listed() -> String {
    let show = |entry: &RegistryEntry| match entry.arguments {
        "" => entry.name.to_owned(),
        arguments => format!("{}:{arguments}", entry.name),
    };
    REGISTRY.iter().map(show).reduce(|a, b| a + ", " + &b).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_come_back_as_they_were_given() {
        for name in [
            "1-leveling",
            "1-leveling:static",
            "1-leveling:dynamic",
            "1-leveling:5",
            "leveling:10",
            "leveling:4,hard-stop",
            "tiering:2",
            "lazy-leveling:7",
            "fluid:40,40,41/6,6,6",
            "fluid:4/2,hard-stop",
            "universal",
            "universal:hard-stop",
            "ucs:-2",
            "ucs:8",
            "arce",
            "arce:8/24/2/1",
            "arce:1.5/none/2/none",
            "vertiorizon:1.3",
            "vertiorizon:1.2/0.25",
            "vertiorizon:paper",
            "horizontal-leveling:3",
            "horizontal-tiering:2/1.5",
            "horizontal-lazy:4/3",
            "adaptive-ucs",
            "adaptive-ucs:hard-stop",
        ] {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        for (short, full) in [
            ("tiering", "tiering:10"),
            ("ucs", "ucs:0"),
            ("fluid", "fluid:40,40,41/6,6,6"),
            ("leveling:", "leveling:10"),
            ("vertiorizon", "vertiorizon:1.15"),
            ("horizontal-leveling", "horizontal-leveling:2"),
            ("horizontal-tiering:3/1.15", "horizontal-tiering:3"),
            ("horizontal-lazy", "horizontal-lazy:6/3"),
        ] {
            assert_eq!(by_name(short).unwrap().name(), full);
        }
        for entry in names() {
            let name = by_name(entry.name).expect(entry.name).name();
            assert!(name.split(':').next() == Some(entry.name), "{name}");
            assert_eq!(by_name(&name).expect(&name).name(), name);
        }
    }

    #[test]
    fn wrong_names_and_values_say_what_is_allowed() {
        let refused = |name: &str| by_name(name).expect_err(name).to_string();
        assert_eq!(refused("tiering:1"), "tiering = 1: T must be 2 to 100");
        assert_eq!(refused("leveling:x"), "leveling = x: T must be 2 to 100");
        assert_eq!(refused("ucs:99"), "ucs = 99: w must be -10 to 36");
        assert_eq!(refused("arce:0/24/2/1"), "arce = 0/24/2/1: M = 0: must be 1 to 1000000");
        assert_eq!(refused("arce:8/24/2"), "arce = 8/24/2: 8/24/2: must be M/c/q/rho");
        assert_eq!(refused("universal:3"), "universal = 3: takes no arguments");
        assert_eq!(refused("1-leveling:fast"), "1-leveling = fast: must be static, dynamic or T");
        assert_eq!(refused("fluid:4/5"), "fluid = 4/5: K must be 1 to 4 at level 1");
        assert_eq!(refused("fluid:4,1/2"), "fluid = 4,1/2: r must be 2 to 1000");
        assert_eq!(refused("fluid:4"), "fluid = 4: must be r,../K,..");
        assert_eq!(refused("fluid:2,2,2,2,2,2,2,2/1"), "fluid = 2,2,2,2,2,2,2,2/1: at most 7 values");
        assert_eq!(refused("vertiorizon:3"), "vertiorizon = 3: S must be 1.05 to 2");
        assert_eq!(refused("vertiorizon:1.1/0"), "vertiorizon = 1.1/0: w must be 0.00390625 to 256");
        assert_eq!(refused("vertiorizon:NaN"), "vertiorizon = NaN: S must be 1.05 to 2");
        assert_eq!(refused("horizontal-leveling:6"), "horizontal-leveling = 6: l must be 1 to 5");
        assert_eq!(refused("horizontal-tiering:1"), "horizontal-tiering = 1: l must be 2 to 5");
        assert_eq!(refused("horizontal-tiering:2/1"), "horizontal-tiering = 2/1: S must be 1.05 to 2");
        assert_eq!(refused("horizontal-lazy:32/5"), "horizontal-lazy = 32/5: T^(L-1) must be 4 to 4096");
        let said = refused("vertiorizon:hard-stop");
        assert_eq!(said, "vertiorizon = hard-stop: there is no such argument");
        let said = refused("lsm");
        assert!(said.starts_with("compaction = lsm: no such policy; there are arce:[M/c/q/rho]"), "{said}");
        assert!(said.contains(", 1-leveling:[static|dynamic|T], "), "{said}");
    }

    /// The workspace's tests run with the feature, those of this package alone without it.
    #[test]
    fn experiments_are_known_with_their_feature_alone() {
        let refused = |name: &str| by_name(name).map(|_| ()).map_err(|error| error.to_string());
        let experiments = ["chaos", "arce:no-park", "arce:8/24/2/1,no-rho,no-even"];
        if cfg!(feature = "experiments") {
            for name in experiments {
                assert_eq!(by_name(name).unwrap().name(), name);
            }
            return;
        }
        let said = refused("chaos").expect_err("chaos is for tests");
        assert!(
            said.starts_with("compaction = chaos: no such policy; there are arce:[M/c/q/rho], 1-"),
            "{said}"
        );
        assert!(!said.contains(", chaos") && names().iter().all(|entry| entry.name != "chaos"), "{said}");
        assert_eq!(refused("arce:no-park"), Err("arce = no-park: no-park: must be M/c/q/rho".to_string()));
        let said = refused("arce:8/24/2/1,no-rho,no-even");
        assert_eq!(
            said,
            Err("arce = 8/24/2/1,no-rho,no-even: no-rho: there is no such argument".to_string())
        );
    }
}
