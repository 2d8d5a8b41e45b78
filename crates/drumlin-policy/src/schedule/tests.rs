//! Tests of admission and waits on trees given as text, and of pieces that finish out of order.

use super::*;
use alloc::vec::Vec;
use drumlin_types::contract::draw::{parse_plan, parse_tree};
use drumlin_types::contract::legal::check;
use drumlin_types::contract::{LevelDesign, PieceId, Place, Plan, TreeView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket};

const TREE: &str = "L0: [a..z #41-50 64M] | [c..k #51-60 64M]  L1: [a..m #21-30 64M] | [a..z #31-40 64M]  \
                    L2: [a..z #1-20 64M]";

struct Bench {
    tree: TreeView,
    flight: Flight,
    settings: Settings,
    design: Vec<LevelDesign>,
    numbers: Numbers,
    now: u64,
    room: u64,
}

impl Bench {
    fn new(tree: &str) -> Bench {
        let settings = Settings { slots: 8, piece: (1 << 30, 1 << 30), ..Settings::default() };
        let numbers = Numbers { next_run: 100, next_ticket: 1 };
        let tree = parse_tree(tree).unwrap();
        Bench {
            tree,
            flight: Flight::default(),
            settings,
            design: Vec::new(),
            numbers,
            now: 0,
            room: u64::MAX,
        }
    }

    fn scene(&self) -> (TreeView, Settings, Vec<LevelDesign>) {
        (self.tree.clone(), self.settings, self.design.clone())
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Flight, &Scene<'_>, &mut Numbers) -> T) -> T {
        let (tree, settings, design) = self.scene();
        let costs = FoldCosts { inflow: 1e6, rewrite: 5e-9, ..FoldCosts::default() };
        let scene = Scene {
            tree: &tree,
            design: &design,
            settings: &settings,
            costs,
            room: self.room,
            now: self.now,
        };
        act(&mut self.flight, &scene, &mut self.numbers)
    }

    fn plan(&self, text: &str) -> Plan {
        parse_plan(&self.tree, text).unwrap()
    }

    fn admit(&mut self, plan: &Plan) -> Result<u64, &'static str> {
        let result = self.with(|flight, scene, numbers| flight.admit(scene, plan, numbers));
        let view = project::view(&self.tree, &self.flight);
        check(&view).unwrap();
        check(&view.projected()).unwrap();
        result.map(|ticket| ticket.0).map_err(|refusal| refusal.rule())
    }

    fn try_plan(&mut self, text: &str) -> Result<u64, &'static str> {
        let plan = self.plan(text);
        self.admit(&plan)
    }

    fn waits(&self, ticket: u64) -> Vec<u64> {
        let ticket = self.flight.ticket(Ticket(ticket)).unwrap();
        ticket.pieces.iter().flat_map(|p| p.waits.iter().map(|w| w.ticket.0)).collect()
    }

    fn start(&mut self) -> Result<StartedPiece, Idle> {
        self.with(|flight, scene, _| flight.start(scene, false))
    }

    fn next_install(&mut self) -> Option<Install> {
        self.with(|flight, scene, _| flight.next_install(scene.settings, scene.now, false))
    }
}

fn piece(ticket: u64) -> PieceId {
    PieceId { ticket: Ticket(ticket), index: 0 }
}

/// Admits a fixed sequence of plans, so that later plans see the tree that the first one leaves.
fn chain() -> Bench {
    let mut bench = Bench::new(TREE);
    assert_eq!(bench.try_plan("t3 t5 -> L2"), Ok(1));
    assert_eq!(bench.try_plan("t1 -> L1"), Ok(2));
    assert_eq!(bench.try_plan("t4 -> L2"), Ok(3));
    bench
}

#[test]
fn plans_wait_only_for_what_is_in_their_way() {
    let mut alone = Bench::new(TREE);
    // The closure takes the older run along.
    assert_eq!(alone.try_plan("t4 -> L2"), Ok(1));
    assert_eq!(alone.flight.tickets[0].plan.take.len(), 2);
    let mut bench = chain();
    assert_eq!(bench.waits(1), []);
    assert_eq!(bench.waits(2), []);
    assert_eq!(bench.waits(3), [1]);
    assert_eq!(bench.try_plan("t2 -> L2"), Err("L1"), "the output of the second lies between");
    assert_eq!(bench.try_plan("t2 -> L1"), Ok(4));
    assert_eq!(bench.waits(4), [2]);
}

