//! Tests of tidy as a whole: the order and format of its findings, and the findings in this repository.

use super::*;

#[test]
fn findings_read_like_a_compiler_s() {
    let finding = Finding::new("a/b.rs", 7, "door", "wrong; do this");
    assert_eq!(finding.to_string(), "a/b.rs:7: door: wrong; do this");
}

#[test]
fn every_rule_takes_part() {
    let architecture = "\
| crate | role | may depend on |
|---|---|---|
| `drumlin` | engine | `drumlin-env` |

| module | may import | crates |
|---|---|---|
| `a` | nothing | |
| `b` | nothing | |

| fenced file | why |
|---|---|
| `f.rs` | |

| door | may use | why |
|---|---|---|
| `xtask/` | `fs` | |

[gone](gone.md)

| what | before | after |
|---|---|---|
| put | 1.7 us | 1.2 us |
";
    let long = format!("//! x\n{}", "f();\n".repeat(601));
    let repository = Repository::of(&[
        ("ARCHITECTURE.md", architecture),
        (
            "crates/drumlin/Cargo.toml",
            "[package]\nname = \"drumlin\"\n[dependencies]\ndrumlin-cli.workspace = true\n[features]\n\
                default = [\"experiments\"]\n",
        ),
        (
            "crates/drumlin/src/a.rs",
            concat!("//! x\nuse crate::b;\nuse std::fs;\nunsafe {}\nto", "do!();\nstruct Helper;\n"),
        ),
        ("crates/drumlin/src/b.rs", "fn f() {}\n"),
        ("crates/drumlin-bench/src/lib.rs", &long),
    ]);
    let found: Vec<String> =
        check(&repository).iter().map(|f| format!("{}:{} {}", f.path, f.line, f.rule)).collect();
    assert_eq!(
        found,
        [
            "ARCHITECTURE.md:18 links",
            "ARCHITECTURE.md:22 tables",
            "crates/drumlin-bench/src/lib.rs:1 size",
            "crates/drumlin/Cargo.toml:4 crates",
            "crates/drumlin/Cargo.toml:6 experiments",
            "crates/drumlin/src/a.rs:2 imports",
            "crates/drumlin/src/a.rs:3 door",
            "crates/drumlin/src/a.rs:4 unsafe",
            "crates/drumlin/src/a.rs:5 unfinished",
            "crates/drumlin/src/a.rs:6 names",
            "crates/drumlin/src/b.rs:1 essay",
        ]
    );
}

#[test]
fn this_repository_is_tidy() {
    let repository = Repository::read(&crate::repository_root()).unwrap();
    assert!(repository.sources.len() > 20, "the walk found too little to trust its verdict");
    let findings: Vec<String> = check(&repository).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
