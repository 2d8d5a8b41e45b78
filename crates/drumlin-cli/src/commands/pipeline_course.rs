//! The simulated loads ("courses") of `drumlin sim pipeline`. They are independent of each other, so they run in
//! parallel, one per core.

use super::pipeline_engine::{self, Measured};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use drumlin::env::Env;
use drumlin::env::sync::{Arc, Mutex};
use drumlin_sim::pipeline::{Report, Setup, load};

/// One simulated load and its results.
pub(super) struct Course {
    pub(super) policy: String,
    pub(super) mode: &'static str,
    pub(super) slots: u32,
    pub(super) report: Report,
    /// Results of the same load on the engine, and the divisor of sizes and rates that both runs used.
    pub(super) engine: Option<(Measured, u64)>,
}

/// A load to simulate.
pub(super) struct Wanted {
    pub(super) policy: String,
    pub(super) mode: &'static str,
    pub(super) setup: Setup,
    /// Divisor of sizes and rates; set if the engine runs the load too.
    pub(super) engine: Option<u64>,
}

/// Queue of remaining loads, and the results so far.
struct Work {
    left: std::vec::IntoIter<(usize, Wanted)>,
    results: Vec<(usize, Result<Course>)>,
    shown: Progress,
}

impl Course {
    /// Returns MiB per second, scaled to full size.
    pub(super) fn throughput(&self) -> f64 {
        self.report.throughput() * self.engine.as_ref().map_or(1, |(_, scale)| *scale) as f64
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.policy, self.mode)
    }
}

/// Runs all `wanted` loads and returns their results in the same order.
pub(super) fn courses(wanted: Vec<Wanted>) -> Result<Vec<Course>> {
    let env = Env::os();
    let of = wanted.len();
    let left = wanted.into_iter().enumerate().collect::<Vec<_>>().into_iter();
    let work = Arc::new(Mutex::new(Work {
        left,
        results: Vec::new(),
        shown: Progress::steps("sim pipeline", of as u64),
    }));
    let spawn = |_| {
        let work = work.clone();
        env.spawn("course", move || run(&work))
    };
    let threads: Vec<_> = (1..env.available_cores().min(of)).map_while(|at| spawn(at).ok()).collect();
    run(&work);
    for thread in threads {
        thread.join().map_err(|_| Failure::Failed("a simulation thread panicked".to_owned()))?;
    }
    let mut results = std::mem::take(&mut work.lock().results);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs queued loads until the queue is empty or a load fails.
fn run(work: &Mutex<Work>) {
    loop {
        let next = work.lock().left.next();
        let Some((at, wanted)) = next else { return };
        let result = course(wanted);
        let mut work = work.lock();
        match &result {
            Ok(course) => tell(course, &work.shown, work.results.len() as u64 + 1),
            Err(_) => work.left = Vec::new().into_iter(),
        }
        work.results.push((at, result));
    }
}

fn tell(course: &Course, shown: &Progress, done: u64) {
    let (name, slots, speed) = (course.name(), course.slots, course.throughput());
    shown.step(done, &format!("{name}, {slots} slots: {speed:.0} MiB/s"));
}

fn course(Wanted { policy, mode, mut setup, engine }: Wanted) -> Result<Course> {
    let slots = setup.settings.slots;
    let mut decides = drumlin_policy::by_name(&policy).map_err(|e| Failure::Usage(e.to_string()))?;
    if let Some(scale) = engine {
        setup = pipeline_engine::scaled(&setup, scale);
    }
    let report = load(&mut *decides, &setup)
        .map_err(|what| Failure::Usage(format!("{policy} {mode}, {slots} slots: {what}")))?;
    let on_engine = |scale| pipeline_engine::load(&policy, mode, &setup).map(|measured| (measured, scale));
    let engine = engine.map(on_engine).transpose()?;
    Ok(Course { policy, mode, slots, report, engine })
}
