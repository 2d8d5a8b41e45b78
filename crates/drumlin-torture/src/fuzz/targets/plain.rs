//! Targets of the small codecs: names, pointer, varints, compression, seals, filters.

use super::fields::{Fields, NUMBER};
use crate::fuzz::mend;
use crate::fuzz::target::Target;
use drumlin_format::bytes::{Reader, put_slice, put_varint};
use drumlin_format::compression::{Compression, Compressor, Decompressor, is_plausible};
use drumlin_format::filter::{self, MAX_MODULES, Method, Module, may_contain};
use drumlin_format::limits;
use drumlin_format::names::FileName;
use drumlin_format::pointer::Pointer;
use drumlin_format::seal::{SEAL_LEN, seal, unseal, unseal_block, unseal_plain};

pub(super) const TARGETS: &[Target] = &[
    Target { name: "names", codecs: &["names"], run: names, mend: mend::nothing, seeds: name_seeds, cost: 1 },
    Target {
        name: "pointer",
        codecs: &["pointer"],
        run: pointer,
        mend: mend::pointer,
        seeds: pointer_seeds,
        cost: 1,
    },
    Target { name: "bytes", codecs: &["bytes"], run: bytes, mend: mend::nothing, seeds: byte_seeds, cost: 1 },
    Target {
        name: "compression",
        codecs: &["compression"],
        run: compression,
        mend: mend::nothing,
        seeds: compression_seeds,
        cost: 1,
    },
    Target {
        name: "seal",
        codecs: &["seal", "checksum"],
        run: sealed,
        mend: mend_seal,
        seeds: seal_seeds,
        cost: 1,
    },
    Target {
        name: "filter",
        codecs: &["filter"],
        run: filter_bits,
        mend: mend::nothing,
        seeds: filter_seeds,
        cost: 1,
    },
];

fn names(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let Some(name) = FileName::parse(text) else { return false };
    assert_eq!(name.to_string(), text);
    let number = name.number().unwrap_or(0);
    assert!(FileName::all_kinds(number).contains(&name));
    true
}

fn name_seeds() -> Vec<Vec<u8>> {
    FileName::all_kinds(1_234_567).iter().map(|name| name.to_string().into_bytes()).collect()
}

fn pointer(input: &[u8]) -> bool {
    let Ok(pointer) = Pointer::decode(input) else { return false };
    assert_eq!(pointer.encode().as_bytes(), input);
    true
}

fn pointer_seeds() -> Vec<Vec<u8>> {
    let pointers = [(12, 4096), (limits::MAX_NUMBER, limits::MAX_LEN), (0, 0)];
    let encode = |(manifest, synced)| Pointer { manifest, synced }.encode().into_bytes();
    pointers.into_iter().map(encode).collect()
}

/// The first byte of each item selects its type; each item read is encoded again.
fn bytes(input: &[u8]) -> bool {
    let mut reader = Reader::new(input);
    let mut items = 0;
    while !reader.is_empty() {
        let before = reader.peek();
        let Ok(how) = reader.u8() else { return false };
        let mut again = vec![how];
        let read = match how % 6 {
            0 => reader.varint_u64().map(|number| put_varint(&mut again, number)),
            1 => reader.varint_u32().map(|number| put_varint(&mut again, number.into())),
            2 => reader.slice().map(|slice| put_slice(&mut again, slice)),
            3 => reader.slice_up_to(10).map(|slice| put_slice(&mut again, slice)),
            4 => reader.bool().map(|flag| again.push(flag.into())),
            _ => reader.count(3).map(|count| {
                assert!(count * 3 <= reader.remaining());
                put_varint(&mut again, count as u64);
            }),
        };
        if let Err(damage) = read {
            assert!(damage.offset <= input.len() as u64);
            return false;
        }
        assert_eq!(again, before[..before.len() - reader.remaining()]);
        items += 1;
    }
    assert!(items <= input.len());
    true
}

fn byte_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for number in [0, 127, 128, 1 << 32, u64::MAX] {
        all.push(0);
        put_varint(&mut all, number);
    }
    all.push(2);
    put_slice(&mut all, b"till");
    all.extend([4, 1, 5, 2, 0, 9, 0, 9, 0, 9]);
    vec![all]
}

/// Maximum uncompressed length of a block.
const MOST_RAW: u64 = 64 << 10;

/// The input gives the method, the uncompressed length and the bytes. The target checks decompression and a round
/// trip.
fn compression(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let method = Compression::ALL[usize::from(fields.u8() % 3)];
    let raw_len = u64::from(fields.u32());
    let stored = fields.0;
    let mut compressor = Compressor::new(method);
    let (used, packed) = compressor.compress(stored);
    assert!(is_plausible(used, packed.len() as u64, stored.len() as u64));
    let mut again = vec![0; stored.len()];
    Decompressor::new().decompress(used, packed, &mut again).expect("just compressed");
    assert_eq!(again, stored);
    // Like a reader, allocate only for plausible lengths.
    if !is_plausible(method, stored.len() as u64, raw_len) || raw_len > MOST_RAW {
        return false;
    }
    let mut raw = vec![0xee; raw_len as usize];
    Decompressor::new().decompress(method, stored, &mut raw).is_ok()
}

