//! The directories of one server: its admin directory, which belongs to one running server at a
//! time, and its home.
//!
//! In the admin directory, `.scalla/` (0700) holds `<program>.lock`, which is locked while the
//! server runs, and `<program>.sock`, the socket of `scalla admin`. The lock, not the socket, shows
//! that a server runs, because a crash leaves a stale socket behind, but no lock.

use super::User;
use config::{DirectorySetting, Effective};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Uid, chownat, fchown, flock, fstat,
    openat, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use storage::{PrivateDirectory, SharedDirectory};

/// The parent of default admin directories of servers that root starts.
const SYSTEM_STATE: &str = "/var/lib/scalla";

/// An error of a directory.
#[derive(Debug)]
pub enum DirectoryError {
    /// Another server of the same program and instance runs on this admin directory.
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The description that the other server wrote: `pid 4711, port 1094`.
        holder: String,
    },
    /// The error of the system.
    Failed(PathBuf, io::Error),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { directory, holder } => {
                write!(
                    f,
                    "another server of this instance is running ({holder}) and uses {}; ",
                    directory.display()
                )?;
                f.write_str(
                    "stop it, or give this one an instance name (--instance, as xrootd -n) or an admin directory of its own \
                     (--admin-path, all.adminpath)",
                )
            }
            Self::Failed(path, error) => write!(f, "cannot use the directory {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for DirectoryError {}

/// The admin directory of a running server. Dropping it removes the socket and releases the lock.
#[derive(Debug)]
pub struct AdminDirectory {
    directory: PathBuf,
    control: PrivateDirectory,
    program: String,
    lock: File,
}

impl AdminDirectory {
    /// Creates the directory if it is missing and locks it for this process.
    ///
    /// # Errors
    /// [`DirectoryError`]. The directory of a running server is not changed.
    pub fn claim(directory: &Path, mode: u32, program: &str) -> Result<Self, DirectoryError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| DirectoryError::Failed(path, error)
        };
        let admin = open_admin(directory, mode)?;
        let control = admin.private(CONTROL).map_err(failed(&control_directory(directory)))?;
        let name = format!("{program}.lock");
        let failed = |error| DirectoryError::Failed(control.path().join(&name), error);
        loop {
            let mut lock = control.open_or_create(&name).map_err(failed)?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut holder = String::new();
                // A failure only shortens the error message.
                lock.read_to_string(&mut holder).ok();
                let holder = holder.trim().to_owned();
                return Err(DirectoryError::InUse { directory: directory.to_owned(), holder });
            }
            // Between open and lock, a server that is ending may have removed the file. Then this
            // lock is useless, because the next server will lock a new file.
            if lock.metadata().map_err(failed)?.nlink() > 0 {
                return Ok(Self {
                    directory: directory.to_owned(),
                    control,
                    program: program.to_owned(),
                    lock,
                });
            }
        }
    }

    /// Writes a description of this server into the lock file, for the error message of another
    /// server.
    ///
    /// # Errors
    /// The error of the system.
    pub fn note(&mut self, port: u16) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all(format!("pid {}, port {port}\n", std::process::id()).as_bytes())
    }

    /// Returns the directory of the admin socket.
    pub fn control(&self) -> &PrivateDirectory {
        &self.control
    }

    /// Returns the name of the admin socket in [`AdminDirectory::control`].
    pub fn socket_name(&self) -> String {
        format!("{}.sock", self.program)
    }
}

impl Drop for AdminDirectory {
    fn drop(&mut self) {
        self.control.remove(&self.socket_name()).ok();
        self.control.remove(&format!("{}.lock", self.program)).ok();
        // Directories are removed only if they are empty: journals or another program may use them.
        // A shared directory such as `/tmp` is kept.
        fs::remove_dir(self.control.path()).ok();
        if self.directory.starts_with(state_base()) {
            fs::remove_dir(&self.directory).ok();
        }
    }
}

/// The name of the directory of socket and lock in an admin directory.
const CONTROL: &str = ".scalla";

/// Returns the directory of socket and lock in an admin directory.
pub fn control_directory(admin: &Path) -> PathBuf {
    admin.join(CONTROL)
}

/// Returns the admin directory of a lock; `None` for other files.
pub fn directory_of_lock(file: &Path) -> Option<PathBuf> {
    let control = file.parent().filter(|_| file.extension().is_some_and(|extension| extension == "lock"))?;
    (control.file_name()? == CONTROL).then(|| control.parent().map(Path::to_owned))?
}

