//! What someone who meets the command for the first time gets wrong: the message says what and where, and nothing is
//! made or left behind.

use super::Bench;

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
            (1, "checkpoint db db/copy", "lies inside the store"),
        ],
    );
    assert_eq!(std::fs::read(bench.path("file")).expect("a file"), b"text");
    assert!(!bench.path("db/copy").exists());
    bench.ends(0, "verify copy");
}
