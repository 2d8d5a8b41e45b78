//! The dynamic workloads of ArceKV: phases whose mix of ranges, updates and point reads changes without notice.
//!
//! At scale 1 a plan loads 40.96 million entries of 24 + 1000 bytes in random key order, waits until the store is
//! idle, and then runs the same number of operations in each phase. Keys are uniform and present. A range is a new
//! iterator, a seek and 16 entries. Two thirds of the updates insert new keys, and one third overwrites.
//!
//! The plans `growth` and `growth-zipf` have the four mixes of Vertiorizon instead. All their updates overwrite.

use super::{Action, After, Entries, Phase, Workload, scaled};
use crate::engine::{Direction, Result};
use crate::generate::choose::Target;
use crate::generate::keys::KeyForm;
use crate::generate::zipf::YCSB_THETA;
use std::path::Path;

/// Number of entries loaded, and of operations per phase, at scale 1.
const ENTRIES: u64 = 40_960_000;
/// Operations per phase of `gradient` at scale 1. The given number is for scale 1/16.
const GRADIENT_OPS: u64 = 31_250 * 16;
/// Hot keys and operations of `versions` at scale 1.
const VERSIONS_KEYS: u64 = 62_500 * 16;
const VERSIONS_OPS: u64 = 6_250_000 * 16;
/// Number of entries per range.
const RANGE: u32 = 16;
/// Fraction of updates that insert a new key.
const NEW_SHARE: f64 = 2.0 / 3.0;

/// Mixes of Vertiorizon.
const GROWTH: [(&str, Mix); 4] = [
    ("read-heavy", [0.0, 10.0, 90.0]),
    ("balanced", [0.0, 50.0, 50.0]),
    ("write-heavy", [0.0, 90.0, 10.0]),
    ("range", [25.0, 75.0, 0.0]),
];

/// Percentages of ranges, updates and point reads.
type Mix = [f64; 3];

fn mix(letter: char) -> Option<Mix> {
    Some(match letter {
        'A' => [98.0, 1.0, 1.0],
        'B' => [1.0, 98.0, 1.0],
        'C' => [1.0, 1.0, 98.0],
        'D' => [49.0, 2.0, 49.0],
        'E' => [2.0, 49.0, 49.0],
        'F' => [49.0, 49.0, 2.0],
        'G' => [40.0, 40.0, 20.0],
        'H' => [40.0, 20.0, 40.0],
        'I' => [20.0, 40.0, 40.0],
        'J' => [33.0, 33.0, 33.0],
        _ => return None,
    })
}

/// Returns a phase of `mix`; `new` is the fraction of updates that insert a new key.
fn phase(name: &str, ops: u64, mix: Mix, new: f64, keys: Target) -> Phase {
    let [range, update, point] = mix;
    let actions = [
        (range, Action::Range(keys, Entries::Fixed(RANGE), Direction::Forward)),
        (update * new, Action::Put(Target::New)),
        (update * (1.0 - new), Action::Put(keys)),
        (point, Action::Get(keys)),
    ];
    Phase::new(name, ops, &actions)
}

fn preload(entries: u64) -> Phase {
    Phase::of("preload", entries, Action::Put(Target::New)).on_empty().then(After::Idle)
}

/// Returns a phase for each letter of `list`. A letter that occurs again is numbered, as in `B 2`.
fn letters(list: &str, ops: u64, new: f64) -> Vec<Phase> {
    let mixes = list.char_indices().filter_map(|(at, letter)| Some((at, letter, mix(letter)?)));
    let phases = mixes.map(|(at, letter, mix)| {
        let name = match 1 + list[..at].matches(letter).count() {
            1 => letter.to_string(),
            number => format!("{letter} {number}"),
        };
        phase(&name, ops, mix, new, Target::Uniform)
    });
    phases.collect()
}

/// Returns whether `plan` is a plan of letters, such as `BCBC`.
fn is_letters(plan: &str) -> bool {
    !plan.is_empty() && plan.chars().all(|letter| mix(letter).is_some())
}

fn gradient(ops: u64) -> Vec<Phase> {
    let shares = (1..=9).chain((1..=8).rev());
    let phases = shares.enumerate().map(|(position, tenth)| {
        let update = f64::from(tenth * 10);
        let rest = (100.0 - update) / 2.0;
        let name = format!("{:02} u={update}", position + 1);
        phase(&name, ops, [rest, update, rest], NEW_SHARE, Target::Uniform)
    });
    phases.collect()
}

fn growth(ops: u64, keys: Target) -> Vec<Phase> {
    GROWTH.iter().map(|(name, mix)| phase(name, ops, *mix, 0.0, keys)).collect()
}

/// Returns the workload of the plan called `plan`, of a plan of letters such as `BCBC`, or of the plan file of that
/// name.
pub fn workload(plan: &str, scale: f64) -> Result<Workload> {
    let ops = scaled(ENTRIES, scale);
    let mut phases = vec![preload(ops)];
    match plan {
        "I" => phases.extend(letters("ABDJCE", ops, NEW_SHARE)),
        "II" => phases.extend(letters("JEBFDC", ops, NEW_SHARE)),
        "III" => phases.extend(letters("GHI", ops / 2, NEW_SHARE)),
        "gradient" => phases.extend(gradient(scaled(GRADIENT_OPS, scale))),
        "growth" => phases.extend(growth(ops, Target::Uniform)),
        "growth-zipf" => phases.extend(growth(ops, Target::Zipf { theta: YCSB_THETA })),
        "versions" => {
            phases = vec![preload(scaled(VERSIONS_KEYS, scale))];
            phases.extend(letters("GHI", scaled(VERSIONS_OPS, scale) / 3, 0.0));
        }
        list if is_letters(list) => phases.extend(letters(list, ops, NEW_SHARE)),
        file => {
            let text = std::fs::read_to_string(Path::new(file))
                .map_err(|e| format!("{file}: neither a known plan nor a readable file: {e}"))?;
            phases = parse(&text).map_err(|e| format!("{file}: {e}"))?;
        }
    }
    Ok(of_phases(plan, phases))
}