#[test]
fn a_later_plan_may_install_first() {
    let mut bench = chain();
    let mut started = Vec::new();
    while let Ok(start) = bench.start() {
        started.push(start.piece.id.ticket.0);
    }
    started.sort_unstable();
    // The third piece has one input and waits: running it ahead would gain nothing.
    assert_eq!(started, [1, 2]);
    assert!(bench.flight.finished(piece(2), 5));
    assert_eq!(bench.next_install(), Some(Install::Output(piece(2))));
    bench.flight.installed(piece(2), &[], 1, 0);
    assert_eq!(bench.next_install(), None);
    assert!(bench.flight.finished(piece(1), 6));
    assert_eq!(bench.next_install(), Some(Install::Output(piece(1))));
    bench.flight.installed(piece(1), &[], 1, 0);
    let third = bench.start().unwrap();
    assert!(third.piece.is_move && !third.is_early);
}

#[test]
fn who_waits_for_what_is_given_up_goes_too_or_stays_above() {
    let mut bench = chain();
    let ended = bench.flight.withdraw(piece(1), "a test");
    assert_eq!(ended.gone, [piece(1), piece(3)], "a move has no use above");
    assert!(bench.flight.is_open(piece(2)));
    // Two runs of one level may be compacted within that level.
    let mut bench = Bench::new("L0: [a..z #41-50] | [a..z #51-60]  L1: [a..z #21-30]  L2: [a..z #1-20]");
    assert_eq!(bench.try_plan("t3 -> L2"), Ok(1));
    assert_eq!(bench.try_plan("t1 t2 -> L2"), Ok(2));
    assert_eq!(bench.waits(2), [1]);
    let start = bench.start().unwrap();
    assert!(start.piece.is_move);
    let early = bench.start().unwrap();
    assert!(early.is_early && early.piece.id == piece(2));
    assert!(bench.flight.finished(piece(2), 0));
    assert_eq!(bench.next_install(), None, "the output is held");
    bench.now = 10_000_000;
    assert_eq!(bench.next_install(), Some(Install::Land(piece(2), 0)), "it lands after the hold time");
    let ended = bench.flight.withdraw(piece(1), "a test");
    assert_eq!((ended.gone, ended.staying), ([piece(1)].to_vec(), [piece(2)].to_vec()));
    assert_eq!(bench.next_install(), Some(Install::Output(piece(2))));
    assert_eq!(bench.flight.piece(piece(2)).unwrap().out, 0);
}

#[test]
fn what_stays_above_is_one_run_of_its_ticket() {
    let text = "L0: [a..z #41-50 64M] | [a..z #51-60 64M]  L1: [a..z #21-30 64M]  L2: [a..z #1-20 64M]";
    let mut bench = Bench::new(text);
    bench.settings.piece = (16 << 20, 16 << 20);
    assert_eq!(bench.try_plan("t3 -> L2"), Ok(1));
    assert_eq!(bench.try_plan("t1 t2 -> L2"), Ok(2));
    assert_eq!(bench.flight.tickets[1].pieces.len(), 8);
    let ended = bench.flight.withdraw(piece(1), "a test");
    assert_eq!(ended.staying.len(), 8);
    // Two runs leave the level, and one comes.
    let coming = |bench: &Bench| project::view(&bench.tree, &bench.flight).projected().levels[0].runs.len();
    assert_eq!(coming(&bench), 1);
    let Bench { flight, numbers, .. } = &mut bench;
    let ticket = flight.ticket_mut(Ticket(2)).unwrap();
    let (first, tag) = choose_run(ticket, 0, &[], numbers);
    assert!(tag.0.is_empty());
    let room = |fits| RunFit { run: first, max_seq: 60, is_plain: true, fits };
    assert_eq!(choose_run(ticket, 0, &[room(true)], numbers).0, first);
    let beside = choose_run(ticket, 0, &[room(false)], numbers).0;
    assert!(beside != first && beside != choose_run(ticket, 1, &[], numbers).0, "runs lie in one level");
    assert_eq!(choose_run(ticket, 0, &[room(true)], numbers).0, first);
    assert_eq!(coming(&bench), 1);
}

