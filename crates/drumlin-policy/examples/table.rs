//! scratch
use drumlin_policy::schedule::Mode;
use drumlin_policy::sim::pipeline::{Setup, load};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let part: u64 = args[1].parse().unwrap();
    for policy in args[3].split(' ') {
        for slots in args[2].split(',').map(|s| s.parse::<u32>().unwrap()) {
            for mode in [Mode::Unsplit, Mode::Split, Mode::Pipelined] {
                let mut setup = Setup::downforce(slots).part(part);
                setup.settings.mode = mode;
                let began = std::time::Instant::now();
                match load(&mut *drumlin_policy::by_name(policy).unwrap(), &setup) {
                    Ok(r) => println!(
                        "{policy} {slots} {mode:?}: {:.0} MB/s WA {:.2} busy {:.1} >=12 {:.2} depth {:.1} l0 {} moved {:.2} folded {:.2} pieces {:?} plans {:?} {:?}",
                        r.throughput(),
                        r.write_amp(),
                        r.mean_busy(),
                        r.share_busy(12),
                        r.mean_depth(),
                        r.most_level0,
                        r.moved as f64 / r.ingested as f64,
                        r.folded as f64 / r.ingested as f64,
                        r.pieces,
                        r.plans,
                        began.elapsed()
                    ),
                    Err(e) => println!("{policy} {slots} {mode:?}: {e}"),
                }
            }
        }
    }
}
