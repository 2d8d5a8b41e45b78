//! 1-leveling moves the file with the least overlap for its size, compared with all others by brute force. It keeps
//! each level near its size with one run of files.

use drumlin_policy::{SplitMix, by_name};
use drumlin_sim::World;
use drumlin_types::contract::{FileView, LimitView, Plan, TreeView};

const FLUSH: u64 = 64 << 20;

fn source<'a>(tree: &'a TreeView, plan: &Plan) -> Option<(u8, &'a FileView)> {
    let (level, _, file) = tree.files().find(|(_, _, f)| f.table == plan.take[0].table)?;
    (level > 0 && level < plan.out).then_some((level, file))
}

/// Returns the bytes of the next level that overlap the file, per byte of the file.
fn ratio(tree: &TreeView, level: u8, file: &FileView) -> f64 {
    let below = tree.levels[usize::from(level) + 1].files().filter(|f| f.bounds.overlaps(&file.bounds));
    below.map(|f| f.bytes).sum::<u64>() as f64 / file.bytes.max(1) as f64
}

#[test]
fn the_file_with_least_overlap_goes() {
    let mut picked = 0;
    for (seed, name) in ["1-leveling:static", "1-leveling:dynamic", "1-leveling"].into_iter().enumerate() {
        let limits = LimitView { memtable_bytes: FLUSH, file_bytes: 2 * FLUSH, ..LimitView::default() };
        let mut world = World::new(limits);
        let mut policy = by_name(name).unwrap();
        let mut dice = SplitMix::new(seed as u64);
        for _ in 0..250 {
            let from = dice.below(60_000) as u32;
            let to = if dice.one_in(2) { 65_536 } else { from + 1 + dice.below(5000) as u32 };
            world.flush(&mut *policy, from, to);
            loop {
                let plans = world.decide(&mut *policy, 0).plans;
                let Some(plan) = plans.first() else { break };
                if let Some((level, file)) = source(world.tree(), plan) {
                    let tree = world.tree();
                    let least = tree.levels[usize::from(level)].files().map(|f| ratio(tree, level, f));
                    let least = least.fold(f64::INFINITY, f64::min);
                    assert!(ratio(tree, level, file) <= least, "{name}: {}", plan.reason);
                    let overlapped = tree.levels[usize::from(plan.out)].files();
                    let overlapped = overlapped.filter(|f| f.bounds.overlaps(&file.bounds)).count();
                    assert_eq!(
                        (plan.take.len(), plan.may_fold.len()),
                        (1, overlapped),
                        "{name}: {}",
                        plan.reason
                    );
                    picked += 1;
                }
                world.admit(plan, 1).unwrap();
                while let Some(&id) = world.ready().first() {
                    world.install(id, &mut *policy);
                }
            }
            world.check().unwrap();
            if name == "1-leveling:static" {
                for (level, limit) in [(1, 10 * FLUSH), (2, 100 * FLUSH)] {
                    assert!(world.tree().levels[level].bytes() < limit, "level {level} is over its size");
                }
            }
        }
        assert!(world.tree().levels[0].runs.len() < 4);
        assert!(world.tree().levels[1..].iter().all(|level| level.runs.len() <= 1), "{name}");
    }
    assert!(picked > 200, "only {picked} picks were judged");
}