#[test]
fn who_is_given_up_while_it_runs_writes_until_it_is_done() {
    let mut bench = chain();
    bench.start().unwrap();
    bench.start().unwrap();
    let all = bench.flight.writing();
    let second = limits::with_margin(bench.flight.piece(piece(2)).unwrap().bytes);
    let is_move = bench.flight.piece(piece(2)).unwrap().is_move;
    bench.flight.withdraw(piece(1), "a test");
    assert_eq!(bench.flight.writing(), all, "its executor is not aware of it yet");
    assert!(!bench.flight.finished(piece(1), 5), "the output is not wanted");
    assert_eq!(bench.flight.writing(), if is_move { 0 } else { second });
    bench.flight.failed(piece(2), false, "a test", 6);
    assert_eq!(bench.flight.writing(), 0);
}

#[test]
fn folds_follow_depth_size_and_waits() {
    let tree = "L0: [a..z #41-50 64M]  L1: [a..m #21-30 64M][m..z #21-30 64M] | [a..z #11-20 64M]";
    let folded = |every, cap, bytes: f64| {
        let mut bench = Bench::new(tree);
        let free = LevelDesign { bytes: f64::INFINITY, runs: 4.0 };
        bench.design = [free, LevelDesign { bytes, runs: 1.0 }].to_vec();
        bench.settings.fold_every = every;
        bench.settings.depth_cap = cap;
        let mut plan = bench.plan("t1 -> L1");
        plan.may_fold = bench.plan("t2 t3 t4 -> L2").take;
        plan.place = Place::Run(RunId(2));
        bench.admit(&plan).unwrap();
        let start = bench.start().unwrap();
        (start.piece.inputs.len(), start.piece.is_move)
    };
    assert_eq!(folded(Some(1), None, 1e12), (4, false), "k = 1 is leveled");
    assert_eq!(folded(Some(3), None, 1e12), (1, true), "no fold before the third run");
    assert_eq!(folded(Some(2), None, 1e12), (4, false));
    assert_eq!(folded(Some(1), None, 1e6), (1, true), "over its size: it moves down soon");
    // The cap never makes the oldest ticket wait, but it must fold too. Otherwise nothing would bound the depth of a
    // level while one ticket follows another.
    assert_eq!(folded(Some(9), Some(2), 1e6), (4, false));
    assert_eq!(folded(Some(9), Some(3), 1e6), (1, true), "it is not as deep yet");
}

#[test]
fn the_bottommost_level_is_never_over_its_size() {
    let mut bench = Bench::new("L5: [a..z #41-50 64M]  L6: [a..m #21-30 64M][m..z #21-30 64M]");
    bench.design = bench.tree.levels.iter().map(|_| LevelDesign { bytes: 1e6, runs: 1.0 }).collect();
    bench.settings.fold_every = Some(1);
    let mut plan = bench.plan("t1 -> L6");
    plan.may_fold = bench.plan("t2 t3 -> L6").take;
    plan.place = Place::Run(RunId(2));
    bench.admit(&plan).unwrap();
    let weights = Weights::of(&bench.tree, &bench.design);
    assert_eq!((weights.fill(5) > 1.0, weights.fill(6)), (true, 1.0));
    let start = bench.start().unwrap();
    assert_eq!(
        (start.piece.inputs.len(), start.piece.is_move),
        (3, false),
        "its files do not move down soon"
    );
}

#[test]
fn the_cap_holds_all_but_the_oldest_up() {
    let mut bench = Bench::new(
        "L0: [a..z #41-50 64M] | [a..z #51-60 64M]  L1: [a..z #21-30 64M] | [a..z #11-20 64M] | [a..z #1-10 64M]",
    );
    bench.settings.depth_cap = Some(2);
    let free = LevelDesign { bytes: f64::INFINITY, runs: 4.0 };
    bench.design = [free, LevelDesign { bytes: 1e12, runs: 1.0 }].to_vec();
    let folds = bench.plan("t3 t4 t5 -> L2").take;
    for text in ["t1 -> L1", "t2 -> L1"] {
        let mut plan = bench.plan(text);
        plan.may_fold = folds.clone();
        bench.admit(&plan).unwrap();
    }
    // The first is the oldest ticket. k* is clamped to the cap of 2, which the depth has reached, so it folds all
    // three runs.
    assert_eq!(bench.start().unwrap().piece.inputs.len(), 4);
    // The files that the first ticket folds are busy, and its output is still to come. The second one finds one run
    // and folds nothing.
    let second = bench.start();
    assert!(second.is_err_and(|idle| idle == Idle::default()), "it waits for the first and has one input");
}

