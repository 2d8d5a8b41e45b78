//! The directions of the paper's figures, at a small size.

use super::*;
use crate::by_name;
use crate::schedule::Mode;

fn run(policy: &str, mode: Mode, slots: u32, part: u64) -> Report {
    let mut setup = Setup::downforce(slots).part(part);
    setup.settings.mode = mode;
    load(&mut *by_name(policy).unwrap(), &setup).unwrap()
}

#[test]
fn a_small_load_ends() {
    let report = run("1-leveling:5", Mode::Pipelined, 4, 16);
    std::eprintln!("{} {} {}", report.throughput(), report.write_amp(), report.mean_busy());
}
