//! What a command prints and writes: messages, tables and report files.

use super::args::Common;
use crate::engine::Result;
use crate::report::merge::duplicate;
use crate::report::model::{Report, SCHEMA};
use crate::report::{html, table, tsv};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes a line to stderr. A write error is ignored, because there is no place to report it.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints the table and writes the requested files.
pub(crate) fn publish(report: &Report, common: &Common) -> Result<()> {
    for warning in &report.warnings {
        note(&format!("warning: {warning}"));
    }
    print(&table::text(report))?;
    write_files(report, common)
}

/// Writes the requested files.
pub(crate) fn write_files(report: &Report, common: &Common) -> Result<()> {
    if let Some(path) = &common.json {
        write_json(path, report)?;
        note(&format!("wrote {}", path.display()));
    }
    if let Some(path) = &common.html {
        save(path, &html::page(report))?;
    }
    if let Some(path) = &common.tsv {
        save(path, &tsv::text(report))?;
    }
    Ok(())
}

pub(super) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that closes the pipe needs no more output.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {e}")),
        _ => Ok(()),
    }
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    note(&format!("wrote {}", path.display()));
    Ok(())
}

/// Writes `results` as JSON, as [`replace`] does.
pub(crate) fn write_json(path: &Path, results: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(results).map_err(|e| e.to_string())?;
    text.push('\n');
    replace(path, &text)
}

/// Replaces the content of a file by `text`. The old content stays in place until the new one is written. A pipe or a
/// device is written in place, and a symbolic link stays a link.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let written = if is_special(path) {
        fs::write(path, text)
    } else {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let new = with_suffix(&target, ".new");
        let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, &target));
        replaced.inspect_err(|_| _ = fs::remove_file(&new))
    };
    written.map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns whether `path` is a pipe, a device or a socket.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Returns the file that holds the results of a run until it ends: that of `--json` with the suffix `.part`.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    with_suffix(path, ".part")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The files that a run is going to write, claimed until this is dropped.
#[derive(Default, Debug)]
pub(crate) struct Targets(Vec<(fs::File, PathBuf)>);

impl Targets {
    /// Claims `path` by a lock on a file beside it.
    fn claim(&mut self, path: &Path) -> Result<()> {
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        if path.is_dir() {
            return Err(format!("{}: it is a directory", path.display()));
        }
        let lock = with_suffix(path, ".lock");
        let file = fs::File::create(&lock).map_err(failed)?;
        let is_locked = matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock));
        // A run that has just ended may have removed the lock file between its creation and its lock here.
        let inode = |found: io::Result<fs::Metadata>| found.map(|found| found.ino()).ok();
        if is_locked || inode(file.metadata()) != inode(fs::metadata(&lock)) {
            return Err(format!("{}: another running benchmark will write it", path.display()));
        }
        self.0.push((file, lock));
        let probe = with_suffix(path, ".new");
        fs::write(&probe, "").map_err(failed)?;
        fs::remove_file(&probe).map_err(failed)
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, path)| _ = fs::remove_file(path));
    }
}

/// Claims the output files of this run. Returns an error if a file cannot be written, rather than after a long run,
/// or if another run has claimed it.
pub(crate) fn claim_targets(common: &Common) -> Result<Targets> {
    let mut targets = Targets::default();
    let all = common.json.iter().chain(&common.html).chain(&common.tsv);
    all.filter(|path| !is_special(path)).try_for_each(|path| targets.claim(path))?;
    Ok(targets)
}

/// Reads a report. Rejects reports of another format, and those whose phases cannot be told apart.
pub fn read_report(path: &Path) -> Result<Report> {
    let text = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let report: Report = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if report.schema != SCHEMA {
        let found = &report.schema;
        return Err(format!("{}: unsupported report format {found}, expected {SCHEMA}", path.display()));
    }
    duplicate(&report.phases).map_or(Ok(report), |what| Err(format!("{}: {what}", path.display())))
}

/// Reads all reports in `folder`, each with its name, in the order of names. Interrupted runs leave files with another
/// suffix, which are not read.
pub fn read_reports(folder: &Path) -> Result<Vec<(String, Report)>> {
    let failed = |e: io::Error| format!("{}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{}: no reports", folder.display()));
    }
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| Ok((name(path), read_report(path)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;
    use drumlin::env::TempDir;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_stays() {
        let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
        let path = dir.path().join("report.json");
        fs::write(&path, "former").expect("a file");
        // The new file cannot be written.
        let new = with_suffix(&path, ".new");
        fs::create_dir(&new).expect("a directory");
        assert!(write_json(&path, &made_up()).is_err_and(|what| what.contains("report.json")));
        assert_eq!(fs::read_to_string(&path).expect("the file"), "former");
        fs::remove_dir(&new).expect("an empty directory");
        write_json(&path, &made_up()).expect("a file");
        assert_eq!(read_report(&path).expect("a report").phases, made_up().phases);
        assert!(!new.exists());
        let mut twice = made_up();
        twice.phases.push(twice.phases[0].clone());
        let other = dir.path().join("twice.json");
        write_json(&other, &twice).expect("a file");
        assert!(
            read_report(&other)
                .is_err_and(|what| what.contains("twice.json: duplicate phase dynamic I A of drumlin"))
        );
        let refused = write_json(dir.path(), &made_up()).expect_err("it is a directory");
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
        let link = dir.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        write_json(&link, &"through a link").expect("a file");
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("the file"), "\"through a link\"\n");
    }

    /// If two runs would write the same file, the second one is refused while the first one runs.
    #[test]
    fn a_file_belongs_to_one_run() {
        let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
        let path = dir.path().join("report.json");
        let mut first = Targets::default();
        first.claim(&path).expect("a free file");
        let refused = Targets::default().claim(&path).expect_err("it is claimed");
        assert!(refused.contains("report.json: another run"), "{refused}");
        drop(first);
        Targets::default().claim(&path).expect("it is free again");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "no lock is left behind");
        assert!(Targets::default().claim(dir.path()).expect_err("no file").contains("directory"));
    }

    #[test]
    fn reports_of_a_folder_have_the_names_of_their_files() {
        let dir = TempDir::new("drumlin-bench").expect("a temporary directory");
        assert!(read_reports(dir.path()).is_err_and(|what| what.contains("no reports")));
        for name in ["ycsb.json", "load.json"] {
            write_json(&dir.path().join(name), &made_up()).expect("a file");
        }
        fs::write(dir.path().join("rate.json.part"), "unfinished").expect("a file");
        let names =
            || read_reports(dir.path()).map(|found| found.into_iter().map(|(name, _)| name).collect());
        assert_eq!(names(), Ok(vec!["load".to_owned(), "ycsb".to_owned()]));
        fs::write(dir.path().join("bad.json"), "{").expect("a file");
        assert!(names().is_err_and(|what: String| what.contains("bad.json")));
        assert!(read_reports(&dir.path().join("none")).is_err_and(|what| what.contains("none")));
    }

    #[test]
    fn a_device_is_written_and_stays_one() {
        let null = Path::new("/dev/null");
        assert!(is_special(null));
        write_json(null, &made_up()).expect("it takes everything");
        assert!(is_special(null));
    }
}
