//! Request traces: CSV files with the header `ts,op,key,size` (key-value trace) or `ts,op,lba,bytes` (block trace).
//!
//! `op` is `G` for get, `P` for put or `D` for delete. `ts` is ignored. In a key-value trace, the key is the bytes of
//! the field. In a block trace, `lba` counts sectors of 512 bytes. Keys are 16 lower-case hex digits, so that key
//! order is block order:
//!
//! - By default, a request is one operation. The key is the `lba` and the value has `bytes` bytes.
//! - In an expanded trace, a request is one operation per touched block of 4,096 bytes, in ascending order. The key
//!   is the block number `lba * 512 / 4096` and the value has 4,096 bytes. A request of 0 bytes touches no block.

use super::InputError;
use super::csv::Records;
use std::io::BufRead;

/// Bytes per sector, the unit of `lba`.
const SECTOR_BYTES: u64 = 512;
/// Bytes per block of an expanded trace.
const BLOCK_BYTES: u64 = 4096;
/// Maximum value size that a trace may request; real traces stay far below it.
const VALUE_BYTES_MAX: u64 = 64 << 20;

/// Type of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Read the key.
    Get,
    /// Write the key.
    Put,
    /// Delete the key.
    Delete,
}

/// One operation of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    /// Type of the operation.
    pub(crate) action: Action,
    /// Key of the operation.
    pub(crate) key: Vec<u8>,
    /// Size in bytes of the value that a put writes, at most `VALUE_BYTES_MAX`.
    pub(crate) size: usize,
}

/// Layout of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Key-value trace: `ts,op,key,size`.
    Keys,
    /// Block trace: `ts,op,lba,bytes`.
    Blocks,
}

/// Remaining blocks of an expanded request.
struct Pending {
    action: Action,
    next: u64,
    last: u64,
}

/// Reads the operations of a trace.
pub(crate) struct Trace<R> {
    records: Records<R>,
    layout: Layout,
    expand: bool,
    pending: Option<Pending>,
}

impl<R: BufRead> Trace<R> {
    /// Reads the header of `input` and returns a reader of its operations.
    pub(crate) fn open(input: R) -> Result<Trace<R>, InputError> {
        let mut records = Records::new(input);
        let header = records.next_record()?.unwrap_or_default();
        let layout = match header.join(&b","[..]).as_slice() {
            b"ts,op,key,size" => Layout::Keys,
            b"ts,op,lba,bytes" => Layout::Blocks,
            _ => {
                return Err(InputError::bad(1, "the header of a trace is ts,op,key,size or ts,op,lba,bytes"));
            }
        };
        Ok(Trace { records, layout, expand: false, pending: None })
    }

    /// Returns the layout that the header names.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Expands the requests of a block trace: later requests become operations on 4,096-byte blocks.
    pub(crate) fn expand(&mut self) {
        self.expand = self.layout == Layout::Blocks;
    }

    /// Returns the bytes of decompressed trace consumed by the operations returned so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.records.bytes()
    }

    /// Returns the line number of the last returned operation.
    pub(crate) fn line(&self) -> u64 {
        self.records.line()
    }

    fn read(&mut self) -> Result<Option<Operation>, InputError> {
        loop {
            if let Some(block) = self.next_block() {
                return Ok(Some(block));
            }
            let Some(fields) = self.records.next_record()? else { return Ok(None) };
            let operation = self.parse(fields).map_err(|what| InputError::bad(self.records.line(), what))?;
            if operation.is_some() {
                return Ok(operation);
            }
        }
    }

    /// Parses a record. Returns `None` if the request is expanded; its blocks, if any, are then pending.
    fn parse(&mut self, fields: Vec<Vec<u8>>) -> Result<Option<Operation>, String> {
        let [_, op, key, size] = <[Vec<u8>; 4]>::try_from(fields)
            .map_err(|fields| format!("a record has 4 fields, not {}", fields.len()))?;
        let action = match op.as_slice() {
            b"G" => Action::Get,
            b"P" => Action::Put,
            b"D" => Action::Delete,
            _ => return Err("op is none of G, P and D".to_owned()),
        };
        let size = number(&size).ok_or("the size is not a number")?;
        if self.layout == Layout::Keys {
            return Ok(Some(Operation { action, key, size: value_size(size)? }));
        }
        let sector = number(&key).ok_or("the lba is not a number")?;
        if !self.expand {
            return Ok(Some(Operation { action, key: block_key(sector), size: value_size(size)? }));
        }
        let start = sector.checked_mul(SECTOR_BYTES).ok_or("the lba is too large")?;
        let end = start.checked_add(size).ok_or("the request ends beyond the device")?;
        value_size(size)?;
        if size > 0 {
            self.pending = Some(Pending { action, next: start / BLOCK_BYTES, last: (end - 1) / BLOCK_BYTES });
        }
        Ok(None)
    }

    fn next_block(&mut self) -> Option<Operation> {
        let pending = self.pending.as_mut()?;
        let (action, block) = (pending.action, pending.next);
        if block == pending.last {
            self.pending = None;
        } else {
            pending.next += 1;
        }
        Some(Operation { action, key: block_key(block), size: BLOCK_BYTES as usize })
    }
}