/// A single busy slot gets no more work of the same kind. A policy that sets deadlines is still called, and its plans
/// are admitted, because it decides itself which compaction interrupts which.
#[test]
fn plans_with_a_deadline_pass_while_the_only_slot_is_busy() {
    let mut bench = Bench::new(
        "L0: [a..z #51-60 1M] | [a..z #41-50 1M] | [a..z #31-40 1M] | [a..z #21-30 64M] | [a..z #11-20 64M] | \
         [a..z #1-10 64M]",
    );
    bench.settings.slots = 1;
    let is_fed =
        |bench: &Bench| bench.flight.is_fed(&bench.settings, || Weights::of(&bench.tree, &bench.design));
    let (long, short) = ("t4 t5 t6 -> L0", "t1 t2 -> L0");
    let due = |bench: &Bench, text: &str, at| Plan { deadline: Some(at), ..bench.plan(text) };

    let plan = bench.plan(long);
    assert_eq!(bench.admit(&plan), Ok(1));
    assert!(is_fed(&bench));
    assert_eq!(bench.try_plan(short), Err("enough"), "one is ready");
    assert!(bench.start().is_ok());
    assert_eq!(bench.try_plan(short), Err("enough"), "one is running");

    let mut bench = Bench { flight: Flight::default(), ..bench };
    let plan = due(&bench, long, 90);
    assert_eq!(bench.admit(&plan), Ok(2));
    assert!(!is_fed(&bench));
    let plan = due(&bench, short, 10);
    assert_eq!(bench.admit(&plan), Ok(3));
    let first = bench.start().map(|start| start.piece.id.ticket);
    assert!(first.is_ok_and(|first| first == Ticket(3)), "the short one is due first");
}

/// Two plans may start: one out of level 1, and the oldest plan into level 1, which is over its size and at its depth
/// cap. The latter waits as long as pieces take files out of level 1.
#[test]
fn the_oldest_waits_while_what_is_below_it_drains() {
    let mut bench = Bench::new(
        "L0: [a..z #41-50 64M]  L1: [a..z #21-30 64M] | [a..z #11-20 64M] | [a..z #6-10 64M]  L2: [a..z #1-5 640M]",
    );
    bench.settings.depth_cap = Some(3);
    bench.settings.slots = 4;
    let level = |bytes: f64| LevelDesign { bytes, runs: 1.0 };
    bench.design = [LevelDesign { bytes: f64::INFINITY, runs: 1.0 }, level(64e6), level(1e12)].to_vec();
    let mut down = bench.plan("t1 -> L1");
    down.may_fold = bench.plan("t2 t3 t4 -> L2").take;
    assert_eq!(bench.admit(&down), Ok(1));
    let drains = bench.plan("t2 t3 t4 -> L2");
    assert_eq!(bench.admit(&drains), Ok(2));
    let pieces = bench.flight.ticket(Ticket(2)).unwrap().pieces.len();
    for _ in 0..pieces {
        let start = bench.start().unwrap();
        assert_eq!(start.piece.id.ticket, Ticket(2), "what drains the level goes first");
    }
    // All pieces of that plan are running, so its inputs count as gone and level 1 is free.
    assert_eq!(bench.start().unwrap().piece.id.ticket, Ticket(1));
}

/// Nothing takes files from the full level. The oldest plan starts nevertheless and folds, since the policy may never
/// empty the level.
#[test]
fn the_oldest_goes_where_nothing_drains() {
    let mut bench = Bench::new(
        "L0: [a..z #41-50 64M]  L1: [a..z #21-30 64M] | [a..z #11-20 64M] | [a..z #6-10 64M]  L2: [a..z #1-5 640M]",
    );
    bench.settings.depth_cap = Some(3);
    let level = |bytes: f64| LevelDesign { bytes, runs: 1.0 };
    bench.design = [LevelDesign { bytes: f64::INFINITY, runs: 1.0 }, level(64e6), level(1e12)].to_vec();
    let mut down = bench.plan("t1 -> L1");
    down.may_fold = bench.plan("t2 t3 t4 -> L2").take;
    assert_eq!(bench.admit(&down), Ok(1));
    assert!(bench.start().unwrap().piece.folded > 0);
}