fn compression_seeds() -> Vec<Vec<u8>> {
    let text = b"the ice moves over the hill and the hill takes its shape ".repeat(5);
    let pack = |(number, method): (usize, &Compression)| {
        let mut compressor = Compressor::new(*method);
        let (_, packed) = compressor.compress(&text);
        let len = text.len() as u32;
        [&[number as u8][..], &len.to_le_bytes(), packed].concat()
    };
    Compression::ALL.iter().enumerate().map(pack).collect()
}

fn sealed(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let offset = fields.u64();
    let raw_len = u64::from(fields.u32());
    let block = fields.0;
    let Ok((method, stored)) = unseal(NUMBER, offset, block) else {
        assert!(unseal_plain(NUMBER, offset, block).is_err());
        assert!(unseal_block(NUMBER, offset, block, raw_len).is_err());
        return false;
    };
    assert_eq!([stored, &seal(NUMBER, offset, stored, method)].concat(), block);
    assert_eq!(unseal_plain(NUMBER, offset, block).is_ok(), method == Compression::None);
    let believed = is_plausible(method, stored.len() as u64, raw_len);
    assert_eq!(unseal_block(NUMBER, offset, block, raw_len).is_ok(), believed);
    true
}

fn mend_seal(input: &mut [u8]) {
    let Some(offset) = input.first_chunk().map(|eight| u64::from_le_bytes(*eight)) else { return };
    let Some((stored, rest)) = input.get_mut(12..).and_then(|b| b.split_last_chunk_mut::<SEAL_LEN>()) else {
        return;
    };
    let sum = drumlin_format::checksum::checksum(NUMBER, offset, &[stored, &rest[..1]]);
    rest[1..].copy_from_slice(&sum.to_le_bytes());
}

fn seal_seeds() -> Vec<Vec<u8>> {
    let make = |method: &Compression| {
        let mut bytes = 4096u64.to_le_bytes().to_vec();
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(b"hill");
        bytes.extend(seal(NUMBER, 4096, b"hill", *method));
        bytes
    };
    Compression::ALL.iter().map(make).collect()
}

/// The input gives filter bits of any length, a hash, and the kind of probe. An arbitrary filter answers without
/// panic; a built filter contains its keys.
fn filter_bits(input: &[u8]) -> bool {
    let mut fields = Fields(input);
    let (module, probes) = (usize::from(fields.u8()), fields.u8());
    let (hash, bits_per_key) = (fields.u64(), f64::from(fields.u16()) / 16.0);
    let bits = fields.0;
    let answer = may_contain(Method::Bloom, bits, module, probes, hash);
    assert!(answer || (bits.len() >= filter::LINE_BYTES && probes > 0));
    let of_ribbon = may_contain(Method::Ribbon, bits, module, probes, hash);
    assert!(of_ribbon || bits.len() >= 48, "a header, a segment and a word");
    let hashes: Vec<u64> = bits.chunks(8).take(64).map(|key| filter::key_hash(key, hash)).collect();
    let module = module % MAX_MODULES;
    let built = Module::build(Method::Bloom, &hashes, module, bits_per_key);
    assert_eq!(built.bits.len() as u64, built.lines() * filter::LINE_BYTES as u64);
    assert!(hashes.iter().all(|hash| may_contain(built.method, &built.bits, module, built.probes, *hash)));
    assert!((0.0..=1.0).contains(&built.false_positive_rate));
    answer || of_ribbon
}

fn filter_seeds() -> Vec<Vec<u8>> {
    let hashes: Vec<u64> = (0..20u64).map(|key| filter::key_hash(&key.to_be_bytes(), 1)).collect();
    let make = |module: usize| {
        let built = Module::build(Method::Bloom, &hashes, module, 10.0);
        let mut bytes = vec![module as u8, built.probes];
        bytes.extend(hashes[3].to_le_bytes());
        bytes.extend(160u16.to_le_bytes());
        bytes.extend(built.bits);
        bytes
    };
    // Formats of filters are told apart outside of their bytes.
    let hashes: Vec<u64> = (0..2048u64).map(|key| filter::key_hash(&key.to_be_bytes(), 1)).collect();
    let ribbon = Module::build(Method::Ribbon, &hashes, 0, 2.0);
    let mut bytes = vec![0, ribbon.probes];
    bytes.extend(hashes[3].to_le_bytes());
    bytes.extend(32u16.to_le_bytes());
    bytes.extend(ribbon.bits);
    vec![make(0), make(2), bytes]
}
