//! Tests of the page of the comparison, and the test that keeps the published page up to date.

use super::readme::{FIGURES, Figure};
use super::*;
use crate::command::{read_report, read_reports};
use crate::report::tests::made_up;
use std::collections::BTreeMap;
use std::path::Path;

fn phase(engine: &str, round: u64, seconds: f64, settle_seconds: f64) -> PhaseReport {
    PhaseReport {
        name: "micro fill".to_owned(),
        engine: engine.to_owned(),
        round,
        usable: true,
        ops: 1_000_000,
        seconds,
        settle_seconds,
        ..PhaseReport::default()
    }
}

#[test]
fn a_load_counts_with_its_settling_against_the_best_rocksdb() {
    let of_round = |round| {
        [
            phase("drumlin", round, 1.0, 1.0),
            phase("rocksdb", round, 4.0, 6.0),
            phase("rocksdb-tuned", round, 5.0, 1.0),
            phase("lmdb", round, 1.0, 0.0),
        ]
    };
    let phases = [of_round(1), of_round(2), of_round(3)].concat();
    let command = ["drumlin-compare", "micro", "fill", "--json", "x.json", "--brief", "--rounds", "3"];
    let command = command.map(str::to_owned).to_vec();
    let report = Report { command, phases, ..made_up() };
    let page = page(&[("fill".to_owned(), report)]);
    let line = page.lines().find(|line| line.starts_with("| micro fill |")).expect("a line");
    let wanted = "| micro fill | [fill](comparison/fill.json) | unknown, 2 cores | 3.00 (3.00-3.00) | rocksdb-tuned \
                  | better | 2.00 | 6.00 | -, - | -, - \
                  | - | - | 0.50 | - | `micro fill --rounds 3` |";
    assert_eq!(line, wanted);
}

#[test]
fn readme_has_the_figures_and_the_rows_that_fall_short() {
    let report = |name: &str| {
        let of_figure = |figure: &Figure| {
            let of_round = |round| {
                [("drumlin", 0.5), ("rocksdb", 2.0), ("rocksdb-tuned", 1.0)].map(|(engine, seconds)| {
                    PhaseReport { name: figure.phase.to_owned(), ..phase(engine, round, seconds, 0.0) }
                })
            };
            [1, 2, 3].map(of_round).concat()
        };
        let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.report == name).collect();
        let command = vec!["drumlin-compare".to_owned(), figures[0].argument.to_owned()];
        let phases = figures.into_iter().flat_map(of_figure).collect();
        (name.to_owned(), Report { command, phases, ..made_up() })
    };
    let mut reports: Vec<_> =
        ["large", "overwrite", "beside-writer", "sync", "ycsb-large", "load"].map(report).into();
    let text = figures(&reports).expect("all figures");
    assert_eq!(text.lines().count(), FIGURES.len() + 3, "{text}");
    assert!(
        text.contains("- synced writes: 2.00 (2.00-2.00)\n")
            && text.contains("(phase, report, median): none\n"),
        "{text}"
    );
    let slow = |round| [phase("drumlin", round, 4.0, 0.0), phase("rocksdb", round, 1.0, 0.0)];
    reports[0].1.phases.extend([1, 2, 3].map(slow).concat());
    let text = figures(&reports).expect("all figures");
    assert!(text.contains("`micro fill` of `large` (0.25)"), "{text}");
    let readme = "a\n<!-- figures -->\nold\n<!-- end of figures -->\nb";
    let new = with_figures(readme, "new\n").expect("a place");
    assert_eq!(new, "a\n<!-- figures -->\nnew\n<!-- end of figures -->\nb");
    assert_eq!(with_figures("no place", ""), None);
    reports[1].1.command.pop();
    assert!(figures(&reports).is_err_and(|what| what.contains("overwrite") && what.contains("4000000")));
    reports.remove(1);
    assert!(figures(&reports).is_err_and(|what| what.contains("no report overwrite")));
}

#[test]
fn the_verdict_holds_against_every_rocksdb_and_beyond_the_noise() {
    // Seconds of drumlin, its control, rocksdb and rocksdb-tuned in each round; NaN in a round that is not usable.
    let verdict = |rounds: [[f64; 4]; 3]| {
        let names = ["drumlin", "drumlin#2", "rocksdb", "rocksdb-tuned"];
        let of_round = |(round, seconds): (usize, [f64; 4])| {
            names.into_iter().zip(seconds).map(move |(name, s)| PhaseReport {
                usable: !s.is_nan(),
                ..phase(name, round as u64 + 1, s, 0.0)
            })
        };
        let phases = rounds.into_iter().enumerate().flat_map(of_round).collect();
        let (which, _, verdict) = best(&Report { phases, ..made_up() }, "micro fill").expect("a ratio");
        (which, verdict)
    };
    let quiet = [1.0, 1.0, 1.2, 1.3];
    assert_eq!(verdict([quiet; 3]), ("rocksdb".to_owned(), Verdict::Better));
    let one_round_worse = [1.0, 1.0, 1.2, 0.9];
    assert_eq!(verdict([quiet, quiet, one_round_worse]), ("rocksdb".to_owned(), Verdict::Undecided));
    let never_usable = [1.0, 1.0, 1.2, f64::NAN];
    assert_eq!(verdict([never_usable; 3]), ("rocksdb".to_owned(), Verdict::TooFewRounds));
    let no_control = [1.0, f64::NAN, 1.2, 1.3];
    assert_eq!(verdict([no_control; 3]), ("rocksdb".to_owned(), Verdict::TooFewRounds));
    let control_differs = [1.0, 1.25, 1.2, 1.3];
    assert_eq!(verdict([quiet, quiet, control_differs]), ("rocksdb".to_owned(), Verdict::WithinNoise));
}

