//! Each image mode loses what it states, and never what was synced.

use std::collections::BTreeSet;
use std::path::Path;

use drumlin_env::{Disk, FileKind, ImageMode, MemEnv, Random};

use crate::{durable, file, world};

const PAGE: usize = 4096;
const OLD: u8 = 0xAA;
const NEW: u8 = 0xBB;
const FILE: &str = "d/file";

/// Returns a disk with a file of two old pages, overwritten by new ones and grown by two, and with one new name.
fn half_synced() -> Disk {
    let (mem, env) = world();
    let written = durable(&env, "file", FileKind::Log, &[OLD; 2 * PAGE]);
    written.write_at(0, &[NEW; 4 * PAGE]).unwrap();
    file(&env, "other", FileKind::Table, b"other");
    mem.snapshot()
}

/// Returns the byte that fills a page, if one does; `None` for a page outside the file.
fn page(content: &[u8], page: usize) -> Option<u8> {
    let bytes = content.get(page * PAGE..(page + 1) * PAGE)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "page {page} is mixed");
    Some(bytes[0])
}

fn content(image: &MemEnv) -> Vec<u8> {
    image.peek(Path::new(FILE)).unwrap()
}

#[test]
fn none_keeps_what_was_synced_and_no_more() {
    let image = half_synced().image(ImageMode::None, 1);
    assert_eq!(content(&image), [OLD; 2 * PAGE]);
    assert_eq!(image.files(), [Path::new(FILE)]);
    let report = image.image_report();
    assert_eq!((report.dropped_pages, report.dropped_entries, report.lengths), (4, 1, 1));
}

#[test]
fn all_keeps_everything() {
    let image = half_synced().image(ImageMode::All, 1);
    assert_eq!(content(&image), [NEW; 4 * PAGE]);
    assert_eq!(image.peek(Path::new("d/other")).unwrap(), b"other");
    assert!(!image.image_report().dropped_something());
}

#[test]
fn pages_are_old_new_or_zero_each_on_its_own() {
    let disk = half_synced();
    let mut seen = [const { BTreeSet::new() }; 4];
    let mut together = BTreeSet::new();
    let mut others = BTreeSet::new();
    for seed in 0..400 {
        let image = disk.image(ImageMode::Pages, seed);
        let content = content(&image);
        let pages: [Option<u8>; 4] = std::array::from_fn(|index| page(&content, index));
        (0..4).for_each(|index| _ = seen[index].insert(pages[index]));
        together.insert(pages);
        let other = image.peek(Path::new("d/other"));
        others.insert(other.is_some());
        let report = image.image_report();
        let changed = pages.iter().filter(|&&page| page != Some(NEW)).count() as u64
            + u64::from(other.is_some_and(|content| content != b"other"));
        assert_eq!(report.dropped_pages, changed, "seed {seed}");
        assert_eq!(report.torn + report.garbage, 0);
    }
    assert_eq!(seen[0], BTreeSet::from([Some(OLD), Some(NEW)]));
    assert_eq!(seen[1], seen[0]);
    assert_eq!(seen[2], BTreeSet::from([Some(0), Some(NEW), None]));
    assert_eq!(seen[3], seen[2]);
    assert!(together.contains(&[Some(OLD), Some(NEW), Some(0), Some(NEW)]), "a hole before kept data");
    assert!(together.len() > 15, "{}", together.len());
    assert_eq!(others, BTreeSet::from([false, true]));
}

#[test]
fn a_torn_page_is_split_between_sectors() {
    let disk = half_synced();
    let mut splits = BTreeSet::new();
    for seed in 0..300 {
        let image = disk.image(ImageMode::Torn, seed);
        assert_eq!(image.image_report().torn, 1);
        let content = content(&image);
        let mixed: Vec<&[u8]> =
            content.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != page[0])).collect();
        assert_eq!(mixed.len(), 1, "seed {seed}");
        let split = mixed[0].iter().position(|byte| *byte != mixed[0][0]).unwrap();
        assert_eq!(split % 512, 0);
        assert!(mixed[0][split..].iter().all(|byte| *byte == mixed[0][split]));
        splits.insert((split, mixed[0][0], mixed[0][split]));
    }
    for expected in [(512, OLD, NEW), (512, NEW, OLD), (3584, NEW, 0)] {
        assert!(splits.contains(&expected), "{expected:?} in {splits:?}");
    }
}

