//! Tables of courses: for the terminal, and the page `docs/results/filters.md`.
//!
//! The page is generated from `docs/results/filters.json`; a test compares them, and `cargo xtask bless -p
//! drumlin-bench` rewrites the page and its plot.

use super::{Course, Point};
use crate::results::{COLOURS, Origin};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Results of one command with what is needed to repeat it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Command, start time, machine and build. The machine has no influence on the figures.
    #[serde(flatten)]
    pub origin: Origin,
    /// The courses.
    pub courses: Vec<Course>,
}

/// Text above the tables of the page.
const HEAD: &str = "# Filter modes, counted

Generated from `filters.json`; do not edit.

Each course loads entries of 16 + 60 bytes into a leveled store with a size ratio of 4, a memtable of 64 KiB and tables
of 32 KiB, and then does twelve operations an entry: 31 of 41 are lookups, the others overwrite. It runs on a simulated
disk with stepped background work, so every figure repeats exactly. Figures are of the second half of the operations:
tables that were built before the lookups keep their filters until they are merged.

- *empty* is the share of lookups that find nothing. `normal` draws neighbours around the middle of the key space,
  with a standard deviation of a tenth of it; `zipf` draws scattered keys with theta 0.99.
- *Unneeded* blocks a lookup are blocks that were read in a table without the key. The figure is counted.
- *Best* divides the bits that the tables have, over Bloom filters, by the true number of lookups that each table gets
  in vain. The truth is known by repeating past lookups on the present tree. *As built* is what the filters as they are
  let through, by the same truth. Blocks take no time on the simulated clock, so no Ribbon filters are built here.
";

/// Returns the values of a field over courses, in the order of their first appearance.
fn values<T: Clone + PartialEq>(courses: &[&Course], of: impl Fn(&Course) -> T) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    for course in courses {
        let value = of(course);
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn most(course: &Course, of: impl Fn(&Point) -> f64) -> f64 {
    course.points.iter().map(of).fold(0.0, f64::max)
}

/// Returns the unneeded blocks of the filters as built, relative to those of the best division of their bits.
fn to_best(course: &Course) -> f64 {
    course.mean(|point| point.compared.built)
        / course.mean(|point| point.compared.best).max(f64::MIN_POSITIVE)
}

/// Returns a table of all courses for the terminal.
pub fn text(courses: &[Course]) -> String {
    let mut out = format!(
        "{:<15} {:<8} {:>5} {:>5} {:<8} {:>7} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7} {:>8}\n",
        "mode",
        "dist",
        "empty",
        "bits",
        "event",
        "readers",
        "unneeded",
        "as built",
        "best",
        "mean",
        "most",
        "cosine",
        "distance"
    );
    for course in courses {
        let setup = &course.setup;
        let _ = writeln!(
            out,
            "{:<15} {:<8} {:>5} {:>5} {:<8} {:>7} {:>9.4} {:>9.4} {:>9.4} {:>6.2} {:>6.2} {:>7.3} {:>8.3}",
            setup.mode,
            setup.dist,
            setup.empty,
            setup.bits,
            setup.event,
            setup.threads,
            course.unneeded,
            course.mean(|point| point.compared.built),
            course.mean(|point| point.compared.best),
            course.mean(|point| point.bits),
            most(course, |point| point.bits),
            course.mean(|point| point.compared.cosine),
            course.mean(|point| point.compared.distance),
        );
    }
    out
}

/// Returns the page of several runs.
pub fn page(runs: &[Results]) -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\nTo repeat the figures:\n\n");
    for run in runs {
        let commit = run.origin.build.commit.as_deref().map_or("unknown", |it| it.get(..7).unwrap_or(it));
        let words: Vec<&str> = run.origin.command.iter().skip(1).map(String::as_str).collect();
        let _ = writeln!(out, "- commit {commit}, {}: `drumlin {}`", run.origin.started_utc, words.join(" "));
    }
    let all: Vec<&Course> = runs.iter().flat_map(|run| &run.courses).collect();
    let plain: Vec<&Course> =
        all.iter().copied().filter(|it| it.setup.event == "nothing" && it.setup.threads == 1).collect();
    let modes = values(&plain, |course| course.setup.mode.clone());
    add_blocks(&plain, &modes, &mut out);
    add_best(&plain, &modes, &mut out);
    add_budget(&plain, &modes, &mut out);
    add_estimates(&all, &mut out);
    add_shifts(&all, &mut out);
    out
}

