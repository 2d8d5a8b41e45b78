//! The known name that a misspelled one probably means, for error messages.

use alloc::vec::Vec;

/// Returns the name in `known` that `name` probably means: one that begins with it, or that differs from it in at most
/// a third of the characters. Of equally close names the first is returned.
pub fn nearest<'a>(known: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let close = |candidate: &str| {
        let begins = name.len() > 1 && candidate.starts_with(name);
        let distance = distance(candidate, name);
        let longest = candidate.chars().count().max(name.chars().count());
        (begins || distance * 3 <= longest).then_some((!begins, distance))
    };
    let close = known.into_iter().filter_map(|candidate| Some((close(candidate)?, candidate)));
    close.min_by_key(|(rank, _)| *rank).map(|(_, candidate)| candidate)
}

/// Returns the edit distance of two names: the number of characters to insert, remove or replace.
fn distance(known: &str, name: &str) -> usize {
    let mut row: Vec<usize> = (0..=name.chars().count()).collect();
    for (i, a) in known.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in name.chars().enumerate() {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["pipeline", "ttl_seconds", "tiering", "max_runs", "max_write_amp"];

    #[test]
    fn a_beginning_or_a_few_wrong_letters_name_the_nearest() {
        for (name, meant) in [
            ("ttl", "ttl_seconds"),
            ("tll_seconds", "ttl_seconds"),
            ("Tiering", "tiering"),
            ("tierng", "tiering"),
            ("max_run", "max_runs"),
            ("max", "max_runs"),
        ] {
            assert_eq!(nearest(KNOWN, name), Some(meant), "{name}");
        }
        for name in ["", "t", "lsm", "block_cache_size"] {
            assert_eq!(nearest(KNOWN, name), None, "{name}");
        }
    }
}
