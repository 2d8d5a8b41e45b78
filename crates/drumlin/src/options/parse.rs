//! Options as text: parsing, printing, bounds, and error messages.
//!
//! Byte sizes take a unit: `64MiB`, `64M` and `67108864` are the same; `64MB` is 64 million. A fraction is allowed if
//! the result is a whole number of bytes, as in `1.5KiB`. Printing uses the largest binary unit that divides the
//! number.

use super::registry::{OptionDef, OptionSet, Scope, Shape, Value};
use crate::base::error::{Error, ErrorKind, Result};

/// Maximum number of characters of a refused value that an error shows.
const SHOWN_CHARS: usize = 60;

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

pub(super) fn set<S: OptionSet>(settings: &mut S, name: &str, text: &str) -> Result<()> {
    let position = position::<S>(name)?;
    let def = &S::DEFS[position];
    let value = parse(def, text).filter(|value| in_bounds(def, value)).ok_or_else(|| refused(def, text))?;
    if settings.assign(position, &value) { Ok(()) } else { Err(refused(def, text)) }
}

pub(super) fn get<S: OptionSet>(settings: &S, name: &str) -> Result<String> {
    let position = position::<S>(name)?;
    Ok(print(&S::DEFS[position], &settings.value(position)))
}

pub(super) fn validate<S: OptionSet>(settings: &S) -> Result<()> {
    for (position, def) in S::DEFS.iter().enumerate() {
        let value = settings.value(position);
        if !in_bounds(def, &value) {
            return Err(refused(def, &print(def, &value)));
        }
    }
    Ok(())
}

pub(super) fn pairs<S: OptionSet>(settings: &S) -> Vec<(&'static str, String)> {
    let values = S::DEFS.iter().enumerate().map(|(position, def)| (def, settings.value(position)));
    values.map(|(def, value)| (def.name, print(def, &value))).collect()
}

fn parse(def: &OptionDef, text: &str) -> Option<Value> {
    let text = text.trim();
    if def.absent.is_some_and(|word| word == text) {
        return Some(Value::Absent);
    }
    match def.shape {
        Shape::Bytes { .. } => parse_bytes(text).map(Value::Whole),
        Shape::Count { .. } => parse_digits(text).map(Value::Whole),
        Shape::Ratio { .. } => text.parse().ok().map(Value::Ratio),
        Shape::Flag => text.parse().ok().map(Value::Flag),
        Shape::Names(_) | Shape::Text { .. } => Some(Value::Text(text.to_owned())),
    }
}

/// Parses a number of digits only: no sign, no space.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_ascii_lowercase());
    let (_, unit) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = parse_digits(whole)?.checked_mul(unit)?;
    let scale = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = u128::from(parse_digits(fraction)?) * u128::from(unit);
    let (part, rest) = (fraction / u128::from(scale), fraction % u128::from(scale));
    if rest != 0 {
        return None;
    }
    whole.checked_add(u64::try_from(part).ok()?)
}

fn in_bounds(def: &OptionDef, value: &Value) -> bool {
    match (&def.shape, value) {
        (_, Value::Absent) => def.absent.is_some(),
        (_, Value::Whole(0)) if def.zero.is_some() => true,
        (Shape::Bytes { least, most } | Shape::Count { least, most }, Value::Whole(number)) => {
            (least..=most).contains(&number)
        }
        (Shape::Ratio { least, most }, Value::Ratio(number)) => (least..=most).contains(&number),
        (Shape::Flag, Value::Flag(_)) => true,
        (Shape::Names(names), Value::Text(name)) => names.contains(&name.as_str()),
        (Shape::Text { check, .. }, Value::Text(text)) => check(text),
        _ => false,
    }
}

/// Returns the value as text, which `parse` turns back into the same value.
pub(super) fn print(def: &OptionDef, value: &Value) -> String {
    match value {
        Value::Absent => def.absent.unwrap_or("none").to_owned(),
        Value::Whole(number) if matches!(def.shape, Shape::Bytes { .. }) => print_bytes(*number),
        Value::Whole(number) => number.to_string(),
        Value::Ratio(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => text.clone(),
    }
}

fn print_bytes(number: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| number >= *unit && number.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", number / unit),
        None => number.to_string(),
    }
}

impl OptionDef {
    /// Returns a description of the values that the option accepts: `64KiB to 1GiB` or `none, lz4 or zstd`.
    pub fn bounds(&self) -> String {
        bounds(self)
    }
}

/// Returns a description of the values that the option accepts.
pub(super) fn bounds(def: &OptionDef) -> String {
    let between = |least: String, most: Option<String>| match most {
        Some(most) => format!("{least} to {most}"),
        None => format!("at least {least}"),
    };
    let mut words = Vec::new();
    words.extend(def.absent.map(str::to_owned));
    // A special 0 directly below the bounds just widens them.
    let joined = def.zero.is_some() && matches!(def.shape, Shape::Count { least: 1, .. });
    if def.zero.is_some() && !joined {
        words.push("0".to_owned());
    }
    match def.shape {
        Shape::Bytes { least, most } => {
            words.push(between(print_bytes(least), (most != u64::MAX).then(|| print_bytes(most))));
        }
        Shape::Count { least, most } => {
            let least = if joined { 0 } else { least };
            words.push(between(least.to_string(), (most != u64::MAX).then(|| most.to_string())));
        }
        Shape::Ratio { least, most } => words.push(between(least.to_string(), Some(most.to_string()))),
        Shape::Flag => words.extend(["true".to_owned(), "false".to_owned()]),
        Shape::Names(names) => words.extend(names.iter().map(|name| (*name).to_owned())),
        Shape::Text { form, .. } => words.push(form.to_owned()),
    }
    let last = words.pop().unwrap_or_default();
    if words.is_empty() { last } else { format!("{} or {last}", words.join(", ")) }
}

fn refused(def: &OptionDef, text: &str) -> Error {
    let value = shown(text);
    let what = format!("{} = {value}: must be {}", def.name, bounds(def));
    Error::new(ErrorKind::InvalidOption, what)
}

/// Returns `text` with control characters escaped, cut to `SHOWN_CHARS` characters.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().flat_map(char::escape_debug).take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("..");
    }
    shown
}

fn position<S: OptionSet>(name: &str) -> Result<usize> {
    let position = S::DEFS.iter().position(|def| def.name == name);
    position.ok_or_else(|| Error::new(ErrorKind::InvalidOption, unknown(S::DEFS, S::OTHERS, name)))
}

fn unknown(own: &[OptionDef], others: &[OptionDef], name: &str) -> String {
    let all = own.iter().chain(others);
    if let Some(def) = all.clone().find(|def| def.name == name) {
        let owner = match def.scope {
            Scope::Store => "the store, not of a keyspace",
            Scope::Keyspace => "a keyspace, not of the store",
        };
        return format!("{name} is an option of {owner}");
    }
    let shown = shown(name);
    // Of equally close names the first wins, and the caller's own scope comes first.
    match drumlin_types::nearest(all.map(|def| def.name), name) {
        Some(known) => format!("there is no option {shown}; the nearest is {known}"),
        None => format!("there is no option {shown}"),
    }
}
