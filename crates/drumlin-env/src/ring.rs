//! Batches of reads with one system call, through `io_uring`.
//!
//! A thread that reads for many lookups at once submits all its reads to the kernel together and waits once. Some
//! systems have no ring: not Linux, an old kernel, or a sandbox that forbids it. There the reader pool of `batch`
//! does the same work.
//!
//! Each thread creates its own ring with its first batch. All reads of a batch land in one buffer of the thread, each
//! on its own pages, as direct reads require; the wanted bytes are then copied out. A read that returns too few bytes
//! is repeated as a single read, so short reads, interruptions and errors are handled as everywhere else.
//!
//! After a failure to create a ring, or the loss of one, the thread retries later, since file descriptors or memory
//! may be short only for a moment. The back-off doubles each time, so a system without rings rarely pays for a retry.
//!
//! Invariant: the buffer is neither moved nor freed while the kernel may write to it. When the ring cannot tell
//! whether the kernel still may, ring and buffer are leaked.

#![allow(unsafe_code)]

use crate::direct::PAGE;
use crate::os::OsFile;
use crate::request::ReadRequest;
use io_uring::{IoUring, opcode, types};
use std::cell::RefCell;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

/// Maximum number of reads in flight.
const DEPTH: usize = 64;
/// Maximum bytes of one round of reads; a larger single read runs alone.
const ROUND_BYTES: usize = 4 << 20;
/// Maximum bytes that a thread's buffer keeps between batches.
const KEPT: usize = 1 << 20;

thread_local! {
    static RING: RefCell<RequestState> = const { RefCell::new(RequestState::Untried) };
}

/// Initial back-off after a failure: number of batches read without a ring.
const FIRST_PAUSE: u32 = 64;
/// Maximum back-off, in batches.
const LONGEST_PAUSE: u32 = 1 << 20;
/// Number of retries when the kernel is temporarily short of a resource.
const PATIENCE: u32 = 16;

enum RequestState {
    Untried,
    Ready {
        ring: Box<Ring>,
        pause: u32,
    },
    /// No ring, or a lost one: the next `left` batches do without, and the next back-off lasts `pause` batches.
    Without {
        left: u32,
        pause: u32,
    },
}

impl RequestState {
    /// Creates the ring when the back-off is over.
    fn prepare(&mut self, make: impl FnOnce() -> Option<Ring>) {
        let pause = match self {
            RequestState::Untried => FIRST_PAUSE,
            RequestState::Without { left: 0, pause } => *pause,
            RequestState::Without { left, .. } => {
                *left -= 1;
                return;
            }
            RequestState::Ready { .. } => return,
        };
        *self = match make() {
            Some(ring) => RequestState::Ready { ring: Box::new(ring), pause },
            None => RequestState::without(pause),
        };
    }

    /// Returns the state that backs off for `pause` batches and doubles the next back-off.
    fn without(pause: u32) -> RequestState {
        RequestState::Without { left: pause, pause: pause.saturating_mul(2).min(LONGEST_PAUSE) }
    }
}

struct Ring {
    uring: IoUring,
    buffer: Vec<u8>,
}

/// One read of a round.
struct ReadPart<'a> {
    file: &'a OsFile,
    /// File offset and length, aligned as the system requires.
    start: u64,
    len: usize,
    /// Offset in the buffer.
    at: usize,
    /// Number of bytes between `start` and the first wanted byte.
    skip: usize,
    wanted: usize,
    /// Return value of the kernel.
    result: Option<i32>,
}

impl<'a> ReadPart<'a> {
    /// Returns `None` for an offset beyond any file, and for a read larger than [`ROUND_BYTES`].
    fn new(request: &'a ReadRequest, file: &'a OsFile, at: usize) -> Option<ReadPart<'a>> {
        let (start, len) = file.aligned(request.offset, request.len)?;
        let skip = (request.offset - start) as usize;
        (len <= ROUND_BYTES).then_some(ReadPart {
            file,
            start,
            len,
            at,
            skip,
            wanted: request.len,
            result: None,
        })
    }

    /// Returns the wanted bytes if the kernel read all of them.
    fn bytes<'b>(&self, buffer: &'b [u8]) -> Option<&'b [u8]> {
        let read = usize::try_from(self.result?).ok()?;
        let whole = read >= self.skip + self.wanted;
        whole.then(|| buffer.get(self.at + self.skip..self.at + self.skip + self.wanted)).flatten()
    }
}

