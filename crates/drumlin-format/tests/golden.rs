//! Golden bytes of each format, stored under `testdata`. A difference means that the disk format has changed. Such a
//! change needs a new version of the file kind.
//!
//! `DRUMLIN_BLESS=1 cargo test -p drumlin-format --test golden` rewrites the files.
//!
//! A golden file is a hex dump: an offset and 16 bytes per line, without lines of zeros, followed by the total length.

#![expect(clippy::disallowed_methods, reason = "tests read and damage files on purpose")]

mod support;

use drumlin_format::log::{SegmentHeader, SegmentScanner, Tail};
use drumlin_format::manifest::{self, Edit};
use drumlin_format::pointer::Pointer;
use std::fmt::Write;
use std::path::PathBuf;

fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|&byte| byte != 0) {
            write!(text, "{:08x} ", index * 16).expect("memory");
            line.iter().for_each(|byte| write!(text, " {byte:02x}").expect("memory"));
            text.push('\n');
        }
    }
    writeln!(text, "{:08x}", bytes.len()).expect("memory");
    text
}

fn undump(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let offset = words.next().and_then(|word| usize::from_str_radix(word, 16).ok()).expect("offset");
        bytes.resize(offset, 0);
        bytes.extend(words.map(|word| u8::from_str_radix(word, 16).expect("byte")));
    }
    bytes
}

/// Compares `bytes` with the golden file, or writes it, and returns the golden bytes.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name].iter().collect();
    if std::env::var_os("DRUMLIN_BLESS").is_some() {
        std::fs::write(&path, dump(bytes)).expect("testdata is writable");
    }
    let text = std::fs::read_to_string(&path).expect("golden file");
    assert_eq!(dump(bytes), text, "{name}: the disk format has changed");
    undump(&text)
}

#[test]
fn batch() {
    let batch = support::batch();
    let bytes = golden("batch.hex", batch.payload());
    assert_eq!(bytes, batch.payload());
}

#[test]
fn log_segment() {
    let (number, bytes) = support::log().remove(1);
    let bytes = golden("log.hex", &bytes);
    let header = SegmentHeader::decode(&bytes, number).expect("sound");
    let mut scanner = SegmentScanner::new(&bytes, header);
    assert_eq!(scanner.by_ref().count(), 4);
    assert!(matches!(scanner.tail(), Some(Tail::Ended { closed: false, .. })));
}

#[test]
fn manifest() {
    let (bytes, _) = support::manifest();
    let bytes = golden("manifest.hex", &bytes);
    let mut edits: Vec<Edit> = Vec::new();
    let visit = |edit| {
        edits.push(edit);
        Ok::<(), drumlin_format::error::DecodeError>(())
    };
    manifest::replay(&bytes, support::MANIFEST_NUMBER, 0, visit).expect("sound");
    assert_eq!(edits, support::edits());
}

#[test]
fn pointer() {
    let pointer = Pointer { manifest: 11, synced: 4096 };
    let bytes = golden("pointer.hex", pointer.encode().as_bytes());
    assert_eq!(Pointer::decode(&bytes), Ok(pointer));
}
