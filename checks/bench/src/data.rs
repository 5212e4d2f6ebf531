//! The directories of a run, and the files that the servers export.
//!
//! The files are generated for each run, because their content must be known for verification and
//! their owner must be the user of the servers.

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::children::{run, user};

/// Prefix of the names of our directories; the process number follows.
const PREFIX: &str = "scalla-bench-";
/// A file in each directory, locked while the directory is in use.
const LOCK: &str = "lock";
const TMPFS: &str = "/dev/shm";

/// Two trees of files, and certificates and keys, which are removed on drop.
pub(crate) struct Data {
    disk: PathBuf,
    tmpfs: PathBuf,
    security: PathBuf,
    /// Locks held while the directories are in use. The kernel releases them even if the process is
    /// killed.
    locks: Vec<File>,
}

impl Data {
    /// Creates the directories, and removes those left behind by killed runs.
    pub(crate) fn make(program: &Path, disk: &Path) -> anyhow::Result<Self> {
        for parent in [disk, Path::new(TMPFS)] {
            remove_left_over(parent);
        }
        let name = format!("{PREFIX}{}", std::process::id());
        let security = disk.join(format!("{name}-security"));
        let (disk, tmpfs) = (disk.join(&name), Path::new(TMPFS).join(&name));
        let mut data =
            Self { disk: disk.clone(), tmpfs: tmpfs.clone(), security: security.clone(), locks: Vec::new() };
        fs::create_dir(&security).with_context(|| format!("cannot create {}", security.display()))?;
        make_directory(&disk)?;
        make_directory(&tmpfs)?;
        for directory in [&disk, &tmpfs, &security] {
            let file = File::create(directory.join(LOCK))?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            data.locks.push(file);
        }
        for directory in ["tree/many", "tree/out", "run"] {
            make_directory(&data.disk.join(directory))?;
        }
        for directory in ["tree/out", "run"] {
            make_directory(&data.tmpfs.join(directory))?;
        }
        // The user of the servers must be able to execute it, but a checkout may be below a private
        // home directory.
        fs::copy(program, data.program()).with_context(|| format!("cannot copy {}", program.display()))?;
        Ok(data)
    }

    /// Generates a file that belongs to the user of the servers, like files that clients have
    /// written. The kernel reports only to the owner which pages are in memory.
    pub(crate) fn generate(&self, path: &Path, options: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(self.program());
        command.args(["bench", "gen"]).arg(path).args(options);
        if let Some(user) = user()? {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        run(command, Duration::from_secs(600))?;
        Ok(())
    }

    /// Returns our program at a path that the user of the servers can execute.
    pub(crate) fn program(&self) -> PathBuf {
        self.disk.join("scalla")
    }

    /// Returns the directory that is exported as `/`.
    pub(crate) fn tree(&self, tmpfs: bool) -> PathBuf {
        if tmpfs { self.tmpfs.join("tree") } else { self.disk.join("tree") }
    }

    /// Returns a directory for a server's own files.
    pub(crate) fn run_directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.disk.join("run").join(name);
        make_directory(&directory)?;
        Ok(directory)
    }

    /// Returns the directory of certificates and keys. It belongs to the present user, because
    /// programs trust no keys in directories that another user can change.
    pub(crate) fn security_directory(&self) -> &Path {
        &self.security
    }

    /// Returns the file that is kept out of the page cache.
    pub(crate) fn cold(&self) -> PathBuf {
        self.disk.join("tree/cold")
    }

    /// Returns the file to copy, on tmpfs.
    pub(crate) fn copied(&self) -> PathBuf {
        self.tmpfs.join("tree/copy")
    }

    /// Returns the target of a copy from the server, on tmpfs.
    pub(crate) fn downloaded(&self) -> PathBuf {
        self.tmpfs.join("run/copy")
    }

    /// Returns the target of a copy to the server.
    pub(crate) fn uploaded(&self) -> PathBuf {
        self.disk.join("tree/out/copy")
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        for directory in [&self.disk, &self.tmpfs, &self.security] {
            if let Err(error) = fs::remove_dir_all(directory) {
                eprintln!("cannot remove {}: {error}", directory.display());
            }
        }
    }
}

/// Creates a directory that belongs to the user of the servers, and sets the owner of its parents
/// below our prefix.
pub(crate) fn make_directory(directory: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot create {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    let ours = |path: &&Path| path.iter().any(|part| part.to_string_lossy().starts_with(PREFIX));
    for path in directory.ancestors().take_while(ours) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(context)?;
        if let Some(user) = user()? {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).with_context(context)?;
        }
    }
    Ok(())
}

/// Removes the directories of runs that did not clean up.
fn remove_left_over(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