/// Runs all `requests` and returns the results in request order. Returns `None`, having read nothing, where no ring
/// exists.
pub(crate) fn read(requests: &[ReadRequest]) -> Option<Vec<io::Result<Vec<u8>>>> {
    // A thread that is ending has already destroyed its ring.
    let read = RING.try_with(|state| {
        let state = &mut *state.try_borrow_mut().ok()?;
        state.prepare(Ring::new);
        let mut results = Vec::with_capacity(requests.len());
        while results.len() < requests.len() {
            let RequestState::Ready { ring, .. } = state else {
                // The ring was lost during the batch: read the remaining requests one by one.
                results.extend(requests[results.len()..].iter().map(ReadRequest::run));
                break;
            };
            match ring.round(&requests[results.len()..]) {
                Some(done) => results.extend(done),
                None => give_up(state),
            }
        }
        if results.is_empty() { None } else { Some(results) }
    });
    read.ok().flatten()
}

/// Leaks ring and buffer, because the kernel may still use them.
#[cold]
fn give_up(state: &mut RequestState) {
    let RequestState::Ready { pause, .. } = *state else { return };
    if let RequestState::Ready { ring, .. } = mem::replace(state, RequestState::without(pause)) {
        mem::forget(ring);
    }
}

impl Ring {
    fn new() -> Option<Ring> {
        let modern = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(DEPTH as u32);
        let uring = modern.or_else(|_| IoUring::new(DEPTH as u32)).ok()?;
        Some(Ring { uring, buffer: Vec::new() })
    }

    /// Runs as many of the first `requests` as fit one round. Returns `None` if the kernel may still be writing.
    fn round(&mut self, requests: &[ReadRequest]) -> Option<Vec<io::Result<Vec<u8>>>> {
        let mut parts: Vec<ReadPart<'_>> = Vec::with_capacity(requests.len().min(DEPTH));
        let mut end = 0;
        for request in &requests[..requests.len().min(DEPTH)] {
            let part = request.file.os().and_then(|file| ReadPart::new(request, file, end));
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

    /// Submits `parts` to the kernel and waits for all of them. Returns `None` if their completion cannot be
    /// established.
    fn submit(&mut self, parts: &mut [ReadPart<'_>], first: usize) -> Option<()> {
        for (number, part) in parts.iter().enumerate() {
            // SAFETY: `round` sized the buffer for `first`, all parts and their padding.
            let place = unsafe { self.buffer.as_mut_ptr().add(first + part.at) };
            let file = types::Fd(part.file.descriptor().as_raw_fd());
            let entry = opcode::Read::new(file, place, part.len as u32).offset(part.start);
            let entry = entry.build().user_data(number as u64);
            // SAFETY: the request keeps the file open. The memory belongs to this ring and to no other part, and it
            // stays in place until the completion arrives or the ring is leaked.
            unsafe { self.uring.submission().push(&entry) }.ok()?;
        }
        let (mut missing, mut patience) = (parts.len(), PATIENCE);
        while missing > 0 {
            match self.uring.submit_and_wait(missing) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if patience > 0 && is_passing(&error) => {
                    patience -= 1;
                    std::thread::yield_now();
                }
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

/// Returns whether the kernel was short of memory or queue space, which may be free again at once.
fn is_passing(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::AGAIN, rustix::io::Errno::BUSY, rustix::io::Errno::NOMEM];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_missing_is_made_later_and_seldom() {
        let mut state = RequestState::Untried;
        let mut tries = Vec::new();
        for batch in 0..1000 {
            state.prepare(|| {
                tries.push(batch);
                None
            });
        }
        assert_eq!(tries, [0, 65, 194, 451, 964]);
    }

    #[test]
    fn a_ring_that_is_lost_is_not_asked_again() {
        let mut state = RequestState::Untried;
        state.prepare(Ring::new);
        give_up(&mut state);
        assert!(matches!(state, RequestState::Without { .. }));
        give_up(&mut state);
        assert!(matches!(state, RequestState::Without { .. }));
    }
}
