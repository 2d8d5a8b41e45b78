//! The `load` command: writes the entries of a file.
//!
//! With `--ack`, every entry is a separate write. Its key is printed, and stdout flushed, after the write returns. So
//! a key on stdout belongs to a write that has the requested durability. Without `--ack`, entries are written in
//! batches, which suits a bulk load. A load ends with a flush. Entries before the first bad one stay written.

use crate::args::{LoadArgs, LoadFormat};
use crate::escape::escape;
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::figures::{counted, grouped, rate, size};
use crate::input::columns::{Named, TableReader};
use crate::input::csv::{CsvReader, Records};
use crate::input::deb822::Deb822Reader;
use crate::input::jsonl::JsonlReader;
use crate::input::tsv::{TsvReader, TsvRows};
use crate::input::{EntryReader, InputError, Source};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::Store;
use serde_json::json;
use std::io::BufRead;

/// Maximum number of entries in a batch.
const BATCH_ENTRIES: usize = 256;
/// Bytes of keys and values after which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

/// Input of a load.
pub(super) struct Input {
    entries: Box<dyn EntryReader>,
    /// Length in bytes, if known.
    bytes: Option<u64>,
}

/// Opens the input of `args`. Its format is that of `--format`, or else the one that its name implies.
pub(super) fn open(args: &LoadArgs) -> Result<Input> {
    if args.store.path.is_file() {
        let path = args.store.path.display();
        return Err(Failure::Usage(format!("{path} is a file: the order is drumlin load DB FILE")));
    }
    let format = args.format.or_else(|| LoadFormat::of_name(&args.file)).ok_or_else(|| {
        let file = if args.file == "-" { "stdin" } else { &args.file };
        let known = "--format tsv, csv, jsonl or deb822";
        Failure::Usage(format!("the name of {file} does not tell its format: give it with {known}"))
    })?;
    let named = args.named();
    if named.is_some() && format == LoadFormat::Deb822 {
        return Err(Failure::Usage("--key is for csv, tsv and jsonl; deb822 has its own key".to_owned()));
    }
    let source = Source::open(&args.file)?.decompressed().map_err(|e| Failure::failed(&args.file, e))?;
    Ok(Input { entries: reader(format, named, source.reader), bytes: source.bytes })
}

pub(super) fn load(store: &dyn Store, args: &LoadArgs, input: Input, out: &mut Output<'_>) -> Outcome {
    match &args.policy {
        Some(name) => store.set_policy(name)?,
        // Opens the keyspace, so that it exists after a load of an empty file too.
        None => drop(store.policy()?),
    }
    let mut progress = Progress::start("load", input.bytes);
    let mut entries = input.entries;
    let done = match args.ack {
        true => write_each(store, args, &mut *entries, &mut progress, out),
        false => write_batches(store, args, &mut *entries, &mut progress),
    };
    // A load always ends with its data in synced tables, whatever the durability of the single writes.
    let done = done.and_then(|bytes| store.flush().map(|()| bytes));
    let (seconds, records) = (progress.seconds(), progress.records());
    let summary = match &done {
        Ok(bytes) => format!(
            "{}, {} of keys and values in {seconds:.1} s, {} entries/s",
            counted(records, "entry"),
            size(*bytes),
            grouped(rate(records, seconds))
        ),
        Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
        Err(_) => format!("stopped after {}", counted(records, "entry")),
    };
    progress.finish(&summary);
    let bytes = done?;
    if args.json {
        out.json(&json!({ "entries": records, "key_and_value_bytes": bytes, "seconds": seconds }))?;
    }
    Ok(Verdict::Fine)
}

fn reader(format: LoadFormat, named: Option<Named>, input: Box<dyn BufRead>) -> Box<dyn EntryReader> {
    match (format, named) {
        (LoadFormat::Tsv, None) => Box::new(TsvReader::new(input)),
        (LoadFormat::Tsv, Some(named)) => Box::new(TableReader::new(TsvRows::new(input), named)),
        (LoadFormat::Csv, None) => Box::new(CsvReader::new(input)),
        (LoadFormat::Csv, Some(named)) => Box::new(TableReader::new(Records::new(input), named)),
        (LoadFormat::Jsonl, named) => Box::new(JsonlReader::new(input, named)),
        (LoadFormat::Deb822, _) => Box::new(Deb822Reader::new(input)),
    }
}

/// Returns the failure for a record that cannot be read, after `records` good ones were written.
fn bad_record(args: &LoadArgs, error: &InputError, records: u64) -> Failure {
    let written = counted(records, "entry");
    let kept = match error {
        _ if records == 0 => "nothing was written".to_owned(),
        InputError::Bad { unit: "line", number: 2, .. } => format!("line 1 was written: {written}"),
        InputError::Bad { unit: "line", number, .. } => {
            format!("lines 1 to {} were written: {written}", number - 1)
        }
        _ => format!("the entries before it were written: {written}"),
    };
    Failure::failed(&args.file, format!("{error}; {kept}"))
}

