//! Sizes in bytes as text.

/// Parses a number of bytes with an optional binary unit (powers of 1024).
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("a size is a number with KiB, MiB, GiB, TiB or nothing".to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| "the size is not a number".to_owned())?;
    if !(number >= 0.0 && number.is_finite()) {
        return Err("the size is not a number".to_owned());
    }
    Ok((number * (1u64 << shift) as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5g"), Ok(3 << 29));
        assert_eq!(parse_bytes("12"), Ok(12));
        assert!(parse_bytes("12q").is_err() && parse_bytes("MiB").is_err() && parse_bytes("").is_err());
    }
}
