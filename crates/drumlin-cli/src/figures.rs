//! Formatting of numbers for people: digit groups, binary size units, counts, rates and times.

use drumlin_bench::measure::machine::iso8601;

/// Formats `n` with a comma between groups of three digits.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun in singular or plural: `1 file`, `1,200 files`.
pub(crate) fn counted(n: u64, one: &str) -> String {
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{} {stem}ies", grouped(n)),
        (_, None) => format!("{} {one}s", grouped(n)),
    }
}

/// Formats a size in the largest binary unit in which it is at least 1, with one decimal.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    // The threshold is 1023.95 because that value rounds to 1024.0.
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// Returns events per second; 0 if no time has passed.
pub(crate) fn rate(count: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (count as f64 / seconds) as u64 } else { 0 }
}

/// Formats a Unix time in microseconds as date and time in UTC, with milliseconds.
pub(crate) fn utc(micros: u64) -> String {
    let seconds = iso8601(micros / 1_000_000).replace('T', " ");
    format!("{}.{:03}", seconds.trim_end_matches('Z'), micros / 1000 % 1000)
}

/// Returns `text` with its byte counts in binary units and its entry counts with digit groups: `169385 bytes` becomes
/// `165.4 KiB`.
pub(crate) fn readable(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut skip = false;
    for (at, word) in words.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let next = words.get(at + 1).copied().unwrap_or("");
        match word.parse::<u64>() {
            Ok(bytes) if matches!(next.trim_end_matches([',', ';', ':']), "bytes") => {
                out.push(format!("{}{}", size(bytes), &next["bytes".len()..]));
                skip = true;
            }
            Ok(number) => out.push(grouped(number)),
            Err(_) => out.push((*word).to_owned()),
        }
    }
    out.join(" ")
}

/// Breaks lines longer than `columns` between words. The parts have the indentation of the line.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        let mut width = 0;
        for word in words.split(' ') {
            let more = word.chars().count();
            if width == 0 {
                out += indent;
                width = indent.len();
            } else if width + 1 + more > columns {
                out.push('\n');
                out += indent;
                width = indent.len();
            } else {
                out.push(' ');
                width += 1;
            }
            out += word;
            width += more;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn things_are_counted_in_words() {
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "run"), "0 runs");
        assert_eq!(counted(12_000, "entry"), "12,000 entries");
        assert_eq!(counted(1, "entry"), "1 entry");
    }

    #[test]
    fn sizes_keep_four_digits_at_most() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times_and_texts_are_readable() {
        assert_eq!(utc(1_795_616_074_249_210), "2026-11-25 14:14:34.249");
        assert_eq!(
            readable("flush of 6912 entries, 169385 bytes -> L0 r8; t1 done: 2048 bytes in, 5 out"),
            "flush of 6,912 entries, 165.4 KiB -> L0 r8; t1 done: 2.0 KiB in, 5 out"
        );
        assert_eq!(readable("a 1024 bytes, b  c"), "a 1.0 KiB, b  c");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("  aa bb cc\n\nlongerthanthat x\n", 8), "  aa bb\n  cc\n\nlongerthanthat\nx\n");
    }

    #[test]
    fn a_rate_needs_time() {
        assert_eq!(rate(10, 0.0), 0);
        assert_eq!(rate(10, 4.0), 2);
    }
}