#[test]
fn nothing_to_tear_is_no_torn_page() {
    let (mem, env) = world();
    durable(&env, "file", FileKind::Log, &[OLD; PAGE]);
    assert_eq!(mem.snapshot().image(ImageMode::Torn, 1).image_report().torn, 0);
}

#[test]
fn garbage_shows_bytes_of_deleted_files() {
    let (mem, env) = world();
    durable(&env, "deleted", FileKind::Value, &[0xDD; 2 * PAGE]);
    env.fs().unlink(Path::new("d/deleted"), FileKind::Value).unwrap();
    env.fs().sync_dir(Path::new("d")).unwrap();
    let written = durable(&env, "file", FileKind::Log, &[OLD; PAGE]);
    written.write_at(PAGE as u64, &[NEW; 2 * PAGE]).unwrap();
    let disk = mem.snapshot();
    let (mut dead, mut random) = (0, 0);
    for seed in 0..100 {
        let image = disk.image(ImageMode::Garbage, seed);
        let content = content(&image);
        assert_eq!(content.len(), 3 * PAGE);
        assert_eq!(content[..PAGE], [OLD; PAGE]);
        let strange = content.chunks(PAGE).skip(1).filter(|page| *page != [NEW; PAGE]).count() as u64;
        assert_eq!(image.image_report().garbage, strange);
        dead += u32::from(content.chunks(PAGE).any(|page| page == [0xDD; PAGE]));
        random += u32::from(content.chunks(PAGE).any(|page| page.iter().any(|byte| *byte != page[0])));
    }
    assert!(dead > 30 && random > 5, "{dead} {random}");
}

#[test]
fn a_recycled_file_may_show_its_old_content() {
    let (mem, env) = world();
    let log = durable(&env, "1.log", FileKind::Log, &[OLD; 2 * PAGE]);
    env.fs().rename(Path::new("d/1.log"), Path::new(FILE)).unwrap();
    env.fs().sync_dir(Path::new("d")).unwrap();
    log.write_at(0, &[NEW; 2 * PAGE]).unwrap();
    let disk = mem.snapshot();
    let shows = |first, second| {
        (0..50).any(|seed| {
            let content = content(&disk.image(ImageMode::Garbage, seed));
            (page(&content, 0), page(&content, 1)) == (Some(first), Some(second))
        })
    };
    assert!(shows(NEW, OLD) && shows(OLD, NEW));
}

#[test]
fn size_keeps_length_or_data() {
    let disk = half_synced();
    let mut shapes = BTreeSet::new();
    for seed in 0..50 {
        let content = content(&disk.image(ImageMode::Size, seed));
        shapes.insert((content.len() / PAGE, page(&content, 0), page(&content, 3)));
    }
    assert_eq!(shapes, BTreeSet::from([(4, Some(OLD), Some(0)), (2, Some(NEW), None)]));
}

#[test]
fn a_cut_file_comes_back_whole_or_stays_cut() {
    let (mem, env) = world();
    let written = durable(&env, "file", FileKind::Log, &[OLD; 3 * PAGE]);
    written.set_len(100).unwrap();
    let disk = mem.snapshot();
    assert_eq!(content(&disk.image(ImageMode::None, 0)), [OLD; 3 * PAGE]);
    assert_eq!(content(&disk.image(ImageMode::All, 0)), [OLD; 100]);
    let lengths: BTreeSet<usize> =
        (0..50).map(|seed| content(&disk.image(ImageMode::Pages, seed)).len()).collect();
    assert_eq!(lengths, BTreeSet::from([100, 3 * PAGE]));
}

