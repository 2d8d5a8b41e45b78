//! Tests of keyspaces, options and policies of an open store. After every accepted administration call the manifest
//! must open and contain the change.

#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use drumlin::env::{ImageMode, MemEnv, Random};
use drumlin::{AddI64, Append, Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

fn try_open(mem: &MemEnv) -> drumlin::Result<Db> {
    let builder = Db::builder("/s").env(mem.env()).set("log_segment_bytes", "64KiB")?;
    builder.set("memory_budget", "8MiB")?.open()
}

fn open(mem: &MemEnv) -> Db {
    try_open(mem).expect("the store opens")
}

/// The disk after the process died without closing the store. All of its writes are there.
fn after_death(mem: &MemEnv) -> MemEnv {
    mem.snapshot().image(ImageMode::All, 1)
}

#[test]
fn an_option_of_a_dropped_keyspace_is_refused() {
    let mem = MemEnv::new(1);
    let db = open(&mem);
    let (kept, gone) = (db.keyspace("kept").expect("kept"), db.keyspace("gone").expect("gone"));
    kept.put_with("k", "v", Durability::Sync).expect("put");
    db.drop_keyspace("gone").expect("drop");
    for (option, value) in [("file_bytes", "8KiB"), ("adaptation", "frozen"), ("compaction", "tiering:4")] {
        let error = gone.set_option(option, value).expect_err("the keyspace was dropped");
        assert_eq!(error.kind(), ErrorKind::KeyspaceDropped, "{option}: {error}");
    }
    assert_eq!(gone.set_policy("leveling").expect_err("dropped").kind(), ErrorKind::KeyspaceDropped);
    kept.put("k2", "v").expect("the store goes on");
    let db = open(&after_death(&mem));
    assert_eq!(db.keyspaces(), ["kept"]);
    assert_eq!(db.keyspace("kept").expect("kept").iter().count(), 2);
}

#[test]
fn a_policy_is_refused_before_it_is_written() {
    for name in [
        "leveling:".to_owned(),
        "arce:".to_owned(),
        "tiering:".to_owned(),
        "universal:".to_owned(),
        format!("leveling:{}4", "0".repeat(300)),
        format!("fluid:{}4/2", "4,".repeat(140)),
        format!("fluid:{}4/2", "4,".repeat(126)),
        "no such policy".to_owned(),
    ] {
        let mem = MemEnv::new(1);
        let db = open(&mem);
        let keys = db.keyspace("k").expect("keyspace");
        let before = keys.policy();
        for attempt in [keys.set_policy(&name), keys.set_option("compaction", &name)] {
            assert_eq!(attempt.expect_err("no policy").kind(), ErrorKind::InvalidOption, "{name}");
        }
        let made = db.keyspace_with("l", &[("compaction", name.as_str())]).expect_err("no policy");
        assert_eq!(made.kind(), ErrorKind::InvalidOption, "{name}");
        assert_eq!(keys.policy(), before);
        keys.put("a", "1").expect("the store goes on");
        assert_eq!(open(&after_death(&mem)).keyspaces(), ["k"], "{name}");
        drop(keys);
        db.close().expect("close");
        assert_eq!(open(&mem).keyspaces(), ["k"], "{name}");
    }
}

/// A keyspace takes its options as text pairs, which leave all others alone, or as a struct, which sets them all.
#[test]
fn options_come_as_pairs_or_as_a_struct() {
    let mem = MemEnv::new(7);
    let db = open(&mem);
    let mut options = drumlin::KeyspaceOptions::default();
    options.ttl_seconds = 60;
    options.block_bytes = 8 << 10;
    let ttl_and_block = |keys: &drumlin::Keyspace| {
        let options = keys.options();
        let value =
            |name: &str| options.iter().find(|(other, _)| *other == name).expect("an option").1.clone();
        [value("ttl_seconds"), value("block_bytes")]
    };
    for n in 0..20 {
        // All options of the struct arrive.
        let mut options = drumlin::KeyspaceOptions::random(n);
        options.compaction = "tiering:4".to_owned();
        let keys = db.create_keyspace(&format!("random {n}"), &options).expect("keyspace");
        assert_eq!(keys.options(), options.pairs());
    }
    let keys = db.create_keyspace("k", &options).expect("keyspace");
    assert_eq!(ttl_and_block(&keys), ["60", "8KiB"]);
    db.keyspace_with("k", &[("ttl_seconds", "70")]).expect("keyspace");
    assert_eq!(ttl_and_block(&keys), ["70", "8KiB"], "pairs leave other options alone");
    db.keyspace_with("k", &vec![("block_bytes", "16KiB")]).expect("keyspace");
    db.keyspace_with("k", &drumlin::KeyspaceOptions::default()).expect("keyspace");
    assert_eq!(ttl_and_block(&keys), ["0", "4KiB"], "a struct sets every option");
    let told = || db.explain().iter().filter(|d| d.reason == "set by the user").count();
    let before = told();
    db.keyspace_with("k", &drumlin::KeyspaceOptions::default()).expect("keyspace");
    assert_eq!(told(), before, "options that keep their values are not in the decision log");
    db.keyspace_with("k", &[("adaptation", "frozen"), ("compaction", "tiering:4")]).expect("keyspace");
    assert_eq!(told(), before + 2);
    options.block_bytes = 1;
    let error = db.keyspace_with("k", &options).expect_err("below the bounds");
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert_eq!(ttl_and_block(&keys), ["0", "4KiB"], "all are set or none");
}

#[test]
fn a_number_of_a_dropped_keyspace_is_not_used_again() {
    // The timing of background work decides whether the log still holds the dropped data.
    (0..20).for_each(drop_reopen_and_make);
}

fn drop_reopen_and_make(seed: u64) {
    let mem = MemEnv::new(seed);
    let db = open(&mem);
    let (a, b) = (db.keyspace("a").expect("a"), db.keyspace("b").expect("b"));
    a.put("ka", "va").expect("put");
    b.put("kb", "vb").expect("put");
    db.drop_keyspace("b").expect("drop");
    drop((a, b));
    db.close().expect("close");
    open(&mem).close().expect("close");
    let db = open(&mem);
    db.keyspace("c").expect("c").put("kc", "vc").expect("put");
    db.close().expect("close");
    let db = open(&mem);
    let keys = |name: &str| -> Vec<String> {
        let entries = db.keyspace(name).expect("keyspace").iter();
        entries.map(|entry| String::from_utf8_lossy(&entry.expect("entry").0).into_owned()).collect()
    };
    assert_eq!((keys("a"), keys("c")), (vec!["ka".to_owned()], vec!["kc".to_owned()]), "seed {seed}");
}

/// Call of one of several threads.
type Task<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs each of `calls` in its own thread, all at the same time.
fn at_once<'a, T: Send + 'a>(calls: Vec<Task<'a, T>>) -> Vec<T> {
    let start = &Barrier::new(calls.len());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for call in calls {
            threads.push(scope.spawn(move || {
                start.wait();
                call()
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn of_two_threads_that_drop_a_keyspace_one_does() {
    let mem = MemEnv::threaded(4);
    let db = open(&mem);
    db.keyspace("kept").expect("keyspace").put("k", "v").expect("put");
    for round in 0..300 {
        db.keyspace("gone").expect("keyspace").put("k", "v").expect("put");
        let drop_it = || -> Task<'_, drumlin::Result<()>> { Box::new(|| db.drop_keyspace("gone")) };
        let drops = at_once(vec![drop_it(), drop_it()]);
        let refused: Vec<_> = drops.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused.len(), 1, "round {round}: {refused:?}");
        assert_eq!(refused[0].kind(), ErrorKind::NotFound, "round {round}: {}", refused[0]);
        if round % 50 == 0 {
            assert_eq!(open(&after_death(&mem)).keyspaces(), ["kept"], "round {round}");
        }
    }
}

#[test]
fn a_rename_is_refused_or_lasts() {
    let mem = MemEnv::new(6);
    let db = open(&mem);
    let (a, b) = (db.keyspace("a").expect("a"), db.keyspace("b").expect("b"));
    a.put("k", "of a").expect("put");
    b.put("k", "of b").expect("put");
    let long = "x".repeat(256);
    for (from, to, kind) in [
        ("a", "b", ErrorKind::AlreadyExists),
        ("a", "", ErrorKind::InvalidArgument),
        ("a", &*long, ErrorKind::InvalidArgument),
        ("c", "d", ErrorKind::NotFound),
        ("c", "a", ErrorKind::NotFound),
    ] {
        assert_eq!(db.rename_keyspace(from, to).expect_err("refused").kind(), kind, "{from} {to}");
    }
    db.rename_keyspace("a", "a").expect("nothing changes");
    let snapshot = db.snapshot();
    db.drop_keyspace("b").expect("drop");
    db.rename_keyspace("a", "b").expect("rename");
    assert_eq!((a.name(), db.keyspaces()), ("b".to_owned(), vec!["b".to_owned()]));
    assert_eq!(db.open_keyspace("a").expect_err("renamed").kind(), ErrorKind::NotFound);
    assert_eq!(snapshot.get(&a, "k").expect("get").as_deref(), Some(&b"of a"[..]));
    a.put("k2", "later").expect("put");
    let message = b.get("k").expect_err("dropped").to_string();
    assert!(message.contains("\"b\" was dropped"), "{message}");
    let died = after_death(&mem);
    drop((a, b, snapshot));
    db.close().expect("close");
    for reopened in [died, mem] {
        let db = open(&reopened);
        let b = db.open_keyspace("b").expect("the new name");
        assert_eq!((db.keyspaces().len(), b.iter().count()), (1, 2));
        // The old name is free.
        db.create_keyspace("a", &[]).expect("a new keyspace");
    }
}

#[test]
fn a_renamed_keyspace_keeps_its_operator() {
    let mem = MemEnv::new(7);
    let with = |name: &str, add: bool| {
        let builder = Db::builder("/s").env(mem.env());
        match add {
            true => builder.merge_operator(name, Arc::new(AddI64::Text)).open(),
            false => builder.merge_operator(name, Arc::new(Append::new(","))).open(),
        }
    };
    let db = with("hits", true).expect("open");
    let hits = db.keyspace("hits").expect("keyspace");
    hits.merge("k", "1").expect("merge");
    db.rename_keyspace("hits", "views").expect("rename");
    hits.merge("k", "2").expect("the handle merges as before");
    assert_eq!(hits.get("k").expect("get").as_deref(), Some(&b"3"[..]));
    drop(hits);
    db.close().expect("close");
    assert_eq!(with("views", false).expect_err("another operator").kind(), ErrorKind::InvalidOption);
    let db = with("views", true).expect("the operator of the new name");
    let views = db.open_keyspace("views").expect("keyspace");
    assert_eq!(views.get("k").expect("get").as_deref(), Some(&b"3"[..]));
    drop(views);
    db.close().expect("close");
    // A keyspace without an operator does not get the one of its new name, so the rename is refused.
    let db = with("hits", true).expect("open");
    db.keyspace("plain").expect("keyspace").put("k", "1").expect("put");
    assert_eq!(db.rename_keyspace("plain", "hits").expect_err("operator").kind(), ErrorKind::InvalidOption);
    db.drop_keyspace("plain").expect("drop");
    db.close().expect("close");
    // A name for which the program passed another operator is refused: the next open would be, too.
    let builder = Db::builder("/s").env(mem.env()).merge_operator("views", Arc::new(AddI64::Text));
    let db = builder.merge_operator("list", Arc::new(Append::new(","))).open().expect("open");
    assert_eq!(db.rename_keyspace("views", "list").expect_err("operators").kind(), ErrorKind::InvalidOption);
    assert_eq!(db.keyspaces(), ["views"]);
}

/// Renaming is how a program puts a rebuilt keyspace in place. No name may survive a power loss without its data.
#[test]
fn a_power_loss_leaves_no_new_name_without_its_data() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..4 {
        let mem = MemEnv::new(seed);
        let db = open(&mem);
        db.keyspace("index").expect("keyspace").put_with("k", "old", Durability::Sync).expect("put");
        db.rename_keyspace("index", "index.old").expect("rename");
        let rebuilt = db.keyspace("index.new").expect("keyspace");
        for number in 0..100_u32 {
            rebuilt.put_with(number.to_be_bytes(), [7; 100], Durability::Buffered).expect("put");
        }
        let begin = mem.io_index();
        for cut in begin..begin + 12 {
            mem.take_snapshot_at(cut);
        }
        db.rename_keyspace("index.new", "index").expect("rename");
        assert!(mem.io_index() - begin <= 12, "every call of the rename is cut");
        let disks = mem.taken().into_iter().map(|(_, disk)| disk).chain([mem.snapshot()]);
        for (number, disk) in disks.enumerate() {
            for mode in [ImageMode::None, ImageMode::All, ImageMode::Pages, ImageMode::Torn, ImageMode::Size]
            {
                let db = open(&disk.image(mode, number as u64));
                let names = db.keyspaces();
                assert!(names.contains(&"index.old".to_owned()), "seed {seed}, cut {number}, {mode:?}");
                if names.contains(&"index".to_owned()) {
                    let entries = db.open_keyspace("index").expect("keyspace").iter().count();
                    assert_eq!(entries, 100, "seed {seed}, cut {number}, {mode:?}");
                    new += 1;
                } else {
                    assert!(names.contains(&"index.new".to_owned()), "seed {seed}, cut {number}, {mode:?}");
                    old += 1;
                }
            }
        }
        let after = open(&mem.snapshot().image(ImageMode::None, seed));
        assert_eq!(after.keyspaces(), ["index.old", "index"], "a finished rename is durable");
    }
    assert!(old > 20 && new > 20, "{old} old, {new} new");
}

#[test]
fn renames_and_drops_by_threads_leave_each_keyspace_one_name() {
    let mem = MemEnv::threaded(8);
    let db = open(&mem);
    for round in 0..200 {
        for name in ["a", "b"] {
            db.keyspace(name).expect("keyspace").put("k", name).expect("put");
        }
        let results = at_once::<drumlin::Result<()>>(vec![
            Box::new(|| db.rename_keyspace("a", "c")),
            Box::new(|| db.rename_keyspace("b", "c")),
            Box::new(|| db.drop_keyspace("a")),
            Box::new(|| db.create_keyspace("c", &[]).map(drop)),
        ]);
        for error in results.into_iter().filter_map(Result::err) {
            let kinds = [ErrorKind::NotFound, ErrorKind::AlreadyExists];
            assert!(kinds.contains(&error.kind()), "round {round}: {error}");
        }
        let names = db.keyspaces();
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "round {round}: {names:?}");
        assert!(names.contains(&"c".to_owned()), "round {round}: {names:?}");
        if round % 50 == 0 {
            assert_eq!(open(&after_death(&mem)).keyspaces(), names, "round {round}");
        }
        names.iter().for_each(|name| db.drop_keyspace(name).expect("drop"));
    }
}

#[test]
fn options_set_by_two_threads_are_both_kept() {
    let mem = MemEnv::threaded(5);
    let db = open(&mem);
    let keys = db.keyspace("k").expect("keyspace");
    let of = |options: Vec<(&str, String)>, name: &str| {
        options.into_iter().find(|(n, _)| *n == name).expect("the option is there").1
    };
    for round in 0..300_u64 {
        let (block, file) = (format!("{}", 512 + round), format!("{}", 8000 + round));
        let (limit, durability) =
            (format!("{}", 1000 + round), if round % 2 == 0 { "sync" } else { "buffered" });
        let policy = if round % 2 == 0 { "tiering:4" } else { "leveling:3" };
        let set = at_once::<drumlin::Result<()>>(vec![
            Box::new(|| keys.set_option("block_bytes", &block)),
            Box::new(|| keys.set_option("file_bytes", &file)),
            Box::new(|| keys.set_policy(policy)),
            Box::new(|| db.set_option("write_timeout_ms", &limit)),
            Box::new(|| db.set_option("durability", durability)),
        ]);
        set.into_iter().for_each(|set| set.expect("a legal value"));
        let own = KeyspaceOptions::default();
        let expected = |name: &str, value: &str| {
            let mut options = own.clone();
            options.set(name, value).and_then(|()| options.get(name)).expect("a legal value")
        };
        let check = |keys: &Keyspace| {
            for (name, value) in [("block_bytes", &*block), ("file_bytes", &*file), ("compaction", policy)] {
                assert_eq!(of(keys.options(), name), expected(name, value), "round {round}: {name}");
            }
        };
        check(&keys);
        assert_eq!(keys.policy(), policy, "round {round}");
        assert_eq!(of(db.options(), "write_timeout_ms"), limit, "round {round}");
        assert_eq!(of(db.options(), "durability"), durability, "round {round}");
        if round % 100 == 0 {
            let again = open(&after_death(&mem));
            check(&again.keyspace("k").expect("keyspace"));
            assert_eq!(of(again.options(), "durability"), durability, "round {round}");
        }
    }
}

/// Call that changes the manifest, with valid or invalid arguments.
#[derive(Debug)]
enum Call {
    Make(String, Vec<(String, String)>),
    Drop(String),
    Rename(String, String),
    Set(String, String, String),
    SetStore(String, String),
    Policy(String, String),
    Reopen,
}

/// Generator of names, values and arguments: usual, empty, too long, at the limit, or of another option.
fn draw_call(random: &mut Random) -> Call {
    let text = |random: &mut Random, usual: &[&str]| match random.below(10) {
        0 => String::new(),
        1 => "x".repeat([1, 31, 32, 33, 254, 255, 256, 257, 300, 70_000][random.index(10)]),
        2 => ["\n", "\0", "\u{e4}", " ", ":", "a:b:c", "-1", "99999999999999999999"][random.index(8)]
            .to_owned(),
        _ => usual[random.index(usual.len())].to_owned(),
    };
    let policies = [
        "leveling",
        "leveling:",
        "leveling:4",
        "tiering:",
        "tiering:2",
        "arce",
        "arce:",
        "universal:",
        "universal",
        "ucs:",
        "ucs:-2",
        "fluid:4/2",
        "fluid:/",
        "chaos:",
        "chaos",
        "1-leveling:",
        "lazy-leveling:",
    ];
    let policy = |random: &mut Random| match random.below(6) {
        0 => {
            let digits = [200, 245, 246, 247, 250, 256, 257, 300][random.index(8)];
            format!("{}{}4/2", ["fluid:", "leveling:", "arce:"][random.index(3)], "4,".repeat(digits / 2))
        }
        _ => policies[random.index(policies.len())].to_owned(),
    };
    let defs: Vec<_> = KeyspaceOptions::defs().iter().chain(Options::defs()).collect();
    let option = |random: &mut Random| {
        let def = defs[random.index(defs.len())];
        if def.name == "compaction" {
            return (def.name.to_owned(), policy(random));
        }
        // A legal value, or a value of another option.
        let of = if random.chance(3, 4) { def } else { defs[random.index(defs.len())] };
        let drawn = KeyspaceOptions::random(random.next_u64()).get(of.name);
        let drawn = drawn.or_else(|_| Options::random(random.next_u64()).get(of.name)).unwrap_or_default();
        (def.name.to_owned(), if random.chance(1, 4) { text(random, &["0", "none", "auto"]) } else { drawn })
    };
    let names = ["a", "b", "c", "d"];
    match random.below(22) {
        0..5 => {
            let options = (0..random.below(3)).map(|_| option(random)).collect();
            Call::Make(text(random, &names), options)
        }
        5..8 => Call::Drop(text(random, &names)),
        8..13 => {
            let (name, value) = option(random);
            Call::Set(names[random.index(names.len())].to_owned(), name, value)
        }
        13..15 => {
            let (name, value) = option(random);
            Call::SetStore(name, value)
        }
        15..17 => Call::Rename(names[random.index(names.len())].to_owned(), text(random, &names)),
        17..21 => Call::Policy(names[random.index(names.len())].to_owned(), policy(random)),
        _ => Call::Reopen,
    }
}

/// Keyspaces, options and policies of the store, as text.
fn picture(db: &Db, handles: &BTreeMap<String, Keyspace>) -> String {
    let mut text = format!("{:?}", db.options());
    for name in db.keyspaces() {
        text += &format!("\n{name}: {:?} {}", handles[&name].options(), handles[&name].policy());
    }
    text
}

fn handles(db: &Db) -> BTreeMap<String, Keyspace> {
    let handle = |name: String| (name.clone(), db.keyspace(&name).expect("it is there"));
    db.keyspaces().into_iter().map(handle).collect()
}

/// After any sequence of calls the store opens with exactly the accepted changes. A refused call changes nothing.
#[test]
fn an_accepted_call_means_that_the_store_opens() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..30 {
        let mem = MemEnv::new(seed);
        let mut random = Random::new(seed, "administration");
        let mut db = open(&mem);
        // Handles of dropped keyspaces stay in use.
        let mut all = handles(&db);
        for step in 0..50 {
            let call = draw_call(&mut random);
            let before = picture(&db, &handles(&db));
            let result = match &call {
                Call::Make(name, options) => {
                    let options: Vec<(&str, &str)> = options.iter().map(|(n, v)| (&**n, &**v)).collect();
                    db.keyspace_with(name, &options).map(|made| {
                        made.put("key", "value").expect("put");
                        all.insert(name.clone(), made);
                    })
                }
                Call::Drop(name) => db.drop_keyspace(name),
                Call::Rename(from, to) => db.rename_keyspace(from, to).map(|()| {
                    let handle = all.remove(from);
                    all.extend(handle.map(|handle| (to.clone(), handle)));
                }),
                Call::Set(keyspace, name, value) => {
                    all.get(keyspace).map_or(Ok(()), |keyspace| keyspace.set_option(name, value))
                }
                Call::SetStore(name, value) => db.set_option(name, value),
                Call::Policy(keyspace, name) => {
                    all.get(keyspace).map_or(Ok(()), |keyspace| keyspace.set_policy(name))
                }
                Call::Reopen => {
                    all.clear();
                    db.close().expect("close");
                    db = open(&mem);
                    all = handles(&db);
                    Ok(())
                }
            };
            let now = picture(&db, &handles(&db));
            let place = || format!("seed {seed}, step {step}: {call:?}: {result:?}");
            match &result {
                Ok(()) => accepted += 1,
                Err(error) => {
                    let kinds = [
                        ErrorKind::InvalidArgument,
                        ErrorKind::AlreadyExists,
                        ErrorKind::KeyspaceDropped,
                        ErrorKind::NotFound,
                        ErrorKind::InvalidOption,
                    ];
                    assert!(kinds.contains(&error.kind()), "{}", place());
                    assert_eq!(before, now, "{}", place());
                    refused += 1;
                }
            }
            if result.is_err() && step % 5 > 0 {
                continue;
            }
            let world = after_death(&mem);
            let again = try_open(&world).unwrap_or_else(|error| panic!("{}: {error}", place()));
            assert_eq!(picture(&again, &handles(&again)), now, "{}", place());
        }
    }
    assert!(accepted > 500 && refused > 300, "{accepted} accepted, {refused} refused");
}
