//! Random legal options for tests. They are drawn from the option list, so tests cover a new option at once.
//!
//! A quarter of the options keep their default. Three eighths are at an end of their bounds or have their special value
//! (absent or 0). The rest lie between, and each order of magnitude is equally likely. Sizes never far exceed their
//! defaults, because large sizes have no effect in a small test.

use super::registry::{OptionDef, OptionSet, Shape, Value};

/// Largest factor between the default (or the smallest value) and a drawn value.
const REACH: u64 = 1024;

/// SplitMix64 generator: a stream of well mixed numbers from any seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    fn one_of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.below(names.len() as u64) as usize]
    }

    /// Returns a number from `least` to `most`, with a random length in bits.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        let bits = self.below(u64::from((most - least).max(1).ilog2()) + 1);
        least + self.below(2 << bits).min(most - least)
    }
}

pub(super) fn random<S: OptionSet>(seed: u64) -> S {
    let mut settings = S::default();
    let mut draw = Draw(seed);
    for (position, def) in S::DEFS.iter().enumerate() {
        if def.alters_answers {
            continue;
        }
        let default = settings.value(position);
        if let Some(value) = draw_value(&mut draw, def, &default) {
            settings.assign(position, &value);
        }
    }
    settings
}

/// Returns a legal value; `None` for the default.
fn draw_value(draw: &mut Draw, def: &OptionDef, default: &Value) -> Option<Value> {
    let choice = draw.below(8);
    match choice {
        0 | 1 => return None,
        2 if def.absent.is_some() => return Some(Value::Absent),
        2 if def.zero.is_some() => return Some(Value::Whole(0)),
        _ => {}
    }
    Some(match def.shape {
        Shape::Bytes { least, most } | Shape::Count { least, most } => {
            let usual = if let Value::Whole(number) = default { *number } else { 0 };
            let most = most.min(usual.max(least).max(1).saturating_mul(REACH));
            Value::Whole(match choice {
                2 | 3 => least,
                4 => most,
                _ => draw.between(least, most),
            })
        }
        Shape::Ratio { least, most } => Value::Ratio(match choice {
            2 | 3 => least,
            4 => most,
            _ => (least + (most - least) * draw.below(1001) as f64 / 1000.0).clamp(least, most),
        }),
        Shape::Flag => Value::Flag(draw.below(2) == 1),
        Shape::Names(names) => Value::Text(draw.one_of(names).to_owned()),
        Shape::Text { samples, .. } => Value::Text(draw.one_of(samples).to_owned()),
    })
}
