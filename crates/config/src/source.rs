//! The source of configuration text: the file system, or memory in tests.
//!
//! It is a trait so that the rest of the crate performs no I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;

/// Maximum size of a configuration file in bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// Type of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathKind {
    /// A regular file, or a symbolic link to one.
    File {
        /// Set if any execute permission bit is set.
        executable: bool,
    },
    /// A directory.
    Directory,
    /// A device, a socket or a pipe.
    Other,
}

/// A reader of configuration text.
pub trait ConfigSource {
    /// Returns the whole content, at most [`FILE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// The error of the system; `FileTooLarge` above the limit.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// Returns the type of `path`, following symbolic links.
    ///
    /// # Errors
    /// The error of the system.
    fn kind(&self, path: &str) -> io::Result<PathKind>;

    /// Returns the names in a directory, in any order.
    ///
    /// # Errors
    /// The error of the system.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
}

/// The file system of this machine. It blocks and is used at the start, at reload and by `config
/// check`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFiles;

impl ConfigSource for LocalFiles {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(content)
    }

    fn kind(&self, path: &str) -> io::Result<PathKind> {
        let metadata = std::fs::metadata(path)?;
        Ok(if metadata.is_dir() {
            PathKind::Directory
        } else if metadata.is_file() {
            PathKind::File { executable: metadata.permissions().mode() & 0o111 != 0 }
        } else {
            PathKind::Other
        })
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Files in memory: absolute path to content. A directory exists if it contains a file.
#[derive(Clone, Default, Debug)]
pub struct MemorySource {
    files: BTreeMap<String, Vec<u8>>,
    executable: Vec<String>,
}

impl MemorySource {
    /// Returns an empty source.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    #[must_use]
    pub fn with(mut self, path: impl Into<String>, content: impl AsRef<[u8]>) -> Self {
        self.files.insert(path.into(), content.as_ref().to_vec());
        self
    }

    /// Marks a file as executable.
    #[must_use]
    pub fn executable(mut self, path: impl Into<String>) -> Self {
        self.executable.push(path.into());
        self
    }

    fn inside(path: &str) -> String {
        format!("{}/", path.trim_end_matches('/'))
    }
}

impl ConfigSource for MemorySource {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn kind(&self, path: &str) -> io::Result<PathKind> {
        if self.files.contains_key(path) {
            return Ok(PathKind::File { executable: self.executable.iter().any(|name| name == path) });
        }
        let inside = Self::inside(path);
        if self.files.keys().any(|name| name.starts_with(&inside)) {
            return Ok(PathKind::Directory);
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let inside = Self::inside(path);
        let names = self.files.keys().filter_map(|name| name.strip_prefix(&inside));
        Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }
}

/// Describes a system error in terms that are equal across platforms.
pub(crate) fn describe(error: &io::Error) -> impl fmt::Display {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::FileTooLarge => format!("larger than {FILE_BYTES_MAX} bytes"),
        _ => error.to_string(),
    }
}
