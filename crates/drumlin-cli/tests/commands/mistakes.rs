//! Tests of mistakes that first-time users make. The message says what is wrong and where, and nothing is created or
//! left behind.

use super::Bench;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

impl Bench {
    /// Runs the command, which fails with `status`, and returns its stderr.
    pub(super) fn complaint(&self, status: i32, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8(output.stderr).expect("stderr is UTF-8");
        assert_eq!(output.status.code(), Some(status), "{line}: {errors}");
        errors
    }
}

/// Checks that each command line fails with its status and a message that contains its text.
fn complaints(bench: &Bench, expected: &[(i32, &str, &str)]) {
    for (status, line, text) in expected {
        let said = bench.complaint(*status, line);
        assert!(said.contains(text), "{line}: {said}");
    }
}

#[test]
fn a_misspelled_name_is_answered_with_the_nearest() {
    let bench = Bench::new();
    bench.ends(0, "put db k v");
    complaints(
        &bench,
        &[
            (2, "put db k v --set ttl=5", "there is no option ttl; the nearest is ttl_seconds"),
            (2, "put db k v --set memory_budgt=1GiB", "the nearest is memory_budget"),
            (2, "policy db tierng", "no such policy; the nearest is tiering; there are "),
            (2, "sim --policy levelling", "the nearest is leveling;"),
            (2, "lod db file", "'load'"),
            (2, "sim XYZ", "there is no plan XYZ; a plan is I, II, III, gradient, or letters A to J"),
            (2, "bench micro fillrandm", "the nearest is fillrandom; available: "),
            (2, "bench", "name a benchmark family. To begin with:"),
        ],
    );
}

#[test]
fn what_is_no_store_is_called_so_and_stays_as_it_is() {
    let bench = Bench::new();
    bench.file("file", b"text");
    for folder in ["empty", "other"] {
        std::fs::create_dir(bench.path(folder)).expect("a folder");
    }
    bench.file("other/notes.txt", b"text");
    for command in
        ["get", "scan", "count", "verify", "tree", "stats", "explain", "policy", "keyspaces", "compact"]
    {
        let key = if command == "get" { " k" } else { "" };
        complaints(
            &bench,
            &[
                (1, &format!("{command} file{key}"), "drumlin: file is a file, not a directory\n"),
                (1, &format!("{command} file/sub{key}"), "drumlin: file is a file, not a directory\n"),
                (
                    1,
                    &format!("{command} empty{key}"),
                    "there is no store at empty: the directory has no CURRENT",
                ),
                (
                    1,
                    &format!("{command} other{key}"),
                    "drumlin: other is not empty and holds no Drumlin store\n",
                ),
                (
                    1,
                    &format!("{command} none{key}"),
                    "drumlin: there is no store at none: no such directory\n",
                ),
            ],
        );
    }
    complaints(
        &bench,
        &[
            (1, "put file k v", "drumlin: file is a file, not a directory\n"),
            (1, "put file/sub k v", "drumlin: file is a file, not a directory\n"),
            (1, "put other k v", "drumlin: other is not empty and holds no Drumlin store\n"),
            (1, "repair none new", "drumlin: there is no store at none: no such directory\n"),
            (1, "repair file new", "drumlin: file is a file, not a directory\n"),
        ],
    );
    let names = |folder: &str| std::fs::read_dir(bench.path(folder)).expect("a folder").count();
    assert_eq!((names("empty"), names("other"), names("")), (0, 1, 3));
}

#[test]
fn a_refused_checkpoint_leaves_nothing() {
    let bench = Bench::new();
    bench.ends(0, "put db k v");
    bench.file("file", b"text");
    bench.ends(0, "checkpoint db copy");
    complaints(
        &bench,
        &[
            (1, "checkpoint db copy", "copy exists and is not empty: name a new or an empty directory"),
            (1, "checkpoint db file", "file is a file, not a directory"),
            (1, "checkpoint db file/a/b", "file is a file, not a directory"),
            (1, "checkpoint db db/copy", "db/copy lies inside the directory of the store"),
            (1, "repair db db/", "db/ is the directory of the store itself"),
        ],
    );
    assert_eq!(std::fs::read(bench.path("file")).expect("a file"), b"text");
    assert!(!bench.path("db/copy").exists());
    bench.ends(0, "verify copy");
}

