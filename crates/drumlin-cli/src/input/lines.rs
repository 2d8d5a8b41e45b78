//! Lines of bytes with their numbers, the ground of every text format here.

use std::io::{self, BufRead};

/// Reads line after line into one buffer.
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `input`.
    pub(crate) fn new(input: R) -> Lines<R> {
        Lines { input, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// The next line with its line end, which the last line may lack; `None` at the end.
    pub(crate) fn next_raw(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let taken = self.input.read_until(b'\n', &mut self.line)?;
        if taken == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += taken as u64;
        Ok(Some(&self.line))
    }

    /// The next line without its line end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let line = self.next_raw()?;
        Ok(line.map(|line| line.strip_suffix(b"\n").unwrap_or(line)))
    }

    /// Number of the line returned last, from 1; 0 before the first.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of all lines returned so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_the_last_may_lack_its_end() {
        let mut lines = Lines::new(&b"a\n\nb\r\nc"[..]);
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().expect("memory reads") {
            let line = line.to_vec();
            seen.push((lines.number(), line, lines.bytes()));
        }
        assert_eq!(
            seen,
            [(1, b"a".to_vec(), 2), (2, vec![], 3), (3, b"b\r".to_vec(), 6), (4, b"c".to_vec(), 7)]
        );
    }
}
