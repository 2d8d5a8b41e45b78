//! The tools that built this program.
//!
//! Compilers and linkers sign an ELF file in its section `.comment`: a text from each, ended by a zero byte.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Maximum size in bytes of a section that is read.
const SECTION_MOST: u64 = 1 << 20;

/// Returns the tools that signed this program; none if it is not a 64-bit little-endian ELF file.
pub(super) fn of_this_program() -> Vec<String> {
    let file = std::env::current_exe().and_then(File::open);
    file.ok().and_then(|file| comment(&file).ok().flatten()).map_or_else(Vec::new, |text| signatures(&text))
}

/// Returns link-time optimization in the release profile of a `Cargo.toml`.
pub(super) fn lto(profiles: &str) -> Option<String> {
    let (_, after) = profiles.split_once("[profile.release]")?;
    let mut section = after.lines().take_while(|line| !line.starts_with('['));
    let value = section.find_map(|line| line.strip_prefix("lto")?.trim_start().strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn signatures(text: &[u8]) -> Vec<String> {
    let texts = text.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

/// Returns the content of the section `.comment`.
fn comment(file: &File) -> io::Result<Option<Vec<u8>>> {
    let head: [u8; 64] = read(file, 0)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (table, size) = (u64_at(&head, 0x28), u64::from(u16_at(&head, 0x3A)));
    let (count, names) = (u64::from(u16_at(&head, 0x3C)), u64::from(u16_at(&head, 0x3E)));
    let section = |index: u64| read::<64>(file, table.saturating_add(index * size));
    let names = content(file, &section(names)?)?;
    for index in 0..count {
        let section = section(index)?;
        let name = names.get(u32_at(&section, 0) as usize..).unwrap_or(&[]);
        if name.starts_with(b".comment\0") {
            return content(file, &section).map(Some);
        }
    }
    Ok(None)
}

/// Returns the content of the section with this header.
fn content(file: &File, header: &[u8; 64]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; u64_at(header, 0x20).min(SECTION_MOST) as usize];
    file.read_exact_at(&mut bytes, u64_at(header, 0x18))?;
    Ok(bytes)
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn u64_at(bytes: &[u8; 64], at: usize) -> u64 {
    (0..8).rev().fold(0, |number, index| number << 8 | u64::from(bytes[at + index]))
}

fn u32_at(bytes: &[u8; 64], at: usize) -> u32 {
    (u64_at(bytes, at) & 0xFFFF_FFFF) as u32
}

fn u16_at(bytes: &[u8; 64], at: usize) -> u16 {
    (0..2).rev().fold(0, |number, index| number << 8 | u16::from(bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_signed_this_program() {
        let tools = of_this_program();
        assert!(tools.iter().any(|tool| tool.starts_with("rustc version ")), "{tools:?}");
    }

    #[test]
    fn link_time_optimization_is_that_of_the_release_profile() {
        let text =
            "[profile.dev]\nlto = \"off\"\n[profile.release]\nopt-level = 3\nlto = \"thin\"\n[profile.x]\n";
        assert_eq!(lto(text).as_deref(), Some("thin"));
        assert_eq!(lto("[profile.release]\nopt-level = 3\n[profile.x]\nlto = true\n"), None);
    }
}