/// Random work that ends with every file and directory synced: no image may differ from the disk.
#[test]
fn what_was_synced_is_never_lost() {
    for seed in 0..60 {
        let mut random = Random::new(seed, "synced");
        let (mem, env) = world();
        let mut files = Vec::new();
        for number in 0..12 {
            let written =
                file(&env, &number.to_string(), FileKind::Table, &vec![number; random.index(20_000)]);
            for _ in 0..random.index(4) {
                written.write_at(random.below(30_000), &[7; 5000]).unwrap();
                if random.chance(1, 2) {
                    written.sync_data().unwrap();
                }
            }
            if random.chance(1, 3) {
                written.set_len(random.below(30_000)).unwrap();
            }
            let name = format!("d/{number}");
            match random.index(4) {
                0 => env.fs().unlink(Path::new(&name), FileKind::Table).unwrap(),
                1 => env.fs().rename(Path::new(&name), Path::new("d/renamed")).unwrap(),
                2 => env.fs().link(Path::new(&name), &Path::new("d").join(format!("link{number}"))).unwrap(),
                _ => {}
            }
            files.push(written);
        }
        // Closing syncs nothing, so keep the handles for the syncs.
        files.iter().for_each(|file| file.sync_data().unwrap());
        env.fs().sync_dir(Path::new("d")).unwrap();
        for mode in ImageMode::ALL {
            let image = mem.snapshot().image(mode, seed);
            assert!(!image.image_report().dropped_something(), "{mode:?}");
            assert_eq!(image.files(), mem.files());
            for path in mem.files() {
                assert_eq!(image.peek(&path), mem.peek(&path), "{mode:?}");
                assert!(mem.is_durable(&path) && image.is_durable(&path));
            }
        }
    }
}

#[test]
fn closing_syncs_nothing() {
    let (mem, env) = world();
    let written = file(&env, "file", FileKind::Table, b"bytes");
    env.fs().sync_dir(Path::new("d")).unwrap();
    written.close().unwrap();
    assert_eq!(content(&mem.snapshot().image(ImageMode::None, 0)), b"");
}

#[test]
fn syncing_a_file_does_not_keep_its_name() {
    let (mem, env) = world();
    let written = file(&env, "file", FileKind::Table, b"bytes");
    written.sync_all().unwrap();
    assert!(mem.snapshot().image(ImageMode::None, 0).files().is_empty());
    env.fs().sync_dir(Path::new("d")).unwrap();
    assert_eq!(content(&mem.snapshot().image(ImageMode::None, 0)), b"bytes");
}

#[test]
fn an_image_is_stable_and_repeats() {
    let disk = half_synced();
    for mode in ImageMode::ALL {
        for seed in 0..20 {
            let (first, again) = (disk.image(mode, seed), disk.image(mode, seed));
            assert_eq!(first.image_report(), again.image_report());
            assert_eq!(first.files(), again.files());
            for path in first.files() {
                assert_eq!(first.peek(&path), again.peek(&path), "{mode:?} {seed}");
            }
            // The image of a power loss is durable. The image of a process death is as durable as the disk was
            // before.
            let lasting = if mode == ImageMode::All { disk.image(ImageMode::None, 0) } else { first.clone() };
            let second = first.snapshot().image(ImageMode::None, 9);
            assert_eq!(second.files(), lasting.files());
            for path in second.files() {
                assert_eq!(lasting.peek(&path), second.peek(&path));
            }
        }
    }
}

/// Snapshots at every index of one run equal runs that end there.
#[test]
fn a_picture_at_an_index_is_the_disk_of_a_run_that_ends_there() {
    let run = |mem: &MemEnv, calls: u64| {
        let env = mem.env();
        let mut random = Random::new(5, "pictures");
        env.fs().create_dir_all(Path::new("d")).unwrap();
        let file = env.fs().create(Path::new(FILE), FileKind::Log).unwrap();
        while mem.io_index() < calls {
            match random.index(4) {
                0 => file.sync_data().unwrap(),
                1 => file.set_len(random.below(9000)).unwrap(),
                _ => file.write_at(random.below(9000), &random.next_u64().to_le_bytes()).unwrap(),
            }
        }
    };
    let whole = MemEnv::new(3);
    (2..60).for_each(|index| whole.take_snapshot_at(index));
    run(&whole, 60);
    let taken = whole.taken();
    assert_eq!(taken.len(), 58);
    assert!(whole.taken().is_empty());
    for (index, disk) in taken {
        let part = MemEnv::new(3);
        run(&part, index);
        for mode in [ImageMode::None, ImageMode::All, ImageMode::Pages] {
            let (from_picture, from_run) = (disk.image(mode, index), part.snapshot().image(mode, index));
            assert_eq!(
                from_picture.peek(Path::new(FILE)),
                from_run.peek(Path::new(FILE)),
                "{index} {mode:?}"
            );
        }
    }
}