/// Opens the admin directory, which is created if it is missing. Other users may have directories
/// of their own in it, but cannot replace those of this server.
///
/// # Errors
/// [`DirectoryError::Failed`].
pub fn open_admin(directory: &Path, mode: u32) -> Result<SharedDirectory, DirectoryError> {
    SharedDirectory::create(directory, mode)
        .and_then(|admin| admin.prove().map(|()| admin))
        .map_err(|error| DirectoryError::Failed(directory.to_owned(), error))
}

/// Creates a directory and its parents. Existing ones are not changed.
///
/// # Errors
/// The error of the system.
fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(mode | 0o700).create(directory)
        }
        other => other,
    }
}

/// Enters the home directory of the instance, which is created if it is missing, and returns its
/// path.
///
/// # Errors
/// [`DirectoryError::Failed`].
pub fn enter_home(
    home: Option<&DirectorySetting>,
    instance: Option<&str>,
) -> Result<PathBuf, DirectoryError> {
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let Some(directory) = (match (home, instance) {
        (Some(directory), instance) => Some((directory.for_instance(instance), directory.mode())),
        (None, Some(instance)) => Some((here().join(instance), 0o700)),
        (None, None) => None,
    }) else {
        return Ok(here());
    };
    let (path, mode) = directory;
    make_directory(&path, mode)
        .and_then(|()| std::env::set_current_dir(&path))
        .map_err(|error| DirectoryError::Failed(path.clone(), error))?;
    Ok(path)
}

/// Returns the default admin directory of a server.
///
/// There is one for each program and the data it serves, so that only the next server of the same
/// data finds its journals. It lies below `$XDG_STATE_HOME/scalla`; without that, below
/// `/var/lib/scalla` for root and `~/.local/state/scalla` for other users. With `user`, to whom
/// root will switch, it is created and given to that user, together with the files of an earlier
/// server that ran as root.
///
/// # Errors
/// [`DirectoryError::Failed`].
pub fn state_directory(effective: &Effective, user: Option<&User>) -> Result<PathBuf, DirectoryError> {
    let directory = default_admin_directory(effective);
    if User::is_root() {
        let failed = |error| DirectoryError::Failed(directory.clone(), error);
        let base = state_base();
        DirBuilder::new().recursive(true).mode(0o755).create(&base).map_err(failed)?;
        if let Some(user) = user {
            // The directories below are private; this one must be searchable by the user.
            let mode = fs::metadata(&base).map_err(failed)?.mode();
            if mode & 0o011 != 0o011 {
                fs::set_permissions(&base, fs::Permissions::from_mode(mode | 0o055)).map_err(failed)?;
            }
            make_directory(&directory, 0o700).map_err(failed)?;
            hand_over_at(CWD, directory.as_os_str(), user).map_err(failed)?;
        }
    }
    Ok(directory)
}

/// Returns the default admin directory of a server that this user starts. Nothing is created.
pub fn default_admin_directory(effective: &Effective) -> PathBuf {
    state_base().join(state_name(effective))
}

/// Changes the owner of a directory of root, and of the files that an earlier server of root left
/// in it, to the user.
///
/// A directory of another owner is not changed, because the owner may have created links to files
/// of others in it. Each directory is opened once and no link is followed, so that a name that is
/// exchanged meanwhile has no effect.
fn hand_over_at(above: BorrowedFd<'_>, name: &OsStr, user: &User) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(above, name, flags, Mode::empty()) {
        // The link was created on purpose, and its target has its own owner.
        Err(Errno::LOOP | Errno::NOTDIR) => return Ok(()),
        opened => opened?,
    };
    if fstat(&directory)?.st_uid != 0 {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(user.uid())), Some(Gid::from_raw(user.gid())));
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            hand_over_at(directory.as_fd(), name, user)?;
        } else {
            chownat(&directory, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    // The directory itself is last, so that a run after an interruption continues.
    Ok(fchown(&directory, owner.0, owner.1)?)
}

/// Returns the existing admin directories of [`state_directory`] of this user.
pub fn states() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(state_base()) else { return Vec::new() };
    let mut directories: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    directories.sort();
    directories
}