/// Writes entries one by one and prints each key. Returns the bytes of keys and values.
fn write_each(
    store: &dyn Store,
    args: &LoadArgs,
    entries: &mut dyn EntryReader,
    progress: &mut Progress,
    out: &mut Output<'_>,
) -> Result<u64> {
    let mut bytes = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|e| bad_record(args, &e, progress.records()))?;
        store.put(&entry.key, &entry.value, args.durability)?;
        out.line(&escape(&entry.key))?;
        out.flush()?;
        bytes += (entry.key.len() + entry.value.len()) as u64;
        progress.record(entries.bytes_read());
    }
    Ok(bytes)
}

/// Writes entries in batches. Returns the bytes of keys and values.
fn write_batches(
    store: &dyn Store,
    args: &LoadArgs,
    entries: &mut dyn EntryReader,
    progress: &mut Progress,
) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let mut batch = Vec::with_capacity(BATCH_ENTRIES);
        let mut batch_bytes = 0;
        let mut bad = None;
        while batch.len() < BATCH_ENTRIES && batch_bytes < BATCH_BYTES {
            match entries.next() {
                Some(Ok(entry)) => {
                    batch_bytes += entry.key.len() + entry.value.len();
                    batch.push((entry.key, entry.value));
                }
                Some(Err(error)) => {
                    bad = Some(error);
                    break;
                }
                None => break,
            }
        }
        let at_end = batch.is_empty();
        if !at_end {
            store.put_all(&batch, args.durability)?;
            bytes += batch_bytes as u64;
            batch.iter().for_each(|_| progress.record(entries.bytes_read()));
        }
        match bad {
            Some(error) => return Err(bad_record(args, &error, progress.records())),
            None if at_end => return Ok(bytes),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::store::fake::FakeStore;
    use clap::Parser;

    /// Loads `text` with the options `line`. Returns the output and the outcome.
    fn run(store: &FakeStore, text: &str, line: &[&str]) -> (String, Outcome) {
        let line = [&["drumlin", "load", "db", "input.tsv"], line].concat();
        let cli = Cli::try_parse_from(line).expect("good usage");
        let Command::Load(args) = cli.command else { panic!("not a load: {cli:?}") };
        let mut sink = Vec::new();
        let mut out = Output::new(&mut sink, false);
        let mut progress = Progress::start("load", None);
        let mut entries = reader(LoadFormat::Tsv, None, Box::new(std::io::Cursor::new(text.to_owned())));
        let done = match args.ack {
            true => write_each(store, &args, &mut *entries, &mut progress, &mut out),
            false => write_batches(store, &args, &mut *entries, &mut progress),
        };
        (String::from_utf8(sink).expect("UTF-8"), done.map(|_| Verdict::Fine))
    }

    #[test]
    fn entries_go_in_batches_and_the_last_of_a_key_stays() {
        let store = FakeStore::default();
        let text: String = (0..600).map(|i| format!("k{}\t{i}\n", i % 500)).collect();
        assert_eq!(run(&store, &text, &[]), (String::new(), Ok(Verdict::Fine)));
        assert_eq!(
            *store.calls.borrow(),
            ["put_all 256 Buffered", "put_all 256 Buffered", "put_all 88 Buffered"]
        );
        assert_eq!(store.map.borrow().len(), 500);
        assert_eq!(store.get(b"k99").expect("a map reads"), Some(b"599".to_vec()));
    }

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let store = FakeStore::default();
        let text: String = (0..4).map(|i| format!("k{i}\t{}\n", "v".repeat(BATCH_BYTES / 2))).collect();
        assert_eq!(run(&store, &text, &[]).1, Ok(Verdict::Fine));
        assert_eq!(*store.calls.borrow(), ["put_all 2 Buffered", "put_all 2 Buffered"]);
    }

    #[test]
    fn only_keys_whose_write_returned_are_acknowledged() {
        let store = FakeStore::default();
        store.writes_left.set(Some(2));
        let (acknowledged, outcome) =
            run(&store, "a\\t\t1\nb\t2\nc\t3\n", &["--ack", "--durability", "sync"]);
        assert_eq!(acknowledged, "a\\t\nb\n");
        assert_eq!(outcome, Err(Failure::Failed("the disk is full".to_owned())));
        assert_eq!(*store.calls.borrow(), ["put Sync", "put Sync"]);
    }

    #[test]
    fn entries_before_a_bad_line_stay() {
        for mode in [&[][..], &["--ack"]] {
            let store = FakeStore::default();
            let (_, outcome) = run(&store, "a\t1\nb\t2\nbad\nc\t3\n", mode);
            let Err(Failure::Failed(what)) = outcome else { panic!("a bad line must fail: {outcome:?}") };
            let kept = "expected a key, one tab and a value; lines 1 to 2 were written: 2 entries";
            assert_eq!(what, format!("input.tsv: line 3: {kept}"));
            assert_eq!(store.map.borrow().len(), 2);
        }
    }
}