/// Returns the distinct loads of `courses`, in order of first appearance: distribution, share of empty lookups, bits.
fn loads(courses: &[&Course]) -> Vec<(String, f64, f64)> {
    values(courses, |course| (course.setup.dist.clone(), course.setup.empty, course.setup.bits))
}

fn found<'a>(courses: &[&'a Course], mode: &str, load: &(String, f64, f64)) -> Option<&'a Course> {
    let is_it = |course: &&&Course| {
        let setup = &course.setup;
        setup.mode == mode && (&setup.dist, setup.empty, setup.bits) == (&load.0, load.1, load.2)
    };
    courses.iter().find(is_it).copied()
}

/// Adds a table with a column for each mode.
fn add_modes(courses: &[&Course], modes: &[String], of: impl Fn(&Course) -> String, out: &mut String) {
    let _ = writeln!(out, "| keys | empty | bits | {} |", modes.join(" | "));
    let _ = writeln!(out, "|---|---:|---:|{}", "---:|".repeat(modes.len()));
    for load in loads(courses) {
        let cells: Vec<String> = modes
            .iter()
            .map(|mode| found(courses, mode, &load).map_or_else(|| "-".to_owned(), &of))
            .collect();
        let _ = writeln!(out, "| {} | {} | {} | {} |", load.0, load.1, load.2, cells.join(" | "));
    }
}

fn add_blocks(courses: &[&Course], modes: &[String], out: &mut String) {
    out.push_str("\n## Unneeded blocks a lookup\n\n");
    add_modes(courses, modes, |course| format!("{:.4}", course.unneeded), out);
}

fn add_best(courses: &[&Course], modes: &[String], out: &mut String) {
    out.push_str("\n## As built, over the best division of the same bits\n\n");
    add_modes(courses, modes, |course| format!("{:.2}", to_best(course)), out);
}

fn add_budget(courses: &[&Course], modes: &[String], out: &mut String) {
    out.push_str(
        "\n## Bits per key over all tables\n\nMean, and the most at any of twenty points, the load included. A small \
         table has more than its share, because a filter is rounded up to whole blocks of 64 bytes.\n\n\
         ![Bits per key](filters.svg)\n\n",
    );
    let of = |course: &Course| {
        let (mean, most) = (course.mean(|point| point.bits), most(course, |point| point.bits));
        format!("{mean:.2}, {most:.2}")
    };
    add_modes(courses, modes, of, out);
}

fn add_estimates(all: &[&Course], out: &mut String) {
    let is_followed = |course: &&&Course| course.points.iter().all(|it| it.compared.simple_cosine.is_some());
    let counted: Vec<&&Course> =
        all.iter().filter(|course| course.setup.mode == "mnemosyne+").filter(is_followed).collect();
    out.push_str(
        "\n## Estimates of lookups in vain\n\n`mnemosyne+`, over the tables of the tree: cosine of the estimates and \
         the truth (1 is perfect), and their distance over the length of the truth (0 is perfect). The simple rule \
         gives a merged table the mean of its inputs' lookups, and a flushed one none. *Loss* is what dividing \
         the bits by the estimates costs against the truth. With `restart` the store is reopened after two fifths of \
         the operations and switches to tiering after seven tenths.\n\n\
         | keys | empty | bits | event | readers | tables | cosine | distance | simple cosine | simple distance \
         | loss |\n|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for course in counted {
        let setup = &course.setup;
        let mean = |of: fn(&super::truth::Compared) -> f64| course.mean(|point| of(&point.compared));
        let loss = mean(|it| it.by_estimates) / mean(|it| it.best).max(f64::MIN_POSITIVE) - 1.0;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {:.0} | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} % |",
            setup.dist,
            setup.empty,
            setup.bits,
            setup.event,
            setup.threads,
            course.mean(|point| point.tables as f64),
            mean(|it| it.cosine),
            mean(|it| it.distance),
            mean(|it| it.simple_cosine.unwrap_or(f64::NAN)),
            mean(|it| it.simple_distance.unwrap_or(f64::NAN)),
            loss * 100.0,
        );
    }
}

