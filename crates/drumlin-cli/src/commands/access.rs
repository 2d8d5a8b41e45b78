//! Commands on single entries and key ranges: put, get, delete, scan, count.

use crate::args::{CountArgs, DeleteArgs, GetArgs, PutArgs, ScanArgs};
use crate::escape::escape;
use crate::failure::{Failure, Outcome, Verdict, fine};
use crate::output::{Output, note};
use crate::store::{Entries, Store, Want};
use std::io::{self, IsTerminal, Read};

pub(super) fn put(store: &dyn Store, args: &PutArgs) -> Outcome {
    let mut from_stdin = Vec::new();
    let value = match &args.value {
        Some(value) => &value.0,
        None => {
            if io::stdin().is_terminal() {
                note("put: type the value, then end it with Ctrl-D");
            }
            let taken = io::stdin().lock().read_to_end(&mut from_stdin);
            taken.map_err(|e| Failure::failed("reading stdin", e))?;
            &from_stdin
        }
    };
    fine(store.put(&args.key.0, value, args.durability))
}

pub(super) fn get(store: &dyn Store, args: &GetArgs, out: &mut Output<'_>) -> Outcome {
    let Some(value) = store.get(&args.key.0)? else {
        note(&format!("drumlin: key not found: {}", escape(&args.key.0)));
        return Ok(Verdict::Finding);
    };
    fine(if args.raw { out.bytes(&value) } else { out.line(&escape(&value)) })
}

pub(super) fn delete(store: &dyn Store, args: &DeleteArgs) -> Outcome {
    fine(store.delete(&args.key.0, args.durability))
}

pub(super) fn scan(store: &dyn Store, args: &ScanArgs, out: &mut Output<'_>) -> Outcome {
    let bounds = args.range.bounds();
    if bounds.is_empty() || args.limit == Some(0) {
        return Ok(Verdict::Fine);
    }
    let want = if args.keys_only { Want::Keys } else { Want::Entries };
    let mut left = args.limit.unwrap_or(u64::MAX);
    for entry in store.scan(&bounds, want, args.reverse)? {
        let (key, value) = entry?;
        out.entry(args.format, &key, (want == Want::Entries).then_some(&value))?;
        left -= 1;
        if left == 0 {
            break;
        }
    }
    Ok(Verdict::Fine)
}

pub(super) fn count(store: &dyn Store, args: &CountArgs, out: &mut Output<'_>) -> Outcome {
    let bounds = args.range.bounds();
    let entries: Entries<'_> = match bounds.is_empty() {
        true => Box::new(std::iter::empty()),
        false => store.scan(&bounds, Want::Keys, false)?,
    };
    let mut keys = 0u64;
    for entry in entries {
        entry?;
        keys += 1;
    }
    fine(out.line(&keys.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::store::fake::FakeStore;
    use clap::Parser;

    /// Runs a command line on `store`. Returns its output and its outcome.
    fn run(store: &FakeStore, line: &[&str]) -> (String, Outcome) {
        let cli = Cli::try_parse_from([&["drumlin"], line].concat()).expect("good usage");
        let mut sink = Vec::new();
        let mut out = Output::new(&mut sink, false);
        let outcome = match &cli.command {
            Command::Put(args) => put(store, args),
            Command::Get(args) => get(store, args, &mut out),
            Command::Delete(args) => delete(store, args),
            Command::Scan(args) => scan(store, args, &mut out),
            Command::Count(args) => count(store, args, &mut out),
            other => panic!("not an access command: {other:?}"),
        };
        (String::from_utf8(sink).expect("UTF-8"), outcome)
    }

    #[test]
    fn what_is_put_is_got_until_it_is_deleted() {
        let store = FakeStore::default();
        assert_eq!(run(&store, &["put", "db", "a\\tb", "1\\n"]).1, Ok(Verdict::Fine));
        assert_eq!(run(&store, &["get", "db", "a\\tb"]), ("1\\n\n".to_owned(), Ok(Verdict::Fine)));
        assert_eq!(run(&store, &["get", "db", "a\\tb", "--raw"]).0, "1\n");
        assert_eq!(run(&store, &["delete", "db", "a\\x09b", "--durability", "none"]).1, Ok(Verdict::Fine));
        assert_eq!(run(&store, &["get", "db", "a\\tb"]), (String::new(), Ok(Verdict::Finding)));
        assert_eq!(*store.calls.borrow(), ["put Sync", "delete None"]);
    }

    #[test]
    fn a_scan_obeys_its_bounds_direction_limit_and_format() {
        let store = FakeStore::with(&[("a", "1"), ("ba", "2"), ("bb", "3\t"), ("c", "4")]);
        let scanned = |line: &[&str]| run(&store, &[&["scan", "db"], line].concat()).0;
        assert_eq!(scanned(&[]), "a\t1\nba\t2\nbb\t3\\t\nc\t4\n");
        assert_eq!(scanned(&["--prefix", "b", "--keys-only"]), "ba\nbb\n");
        assert_eq!(scanned(&["--from", "ba", "--to", "c", "--reverse"]), "bb\t3\\t\nba\t2\n");
        assert_eq!(scanned(&["--reverse", "--limit", "1"]), "c\t4\n");
        assert_eq!(scanned(&["--limit", "0"]), "");
        assert_eq!(scanned(&["--from", "c", "--to", "a"]), "");
        assert_eq!(scanned(&["--limit", "1", "--format", "jsonl"]), "{\"key\":\"a\",\"value\":\"1\"}\n");
        assert_eq!(scanned(&["--limit", "1", "--format", "jsonl", "--keys-only"]), "{\"key\":\"a\"}\n");
    }

    #[test]
    fn keys_are_counted_within_bounds() {
        let store = FakeStore::with(&[("a", "1"), ("ba", "2"), ("bb", "3"), ("c", "4")]);
        for (line, keys) in [
            (&["count", "db"][..], "4\n"),
            (&["count", "db", "--prefix", "b"], "2\n"),
            (&["count", "db", "--from", "bb"], "2\n"),
            (&["count", "db", "--from", "b", "--to", "a"], "0\n"),
        ] {
            assert_eq!(run(&store, line).0, keys, "{line:?}");
        }
    }

    #[test]
    fn a_reader_gone_away_ends_a_scan() {
        struct Closed;
        impl io::Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let cli = Cli::try_parse_from(["drumlin", "scan", "db"]).expect("good usage");
        let Command::Scan(args) = cli.command else { panic!("not a scan: {cli:?}") };
        let store = FakeStore::with(&[("a", "1")]);
        assert_eq!(scan(&store, &args, &mut Output::new(&mut Closed, false)), Err(Failure::PipeClosed));
    }
}