/// A piece that is about to fold more than expected is divided. Otherwise all later pieces would wait for a single
/// slot.
#[test]
fn a_piece_that_folds_more_than_was_foreseen_is_divided() {
    let mut bench = Bench::new(
        "L0: [a..z #51-60 64M] | [a..z #41-50 64M]  L1: [a..z #21-30 640M] | [a..z #11-20 64M]  L2: [a..z #1-5 640M]",
    );
    (bench.settings.depth_cap, bench.settings.slots) = (Some(2), 4);
    bench.settings.piece = (64 << 20, 64 << 20);
    let level = LevelDesign { bytes: 1e12, runs: 1.0 };
    bench.design = [LevelDesign { bytes: f64::INFINITY, runs: 1.0 }, level, level].to_vec();
    // At admission the cap is higher, so no fold is expected.
    let mut first = bench.plan("t2 -> L1");
    first.may_fold = bench.plan("t3 t4 -> L2").take;
    bench.settings.depth_cap = Some(9);
    assert_eq!(bench.admit(&first), Ok(1));
    let second = bench.plan("t1 -> L1");
    assert_eq!(bench.admit(&second), Ok(2));
    assert_eq!(bench.flight.ticket(Ticket(1)).unwrap().pieces.len(), 1);
    bench.settings.depth_cap = Some(2);
    let start = bench.start().unwrap();
    assert!(start.changes_view && start.piece.bytes < 130 << 20, "{}", start.piece.bytes);
    let ticket = bench.flight.ticket(Ticket(1)).unwrap();
    assert!(ticket.pieces.len() >= 8, "{}", ticket.pieces.len());
    // The parts together take exactly the inputs of the piece, and the piece that waited for it waits for all parts.
    let mut ranges: Vec<KeyRange> = ticket
        .pieces
        .iter()
        .flat_map(|p| p.inputs.iter().filter(|f| f.table == TableId(2)).map(|f| f.range.clone()))
        .collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    assert!(ranges.windows(2).all(|pair| pair[0].end.as_ref() == Some(&pair[1].start)));
    let whole = ranges.first().unwrap().hull(ranges.last().unwrap());
    assert_eq!(whole, bench.tree.levels[0].runs[1].files[0].bounds);
    let waits = &bench.flight.ticket(Ticket(2)).unwrap().pieces[0].waits;
    assert_eq!(waits.len(), ticket.pieces.len());
    for _ in 1..ticket.pieces.len() {
        assert!(bench.start().unwrap().piece.bytes < 130 << 20);
    }
}

/// The mask contains exactly the levels from which enough work is ready, so that a preset proposes other work.
#[test]
fn levels_that_give_enough_are_told() {
    let mut bench = Bench::new(
        "L0: [a..z #51-60 64M]  L1: [a..h #41-50 64M][h..p #31-40 64M][p..z #21-30 64M]  L2: [a..z #1-20 64M]",
    );
    bench.settings.slots = 4;
    let enough = |bench: &mut Bench| bench.with(|flight, scene, _| flight.levels_of_enough(scene));
    assert_eq!(enough(&mut bench), 0);
    assert_eq!(bench.try_plan("t2 -> L2"), Ok(1));
    assert_eq!(enough(&mut bench), 0, "one of two");
    assert_eq!(bench.try_plan("t3 -> L2"), Ok(2));
    assert_eq!(enough(&mut bench), 0b10);
    assert_eq!(bench.try_plan("t4 -> L2"), Err("enough"));
    assert_eq!(bench.try_plan("t1 -> L1"), Ok(3), "another level");
}

