//! Many reads with one system call, through `io_uring`.
//!
//! A thread that reads for many lookups at once hands all its reads to the kernel together and waits once. Where there is
//! no ring (another system, an old kernel, a sandbox that forbids it) the readers of `batch` do the same work.
//!
//! Each thread has its ring, made with its first batch. All reads of a batch land in one buffer of the thread, each on a
//! page of its own, as direct reads demand; what was wanted is copied out. A read that did not give all that was asked
//! for is made again by itself, so that short reads, interrupted ones and errors end as they do everywhere else.
//!
//! Invariant: the buffer is neither moved nor freed while the kernel may write to it. When the ring cannot tell
//! whether it still may, both are given up for good.

#![allow(unsafe_code)]

use crate::batch::ReadRequest;
use crate::direct::PAGE;
use crate::os::OsFile;
use io_uring::{IoUring, opcode, types};
use std::cell::RefCell;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

/// Most reads under way at once.
const DEPTH: usize = 64;
/// Most bytes of one round of reads; a single larger one goes alone.
const ROUND_BYTES: usize = 4 << 20;
/// Most bytes that a thread's buffer keeps from batch to batch.
const KEPT: usize = 1 << 20;

thread_local! {
    static RING: RefCell<State> = const { RefCell::new(State::Untried) };
}

enum State {
    Untried,
    Ready(Box<Ring>),
    /// There is none, or it is lost.
    Without,
}

struct Ring {
    uring: IoUring,
    buffer: Vec<u8>,
}

/// One read of a round.
struct Part<'a> {
    file: &'a OsFile,
    /// Place in the file and length, as the system wants them.
    start: u64,
    len: usize,
    /// Place in the buffer.
    at: usize,
    /// Bytes between `start` and what is wanted.
    skip: usize,
    wanted: usize,
    /// What the kernel said.
    result: Option<i32>,
}

impl<'a> Part<'a> {
    /// `None` for a place that no file has.
    fn new(request: &'a ReadRequest, file: &'a OsFile, at: usize) -> Option<Part<'a>> {
        let (start, len) = file.aligned(request.offset, request.len)?;
        let skip = (request.offset - start) as usize;
        (len <= ROUND_BYTES).then_some(Part { file, start, len, at, skip, wanted: request.len, result: None })
    }

    /// The bytes that were wanted, if all of them came.
    fn bytes<'b>(&self, buffer: &'b [u8]) -> Option<&'b [u8]> {
        let read = usize::try_from(self.result?).ok()?;
        let whole = read >= self.skip + self.wanted;
        whole.then(|| buffer.get(self.at + self.skip..self.at + self.skip + self.wanted)).flatten()
    }
}

/// Does all `requests`; the results are in their order. `None`, with nothing done, where there is no ring.
pub(crate) fn read(requests: &[ReadRequest]) -> Option<Vec<io::Result<Vec<u8>>>> {
    RING.with_borrow_mut(|state| {
        if let State::Untried = state {
            *state = Ring::new().map_or(State::Without, |ring| State::Ready(Box::new(ring)));
        }
        let mut results = Vec::with_capacity(requests.len());
        while results.len() < requests.len() {
            let State::Ready(ring) = state else {
                // Lost on the way: the rest is read one by one.
                results.extend(requests[results.len()..].iter().map(ReadRequest::run));
                break;
            };
            match ring.round(&requests[results.len()..]) {
                Some(done) => results.extend(done),
                None => give_up(state),
            }
        }
        if results.is_empty() { None } else { Some(results) }
    })
}

/// Leaves ring and buffer to the kernel, which may still use them.
#[cold]
fn give_up(state: &mut State) {
    if let State::Ready(ring) = mem::replace(state, State::Without) {
        mem::forget(ring);
    }
}

impl Ring {
    fn new() -> Option<Ring> {
        let modern = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(DEPTH as u32);
        let uring = modern.or_else(|_| IoUring::new(DEPTH as u32)).ok()?;
        Some(Ring { uring, buffer: Vec::new() })
    }

    /// Does the first of `requests`, as many as go together. `None` if the kernel may still be writing.
    fn round(&mut self, requests: &[ReadRequest]) -> Option<Vec<io::Result<Vec<u8>>>> {
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(requests.len().min(DEPTH));
        let mut end = 0;
        for request in &requests[..requests.len().min(DEPTH)] {
            let part = request.file.os().and_then(|file| Part::new(request, file, end));
            let Some(part) = part.filter(|part| end + part.len <= ROUND_BYTES) else { break };
            end += part.len.next_multiple_of(PAGE);
            parts.push(part);
        }
        if parts.is_empty() {
            return Some(vec![requests[0].run()]);
        }
        if self.buffer.len() < end + PAGE {
            self.buffer.resize(end + PAGE, 0);
        }
        let first = self.buffer.as_ptr().align_offset(PAGE);
        self.submit(&mut parts, first)?;
        let memory = &self.buffer[first..];
        let results = parts.iter().zip(requests).map(|(part, request)| match part.bytes(memory) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => request.run(),
        });
        let results = results.collect();
        if self.buffer.len() > KEPT {
            self.buffer = Vec::new();
        }
        Some(results)
    }

    /// Hands `parts` to the kernel and waits for all of them; `None` if that cannot be known.
    fn submit(&mut self, parts: &mut [Part<'_>], first: usize) -> Option<()> {
        for (number, part) in parts.iter().enumerate() {
            // SAFETY: `round` made room for `first`, all parts and their padding.
            let place = unsafe { self.buffer.as_mut_ptr().add(first + part.at) };
            let file = types::Fd(part.file.descriptor().as_raw_fd());
            let entry = opcode::Read::new(file, place, part.len as u32).offset(part.start);
            let entry = entry.build().user_data(number as u64);
            // SAFETY: the file is open as long as its request; the memory is this ring's, no other part's, and stays
            // where it is until the completion has come or is given up for good.
            unsafe { self.uring.submission().push(&entry) }.ok()?;
        }
        let mut missing = parts.len();
        while missing > 0 {
            match self.uring.submit_and_wait(missing) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            for completion in self.uring.completion() {
                let part = parts.get_mut(completion.user_data() as usize)?;
                part.result = Some(completion.result());
                missing -= 1;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_lost_is_not_asked_again() {
        let mut state = Ring::new().map_or(State::Without, |ring| State::Ready(Box::new(ring)));
        give_up(&mut state);
        assert!(matches!(state, State::Without));
        give_up(&mut state);
    }
}