fn add_shifts(all: &[&Course], out: &mut String) {
    let shifted: Vec<&&Course> = all.iter().filter(|course| course.setup.event == "shift").collect();
    if shifted.is_empty() {
        return;
    }
    out.push_str(
        "\n## After the looked-up keys move\n\nUnneeded blocks a lookup in each twentieth of the operations. After the \
         fifth, the centre of the normal distribution moves by two fifths of the key space.\n\n",
    );
    let names: Vec<String> = shifted
        .iter()
        .map(|course| {
            format!("{}, {} bits, empty {}", course.setup.mode, course.setup.bits, course.setup.empty)
        })
        .collect();
    let _ = writeln!(out, "| twentieth | {} |", names.join(" | "));
    let _ = writeln!(out, "|---:|{}", "---:|".repeat(names.len()));
    let points = shifted.iter().map(|course| course.points.len()).min().unwrap_or(0);
    for at in 0..points {
        let cells: Vec<String> =
            shifted.iter().map(|course| format!("{:.4}", course.points[at].unneeded)).collect();
        let _ = writeln!(out, "| {} | {} |", at + 1, cells.join(" | "));
    }
}

/// Size of a plot, and its offsets.
const WIDE: f64 = 420.0;
const HIGH: f64 = 120.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 60.0;
const STEP: f64 = 170.0;

/// Returns plots of the bits per key over the operations, for courses in which all lookups are empty. Lines mark the
/// budget and the budget plus one bit.
pub fn drawing(runs: &[Results]) -> String {
    let all: Vec<&Course> = runs
        .iter()
        .flat_map(|run| &run.courses)
        .filter(|it| it.setup.event == "nothing" && it.setup.threads == 1 && it.setup.empty == 1.0)
        .collect();
    let modes = values(&all, |course| course.setup.mode.clone());
    let dists = values(&all, |course| course.setup.dist.clone());
    let mut bits = values(&all, |course| course.setup.bits);
    bits.retain(|bits| values(&all_with(&all, *bits), |course| course.setup.mode.clone()).len() > 1);
    let (width, height) = (LEFT + 500.0 * dists.len() as f64, TOP + STEP * bits.len() as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#1b1f24\">\n<rect width=\"{width}\" \
         height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (number, mode) in modes.iter().enumerate() {
        let (x, colour) = (LEFT + 140.0 * number as f64, COLOURS[number % COLOURS.len()]);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"12\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"22\">{mode}\
             </text>",
            x + 18.0
        );
    }
    for (row, bits) in bits.iter().enumerate() {
        for (column, dist) in dists.iter().enumerate() {
            let (x, y) = (LEFT + 500.0 * column as f64, TOP + STEP * row as f64);
            let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
            let courses = all.iter().filter(|it| it.setup.bits == *bits && it.setup.dist == *dist);
            draw(&courses.copied().collect::<Vec<_>>(), *bits, dist, &modes, &mut out);
            out += "</g>\n";
        }
    }
    out += "</svg>\n";
    out
}

fn all_with<'a>(courses: &[&'a Course], bits: f64) -> Vec<&'a Course> {
    courses.iter().copied().filter(|course| course.setup.bits == bits).collect()
}