/// The policy is called once when a slot is free and no ready piece may start. Pieces that lack disk space or a slot
/// do not trigger that call.
#[test]
fn a_policy_is_asked_once_where_nothing_that_is_ready_may_start() {
    let full = "L0: [a..z #91-99 64M]  L1: [a..z #81-90 512M] | [a..z #71-80 512M] | [a..z #61-70 512M]";
    let bench = || {
        let mut bench = Bench::new(full);
        bench.settings.depth_cap = Some(1);
        bench.design =
            Vec::from([64.0, 64.0, 640.0].map(|mib: f64| LevelDesign { bytes: mib * 1048576.0, runs: 1.0 }));
        bench
    };
    let mut busy = bench();
    assert_eq!(busy.try_plan("t3 t4 -> L2"), Ok(1));
    assert!(busy.start().is_ok());
    assert_eq!(busy.try_plan("t1 -> L1"), Ok(2));
    assert!(!busy.flight.starved);
    assert!(busy.start().is_err_and(|idle| idle.wants_plans), "level 1 drains first");
    assert!(busy.flight.starved);
    assert!(busy.start().is_err_and(|idle| !idle.wants_plans), "said once");
    assert!(busy.with(|flight, scene, _| flight.start(scene, true)).is_err());
    assert!(!busy.flight.starved, "no slot is free");

    let mut short = bench();
    assert_eq!(short.try_plan("t3 t4 -> L2"), Ok(1));
    short.room = 1 << 20;
    let idle = short.start().unwrap_err();
    assert!(idle.short.is_some() && !idle.wants_plans && !short.flight.starved, "{idle:?}");
}

/// Runs pieces one after the other, each installed at once, until none starts. Returns how many ran. The bytes that
/// are left follow from the files that are gone.
fn run_all(bench: &mut Bench) -> usize {
    for count in 0.. {
        let Ok(StartedPiece { piece, .. }) = bench.start() else { return count };
        assert!(bench.flight.finished(piece.id, 0));
        assert_eq!(bench.next_install(), Some(Install::Output(piece.id)));
        bench.flight.installed(piece.id, &[], piece.bytes, 0);
        bench.room -= piece.bytes;
        for file in bench.tree.levels.iter_mut().flat_map(|l| &mut l.runs).flat_map(|r| &mut r.files) {
            if piece.inputs.iter().any(|span| span.table == file.table) {
                match (&piece.range.end, &file.bounds.end) {
                    (Some(end), Some(last)) if end < last => file.bounds.start = end.clone(),
                    _ => (bench.room, file.bytes) = (bench.room + file.bytes, 0),
                }
            }
        }
        bench.tree.levels.iter_mut().flat_map(|l| &mut l.runs).for_each(|r| r.files.retain(|f| f.bytes > 0));
    }
    0
}

fn short_of(idle: Result<StartedPiece, Idle>) -> (PieceId, u64) {
    idle.err().and_then(|idle| idle.short).expect("a piece lacks space")
}

/// Two wide files are free only after the last piece, so the first one starts only if the output of all pieces fits.
/// Otherwise the finished pieces would take the space that the last one needs.
#[test]
fn a_ticket_begins_only_with_space_for_all_its_pieces() {
    let bench = |tree: &str, plan: &str, room: u64| {
        let mut bench = Bench::new(tree);
        (bench.settings.piece, bench.room) = ((16 << 20, 16 << 20), room << 20);
        assert_eq!(bench.try_plan(plan), Ok(1));
        bench
    };
    let wide = "L1: [a..z #51-60 64M]  L2: [a..z #41-50 64M]";
    assert_eq!(short_of(bench(wide, "t1 t2 -> L2", 130).start()), (piece(1), 136 << 20));
    assert_eq!(run_all(&mut bench(wide, "t1 t2 -> L2", 136)), 8);
    // Of narrow files, each is free soon, if the pieces go by key and not by value.
    let narrow = "L1: [a..e #51-60 16M][e..i #51-60 16M][i..m #51-60 16M][m..q #51-60 16M]  \
                  L2: [a..e #41-50 16M][e..i #41-50 16M][i..m #41-50 16M][m..q #41-50 16M]";
    let all = "t1 t2 t3 t4 t5 t6 t7 t8 -> L2";
    let mut pieces = bench(narrow, all, 40);
    let of_last = |p: &mut Piece| p.priority = f64::from(p.id.index);
    pieces.flight.tickets[0].pieces.iter_mut().for_each(of_last);
    assert!(run_all(&mut pieces) >= 4);
    assert!(pieces.flight.tickets[0].is_finished());
    short_of(bench(narrow, all, 30).start());
    // What a begun ticket still needs is kept from others.
    let mut two =
        Bench::new("L1: [a..z #51-60 64M] | [a..z #41-50 64M]  L3: [a..c #1-9 8M] | [a..c #11-19 8M]");
    two.settings.piece = (16 << 20, 16 << 20);
    assert_eq!(two.try_plan("t1 t2 -> L1"), Ok(1));
    two.room = 140 << 20;
    let first = two.start().unwrap().piece;
    assert_eq!(two.try_plan("t3 t4 -> L3"), Ok(2));
    assert!(two.flight.finished(first.id, 0));
    two.flight.installed(first.id, &[], first.bytes, 0);
    two.room -= first.bytes;
    assert_eq!(two.flight.reserved(two.room, || two.tree.clone()), limits::with_margin(first.bytes) * 7);
    assert_eq!(run_all(&mut two), 7 + 1, "the second runs once the first is done");
}

