//! Tests of the options. Most run over the whole option list, so they cover a new option at once.

use super::registry::{Field, OptionDef, OptionSet, Shape, Value};
use super::*;
use crate::base::error::ErrorKind;

fn all_defs() -> impl Iterator<Item = &'static OptionDef> {
    Options::defs().iter().chain(KeyspaceOptions::defs())
}

fn complaint<T: std::fmt::Debug>(result: crate::base::error::Result<T>) -> String {
    let error = result.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    error.to_string()
}

#[test]
fn the_list_is_in_order() {
    let mut names: Vec<&str> = all_defs().map(|def| def.name).collect();
    assert!(all_defs().filter(|def| !def.expert).count() <= 20, "at most about twenty public options");
    names.sort_unstable();
    let listed = names.len();
    names.dedup();
    assert_eq!(names.len(), listed, "two options have the same name");
    for def in all_defs() {
        assert!(def.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", def.name);
        assert!(def.doc.trim().ends_with('.') && !def.doc.contains('|'), "{}", def.name);
        if let Shape::Text { check, samples, .. } = def.shape {
            assert!(!samples.is_empty() && samples.iter().all(|sample| check(sample)));
        }
    }
    assert!(Options::defs().iter().all(|def| def.scope == Scope::Store));
    assert!(KeyspaceOptions::defs().iter().all(|def| def.scope == Scope::Keyspace));
}

/// Checks that each entry reaches its own field and no other, and that the defaults are legal.
fn fields_match_their_entries<S: OptionSet + PartialEq + std::fmt::Debug>() {
    let defaults = S::default();
    parse::validate(&defaults).unwrap();
    for (position, def) in S::DEFS.iter().enumerate() {
        let other = legal_values(def).into_iter().find(|value| *value != defaults.value(position));
        let Some(other) = other else { continue };
        let mut changed = S::default();
        assert!(changed.assign(position, &other), "{}: the field has another type than the entry", def.name);
        for (place, _) in S::DEFS.iter().enumerate() {
            let expected = if place == position { other.clone() } else { defaults.value(place) };
            assert_eq!(changed.value(place), expected, "{}", def.name);
        }
    }
    assert!(!S::default().assign(S::DEFS.len(), &Value::Whole(1)));
}

/// Returns the ends of the bounds and all special values of an option.
fn legal_values(def: &OptionDef) -> Vec<Value> {
    let mut values = Vec::new();
    values.extend(def.absent.map(|_| Value::Absent));
    values.extend(def.zero.map(|_| Value::Whole(0)));
    match def.shape {
        Shape::Bytes { least, most } | Shape::Count { least, most } => {
            values.extend([least, least + 1, most - 1, most].map(Value::Whole));
        }
        Shape::Ratio { least, most } => {
            values.extend([least, most, least + 0.1, (least + most) / 3.0].map(Value::Ratio));
        }
        Shape::Flag => values.extend([false, true].map(Value::Flag)),
        Shape::Names(names) => values.extend(names.iter().map(|name| Value::Text((*name).to_owned()))),
        Shape::Text { samples, .. } => {
            values.extend(samples.iter().map(|name| Value::Text((*name).to_owned())))
        }
    }
    values
}

#[test]
fn fields_match_entries() {
    fields_match_their_entries::<Options>();
    fields_match_their_entries::<KeyspaceOptions>();
}

fn values_round_trip<S: OptionSet + PartialEq + std::fmt::Debug>() {
    for (position, def) in S::DEFS.iter().enumerate() {
        for value in legal_values(def) {
            let mut settings = S::default();
            let text = parse::print(def, &value);
            parse::set(&mut settings, def.name, &text).unwrap();
            assert_eq!(settings.value(position), value, "{} = {text}", def.name);
            assert_eq!(parse::get(&settings, def.name).unwrap(), text);
        }
    }
}

#[test]
fn values_survive_their_text() {
    values_round_trip::<Options>();
    values_round_trip::<KeyspaceOptions>();
}

fn nothing_beyond_the_bounds<S: OptionSet + PartialEq + Clone + std::fmt::Debug>() {
    for (position, def) in S::DEFS.iter().enumerate() {
        let mut beyond: Vec<Value> = match def.shape {
            Shape::Bytes { least, most } | Shape::Count { least, most } => {
                [least.checked_sub(1), most.checked_add(1)].into_iter().flatten().map(Value::Whole).collect()
            }
            Shape::Ratio { least, most } => {
                [least - 0.001, most + 0.001, f64::NAN, f64::INFINITY].map(Value::Ratio).to_vec()
            }
            Shape::Flag => Vec::new(),
            Shape::Names(_) | Shape::Text { .. } => vec![Value::Text("No Such Thing".to_owned())],
        };
        beyond.retain(|value| def.zero.is_none() || *value != Value::Whole(0));
        for value in beyond {
            let text = parse::print(def, &value);
            let mut settings = S::default();
            let said = complaint(parse::set(&mut settings, def.name, &text));
            assert!(said.starts_with(&format!("{} = {text}: must be ", def.name)), "{said}");
            assert_eq!(settings, S::default(), "a refused value changed the options");
            // `validate` finds the same value after a direct assignment. Enums cannot hold it.
            if settings.assign(position, &value) {
                assert_eq!(complaint(parse::validate(&settings)), said);
            }
        }
        for text in ["", "-1", "x", "1e999", "1 2", "18446744073709551616", "99999999TiB", "0x10"] {
            let taken = parse::set(&mut S::default(), def.name, text).is_ok();
            let is_text = matches!(def.shape, Shape::Text { .. });
            assert!(
                !taken || is_text && !text.is_empty() && !text.contains(' '),
                "{} took {text:?}",
                def.name
            );
        }
    }
}

#[test]
fn bounds_hold() {
    nothing_beyond_the_bounds::<Options>();
    nothing_beyond_the_bounds::<KeyspaceOptions>();
}

#[test]
fn byte_sizes() {
    let mut options = Options::default();
    for (text, bytes) in [
        ("8388608", 8 << 20),
        ("64MiB", 64 << 20),
        ("64M", 64 << 20),
        ("64 mib", 64 << 20),
        ("64MB", 64_000_000),
        ("1.5GiB", 3 << 29),
        (" 0.25 TiB ", 1 << 38),
    ] {
        options.set("memory_budget", text).unwrap();
        assert_eq!(options.memory_budget, bytes, "{text}");
    }
    for text in [
        "64.MiB",
        ".5GiB",
        "64MiBs",
        "1.0000001KiB",
        "0.00000000000000000001TiB",
        "1.2.3GiB",
        "MiB",
        "+64MiB",
    ] {
        assert!(complaint(options.set("memory_budget", text)).contains("must be 8MiB to 1024TiB"), "{text}");
    }
}

#[test]
fn errors_help() {
    let mut options = Options::default();
    let mut keyspace = KeyspaceOptions::default();
    let said = complaint(options.set("memroy_budget", "1GiB"));
    assert_eq!(said, "there is no option memroy_budget; the nearest is memory_budget");
    let said = complaint(options.set("compaction", "1-leveling"));
    assert_eq!(said, "compaction is an option of a keyspace, not of the store");
    assert_eq!(
        complaint(keyspace.get("compaction_slots")),
        "compaction_slots is an option of the store, not of a keyspace"
    );
    assert_eq!(complaint(keyspace.set("block_bytes", "4")), "block_bytes = 4: must be 512 to 1MiB");
    let said = complaint(keyspace.set("compression_bottom", "brotli"));
    assert_eq!(said, "compression_bottom = brotli: must be same, none, lz4 or zstd");
    assert_eq!(complaint(keyspace.set("filter_bits", "NaN")), "filter_bits = NaN: must be auto or 0 to 16");
    let said = complaint(options.set("compaction_slots", &"9\n".repeat(5000)));
    assert!(said.len() < 200 && !said.contains('\n'), "{said}");
    keyspace.filter_bits = Some(f64::NAN);
    assert_eq!(complaint(keyspace.validate()), "filter_bits = NaN: must be auto or 0 to 16");
}

#[test]
fn policies_have_names_and_arguments() {
    let mut keyspace = KeyspaceOptions::default();
    for good in ["arce", "leveling:10", "fluid:40,40,41/6,6,6", "ucs:-3"] {
        keyspace.set("compaction", good).unwrap();
        assert_eq!(keyspace.compaction, good);
    }
    let long = "x".repeat(33);
    for bad in ["", ":10", "leveling:", "Leveling", "a b", "a:b c", "a:\u{e9}", &long] {
        assert!(complaint(keyspace.set("compaction", bad)).starts_with("compaction = "));
    }
}

#[test]
fn segments_grow_with_the_memory() {
    let mut options = Options { memory_budget: 64 << 30, ..Options::default() };
    assert_eq!(options.segment_bytes(), 768 << 20);
    options.memory_budget = 1024 << 40;
    assert_eq!(
        (options.segment_bytes(), options.log_most()),
        (1 << 30, 64 << 30),
        "the log has its own bound"
    );
}

#[test]
fn derived_values() {
    let (mut options, mut keyspace) = (Options::default(), KeyspaceOptions::default());
    assert_eq!(options.memtable_bytes(&keyspace), 64 << 20);
    options.memory_budget = 80 << 20;
    assert_eq!(options.memtable_bytes(&keyspace), 10 << 20);
    keyspace.memtable_bytes = 16 << 10;
    assert_eq!(options.memtable_bytes(&keyspace), 16 << 10);
    keyspace.memtable_bytes = 1 << 30;
    assert_eq!(options.memtable_bytes(&keyspace), 15 << 20, "half of what memtables may hold");
    assert_eq!(keyspace.bottom_compression(), Compression::Lz4);
    keyspace.compression_bottom = Some(Compression::Zstd);
    assert_eq!(keyspace.bottom_compression(), Compression::Zstd);
}

/// Checks that random options are legal, survive the manifest's text pairs and change no results. They also reach all
/// special values.
fn random_settings<S: OptionSet + PartialEq + std::fmt::Debug>() {
    let mut reached: Vec<Vec<Value>> = vec![Vec::new(); S::DEFS.len()];
    for seed in 0..400 {
        let settings: S = random::random(seed);
        assert_eq!(settings, random::random(seed));
        parse::validate(&settings).unwrap();
        let mut again = S::default();
        for (name, text) in parse::pairs(&settings) {
            parse::set(&mut again, name, &text).unwrap();
        }
        assert_eq!(again, settings);
        for (position, values) in reached.iter_mut().enumerate() {
            values.push(settings.value(position));
        }
    }
    for (position, def) in S::DEFS.iter().enumerate() {
        let values = &reached[position];
        let default = S::default().value(position);
        assert!(values.contains(&default), "{}", def.name);
        if def.alters_answers {
            assert!(values.iter().all(|value| *value == default), "{}", def.name);
            continue;
        }
        for special in legal_values(def) {
            match (&def.shape, &special) {
                (Shape::Names(_) | Shape::Flag | Shape::Text { .. }, _)
                | (_, Value::Absent | Value::Whole(0)) => {
                    assert!(values.contains(&special), "{} never is {special:?}", def.name);
                }
                _ => {}
            }
        }
        if let Shape::Bytes { least, .. } | Shape::Count { least, .. } = def.shape {
            assert!(values.contains(&Value::Whole(least)), "{} never is at its least", def.name);
            let distinct = values.iter().filter(|value| **value != default && **value != Value::Whole(least));
            assert!(distinct.count() > 100, "{} hardly varies", def.name);
        }
    }
}

#[test]
fn random_settings_are_legal_and_varied() {
    random_settings::<Options>();
    random_settings::<KeyspaceOptions>();
}

#[test]
fn names_of_enums() {
    for (case, name) in Durability::ALL.iter().zip(Durability::NAMES) {
        assert_eq!(case.name(), *name);
        assert_eq!(Durability::from_value(&case.to_value()), Some(*case));
    }
    assert_eq!(Options::default().durability, Durability::default());
}

#[test]
fn help_shows_every_option() {
    let (help, table) = (options_help(), options_markdown());
    for def in all_defs() {
        assert_eq!(help.matches(&format!("  {} = ", def.name)).count(), 1, "{}", def.name);
        let expected = usize::from(!def.experiment);
        assert_eq!(table.matches(&format!("| `{}` | ", def.name)).count(), expected, "{}", def.name);
    }
}

/// The workspace's tests run with the feature, those of this package alone without it.
#[test]
fn experiments_are_known_with_their_feature_alone() {
    let of_experiments = KeyspaceOptions::defs().iter().filter(|def| def.experiment);
    let known: Vec<(&str, String)> =
        of_experiments.map(|def| (def.name, KeyspaceOptions::default().get(def.name).unwrap())).collect();
    assert!(
        Options::defs().iter().all(|def| !def.experiment),
        "`EXPERIMENTS` lists options of keyspaces alone"
    );
    let listed = derived::EXPERIMENTS.iter().map(|(name, default)| (*name, (*default).to_owned()));
    if cfg!(feature = "experiments") {
        assert_eq!(known, listed.collect::<Vec<_>>());
    } else {
        assert_eq!(known, []);
        let said = complaint(KeyspaceOptions::default().set("arce_pin", "none"));
        assert_eq!(said, "there is no option arce_pin");
    }
}

/// Builds with the feature write all options into every manifest, and other builds open those stores.
#[test]
fn a_manifest_of_a_build_with_experiments_opens_unless_it_has_one_set() {
    let read = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        KeyspaceOptions::from_manifest("k", &pairs)
    };
    let options =
        read(&[("max_runs", "8"), ("arce_pin", "none"), ("ttl_seconds", "9")]).expect("nothing is set");
    assert_eq!((options.max_runs, options.ttl_seconds, options.pin()), (8, 9, None));
    let options = read(&[("arce_pin", "8/24/2/1")]);
    if cfg!(feature = "experiments") {
        assert_eq!(options.unwrap().pin(), "8/24/2/1".parse().ok());
    } else {
        let said = complaint(options);
        assert!(
            said.starts_with("keyspace \"k\" has arce_pin = 8/24/2/1, which this build does not support"),
            "{said}"
        );
    }
    assert!(complaint(read(&[("such_a_thing", "1")])).starts_with("there is no option such_a_thing"));
}

/// Compares `docs/options.md` with the generated text. With `DRUMLIN_BLESS=1` it rewrites the file instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "blesses a file of the repository")]
fn the_documentation_is_up_to_date() {
    if std::env::var_os("DRUMLIN_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md"), options_markdown())
            .unwrap();
        return;
    }
    assert_eq!(include_str!("../../../../docs/options.md"), options_markdown());
}