fn draw(courses: &[&Course], bits: f64, dist: &str, modes: &[String], out: &mut String) {
    let top = bits + 2.0;
    let down = |bits: f64| HIGH - (bits / top).clamp(0.0, 1.0) * HIGH;
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"-8\" font-weight=\"bold\">{dist}, budget {bits} bits: bits per key through the operations\
         </text>"
    );
    for (at, dashes) in [(0.0, ""), (bits, ""), (bits + 1.0, " stroke-dasharray=\"4 3\"")] {
        let y = down(at);
        let _ = writeln!(
            out,
            "<line x1=\"0\" x2=\"{WIDE}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#b0b8c0\"{dashes}/>\
             <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{at}</text>",
            y + 4.0
        );
    }
    for course in courses {
        let colour = modes.iter().position(|mode| *mode == course.setup.mode).unwrap_or(0);
        let last = course.points.len().max(2) - 1;
        let place = |(at, point): (usize, &Point)| {
            format!("{:.1},{:.1}", WIDE * at as f64 / last as f64, down(point.bits))
        };
        let path: Vec<String> = course.points.iter().enumerate().map(place).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
            path.join(" "),
            COLOURS[colour % COLOURS.len()]
        );
    }
}

/// Returns `courses` with figures of five significant digits, so that result files stay small.
pub fn rounded(courses: &[Course]) -> Vec<Course> {
    let short = |value: f64| format!("{value:.4e}").parse::<f64>().unwrap_or(value);
    let mut courses = courses.to_vec();
    for course in &mut courses {
        course.unneeded = short(course.unneeded);
        for point in &mut course.points {
            let c = &mut point.compared;
            let all = [
                &mut point.bits,
                &mut point.unneeded,
                &mut c.built,
                &mut c.best,
                &mut c.by_estimates,
                &mut c.uniform,
                &mut c.cosine,
                &mut c.distance,
            ];
            let simple = [&mut c.simple_cosine, &mut c.simple_distance].into_iter().flatten();
            all.into_iter().chain(simple).for_each(|value| *value = short(*value));
        }
    }
    courses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allotment::{Setup, run};

    fn small(mode: &str, event: &str, threads: u64) -> Course {
        let (mode, dist, event) = (mode.to_owned(), "normal".to_owned(), event.to_owned());
        run(&Setup { mode, bits: 4.0, empty: 1.0, dist, entries: 8000, threads, event, seed: 1 })
            .expect("a course")
    }

    #[test]
    fn courses_repeat_and_the_modes_differ() {
        let uniform = small("uniform", "nothing", 1);
        assert_eq!(uniform, small("uniform", "nothing", 1));
        let plus = small("mnemosyne+", "nothing", 1);
        assert!(plus.unneeded < 0.75 * uniform.unneeded, "{} {}", plus.unneeded, uniform.unneeded);
        // The truth agrees with what was counted, within the noise of few lookups.
        let built = uniform.mean(|point| point.compared.built);
        assert!((0.8..1.25).contains(&(built / uniform.unneeded)), "{built} {}", uniform.unneeded);
        assert!(plus.mean(|point| point.compared.cosine) > 0.9);
        let restarted = small("mnemosyne+", "restart", 2);
        assert!(restarted.mean(|point| point.compared.cosine) > 0.8);
        let text = text(&[uniform, plus, restarted]);
        assert_eq!(text.lines().count(), 4);
    }

    /// Compares the page and the plot in `docs/results` with the results. With `DRUMLIN_BLESS=1` it rewrites them.
    #[test]
    fn published_results_are_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
        let Ok(results) = std::fs::read_to_string(format!("{folder}/filters.json")) else {
            let page = format!("{folder}/filters.md");
            assert!(!std::path::Path::new(&page).exists(), "the page has no results");
            return;
        };
        let runs: Vec<Results> = serde_json::from_str(&results).expect("results");
        for run in &runs {
            assert_ne!(run.origin.build.dirty, Some(true), "results of sources that are in no commit");
        }
        for (name, text) in [("filters.md", page(&runs)), ("filters.svg", drawing(&runs))] {
            if std::env::var_os("DRUMLIN_BLESS").is_some() {
                std::fs::write(format!("{folder}/{name}"), text).expect(name);
            } else {
                assert_eq!(read(name), text, "{name}: run `cargo xtask bless -p drumlin-bench`");
            }
        }
    }
}