fn state_base() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return state.join("scalla");
    }
    if User::is_root() {
        return PathBuf::from(SYSTEM_STATE);
    }
    match absolute("HOME").filter(|home| home.is_dir()) {
        Some(home) => home.join(".local/state/scalla"),
        None => std::env::temp_dir().join(format!("scalla-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Returns the program or role, the last component of the served data, and eight hexadecimal digits
/// of a hash of all exports and the root.
fn state_name(effective: &Effective) -> String {
    let root = effective.storage.local_root.value.clone();
    let root = root.map(|path| path.canonicalize().unwrap_or(path)).unwrap_or_default();
    let first = effective.storage.exports.first().map_or("/", |export| export.prefix.as_str());
    let exports = effective.storage.exports.iter().map(|export| export.prefix.as_bytes());
    let parts = exports.chain([root.as_os_str().as_encoded_bytes()]);
    let hash = base::stable_hash(parts.flat_map(|part| part.iter().chain(&[0])));
    let last = if first == "/" { root.as_path() } else { Path::new(first) };
    let last: String = last
        .file_name()
        .map(|name| name.to_string_lossy().chars().filter(|c| c.is_ascii_alphanumeric()).take(24).collect())
        .unwrap_or_default();
    // A redirector serves no data, so it is named by its role.
    let role = effective.cluster.role.value;
    let name = if role.redirects() { role.name().replace(' ', "-") } else { effective.program.clone() };
    format!("{name}-{last}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("scalla-directories-{name}-{}", std::process::id()))
    }

    #[test]
    fn an_admin_directory_has_one_server_at_a_time() {
        let directory = temporary("claim");
        let mut first = AdminDirectory::claim(&directory, 0o700, "xrootd").unwrap();
        first.note(1094).unwrap();
        let error = AdminDirectory::claim(&directory, 0o700, "xrootd").unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}, port 1094", std::process::id())), "{error}");
        assert!(AdminDirectory::claim(&directory, 0o700, "cmsd").is_ok());
        let socket = first.control().path().join(first.socket_name());
        fs::write(&socket, "").unwrap();
        drop(first);
        assert!(!socket.exists());
        let _third = AdminDirectory::claim(&directory, 0o700, "xrootd").unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(control_directory(&directory)).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn an_admin_directory_of_another_user_is_refused_before_anything_in_it_is_read() {
        if !User::is_root() {
            return;
        }
        let directory = temporary("planted");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(65_534), None).unwrap();
        let error = AdminDirectory::claim(&directory, 0o700, "xrootd").unwrap_err().to_string();
        assert!(
            error.contains("belongs to nobody (uid 65534), but this server runs as root (uid 0)"),
            "{error}"
        );
        assert!(!control_directory(&directory).exists());
        std::os::unix::fs::chown(&directory, Some(0), None).unwrap();
        std::os::unix::fs::symlink("/tmp", control_directory(&directory)).unwrap();
        let error = AdminDirectory::claim(&directory, 0o700, "xrootd").unwrap_err().to_string();
        assert!(error.contains(".scalla is a link of root (uid 0)"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_state_is_named_by_the_served_data() {
        let of = |directory: &str| state_name(&Effective::for_directory(Path::new(directory), false));
        assert!(of("/srv/My Data").starts_with("xrootd-MyData-"));
        assert_ne!(of("/srv/a"), of("/srv/b"));
        assert_eq!(of("/srv/a"), of("/srv/a"));
        assert!(of("/").starts_with("xrootd--"));
    }

    #[test]
    fn a_directory_is_handed_over_without_the_targets_of_links() {
        if !User::is_root() {
            return; // only root can change owners
        }
        let Ok(nobody) = User::find("65534") else { return };
        let directory = temporary("handed");
        let state = directory.join("state");
        fs::create_dir_all(state.join("below")).unwrap();
        fs::create_dir(directory.join("other")).unwrap();
        for name in ["other/file", "state/below/file"] {
            fs::write(directory.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(directory.join("other/file"), state.join("link")).unwrap();
        std::os::unix::fs::symlink(directory.join("other"), state.join("links")).unwrap();
        std::os::unix::fs::symlink(&state, directory.join("name")).unwrap();
        let owner = |name: &str| fs::symlink_metadata(directory.join(name)).unwrap().uid();
        hand_over_at(CWD, directory.join("name").as_os_str(), &nobody).unwrap();
        assert_eq!(owner("state/below/file"), 0, "the directory itself is a link");
        hand_over_at(CWD, state.as_os_str(), &nobody).unwrap();
        for name in ["state", "state/below", "state/below/file", "state/link", "state/links"] {
            assert_eq!(owner(name), nobody.uid(), "{name}");
        }
        assert_eq!((owner("other"), owner("other/file")), (0, 0));
        fs::remove_dir_all(directory).unwrap();
    }
}
