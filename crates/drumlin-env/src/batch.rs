//! Batches of concurrent reads: a disk serves sixteen readers nearly as fast as one.
//!
//! Where the kernel has `io_uring`, it runs the whole batch (see `ring`). Elsewhere the calling thread shares the
//! batch with a pool of reader threads, which starts with the first such batch and stays. Each thread takes the next
//! unclaimed read until none is left. The calling thread takes part, so a batch completes even when all pool threads
//! are busy. A simulated world runs the reads one after the other, in order.

use crate::request::ReadRequest;
use crate::sync::plain::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads in the reader pool.
const READERS: usize = 15;

/// A batch in progress.
struct ReadBatch {
    requests: Vec<ReadRequest>,
    next: AtomicUsize,
    done: Mutex<Done>,
    all_done: Condvar,
}

struct Done {
    results: Vec<Option<io::Result<Vec<u8>>>>,
    missing: usize,
}

impl ReadBatch {
    /// Runs reads until every read of the batch has been claimed.
    fn help(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = self.requests.get(number) else { return };
            let result = request.run();
            let mut done = self.done.lock();
            done.results[number] = Some(result);
            done.missing -= 1;
            if done.missing == 0 {
                self.all_done.notify_all();
            }
        }
    }
}

/// Queue of batches that wait for pool threads. A batch is queued once per thread that should join it.
struct Calls {
    waiting: Mutex<VecDeque<Arc<ReadBatch>>>,
    called: Condvar,
    /// Number of pool threads that started.
    readers: AtomicUsize,
}

fn readers() -> &'static Calls {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    let mut is_new = false;
    let calls = CALLS.get_or_init(|| {
        is_new = true;
        Calls { waiting: Mutex::default(), called: Condvar::new(), readers: AtomicUsize::new(0) }
    });
    if is_new {
        for _ in 0..READERS {
            // If a thread fails to start, the other readers and the calling thread do its share.
            let started = std::thread::Builder::new().name("drumlin-read".into()).spawn(|| answer(calls));
            calls.readers.fetch_add(usize::from(started.is_ok()), Ordering::Relaxed);
        }
    }
    calls
}

fn answer(calls: &Calls) {
    loop {
        let mut waiting = calls.waiting.lock();
        let batch = loop {
            match waiting.pop_front() {
                Some(batch) => break batch,
                None => waiting = calls.called.wait(waiting),
            }
        };
        drop(waiting);
        batch.help();
    }
}

/// Runs all `requests` concurrently and returns the results in request order.
pub(crate) fn side_by_side(requests: Vec<ReadRequest>) -> Vec<io::Result<Vec<u8>>> {
    if requests.len() < 2 {
        return one_by_one(&requests);
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Some(results) = crate::ring::read(&requests) {
        return results;
    }
    by_readers(requests)
}

/// Runs all `requests` on the calling thread and the reader pool.
fn by_readers(requests: Vec<ReadRequest>) -> Vec<io::Result<Vec<u8>>> {
    let count = requests.len();
    let done = Done { results: (0..count).map(|_| None).collect(), missing: count };
    let batch = Arc::new(ReadBatch {
        requests,
        next: AtomicUsize::new(0),
        done: Mutex::new(done),
        all_done: Condvar::new(),
    });
    let calls = readers();
    // With no pool thread running, a queued batch would stay in the queue for ever.
    let wanted = calls.readers.load(Ordering::Relaxed).min(count - 1);
    calls.waiting.lock().extend((0..wanted).map(|_| batch.clone()));
    (0..wanted).for_each(|_| calls.called.notify_one());
    batch.help();
    let mut done = batch.done.lock();
    while done.missing > 0 {
        done = batch.all_done.wait(done);
    }
    let never = || Err(io::Error::other("a batched read returned no result"));
    std::mem::take(&mut done.results).into_iter().map(|result| result.unwrap_or_else(never)).collect()
}

/// Runs all `requests` in order.
pub(crate) fn one_by_one(requests: &[ReadRequest]) -> Vec<io::Result<Vec<u8>>> {
    requests.iter().map(ReadRequest::run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::kinds::FileKind;
    use crate::temp::TempDir;

    fn requests(env: &Env, dir: &std::path::Path) -> Vec<ReadRequest> {
        let path = dir.join("table");
        let file = env.fs().create(&path, FileKind::Table).unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7 + n / 256) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        file.sync_all().unwrap();
        let mut all = Vec::new();
        for file in [file, env.fs().open_direct(&path, FileKind::Table).unwrap()] {
            all.extend((0..60).map(|n| ReadRequest {
                file: file.clone(),
                offset: n * 1663,
                len: 1 + n as usize * 23,
            }));
            all.push(ReadRequest { file, offset: 99_990, len: 11 });
        }
        all
    }

    #[test]
    fn a_batch_reads_what_single_reads_do_and_errors_stay_with_their_read() {
        let dir = TempDir::new("drumlin-batch").unwrap();
        let requests = requests(&Env::os(), dir.path());
        for round in 0..50 {
            let ways = [side_by_side, by_readers];
            let found = ways[round % 2](requests.clone());
            for (found, wanted) in found.iter().zip(one_by_one(&requests)) {
                match (found, wanted) {
                    (Ok(found), Ok(wanted)) => assert!(*found == wanted && !wanted.is_empty()),
                    (Err(found), Err(wanted)) => assert_eq!(found.kind(), wanted.kind()),
                    _ => panic!("one of the two failed"),
                }
            }
            assert_eq!(found.iter().filter(|result| result.is_err()).count(), 2);
        }
    }
}
