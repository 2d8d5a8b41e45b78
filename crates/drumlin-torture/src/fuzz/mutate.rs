//! Small damage to sound bytes, drawn from a seed, for fuzzing without coverage feedback.
//!
//! A mutation changes a bit, a byte or a number, or moves bytes. Numbers take values that decoders often mishandle:
//! ends of ranges, lengths near the input's own, and the longest varints.

use drumlin_env::Random;

/// Maximum length of a mutated input.
const MAX_LEN: usize = 64 << 10;
/// Maximum number of mutations of one input.
const MOST: usize = 5;
/// Boundary values of numbers.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// Mutates `input` a few times. May copy a part of `other`, another input.
pub fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.index(MOST) {
        once(random, input, other);
    }
    input.truncate(MAX_LEN);
}

fn once(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.index(input.len() + 1);
    // Most parts are short.
    let len = match random.chance(3, 4) {
        true => 1 + random.index(8),
        false => 1 + random.index(input.len().max(1)),
    };
    let end = (at + len).min(input.len());
    match random.below(11) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        3 | 4 => {
            let edge = EDGES[random.index(EDGES.len())];
            // Choose a number near a boundary or near the input's own length.
            let base = if random.chance(1, 4) { input.len() as u64 } else { edge };
            let number = base.wrapping_add(random.below(9)).wrapping_sub(4);
            let number = if random.chance(1, 2) { edge } else { number };
            let width = [1, 2, 4, 8][random.index(4)];
            let bytes = number.to_le_bytes();
            input[at..].iter_mut().zip(&bytes[..width]).for_each(|(to, from)| *to = *from);
        }
        5 => {
            // Replace a number, in the encoding that most of the formats use.
            let mut varint = Vec::new();
            drumlin_format::bytes::put_varint(&mut varint, EDGES[random.index(EDGES.len())]);
            let here = input[at..].iter().position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
            input.splice(at..(at + here).min(input.len()), varint);
        }
        6 => {
            let piece: Vec<u8> = (0..len.min(64)).map(|_| random.next_u64() as u8).collect();
            input.splice(at..at, piece);
        }
        7 => drop(input.drain(at..end)),
        8 => {
            let piece = input[at..end].to_vec();
            let to = random.index(input.len() + 1);
            input.splice(to..to, piece);
        }
        9 => {
            let from = random.index(other.len() + 1);
            let piece = &other[from..(from + len).min(other.len())];
            let over = (at + piece.len()).min(input.len());
            input.splice(at..over, piece.iter().copied());
        }
        _ => match random.below(3) {
            0 => input.truncate(at),
            1 => input[at..end].fill(0),
            _ => input[at..end].fill(0xff),
        },
    }
}
