//! The threads of a phase: clients, the writer beside them, and the sampler.
//!
//! Clients and writer start together. A client's time runs from the common start to its last answer, without the CPU
//! time that it spent drawing keys. So time in which the client waits for a core counts, wherever it lost the core.
//! The time of the phase is that of the slowest client.

use super::super::ended::{Clients, Ended, Written};
use super::super::process;
use super::super::sampler::Watched;
use super::super::start::{Place, Start};
use super::super::thread::{Context, Done, Thread};
use super::Run;
use crate::engine::Result;
use crate::generate::random::Random;
use crate::generate::stream::{CHUNK, Stream};
use crate::generate::trace::Requests;
use crate::workload::{Phase, Workload};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// Minimum share of its rate that the concurrent writer must reach; below it there is a warning.
const LEAST_WRITTEN: f64 = 0.95;

fn ended_text() -> String {
    "a thread of the benchmark panicked".to_owned()
}

/// Starts a thread that is number `number` of `of`.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    builder: Builder,
    (number, of): (u32, u32),
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let started = builder.spawn_scoped(scope, work);
    started.map_err(|e| format!("thread {number} of {of} cannot be started: {e}"))
}

impl Run<'_> {
    /// Runs the threads of `phase`.
    pub(super) fn threads(
        &self,
        phase: &Phase,
        base: u64,
        context: &Context<'_>,
        watched: &Watched<'_>,
    ) -> Result<Clients> {
        let clients = if phase.mix.is_empty() { 0 } else { phase.threads };
        let all = clients + u32::from(phase.writer.is_some());
        let start = Start::new(all);
        let work = |thread: u32| self.client(phase, base, thread, context, start.place());
        std::thread::scope(|scope| {
            let sampler = spawn(scope, Builder::new(), (1, 1), || watched.sample())?;
            let mut failed = None;
            let mut note = |what: String| {
                start.call_off();
                failed = Some(what);
            };
            let mut others = Vec::new();
            for thread in 1..clients {
                match spawn(scope, Builder::new(), (thread + 1, all), move || work(thread)) {
                    Ok(other) => others.push(other),
                    Err(what) => {
                        note(what);
                        break;
                    }
                }
            }
            let writer = phase.writer.and_then(|rate| {
                let place = start.place();
                let work = move || self.write_beside(rate, base, context, &place);
                spawn(scope, Builder::new(), (all, all), work).map_err(&mut note).ok()
            });
            // Catches a panic, because the scope would wait forever: sampler and writer run until `done` is set.
            let first = || if clients == 0 { Ok((Done::default(), 0, 0)) } else { work(0) };
            let ended = || Err(ended_text());
            let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(first));
            let mut results = vec![first.unwrap_or_else(|_| ended())];
            results.extend(others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| ended())));
            watched.shared.done.store(true, Relaxed);
            sampler.thread().unpark();
            let written = writer
                .map_or(Ok(Written::default()), |writer| writer.join().unwrap_or_else(|_| Err(ended_text())));
            let samples = sampler.join().map_err(|_| ended_text())?;
            failed.map_or(Ok(()), Err)?;
            let written = written?;
            Ok(Clients { ended: results.into_iter().collect::<Result<_>>()?, samples, written })
        })
    }

    /// Executes the operations of client `thread`.
    fn client(
        &self,
        phase: &Phase,
        base: u64,
        thread: u32,
        context: &Context<'_>,
        place: Place<'_>,
    ) -> Result<Ended> {
        let trace = self.workload.trace.as_ref().map(Requests::open).transpose()?;
        let Workload { keys, value_bytes, .. } = *self.workload;
        let mut stream = Stream::new(phase, keys, value_bytes, base, self.seed, thread, trace);
        let Some(begun) = place.wait() else { return Ok((Done::default(), 0, 0)) };
        let done = Thread::new(context).run(&mut stream, begun)?;
        // Engines get the same operations, but a faster one gets further within a fixed time, so digests would
        // differ.
        let digest = if phase.seconds.is_some() { 0 } else { stream.digest() };
        Ok((done, digest, stream.inserted()))
    }

    /// Overwrites entries at `rate` bytes per second until the phase ends.
    fn write_beside(
        &self,
        rate: f64,
        base: u64,
        context: &Context<'_>,
        place: &Place<'_>,
    ) -> Result<Written> {
        let mut written = Written::default();
        let mut random = Random::new(self.seed, "writer", 0);
        let (mut value, mut drawn) = (Vec::new(), Vec::new());
        let Some(started) = place.wait() else { return Ok(written) };
        while !context.shared.done.load(Relaxed) && base > 0 {
            if drawn.is_empty() {
                let before = process::thread_cpu();
                drawn.extend(
                    (0..CHUNK).map(|_| random.below(base)).map(|id| (id, self.workload.keys.key(id))),
                );
                drawn.reverse();
                written.drawing += process::thread_cpu() - before;
            }
            let due = started + (written.ingested as f64 * 1e9 / rate) as u64;
            let ahead = due.saturating_sub(process::wall());
            if ahead > 0 {
                std::thread::sleep(Duration::from_nanos(ahead).min(Duration::from_millis(10)));
                continue;
            }
            let Some((id, key)) = drawn.pop() else { continue };
            let version = context.oracle.next_version(id);
            context.values.write(id, version, self.workload.value_bytes, &mut value);
            context.engine.put(&key, &value, context.durability)?;
            context.oracle.note_put(id, version, key.len(), value.len());
            written.ingested += (key.len() + value.len()) as u64;
        }
        let seconds = process::wall().saturating_sub(started) as f64 / 1e9;
        let bytes = written.ingested;
        if base > 0 && (bytes as f64) < LEAST_WRITTEN * rate * seconds {
            written.behind =
                Some(format!("the writer wrote {bytes} bytes in {seconds:.2} s, not {rate:.0} bytes/s"));
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_is_an_error() {
        // No address space has room for such a stack.
        let builder = Builder::new().stack_size(1 << 50);
        let refused = std::thread::scope(|scope| spawn(scope, builder, (3, 8), || ()).map(drop));
        let refused = refused.expect_err("too large");
        assert!(refused.starts_with("thread 3 of 8 cannot be started: "), "{refused}");
    }
}
