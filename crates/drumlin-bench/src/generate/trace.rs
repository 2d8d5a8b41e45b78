//! Recorded requests as operations on ids.
//!
//! Keys get ids in the order of their first appearance. Files may be compressed with zstd. There are three forms:
//! block traces (`ts,op,lba,bytes`), key traces (`ts,op,key,size`), and the id list of a cache trace. In an id list,
//! the first access of an object is a put and every later one is a get.

use super::keys::KeyForm;
use crate::engine::Result;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes per sector of a block trace, and per block of an expanded request.
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
/// Maximum accepted value size.
const VALUE_MOST: u64 = 64 << 20;

/// Format of a trace file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Block requests with one key per request start.
    Block,
    /// Block requests with one key per touched block of 4 KiB.
    Blocks4k,
    /// Requests with text keys.
    Keys,
    /// Object ids in request order.
    Ids,
}

/// A recorded trace to replay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceSource {
    /// Trace file.
    pub path: PathBuf,
    /// Format of the file.
    pub form: Form,
    /// File with the value sizes, for traces that store them separately.
    pub sizes: Option<PathBuf>,
}

/// A recorded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Get the value of an id.
    Get(u64),
    /// Put a value of the given size in bytes.
    Put(u64, u32),
    /// Delete an id.
    Delete(u64),
}

/// Original keys of the ids.
enum Names {
    Blocks(Vec<u64>),
    Texts(Vec<Vec<u8>>),
    Ids,
}

/// The requests of one file, in order.
pub struct Requests {
    input: Box<dyn BufRead + Send>,
    form: Form,
    names: Names,
    block_ids: HashMap<u64, u64>,
    text_ids: HashMap<Vec<u8>, u64>,
    /// Remaining blocks of the current request.
    expanding: Option<(char, std::ops::Range<u64>)>,
    sizes: Vec<u16>,
    touched: u64,
    line: u64,
    text: String,
}

/// Opens `path`; decompresses it if its name ends in `.zst`.
fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(failed)?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        let decoder = zstd::Decoder::new(file).map_err(failed)?;
        return Ok(Box::new(BufReader::with_capacity(1 << 16, decoder)));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

