//! Runs seeds on several threads; the results come in seed order, whatever thread ran them.

use drumlin_env::Env;
use drumlin_env::sync::{Arc, Mutex, atomic};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{Failure, Verdict};

/// Runs `f` and turns a panic into a failure.
pub fn guarded<T>(f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Verdict::Panic.of(text.unwrap_or_else(|| "a panic without words".into())))
    })
}

/// Runs `job` for each number below `count`, on one thread per core. Stops early once a job fails.
pub fn each<T: Send + 'static>(
    count: u64,
    job: impl Fn(u64) -> Result<T, Failure> + Send + Sync + 'static,
) -> Vec<(u64, Result<T, Failure>)> {
    let env = Env::os();
    let (next, failed) = (Arc::new(atomic::AtomicU64::new(0)), Arc::new(atomic::AtomicBool::new(false)));
    let (job, results) = (Arc::new(job), Arc::new(Mutex::new(Vec::new())));
    let threads: Vec<_> = (0..env.available_cores().min(16))
        .map(|_| {
            let (next, failed, job, results) = (next.clone(), failed.clone(), job.clone(), results.clone());
            let work = move || {
                loop {
                    let number = next.fetch_add(1, atomic::Ordering::Relaxed);
                    if number >= count || failed.load(atomic::Ordering::Relaxed) {
                        break;
                    }
                    let result = guarded(|| job(number));
                    failed.fetch_or(result.is_err(), atomic::Ordering::Relaxed);
                    results.lock().push((number, result));
                }
            };
            env.spawn("torture", work).expect("a thread can be started")
        })
        .collect();
    for thread in threads {
        thread.join().expect("jobs catch their panics");
    }
    let mut results = std::mem::take(&mut *results.lock());
    results.sort_by_key(|(number, _)| *number);
    results
}
