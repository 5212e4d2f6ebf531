//! The repository as a map from relative path to text, so that every rule is a pure function of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Directories without files of the project.
const SKIPPED: [&str; 6] = ["target", ".git", ".venv", "__pycache__", ".pytest_cache", "node_modules"];

/// Extensions of the files that some rule reads.
const READ: [&str; 5] = ["rs", "toml", "md", "py", "json"];

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TidyFinding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

impl TidyFinding {
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.message)
    }
}

/// All files that a rule may read. JSON files (recorded bytes) are listed with an empty text.
#[derive(Default)]
pub(crate) struct SourceTree {
    files: BTreeMap<String, String>,
}

impl SourceTree {
    /// Reads the files below `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// Creates a tree for a test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    fn walk(&mut self, directory: &Path, prefix: &str) -> anyhow::Result<()> {
        for entry in
            std::fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.walk(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            if extension == "json" {
                self.files.insert(path, String::new());
            } else if READ.contains(&extension) {
                let text =
                    std::fs::read_to_string(entry.path()).with_context(|| format!("reading {path}"))?;
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Reports whether a file exists below `directory` (no trailing slash).
    pub(crate) fn has_directory(&self, directory: &str) -> bool {
        self.files.keys().any(|path| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Returns all files, ordered by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the files whose name ends with `suffix`.
    pub(crate) fn ending(&self, suffix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(suffix))
    }
}

/// Returns the directory of the workspace in which this program was built.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .with_context(|| format!("{} has no workspace above it", here.display()))
}

/// Resolves `directory/../x` and `./x` within the tree; returns `None` if the result is outside of the
/// tree.
pub(crate) fn join(directory: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the directory of a path, without trailing slash; empty at the top.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_join_within_the_tree() {
        assert_eq!(join("a/b", "../c.md").as_deref(), Some("a/c.md"));
        assert_eq!(join("", "./x/./y").as_deref(), Some("x/y"));
        assert_eq!(join("a", "../../c"), None);
        assert_eq!(parent("a/b/c.rs"), "a/b");
        assert_eq!(parent("c.rs"), "");
    }
}