/// No output is held while an earlier piece lacks space, and outputs that are held then are discarded.
#[test]
fn held_outputs_give_their_space_back_to_earlier_pieces() {
    let tree = "L1: [a..z #41-50 8M] | [a..z #31-40 8M]  L2: [a..z #21-30 64M] | [a..z #11-20 64M]";
    let mut bench = Bench::new(tree);
    assert_eq!(bench.try_plan("t3 t4 -> L3"), Ok(1));
    assert_eq!(bench.try_plan("t1 t2 -> L2"), Ok(2));
    // Its output would lie among the inputs of the first.
    bench.flight.ticket_mut(Ticket(2)).unwrap().pieces[0].waits = [piece(1)].to_vec();
    bench.flight.ticket_mut(Ticket(2)).unwrap().pieces[0].inputs[0].level = 2;
    let early = bench.flight.ticket_mut(Ticket(2)).map(|t| &mut t.pieces[0]).unwrap();
    (early.state, early.bytes) = (PieceState::Held, 16 << 20);
    assert!(!bench.flight.may_land(&bench.flight.tickets[1].pieces[0]));
    bench.room = 130 << 20;
    assert_eq!(short_of(bench.start()).0, piece(1));
    assert_eq!(bench.next_install(), None, "nothing else gives space back");
    assert_eq!(bench.flight.discard_held(), [piece(2)]);
    assert_eq!(bench.flight.discard_held(), []);
    assert_eq!(short_of(bench.start()).0, piece(1), "it does not start early again");
    bench.room += 16 << 20;
    assert_eq!(bench.start().unwrap().piece.id, piece(1));
}

/// A ticket that does not fit gives way to the largest compaction of fewer of its runs that does.
#[test]
fn a_ticket_without_space_gives_way_to_one_that_fits() {
    let tree = "L0: [a..z #61-70 4M] | [a..z #51-60 4M] | [a..z #41-50 8M]  L1: [a..z #31-40 64M]  \
                L2: [a..z #1-30 128M]";
    let gives_way = |room: u64| {
        let mut bench = Bench::new(tree);
        bench.room = room << 20;
        assert_eq!(bench.try_plan("t1 t2 t3 t4 t5 -> L2"), Ok(1));
        let (short, _) = short_of(bench.start());
        let before = (bench.flight.tickets.len(), bench.numbers);
        let gave_way = bench.with(|flight, scene, numbers| flight.give_way(scene, short, numbers));
        let Some(gave_way) = gave_way else {
            assert_eq!((bench.flight.tickets.len(), bench.numbers), before, "nothing changes");
            assert!(bench.flight.has_ready());
            return Vec::new();
        };
        assert_eq!(gave_way.ended.gone, [piece(1)]);
        assert!(bench.flight.take_finished().iter().all(|ticket| ticket.withdrawn.is_some()));
        let view = project::view(&bench.tree, &bench.flight);
        check(&view).unwrap();
        check(&view.projected()).unwrap();
        let StartedPiece { piece, .. } = bench.start().expect("it fits");
        assert_eq!(piece.id.ticket, gave_way.ticket);
        piece.inputs.iter().map(|span| span.table.0).collect()
    };
    assert_eq!(gives_way(8), []);
    assert_eq!(gives_way(10), [1, 2]);
    assert_eq!(gives_way(20), [2, 3]);
    assert_eq!(gives_way(90), [1, 2, 3, 4]);
}