#[test]
fn phases_too_short_for_the_noise_check_have_no_verdict() {
    use crate::compare::MANY;
    let of = |seconds: f64, ops: u64| {
        let of_round = |round| {
            [("drumlin", seconds), ("rocksdb", 0.3)]
                .map(|(engine, seconds)| PhaseReport { ops, ..phase(engine, round, seconds, 0.0) })
        };
        let report = Report { phases: [1, 2, 3].map(of_round).concat(), ..made_up() };
        let page = page(&[("fill".to_owned(), report)]);
        page.lines().find(|line| line.starts_with("| micro fill |")).expect("a line").to_owned()
    };
    assert!(of(0.09, MANY).contains("| too short |") && of(0.11, MANY).contains("| better |"));
    assert!(of(0.09, MANY - 1).contains("| better |"), "each of few operations is long");
}

/// Compares the page in `docs/results` with its reports. With `DRUMLIN_BLESS=1` it rewrites the page.
#[test]
fn the_published_page_is_up_to_date() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let reports = read_reports(Path::new(&format!("{folder}/comparison"))).expect("reports");
    for (name, report) in &reports {
        let rounds = report.phases.iter().map(|phase| phase.round).max().unwrap_or(0);
        assert!(rounds >= 3, "{}: {rounds} rounds are too few to publish", name);
        assert_eq!(report.build.dirty, Some(false), "{}: sources that are in no commit", name);
        let has_control = report.phases.iter().any(|phase| phase.engine == "drumlin#2");
        assert!(has_control, "{}: without --aa the noise is not known", name);
        assert!(report.build.commit.is_some(), "{}: a build of an unknown commit", name);
        assert_eq!(report.build.profile, "release", "{}: a build without optimization", name);
        let unfinished = report.warnings.iter().any(|warning| warning.starts_with("unfinished"));
        assert!(!unfinished, "{}: the run did not end", name);
        assert_ne!(report.machine.filesystem.as_deref(), Some("tmpfs"), "{}", name);
        // The page states these settings.
        let set = |name: &str| report.config[OURS][name].as_str();
        let flags = report.command.join(" ");
        assert!(!flags.contains("--ignore-noise"), "{}: noise was not checked", name);
        let (memory, memtable) = match () {
            () if flags.contains("readuncached") => ("16MiB", "64MiB"),
            () if flags.contains(" dynamic ") => ("64MiB", "2MiB"),
            () => ("3GiB", "64MiB"),
        };
        let compression = if flags.contains("--compression lz4") { "lz4" } else { "none" };
        let found =
            ["memory_budget", "compression", "memtable_bytes", "filter_bits", "compaction_slots"].map(set);
        assert_eq!(found, [memory, compression, memtable, "10", "1"], "{}", name);
        let is_brief = report.phases.iter().all(|phase| phase.timeline.is_empty());
        assert!(is_brief, "{}: make the report with --brief", name);
    }
    let text = page(&reports);
    let to_readme = format!("{folder}/../../README.md");
    let found = std::fs::read_to_string(&to_readme).expect("README");
    let figures = figures(&reports).expect("reports for the figures of README");
    let readme = with_figures(&found, &figures).expect("README has a place for figures");
    for (path, text) in [(format!("{folder}/comparison.md"), text), (to_readme, readme)] {
        if std::env::var_os("DRUMLIN_BLESS").is_some() {
            std::fs::write(&path, text).expect("a page");
        } else {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(found, text, "{path}: run `cargo xtask bless -p drumlin-bench`");
        }
    }
}

/// Reports that were measured with other engines than those of their row in the script, and why.
const OTHER_ENGINES: [(&str, &str); 0] = [];