impl Requests {
    /// Opens the trace that `source` names.
    pub fn open(source: &TraceSource) -> Result<Requests> {
        let mut sizes = Vec::new();
        if let Some(path) = &source.sizes {
            let mut bytes = Vec::new();
            open(path)?.read_to_end(&mut bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            sizes = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        }
        Requests::new(open(&source.path)?, source.form, sizes)
    }

    /// Creates a reader of the requests in `input`, which has the given form.
    pub fn new(mut input: Box<dyn BufRead + Send>, form: Form, sizes: Vec<u16>) -> Result<Requests> {
        let header = match form {
            Form::Block | Form::Blocks4k => Some("ts,op,lba,bytes"),
            Form::Keys => Some("ts,op,key,size"),
            Form::Ids => None,
        };
        if let Some(header) = header {
            let mut first = String::new();
            input.read_line(&mut first).map_err(|e| format!("line 1: {e}"))?;
            if first.trim_end() != header {
                return Err(format!("line 1: a trace of this form begins with {header}"));
            }
        }
        let names = match form {
            Form::Block | Form::Blocks4k => Names::Blocks(Vec::new()),
            Form::Keys => Names::Texts(Vec::new()),
            Form::Ids => Names::Ids,
        };
        Ok(Requests {
            input,
            form,
            names,
            block_ids: HashMap::new(),
            text_ids: HashMap::new(),
            expanding: None,
            sizes,
            touched: 0,
            line: 1,
            text: String::new(),
        })
    }

    /// Appends the key of `id` to `out`.
    pub fn write_key(&self, id: u64, out: &mut Vec<u8>) {
        match &self.names {
            Names::Blocks(blocks) => {
                let block = blocks.get(id as usize).copied().unwrap_or_default();
                KeyForm::Block.write(block, out);
            }
            Names::Texts(texts) => out.extend(texts.get(id as usize).into_iter().flatten()),
            Names::Ids => KeyForm::Hashed { len: 16 }.write(id, out),
        }
    }

    /// Returns the next request; `None` after the last.
    pub fn next_request(&mut self) -> Result<Option<Request>> {
        if self.form == Form::Ids {
            return self.next_touch();
        }
        loop {
            if let Some((op, blocks)) = &mut self.expanding {
                let op = *op;
                if let Some(block) = blocks.next() {
                    let id = self.block_id(block);
                    return self.request(op, id, BLOCK).map(Some);
                }
                self.expanding = None;
            }
            self.text.clear();
            let read =
                self.input.read_line(&mut self.text).map_err(|e| format!("line {}: {e}", self.line))?;
            self.line += 1;
            if read == 0 {
                return Ok(None);
            }
            if let Some(request) = self.parse()? {
                return Ok(Some(request));
            }
        }
    }

    fn next_touch(&mut self) -> Result<Option<Request>> {
        let mut word = [0; 4];
        match self.input.read_exact(&mut word) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e.to_string()),
        }
        let id = u64::from(u32::from_le_bytes(word));
        if id < self.touched {
            return Ok(Some(Request::Get(id)));
        }
        self.touched = id + 1;
        let size =
            self.sizes.get(id as usize).copied().ok_or_else(|| format!("no size is given for id {id}"))?;
        Ok(Some(Request::Put(id, u32::from(size))))
    }

    /// Parses the current line. Returns `None` if the request is expanded to blocks.
    fn parse(&mut self) -> Result<Option<Request>> {
        let line = self.text.trim_end();
        let fields: Vec<&str> = line.splitn(2, ',').collect();
        let bad = |what: &str| format!("line {}: {what}", self.line);
        let rest = fields.get(1).ok_or_else(|| bad("a record has 4 fields"))?;
        // A key may contain commas: the op is before it, the size after the last comma.
        let (op, rest) = rest.split_once(',').ok_or_else(|| bad("a record has 4 fields"))?;
        let (key, size) = rest.rsplit_once(',').ok_or_else(|| bad("a record has 4 fields"))?;
        let op = match op {
            "G" => 'G',
            "P" => 'P',
            "D" => 'D',
            _ => return Err(bad("op is none of G, P and D")),
        };
        let size: u64 = size.parse().map_err(|_| bad("the size is not a number"))?;
        if size > VALUE_MOST {
            return Err(bad("the size is over 64 MiB"));
        }
        if self.form == Form::Keys {
            let key = key.as_bytes().to_vec();
            let id = self.text_id(key);
            return self.request(op, id, size).map(Some);
        }
        let sector: u64 = key.parse().map_err(|_| bad("the lba is not a number"))?;
        if self.form == Form::Block {
            let id = self.block_id(sector);
            return self.request(op, id, size).map(Some);
        }
        let start = sector.checked_mul(SECTOR).ok_or_else(|| bad("the lba is too large"))?;
        let end = start.checked_add(size.max(1)).ok_or_else(|| bad("the request ends beyond the device"))?;
        self.expanding = Some((op, start / BLOCK..end.div_ceil(BLOCK)));
        Ok(None)
    }

    fn request(&self, op: char, id: u64, size: u64) -> Result<Request> {
        Ok(match op {
            'G' => Request::Get(id),
            'P' => Request::Put(id, size as u32),
            _ => Request::Delete(id),
        })
    }

    fn block_id(&mut self, block: u64) -> u64 {
        let Names::Blocks(blocks) = &mut self.names else { return 0 };
        *self.block_ids.entry(block).or_insert_with(|| {
            blocks.push(block);
            blocks.len() as u64 - 1
        })
    }

    fn text_id(&mut self, key: Vec<u8>) -> u64 {
        let Names::Texts(texts) = &mut self.names else { return 0 };
        if let Some(id) = self.text_ids.get(&key) {
            return *id;
        }
        texts.push(key.clone());
        self.text_ids.insert(key, texts.len() as u64 - 1);
        texts.len() as u64 - 1
    }
}
