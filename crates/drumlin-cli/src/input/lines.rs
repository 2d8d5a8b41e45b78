//! Lines of bytes with their numbers. All text formats in this folder are built on this reader.

use std::io::{self, BufRead, Read};

/// Maximum length of a line in bytes: several times the maximum value size of a store.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Reads lines into one reused buffer.
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
    /// Maximum length of a line in bytes.
    limit: u64,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of the lines of `input`.
    pub(crate) fn new(input: R) -> Lines<R> {
        Lines { input, line: Vec::new(), number: 0, bytes: 0, limit: LINE_BYTES_MAX }
    }

    /// Returns the next line with its line end, which the last line may lack; `None` at the end.
    pub(crate) fn next_raw(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let taken = self.input.by_ref().take(self.limit + 1).read_until(b'\n', &mut self.line)?;
        if taken as u64 > self.limit {
            let what = format!("line {} is longer than {} bytes", self.number + 1, self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if taken == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += taken as u64;
        Ok(Some(&self.line))
    }

    /// Returns the next line without its line end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let line = self.next_raw()?;
        Ok(line.map(|line| line.strip_suffix(b"\n").unwrap_or(line)))
    }

    /// Returns the number of the last returned line, starting at 1; 0 before the first line.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes of all lines returned so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines =
            Lines { limit: 10, ..Lines::new(io::BufReader::new(b"123456789\n".chain(io::repeat(7)))) };
        assert!(lines.next_line().expect("short").is_some());
        let error = lines.next_line().expect_err("it has no end");
        assert_eq!(error.to_string(), "line 2 is longer than 10 bytes");
    }

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