/// Returns the workload of the given phases.
pub fn of_phases(plan: &str, mut phases: Vec<Phase>) -> Workload {
    if let Some(last) = phases.last_mut() {
        last.after = After::Idle;
    }
    Workload {
        name: format!("dynamic {plan}"),
        keys: KeyForm::Hex,
        value_bytes: 1000,
        value_ratio: 0.5,
        trace: None,
        phases,
    }
}

/// Parses a plan file with lines `preload N`, `phase J N` and `phase r=40,u=20,p=40 N dist=zipf`; `#` starts a
/// comment.
pub fn parse(text: &str) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = |what: &str| format!("line {}: {what}", number + 1);
        let count = |word: &str| word.parse::<u64>().map_err(|_| bad("the count is not a number"));
        match words.as_slice() {
            [] => {}
            ["preload", entries] => phases.push(preload(count(entries)?)),
            ["phase", mixed, ops, rest @ ..] => {
                let keys = match rest {
                    [] | ["dist=uniform"] => Target::Uniform,
                    ["dist=zipf"] => Target::Zipf { theta: YCSB_THETA },
                    _ => return Err(bad("a phase ends with dist=uniform, dist=zipf or nothing")),
                };
                let shares = shares(mixed).ok_or_else(|| bad("a mix is a letter A..J or r=40,u=20,p=40"))?;
                phases.push(phase(mixed, count(ops)?, shares, NEW_SHARE, keys));
            }
            _ => return Err(bad("neither `preload N` nor `phase MIX N`")),
        }
    }
    if phases.first().is_none_or(|first| !first.fresh) {
        return Err("a plan begins with `preload N`".to_owned());
    }
    Ok(phases)
}

fn shares(text: &str) -> Option<Mix> {
    let mut letters = text.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return mix(letter);
    }
    let mut shares = [0.0; 3];
    for part in text.split(',') {
        let (name, value) = part.split_once('=')?;
        let place = ["r", "u", "p"].iter().position(|known| *known == name)?;
        shares[place] = value.parse().ok().filter(|share: &f64| *share >= 0.0 && share.is_finite())?;
    }
    (shares.iter().sum::<f64>() > 0.0).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_the_phases_of_the_paper() {
        let names = |plan| {
            let workload = workload(plan, 1.0 / 1024.0).expect("a known plan");
            workload.phases.iter().map(|phase| format!("{} {}", phase.name, phase.ops)).collect::<Vec<_>>()
        };
        assert_eq!(
            names("I").join(", "),
            "preload 40000, A 40000, B 40000, D 40000, J 40000, C 40000, E 40000"
        );
        assert_eq!(names("III").join(", "), "preload 40000, G 20000, H 20000, I 20000");
        assert_eq!(names("BCB").join(", "), "preload 40000, B 40000, C 40000, B 2 40000");
        assert_eq!(names("gradient").len(), 18);
        assert_eq!(names("gradient")[9], "09 u=90 488");
        assert_eq!(names("versions")[0], "preload 977");
        let growth = "preload 40000, read-heavy 40000, balanced 40000, write-heavy 40000, range 40000";
        assert_eq!(
            (names("growth").join(", "), names("growth-zipf").join(", ")),
            (growth.into(), growth.into())
        );
        let live = |plan| workload(plan, 1.0 / 1024.0).expect("a known plan").live_bytes();
        // A third of 1 + 98 + 2 + 33 + 1 + 49 percent overwrites; the rest of the updates are new keys.
        let share = (1.0 + 98.0 + 2.0 + 100.0 / 3.0 + 1.0 + 49.0) / 100.0 * 2.0 / 3.0;
        assert_eq!(live("I") / 100_000, ((1.0 + share) * 40_000.0 * 1024.0) as u64 / 100_000);
        assert_eq!(live("growth"), 40_000 * 1024, "no new keys");
        assert_eq!(live("versions"), 977 * 1024, "hot keys only");
    }

    #[test]
    fn plan_files() {
        let phases =
            parse("preload 10 # load\n\nphase J 5\nphase r=1,u=2,p=0 7 dist=zipf\n").expect("a plan");
        assert_eq!(phases.iter().map(|p| p.ops).collect::<Vec<_>>(), [10, 5, 7]);
        assert_eq!(phases[2].mix.len(), 3);
        for (text, what) in [
            ("phase J 5", "a plan begins"),
            ("preload x", "line 1: the count"),
            ("preload 1\nphase K 1", "line 2: a mix"),
            ("preload 1\nphase r=-1,u=2 1", "line 2: a mix"),
            ("preload 1\nphase J 1 dist=odd", "line 2: a phase ends"),
            ("load 1", "line 1: neither"),
        ] {
            let refused = parse(text).expect_err(what);
            assert!(refused.starts_with(what), "{text:?}: {refused}");
        }
    }
}
