//! A separate directory for each test, removed afterwards.

#![allow(dead_code, reason = "not every test file needs all of it")]
#![allow(clippy::unwrap_used)]

use base::LogicalPath;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use storage::posix::{Config, DisabledFeatures, Posix};
use storage::{CreateMode, OpenMode, ParentCreation};

/// Creates all missing parents.
pub(crate) const PARENTS: ParentCreation = ParentCreation::everywhere(0o755);

/// A temporary directory that is removed on drop.
pub(crate) struct Scratch(PathBuf);

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    /// Creates a directory on the disk of temporary files.
    pub(crate) fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a directory on the file system of `directory`.
    pub(crate) fn within(directory: &Path) -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = directory.join(format!("scalla-storage-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn posix(&self) -> Posix {
        Posix::new(&Config::new(&self.0)).unwrap()
    }

    pub(crate) fn posix_without(&self, without: DisabledFeatures) -> Posix {
        Posix::new(&Config { without, ..Config::new(&self.0) }).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn create(mode: u32) -> OpenMode {
    let create = CreateMode {
        exclusive: false,
        mode,
        parents: None,
        size_hint: None,
        space: None,
        beside: None,
        at: None,
    };
    OpenMode { write: true, truncate: false, create: Some(create) }
}

pub(crate) fn update() -> OpenMode {
    OpenMode { write: true, ..OpenMode::default() }
}

/// Returns the number of the error that the result must contain.
pub(crate) fn errno<T>(result: std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}
