//! Tests of `load`: formats by file name, columns by name, and messages about a bad line.

use super::Bench;

#[test]
fn the_format_follows_from_the_name_and_columns_from_the_header() {
    let bench = Bench::new();
    bench.file("people.csv", b"id,name,age\r\n1,\"ada, c\",36\r\n2,bob,41\r\n");
    bench.file("people.tsv", b"id\tname\n1\tada\n");
    bench.file("people.jsonl", b"{\"id\": 1, \"name\": \"ada\"}\n");
    bench.file("pairs.ndjson", b"{\"key\": \"a\", \"value\": 1}\n");
    bench.ends(0, "load csv people.csv --key id");
    let objects = "1\t{\"name\":\"ada, c\",\"age\":\"36\"}\n2\t{\"name\":\"bob\",\"age\":\"41\"}\n";
    assert_eq!(bench.ends(0, "scan csv"), objects);
    bench.ends(0, "load csv people.csv --key name --value age --keyspace ages");
    assert_eq!(bench.ends(0, "scan csv --keyspace ages"), "ada, c\t36\nbob\t41\n");
    bench.ends(0, "load tsv people.tsv --key id");
    assert_eq!(bench.ends(0, "scan tsv"), "1\tada\n");
    bench.ends(0, "load jsonl people.jsonl --key id");
    assert_eq!(bench.ends(0, "get jsonl 1"), "{\"id\": 1, \"name\": \"ada\"}\n");
    bench.ends(0, "load pairs pairs.ndjson");
    assert_eq!(bench.ends(0, "scan pairs"), "a\t1\n");
}

#[test]
fn a_bad_line_is_named_with_what_was_written_before_it() {
    let bench = Bench::new();
    bench.file("bad.tsv", b"a\t1\nb\t2\nbad\nc\t3\n");
    bench.file("first.csv", b"id,name,age\n1,ada,36\n");
    bench.file("columns.csv", b"id,name\n1,ada\n2\n");
    bench.file("other.jsonl", b"{\"id\": 1}\n");
    for (line, said) in [
        (
            "load db bad.tsv",
            "bad.tsv: line 3: expected a key, one tab and a value; lines 1 to 2 were written: 2 entries",
        ),
        (
            "load db first.csv",
            "line 1: a record is a key and a value, not 3 fields; name the key's column of a header",
        ),
        ("load db first.csv", "with --key; nothing was written"),
        ("load db columns.csv --key idd", "the header has no column idd; the nearest is id; it has id, name"),
        (
            "load db columns.csv --key id",
            "line 3: the row has 1 fields, the header 2; lines 1 to 2 were written: 1 entry",
        ),
        ("load db other.jsonl", "choose the key among other members with --key; nothing was written"),
    ] {
        let told = bench.complaint(1, line);
        assert!(told.contains(said), "{line}: {told}");
    }
    for (line, said) in [
        ("load db -", "the name of stdin does not tell its format"),
        ("load db bad.bin", "the name of bad.bin does not tell its format"),
        ("load db Packages --key id", "--key is for csv, tsv and jsonl"),
    ] {
        let told = bench.complaint(2, line);
        assert!(told.contains(said), "{line}: {told}");
    }
}

#[test]
fn an_empty_file_and_a_folder_are_told_apart() {
    let bench = Bench::new();
    bench.file("empty.tsv", b"");
    bench.ends(0, "load db empty.tsv");
    assert_eq!(bench.ends(0, "count db"), "0\n");
    std::fs::create_dir(bench.path("folder.tsv")).expect("a folder");
    let told = bench.complaint(1, "load new folder.tsv");
    assert_eq!(told, "drumlin: folder.tsv is a directory, not a file\n");
    assert!(!bench.path("new").exists());
}
