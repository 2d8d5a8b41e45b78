//! Every decoder on its corpus and on a few mutations, and the registry of targets itself. The lanes run many more
//! cases.
//!
//! `DRUMLIN_BLESS=1 cargo test -p drumlin-torture --test fuzz` rewrites the targets' own seeds in the corpora.

#![expect(clippy::disallowed_methods, reason = "tests read and write the corpora")]

use drumlin_format::names::FileName;
use drumlin_torture::fuzz::{check, corpus, heap, of_file, targets};
use drumlin_torture::runs::fuzz;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

/// Maximum bytes of a corpus.
const CORPUS_BYTES: usize = 16 << 10;

/// The corpora hold the seeds of the present formats; a format change leaves no seed of an old format.
#[test]
fn seeds_are_sound_and_kept() {
    for target in targets::all() {
        let folder = corpus::folder(&target);
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        if std::env::var_os("DRUMLIN_BLESS").is_some() {
            fs::create_dir_all(&folder).expect("the corpus is writable");
            for (name, _) in corpus::all(&target).expect("just made") {
                if name.starts_with("sound-") {
                    fs::remove_file(folder.join(name)).expect("the corpus is writable");
                }
            }
            for (index, seed) in seeds.iter().enumerate() {
                fs::write(folder.join(corpus::seed_name(index)), seed).expect("the corpus is writable");
            }
        }
        let kept = corpus::all(&target).unwrap_or_else(|e| panic!("corpus of {}: {e}", target.name));
        for (index, seed) in seeds.iter().enumerate() {
            let name = corpus::seed_name(index);
            assert!(check(&target, seed), "{} refuses {name}", target.name);
            let mut mended = seed.clone();
            (target.mend)(&mut mended);
            assert!(mended == *seed, "{} mends {name}, which is sound", target.name);
            // Only file formats are stable: a policy's saved state changes with each of its constants.
            if target.codecs.is_empty() {
                continue;
            }
            let found = kept.iter().find(|(kept, _)| *kept == name);
            assert!(
                found.is_some_and(|(_, bytes)| bytes == seed),
                "{} {name}: run with DRUMLIN_BLESS=1",
                target.name
            );
        }
        let sound = kept.iter().filter(|(name, _)| name.starts_with("sound-")).count();
        assert!(sound == seeds.len() || target.codecs.is_empty(), "{}: seeds of another time", target.name);
        let bytes: usize = kept.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= CORPUS_BYTES, "the corpus of {} takes {bytes} bytes", target.name);
    }
}

#[test]
fn hostile_bytes_break_no_rule() {
    let figures = fuzz::run(0x51, 400, None);
    println!("{}", figures.line());
    assert_eq!(figures.failures, []);
}

/// The counter detects heap use above the limit.
#[test]
fn the_heap_is_counted() {
    let (_, peak) = heap::peak_of(|| (vec![0u8; 1 << 20], vec![0u8; 1 << 20]));
    assert!((2 << 20..3 << 20).contains(&peak), "{peak}");
    let (_, peak) = heap::peak_of(|| (0..10).map(|_| vec![0u8; 1 << 20].len()).sum::<usize>());
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
}

/// Modules of `drumlin-format` that decode nothing by themselves.
const NO_CODECS: [&str; 3] = ["lib", "error", "limits"];

/// A codec or a kind of file without a target would escape every fuzzer.
#[test]
fn every_codec_has_a_target() {
    let all = targets::all();
    let names: BTreeSet<&str> = all.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), all.len(), "two targets have one name");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drumlin-format/src");
    let mut modules = BTreeSet::new();
    for entry in fs::read_dir(sources).expect("the sources are there") {
        let name = entry.expect("the sources are there").file_name().into_string().expect("plain names");
        modules.insert(name.trim_end_matches(".rs").to_owned());
    }
    let codecs: BTreeSet<&str> = all.iter().flat_map(|target| target.codecs).copied().collect();
    for codec in &codecs {
        assert!(modules.contains(*codec), "there is no codec {codec}");
    }
    for module in modules.iter().filter(|module| !NO_CODECS.contains(&module.as_str())) {
        assert!(codecs.contains(module.as_str()), "no target drives the codec {module}");
    }
    for name in FileName::all_kinds(1).into_iter().flat_map(of_file) {
        assert!(names.contains(name), "there is no target {name}");
    }
}
