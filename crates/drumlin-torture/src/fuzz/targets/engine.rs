//! Targets outside the file formats: options, names and saved states of policies, and the operation language.

use super::fields::Fields;
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use crate::workload::{POLICIES, Taste, Workload};
use drumlin::{KeyspaceOptions, Options};
use drumlin_sim::World;
use drumlin_types::contract::{CompactionPolicy, LimitView, LoadView};

pub(super) const TARGETS: &[Target] = &[
    Target { name: "options", codecs: &[], run: options, mend: mend::nothing, seeds: option_seeds, cost: 1 },
    Target {
        name: "policy-name",
        codecs: &[],
        run: policy_name,
        mend: mend::nothing,
        seeds: policy_name_seeds,
        cost: 1,
    },
    Target {
        name: "policy-state",
        codecs: &[],
        run: policy_state,
        mend: mend::nothing,
        seeds: policy_state_seeds,
        cost: 25,
    },
    Target { name: "tape", codecs: &[], run: tape, mend: mend::nothing, seeds: tape_seeds, cost: 1 },
];

/// Maximum length of the message about a refused option.
const MESSAGE_LEN: usize = 2000;

/// Parses `name=value`, an option of the store or of a keyspace.
fn options(input: &[u8]) -> bool {
    let Some((name, value)) = std::str::from_utf8(input).ok().and_then(|text| text.split_once('=')) else {
        return false;
    };
    let (mut store, mut keyspace) = (Options::default(), KeyspaceOptions::default());
    let of_store = store.set(name, value).map(|()| {
        store.validate().expect("what is set is valid");
        let shown = store.get(name).expect("it has that option");
        let mut again = Options::default();
        again.set(name, &shown).expect("what is shown can be set");
        assert_eq!(again.get(name).expect("it has that option"), shown);
    });
    let of_keyspace = keyspace.set(name, value).map(|()| {
        keyspace.validate().expect("what is set is valid");
        let shown = keyspace.get(name).expect("it has that option");
        let mut again = KeyspaceOptions::default();
        again.set(name, &shown).expect("what is shown can be set");
        assert_eq!(again.get(name).expect("it has that option"), shown);
    });
    for error in [of_store.as_ref().err(), of_keyspace.as_ref().err()].into_iter().flatten() {
        assert!(error.to_string().len() <= MESSAGE_LEN + name.len());
    }
    of_store.is_ok() || of_keyspace.is_ok()
}

fn option_seeds() -> Vec<Vec<u8>> {
    let (store, keyspace) = (Options::random(1), KeyspaceOptions::random(2));
    let pairs = store.pairs().into_iter().chain(keyspace.pairs());
    pairs.map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}

fn policy_name(input: &[u8]) -> bool {
    let Some(policy) = std::str::from_utf8(input).ok().and_then(|name| drumlin_policy::by_name(name).ok())
    else {
        return false;
    };
    let name = policy.name();
    let again = drumlin_policy::by_name(&name).expect("a policy goes by its own name");
    assert_eq!(again.name(), name);
    true
}

fn policy_name_seeds() -> Vec<Vec<u8>> {
    let mut names: Vec<&str> = POLICIES.to_vec();
    names.extend(["leveling:4,hard-stop", "fluid:40,40,41/6,6,6", "arce:8/24/2/1,no-rho,no-even"]);
    names.dedup();
    names.into_iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// Maximum length of a policy's saved state.
const STATE_LEN: usize = 4 << 10;
/// Number of flushes shown to a policy.
const FLUSHES: u32 = 6;

/// The input gives a policy, the amount of work, and the policy's state. A policy that accepts a state saves the same
/// state again, and then makes only legal plans.
fn policy_state(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let name = POLICIES[usize::from(fields.u8()) % POLICIES.len()];
    let mut world = world(fields.u8());
    let mut policy = drumlin_policy::by_name(name).expect("a policy of the list");
    let fresh = policy.save();
    if policy.restore(fields.0).is_err() {
        assert_eq!(policy.save(), fresh, "a state that is refused leaves something behind");
        return false;
    }
    let saved = policy.save();
    assert!(saved.len() <= STATE_LEN, "{} bytes of state", saved.len());
    let mut again = drumlin_policy::by_name(name).expect("a policy of the list");
    again.restore(&saved).expect("what is saved is taken back");
    assert_eq!(again.save(), saved);
    drive(&mut world, &mut *policy);
    let _ = policy.explain();
    true
}

fn world(load: u8) -> World {
    let limits = LimitView { memtable_bytes: 1 << 20, file_bytes: 1 << 20, ..LimitView::default() };
    let mut world = World::new(limits);
    let bit = |bit: u8, rate: f64| if load & (1 << bit) == 0 { 0.0 } else { rate };
    world.load = LoadView {
        gets: bit(0, 1e4),
        seeks: bit(1, 1e3),
        writes: bit(2, 1e5),
        write_bytes: bit(2, 1e7),
        entry_bytes: 100.0,
        ..LoadView::default()
    };
    world.frozen = load & 8 != 0;
    world
}

fn drive(world: &mut World, policy: &mut dyn CompactionPolicy) {
    for flush in 0..FLUSHES {
        world.flush(policy, flush * 10, 100);
        world.now += 400_000_000;
        if let Err(why) = world.settle(policy, 8) {
            assert!(why.starts_with("no end after"), "{why}");
        }
        let _ = policy.design(world.tree(), &world.limits);
    }
    world.check().expect("the tree keeps its shape");
}

fn policy_state_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, name) in POLICIES.iter().enumerate() {
        let mut policy = drumlin_policy::by_name(name).expect("a policy of the list");
        let mut world = world(7);
        drive(&mut world, &mut *policy);
        let state = policy.save();
        if !state.is_empty() {
            seeds.push([&[number as u8, 7][..], &state].concat());
        }
    }
    seeds
}

fn tape(input: &[u8]) -> bool {
    let Some(workload) = std::str::from_utf8(input).ok().and_then(|text| Workload::read(text).ok()) else {
        return false;
    };
    assert_eq!(Workload::read(&workload.tape()).as_ref(), Ok(&workload));
    true
}

fn tape_seeds() -> Vec<Vec<u8>> {
    let taste =
        Taste { operations: 60, unlogged: true, kills: true, swaps: true, lifetimes: false, renames: false };
    (0..2).map(|seed| Workload::generate("fuzz", seed, &taste).tape().into_bytes()).collect()
}
