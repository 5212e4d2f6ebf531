//! [`LineHistory`]: the persistent history of lines.
//!
//! The file has one line per typed line, as GNU readline writes it. Lines are appended one by one,
//! so concurrent dialogues do not overwrite each other's lines. A line that cannot be stored is
//! dropped silently.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use crate::environment::{home, state_directory};

/// Only the owner may access the file and its directory.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A history file.
#[derive(Clone, Debug)]
pub(crate) struct LineHistory {
    path: PathBuf,
    /// Set if only this program uses the file. It is then truncated when it grows too long.
    is_ours: bool,
}

impl LineHistory {
    /// Returns the history of `scalla shell`: `scalla/history` in the state directory
    /// (`XDG_STATE_HOME`, or `~/.local/state`).
    pub(crate) fn of_shell() -> Option<Self> {
        Some(Self { path: state_directory()?.join("history"), is_ours: true })
    }

    /// Returns the history of `xrdfs`, which XRootD's program of this name shares.
    pub(crate) fn of_xrdfs() -> Option<Self> {
        Some(Self { path: home()?.join(".xrdquery.history"), is_ours: false })
    }

    /// Returns the last lines, at most `most`. A file of this program with more than twice as many
    /// lines is truncated.
    pub(crate) fn lines(&self, most: usize) -> Vec<String> {
        let Ok(bytes) = fs::read(&self.path) else { return Vec::new() };
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let last = all.get(all.len().saturating_sub(most)..).unwrap_or_default();
        if self.is_ours {
            fs::set_permissions(&self.path, Permissions::from_mode(FILE_MODE)).ok();
            if all.len() > most.saturating_mul(2) {
                self.replace(last);
            }
        }
        last.iter().map(ToString::to_string).collect()
    }

    /// Appends a line. A line that contains line feeds would be read back as several, so it is not
    /// stored.
    pub(crate) fn add(&self, line: &str) {
        if line.contains('\n') {
            return;
        }
        if self.is_ours
            && let Some(directory) = self.path.parent()
        {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).ok();
        }
        let opened = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(&self.path);
        // A single write, so that lines of two dialogues do not mix.
        if let Ok(mut file) = opened {
            file.write_all(format!("{line}\n").as_bytes()).ok();
        }
    }

    fn replace(&self, lines: &[&str]) {
        let temporary = self.path.with_extension(format!("{}", std::process::id()));
        let opened = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary);
        let written =
            opened.and_then(|mut file| file.write_all(format!("{}\n", lines.join("\n")).as_bytes()));
        if written.and_then(|()| fs::rename(&temporary, &self.path)).is_err() {
            fs::remove_file(&temporary).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_for_oneself_and_not_without_end() {
        let directory = std::env::temp_dir().join(format!("scalla-history-{}", std::process::id()));
        let history = LineHistory { path: directory.join("state/history"), is_ours: true };
        assert!(history.lines(3).is_empty());
        for line in ["a", "b b", "two\nlines", "c", "d"] {
            history.add(line);
        }
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&history.path), mode(&directory.join("state"))), (FILE_MODE, DIRECTORY_MODE));
        assert_eq!(history.lines(3), ["b b", "c", "d"]);
        assert_eq!(fs::read_to_string(&history.path).unwrap(), "a\nb b\nc\nd\n");
        for line in ["e", "f", "g"] {
            history.add(line);
        }
        fs::set_permissions(&history.path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(history.lines(3), ["e", "f", "g"]);
        assert_eq!(fs::read_to_string(&history.path).unwrap(), "e\nf\ng\n");
        assert_eq!(mode(&history.path), FILE_MODE);
        let shared = LineHistory { is_ours: false, ..history };
        assert_eq!(shared.lines(1), ["g"]);
        assert_eq!(fs::read_to_string(&shared.path).unwrap(), "e\nf\ng\n");
        fs::remove_dir_all(&directory).unwrap();
    }
}