fn block_key(number: u64) -> Vec<u8> {
    format!("{number:016x}").into_bytes()
}

fn value_size(size: u64) -> Result<usize, String> {
    if size > VALUE_BYTES_MAX {
        return Err(format!("a value of {size} bytes is over the limit of {VALUE_BYTES_MAX}"));
    }
    Ok(size as usize)
}

/// Parses a decimal number that consists only of digits.
fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Operation, InputError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, expand: bool) -> Result<Vec<String>, String> {
        let mut trace = Trace::open(text.as_bytes()).map_err(|e| e.to_string())?;
        if expand {
            trace.expand();
        }
        trace
            .map(|r| {
                let op = r.map_err(|e| e.to_string())?;
                Ok(format!("{:?} {} {}", op.action, String::from_utf8_lossy(&op.key), op.size))
            })
            .collect()
    }

    #[test]
    fn a_key_trace_names_its_keys() {
        let text = "ts,op,key,size\n13,P,a b.json,106\n14,G,a b.json,0\n15,D,\"x,y\",0\n";
        let expected = ["Put a b.json 106", "Get a b.json 0", "Delete x,y 0"];
        assert_eq!(read(text, false), Ok(expected.map(str::to_owned).to_vec()));
        // Only block traces can be expanded.
        assert_eq!(read(text, true), read(text, false));
    }

    #[test]
    fn a_block_trace_is_one_operation_a_request() {
        let text = "ts,op,lba,bytes\n0,P,42932745,512\n0,G,255,0\n";
        let expected = ["Put 00000000028f1a09 512", "Get 00000000000000ff 0"];
        assert_eq!(read(text, false), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn an_expanded_request_touches_every_block_it_overlaps() {
        // Sectors 7 and 8 lie in blocks 0 and 1. Sectors 8 to 15 are block 1. A request of 0 bytes touches no block.
        let text = "ts,op,lba,bytes\n0,P,7,1024\n0,G,8,4096\n0,P,8,0\n0,D,15,8704\n";
        let expected = [
            "Put 0000000000000000 4096",
            "Put 0000000000000001 4096",
            "Get 0000000000000001 4096",
            "Delete 0000000000000001 4096",
            "Delete 0000000000000002 4096",
            "Delete 0000000000000003 4096",
        ];
        assert_eq!(read(text, true), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn hostile_traces_are_refused_by_line() {
        let keys = "ts,op,key,size\n";
        let blocks = "ts,op,lba,bytes\n";
        for (text, what) in [
            ("".to_owned(), "line 1: the header of a trace is"),
            ("ts,op,key\n".to_owned(), "line 1: the header of a trace is"),
            (format!("{keys}1,P,a\n"), "line 2: a record has 4 fields, not 3"),
            (format!("{keys}1,X,a,1\n"), "line 2: op is none of G, P and D"),
            (format!("{keys}1,P,a,-1\n"), "line 2: the size is not a number"),
            (format!("{keys}1,P,a,+1\n"), "line 2: the size is not a number"),
            (format!("{keys}1,P,a,\n"), "line 2: the size is not a number"),
            (format!("{keys}1,P,a,99999999999\n"), "line 2: a value of 99999999999 bytes"),
            (format!("{blocks}1,G,x,1\n"), "line 2: the lba is not a number"),
            (format!("{blocks}1,G,0,1000000000000\n"), "line 2: a value of 1000000000000 bytes"),
            (format!("{blocks}1,G,36028797018963968,1\n"), "line 2: the lba is too large"),
            (format!("{blocks}1,G,36028797018963967,18446744073709551615\n"), "line 2: the request ends"),
        ] {
            let refused = read(&text, true).expect_err(what);
            assert!(refused.starts_with(what), "{text:?}: {refused}");
        }
    }

    #[test]
    fn the_last_block_of_the_device_ends_the_request() {
        let text = "ts,op,lba,bytes\n0,G,36028797018963967,511\n";
        assert_eq!(read(text, true), Ok(vec!["Get 000fffffffffffff 4096".to_owned()]));
    }
}