/// Returns the engines of each row of `scripts/compare.sh`, by its name. Rows in loops are left out.
fn engines_of_rows(script: &str) -> BTreeMap<String, String> {
    let (mut variables, mut rows) = (BTreeMap::<String, String>::new(), BTreeMap::new());
    for line in script.replace("\\\n", " ").lines() {
        // Substitutes longer names first, because a shorter name may be a prefix of a longer one.
        let known = variables.iter().rev();
        let line =
            known.fold(line.replace('"', ""), |line, (name, value)| line.replace(&format!("${name}"), value));
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["row", name, .., "--engines", engines]
            | ["row", name, .., "--engines", engines, "--html", _] => {
                rows.insert(name.to_owned(), engines.to_owned());
            }
            [assigned, ..] if !line.starts_with(' ') && assigned.contains('=') => {
                let (name, value) = line.split_once('=').expect("an assignment");
                variables.insert(name.to_owned(), value.to_owned());
            }
            _ => {}
        }
    }
    rows
}

#[test]
fn published_reports_have_the_engines_of_their_rows() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = std::fs::read_to_string(format!("{root}/scripts/compare.sh")).expect("the script");
    let rows = engines_of_rows(&script);
    assert!(
        rows.len() > 20 && rows.values().all(|engines| engines.starts_with("drumlin,rocksdb")),
        "{rows:?}"
    );
    for (name, engines) in &rows {
        let path = format!("{root}/docs/results/comparison/{name}.json");
        if !std::path::Path::new(&path).exists() {
            continue;
        }
        let command = read_report(path.as_ref()).expect("a report").command;
        let place = command.iter().position(|word| word == "--engines").expect("engines");
        let other = OTHER_ENGINES.iter().find(|(listed, _)| listed == name);
        assert_eq!(
            command[place + 1] != *engines,
            other.is_some(),
            "{name}: measured with {}, the row has {engines}, and the list of exceptions says {other:?}",
            command[place + 1]
        );
    }
}

#[test]
fn one_round_has_no_spread() {
    let phases = vec![phase("drumlin", 1, 1.0, 0.0), phase("rocksdb", 1, 2.0, 0.0)];
    let page = page(&[("fill".to_owned(), Report { phases, ..made_up() })]);
    let line = page.lines().find(|line| line.starts_with("| micro fill |")).expect("a line");
    assert!(line.contains("| 2.00 | rocksdb | too few rounds |"), "{line}");
    assert!(!page.contains("## Older reports"), "it was measured in the present way");
}

#[test]
fn the_line_has_both_runs_of_drumlin_and_the_machine() {
    let of = |engine: &str, seconds, mib: u64| PhaseReport {
        rss_peak_bytes: Some(mib << 20),
        ..phase(engine, 1, seconds, 0.0)
    };
    let phases = vec![of("drumlin", 1.0, 300), of("drumlin#2", 3.0, 310), of("rocksdb", 4.0, 100)];
    let mut report = Report { phases, ..made_up() };
    report.machine.cpu = Some("AMD EPYC".to_owned());
    report.machine.processor = Some("AMD EPYC, family 26, model 2".to_owned());
    report.machine.device = Some("virtio_blk vda, 256 GiB".to_owned());
    report.warnings = vec!["micro fill: memory_unequal, peaks from 1 to 2 MiB".to_owned()];
    let page = page(&[("fill".to_owned(), report)]);
    let line = page.lines().find(|line| line.starts_with("| micro fill |")).expect("a line");
    assert!(line.contains("| AMD EPYC, family 26, model 2, 2 cores |"), "{line}");
    assert!(line.contains("| 2.00 | 4.00 | -, - | 305, 100 |"), "{line}");
    assert!(page.contains("unknown on block device virtio_blk vda, 256 GiB"), "{page}");
    let told = "- micro fill: peak memory differs by more than 10 %: rocksdb 100 MiB, drumlin 305 MiB";
    assert!(page.contains(told) && !page.contains("memory_unequal"), "{page}");
}

#[test]
fn other_reports_inform_about_a_goal_without_a_verdict() {
    let of_round = |round| {
        [("drumlin", 1.0), ("rocksdb", 5.0)].map(|(engine, seconds)| PhaseReport {
            name: "micro fillrandom".to_owned(),
            ..phase(engine, round, seconds, 0.0)
        })
    };
    let report = Report { phases: [1, 2, 3].map(of_round).concat(), ..made_up() };
    let goals = |titles: &[&str]| {
        let reports: Vec<_> = titles.iter().map(|title| ((*title).to_owned(), report.clone())).collect();
        let page = page(&reports);
        let goal = page.lines().filter(|line| line.starts_with("| fillrandom 16+100 |"));
        goal.map(|line| line.rsplit(" | ").next().expect("a cell").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(goals(&["large", "load"]), ["met |", "for information |"]);
    assert_eq!(goals(&["large"]), ["not measured |", "for information |"]);
}

#[test]
fn older_methods_are_told_apart() {
    let of = |title: &str, method| (title.to_owned(), Report { method, ..made_up() });
    let page = page(&[of("new", crate::report::model::METHOD), of("older", 1), of("oldest", 0)]);
    let (_, older) = page.split_once("## Older reports").expect("older reports");
    assert!(
        older.contains("Reports: `older`, `oldest`.\n") && older.contains("Reports: `oldest`.\n"),
        "{older}"
    );
}