#[test]
fn arguments_that_have_no_effect_or_stand_in_the_wrong_place_are_refused() {
    let bench = Bench::new();
    bench.file("in.tsv", b"a\t1\n");
    bench.ends(0, "load db in.tsv");
    for line in [
        "compact db",
        "verify db",
        "stats db",
        "keyspaces db",
        "checkpoint db copy",
        "repair db new",
        "options",
    ] {
        let told = bench.complaint(2, &format!("{line} --keyspace default"));
        assert!(told.starts_with("drumlin: --keyspace has no effect here: "), "{line}: {told}");
    }
    complaints(
        &bench,
        &[
            (2, "load in.tsv db", "in.tsv is a file: the order is drumlin load DB FILE"),
            (2, "policy db freeze", "freeze is no policy but an option: --freeze"),
            (1, "get db a --keyspace defalt", "no keyspace named defalt; the nearest is default"),
            (1, "explain db --keyspace x", "no keyspace named x; it has default"),
            (2, "options memory_budgt", "there is no option memory_budgt; the nearest is memory_budget"),
        ],
    );
    assert!(bench.ends(0, "options memory_budget").starts_with("memory_budget = 512MiB"));
}

#[test]
fn odd_keys_values_and_paths_come_back_as_they_were() {
    let bench = Bench::new();
    let put = |path: &str, key: &str, value: &str| {
        let output = bench.command("put").args([path, "--", key, value]).output().expect("it runs");
        assert!(output.status.success(), "{key}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let absolute = bench.path("db").display().to_string();
    let keys = ["", "-k", "a\nb", "\\xff\\x00", "a key of words", "\u{e9}\u{1f600}"];
    for (path, key) in ["db", "./db", "db/", &absolute, "../tmp/../db/.", "db//"].iter().zip(keys) {
        let path = if path.starts_with("..") { "./db/." } else { path };
        put(path, key, &format!("value of {key}"));
    }
    for key in keys {
        let output = bench.command("get db --raw --").arg(key).output().expect("it runs");
        let unescaped = key.replace("\\xff\\x00", "\u{fffd}\0");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("value of {unescaped}"), "{key}");
    }
    assert_eq!(bench.ends(0, "count db"), "6\n");
    // A command that writes little may end before its store has flushed anything.
    bench.ends(0, "compact db");
    assert!(bench.ends(0, "tree db --files").contains("(empty) .. "));
}

/// A running `load` from a pipe, which keeps the store open: the process, its input and its output.
struct OpenLoad {
    process: Child,
    input: ChildStdin,
    _output: BufReader<ChildStdout>,
}

impl OpenLoad {
    /// Starts a load into `db` and waits until its first entry is acknowledged.
    fn start(bench: &Bench) -> OpenLoad {
        let mut load = bench.command("load db - --format tsv --ack");
        let mut process = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut input = process.stdin.take().expect("a pipe");
        input.write_all(b"b\t2\n").expect("it reads");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a key");
        assert_eq!(line, "b\n");
        OpenLoad { process, input, _output: output }
    }
}

#[test]
fn a_store_that_another_process_has_open_is_refused() {
    let bench = Bench::new();
    bench.ends(0, "put db a 1");
    let OpenLoad { mut process, input, _output } = OpenLoad::start(&bench);
    let told = bench.complaint(1, "get db a");
    assert_eq!(told, "drumlin: the store at db is open already, in this or in another process\n");
    drop(input);
    assert!(process.wait().expect("it ends").success());
    assert_eq!(bench.ends(0, "count db"), "2\n");
}

#[test]
fn an_interrupted_load_leaves_a_store_that_opens() {
    let bench = Bench::new();
    let mut load = OpenLoad::start(&bench);
    load.input.write_all(b"c\t3\nhalf a li").expect("it reads");
    load.process.kill().expect("it runs");
    load.process.wait().expect("it ends");
    assert_eq!(bench.ends(0, "get db b"), "2\n");
    bench.ends(0, "verify db");
}
