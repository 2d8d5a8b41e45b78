//! Tests of keyspaces, options and policies of an open store. After every accepted administration call the manifest
//! must open and contain the change.

#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use drumlin::env::{MemEnv, Random};
use drumlin::{Db, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::collections::BTreeMap;
use std::sync::Barrier;

fn try_open(mem: &MemEnv) -> drumlin::Result<Db> {
    let builder = Db::builder("/s").env(mem.env()).set("log_segment_bytes", "64KiB")?;
    builder.set("memory_budget", "8MiB")?.open()
}

fn open(mem: &MemEnv) -> Db {
    try_open(mem).expect("the store opens")
}

/// The disk after the process died without closing the store. All of its writes are there.
fn after_death(mem: &MemEnv) -> MemEnv {
    mem.snapshot().image(drumlin::env::ImageMode::All, 1)
}

#[test]
fn an_option_of_a_dropped_keyspace_is_refused() {
    let mem = MemEnv::new(1);
    let db = open(&mem);
    let (kept, gone) = (db.keyspace("kept").expect("kept"), db.keyspace("gone").expect("gone"));
    kept.put_with("k", "v", drumlin::Durability::Sync).expect("put");
    db.drop_keyspace("gone").expect("drop");
    for (option, value) in [("file_bytes", "8KiB"), ("adaptation", "frozen"), ("compaction", "tiering:4")] {
        let error = gone.set_option(option, value).expect_err("the keyspace was dropped");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{option}: {error}");
    }
    assert_eq!(gone.set_policy("leveling").expect_err("dropped").kind(), ErrorKind::InvalidArgument);
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
        let made = db.keyspace_with("l", &[("compaction", &name)]).expect_err("no policy");
        assert_eq!(made.kind(), ErrorKind::InvalidOption, "{name}");
        assert_eq!(keys.policy(), before);
        keys.put("a", "1").expect("the store goes on");
        assert_eq!(open(&after_death(&mem)).keyspaces(), ["k"], "{name}");
        drop(keys);
        db.close().expect("close");
        assert_eq!(open(&mem).keyspaces(), ["k"], "{name}");
    }
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
    match random.below(20) {
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
        15..19 => Call::Policy(names[random.index(names.len())].to_owned(), policy(random)),
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
                    let kinds = [ErrorKind::InvalidArgument, ErrorKind::NotFound, ErrorKind::InvalidOption];
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
