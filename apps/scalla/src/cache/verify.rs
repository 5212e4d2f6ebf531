//! `scalla cache verify`: compares the stored blocks of a cache with their checksums.

use super::running::{open, path};
use crate::exit_status::FAILED;
use crate::printer::{ProgressLine, err, out};
use crate::quantity::{show_bytes, show_count};
use anyhow::Context as _;
use base::LogicalPath;
use cache::{CacheKey, CacheTree, FileVerification, StoreError};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read all stored blocks of a cache, and compare them with their checksums.
///
/// Nothing is changed: a server finds a damaged block when a client reads it, and fetches it again. A server may use the
/// cache meanwhile. Blocks that XRootD has stored have no checksum until a client of Scalla has read them.
#[derive(clap::Args, Debug)]
pub(super) struct VerifyCommand {
    /// Directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Verify only these files and directories: `/data/run7`.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// The results for all files.
#[derive(Default)]
struct CacheVerification {
    files: u64,
    blocks: u64,
    bytes: u64,
    without_checksum: u64,
    damaged: Vec<DamagedFile>,
}

/// A file with wrong blocks.
struct DamagedFile {
    path: String,
    problem: String,
    blocks: Vec<u64>,
}

impl VerifyCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let paths = self.paths.iter().map(|name| path(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let paths = if paths.is_empty() { vec![LogicalPath::root()] } else { paths };
        let tree = open(&self.directory)?;
        let bar = ProgressLine::of_messages();
        let mut results = CacheVerification::default();
        let mut missing = Vec::new();
        for path in paths {
            let known = results.files;
            let verified = results.verify_below(&tree, &path, &bar, !self.json);
            verified
                .with_context(|| format!("cannot read {} of {}", path.escaped(), self.directory.display()))?;
            if results.files == known && !path.is_root() {
                missing.push(path.escaped());
            }
        }
        bar.finish_and_clear();
        if self.json {
            let damaged = results
                .damaged
                .iter()
                .map(|file| json!({ "path": file.path, "problem": file.problem, "blocks": file.blocks }));
            out().json(&json!({
                "files": results.files,
                "blocks": results.blocks,
                "bytes": results.bytes,
                "blocks_without_checksum": results.without_checksum,
                "damaged": damaged.collect::<Vec<_>>(),
                "missing": missing,
            }));
        } else {
            out().line(results.summary());
            missing.iter().for_each(|path| err().line(format_args!("{path}: nothing is cached there")));
        }
        let is_good = results.damaged.is_empty() && missing.is_empty();
        Ok(if is_good { ExitCode::SUCCESS } else { FAILED.into() })
    }
}

impl CacheVerification {
    /// Verifies the files at and below a path.
    fn verify_below(
        &mut self,
        tree: &CacheTree,
        path: &LogicalPath,
        bar: &ProgressLine,
        prints: bool,
    ) -> io::Result<()> {
        if let Some(key) = CacheKey::new(path) {
            self.verify(tree, &key, bar, prints);
        }
        let walked = tree.walk(path, |found| {
            let files = found.files.into_iter().map(|file| file.key);
            let files = files.chain(found.without_data).chain(found.damaged);
            files.for_each(|key| self.verify(tree, &key, bar, prints));
            for (path, why) in found.unreadable {
                self.files += 1;
                self.note(path.escaped(), (format!("it cannot be read: {why}"), Vec::new()), bar, prints);
            }
            Ok(())
        });
        match walked {
            // It is a file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
            other => other,
        }
    }

    fn verify(&mut self, tree: &CacheTree, key: &CacheKey, bar: &ProgressLine, prints: bool) {
        let mut bytes = 0;
        let result = tree.verify(key, |more| {
            bytes += more;
            bar.set_message(&format!("{} read", show_bytes((self.bytes + bytes) as f64)));
        });
        self.bytes += bytes;
        let (problem, blocks) = match result {
            Ok(FileVerification::Gone) | Err(StoreError::Foreign) => return,
            Ok(FileVerification::DamagedState) => ("its state is damaged".to_owned(), Vec::new()),
            Ok(FileVerification::Verified(found)) => {
                self.blocks += found.stored;
                self.without_checksum += found.without_checksum;
                (format!("{} of {} blocks are damaged", found.damaged.len(), found.stored), found.damaged)
            }
            Err(StoreError::Disk(error)) => (format!("it cannot be read: {error}"), Vec::new()),
        };
        self.files += 1;
        if blocks.is_empty() && problem.starts_with("0 ") {
            return;
        }
        self.note(key.data().escaped(), (problem, blocks), bar, prints);
    }

    /// Takes a problem and the blocks that have it.
    fn note(
        &mut self,
        path: String,
        (problem, blocks): (String, Vec<u64>),
        bar: &ProgressLine,
        prints: bool,
    ) {
        if prints {
            let list = if blocks.is_empty() { String::new() } else { format!(": {}", ranges(&blocks)) };
            bar.suspend(|| out().line(format_args!("{path}: {problem}{list}")));
        }
        self.damaged.push(DamagedFile { path, problem, blocks });
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{} files, {} blocks, {}: ",
            show_count(self.files),
            show_count(self.blocks),
            show_bytes(self.bytes as f64)
        );
        match self.damaged.len() {
            0 => text += "all good",
            damaged => text += &format!("{damaged} files are damaged"),
        }
        if self.without_checksum > 0 {
            text += &format!("; {} blocks have no checksum", show_count(self.without_checksum));
        }
        text
    }
}

/// Returns numbers as ranges: `0, 3-5`.
fn ranges(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_a_range() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[0, 3, 4, 5, 9, 10]), "0, 3-5, 9-10");
    }
}
