//! The folders of one server: its admin folder, which belongs to one running server at a time, and its home.
//!
//! In the admin folder, `.scalla/` (0700) holds `<program>.lock`, locked as long as the server runs, and
//! `<program>.sock`, where `scalla admin` speaks to it. The lock and not the socket says whether a server runs: a crash
//! leaves a socket behind, but no lock.

use super::User;
use config::{Effective, Folder};
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

/// Where servers without a configured admin folder keep theirs when root starts them.
const SYSTEM_STATE: &str = "/var/lib/scalla";

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another server of the same program and instance runs on this admin folder.
    InUse {
        /// The folder.
        folder: PathBuf,
        /// What the other server wrote about itself: `pid 4711, port 1094`.
        holder: String,
    },
    /// The system said no.
    Failed(PathBuf, io::Error),
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { folder, holder } => {
                write!(
                    f,
                    "another server of this instance is running ({holder}) and uses {}; ",
                    folder.display()
                )?;
                f.write_str(
                    "stop it, or give this one an instance name (--instance, as xrootd -n) or an admin folder of its own \
                     (--admin-path, all.adminpath)",
                )
            }
            Self::Failed(path, error) => write!(f, "cannot use the folder {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FolderError {}

/// The admin folder of a running server. Dropping it removes the socket and lets the lock go.
#[derive(Debug)]
pub struct AdminFolder {
    folder: PathBuf,
    control: PrivateDirectory,
    program: String,
    lock: File,
}

impl AdminFolder {
    /// Creates the folder where it is missing and locks it for this process.
    ///
    /// # Errors
    /// [`FolderError`]; nothing is changed for a server that runs already.
    pub fn claim(folder: &Path, mode: u32, program: &str) -> Result<Self, FolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| FolderError::Failed(path, error)
        };
        let admin = open_admin(folder, mode)?;
        let control = admin.private(CONTROL).map_err(failed(&control_folder(folder)))?;
        let name = format!("{program}.lock");
        let failed = |error| FolderError::Failed(control.path().join(&name), error);
        loop {
            let mut lock = control.open_or_create(&name).map_err(failed)?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut holder = String::new();
                // Without a note the message says less.
                lock.read_to_string(&mut holder).ok();
                let holder = holder.trim().to_owned();
                return Err(FolderError::InUse { folder: folder.to_owned(), holder });
            }
            // Between opening and locking, a server on its way out may have removed the file: then this lock is worth
            // nothing, because the next one will lock a new file.
            if lock.metadata().map_err(failed)?.nlink() > 0 {
                return Ok(Self { folder: folder.to_owned(), control, program: program.to_owned(), lock });
            }
        }
    }

    /// Notes who holds it, for the message another server would give.
    ///
    /// # Errors
    /// What the system says.
    pub fn note(&mut self, port: u16) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all(format!("pid {}, port {port}\n", std::process::id()).as_bytes())
    }

    /// The directory of the admin socket.
    pub fn control(&self) -> &PrivateDirectory {
        &self.control
    }

    /// The name of the admin socket in [`AdminFolder::control`].
    pub fn socket_name(&self) -> String {
        format!("{}.sock", self.program)
    }
}

impl Drop for AdminFolder {
    fn drop(&mut self) {
        self.control.remove(&self.socket_name()).ok();
        self.control.remove(&format!("{}.lock", self.program)).ok();
        // Folders go only if nothing is left in them: no journals, no other program. Not one that others use, as `/tmp`.
        fs::remove_dir(self.control.path()).ok();
        if self.folder.starts_with(state_base()) {
            fs::remove_dir(&self.folder).ok();
        }
    }
}

/// The folder of socket and lock in an admin folder.
const CONTROL: &str = ".scalla";

/// The folder of socket and lock in an admin folder.
pub fn control_folder(admin: &Path) -> PathBuf {
    admin.join(CONTROL)
}

/// The admin folder of a lock; `None` for other files.
pub fn folder_of_lock(file: &Path) -> Option<PathBuf> {
    let control = file.parent().filter(|_| file.extension().is_some_and(|extension| extension == "lock"))?;
    (control.file_name()? == CONTROL).then(|| control.parent().map(Path::to_owned))?
}

/// Opens the admin folder, which is created where it is missing. Other users may have folders of their own in it, but
/// cannot replace those of this server.
///
/// # Errors
/// [`FolderError::Failed`].
pub fn open_admin(folder: &Path, mode: u32) -> Result<SharedDirectory, FolderError> {
    SharedDirectory::create(folder, mode)
        .and_then(|admin| admin.prove().map(|()| admin))
        .map_err(|error| FolderError::Failed(folder.to_owned(), error))
}

/// Creates a folder and what leads to it; those that exist are left as they are.
///
/// # Errors
/// What the system says.
fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(mode | 0o700).create(folder)
        }
        other => other,
    }
}

/// Enters the home folder of the instance, which is created where it is missing, and says where that is.
///
/// # Errors
/// [`FolderError::Failed`].
pub fn enter_home(home: Option<&Folder>, instance: Option<&str>) -> Result<PathBuf, FolderError> {
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let Some(folder) = (match (home, instance) {
        (Some(folder), instance) => Some((folder.for_instance(instance), folder.mode())),
        (None, Some(instance)) => Some((here().join(instance), 0o700)),
        (None, None) => None,
    }) else {
        return Ok(here());
    };
    let (path, mode) = folder;
    make_folder(&path, mode)
        .and_then(|()| std::env::set_current_dir(&path))
        .map_err(|error| FolderError::Failed(path.clone(), error))?;
    Ok(path)
}

/// The admin folder of a server nobody gave one: one for each program and what it serves, so that its journals are found
/// again by the next server of the same data and by no other. Below `$XDG_STATE_HOME/scalla`; without that, below
/// `/var/lib/scalla` for root and `~/.local/state/scalla` for others. With `user`, to whom root will switch, it is created and
/// given to that user now, with what a server that root ran as itself left there.
///
/// # Errors
/// [`FolderError::Failed`].
pub fn state_folder(effective: &Effective, user: Option<&User>) -> Result<PathBuf, FolderError> {
    let folder = default_admin_folder(effective);
    if User::is_root() {
        let failed = |error| FolderError::Failed(folder.clone(), error);
        let base = state_base();
        DirBuilder::new().recursive(true).mode(0o755).create(&base).map_err(failed)?;
        if let Some(user) = user {
            // What is below it is closed by itself; this one has to let the user through.
            let mode = fs::metadata(&base).map_err(failed)?.mode();
            if mode & 0o011 != 0o011 {
                fs::set_permissions(&base, fs::Permissions::from_mode(mode | 0o055)).map_err(failed)?;
            }
            make_folder(&folder, 0o700).map_err(failed)?;
            hand_over_at(CWD, folder.as_os_str(), user).map_err(failed)?;
        }
    }
    Ok(folder)
}

/// The admin folder of a server whose configuration names none, started by this user. Nothing is created.
pub fn default_admin_folder(effective: &Effective) -> PathBuf {
    state_base().join(state_name(effective))
}

/// Gives a folder of root's, and what an earlier server of root's left in it, to the user.
///
/// One that is not root's is left as it is: who owns it may have put links into it that lead to files of others.
/// Each folder is opened once and no link is followed, so that a name that is exchanged meanwhile leads nowhere else.
fn hand_over_at(above: BorrowedFd<'_>, name: &OsStr, user: &User) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match openat(above, name, flags, Mode::empty()) {
        // Another place that somebody chose: what lies there is theirs to give.
        Err(Errno::LOOP | Errno::NOTDIR) => return Ok(()),
        opened => opened?,
    };
    if fstat(&folder)?.st_uid != 0 {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(user.uid())), Some(Gid::from_raw(user.gid())));
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            hand_over_at(folder.as_fd(), name, user)?;
        } else {
            chownat(&folder, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    // Last: whoever comes after an interruption finds that there is something left to do.
    Ok(fchown(&folder, owner.0, owner.1)?)
}

/// The admin folders of [`state_folder`] that exist, of this user.
pub fn states() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(state_base()) else { return Vec::new() };
    let mut folders: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
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

/// Program or role, last component of what is served, and eight digits that differ when anything of it differs.
fn state_name(effective: &Effective) -> String {
    let root = effective.storage.local_root.value.clone();
    let root = root.map(|path| path.canonicalize().unwrap_or(path)).unwrap_or_default();
    let first = effective.storage.exports.first().map_or("/", |export| export.prefix.as_str());
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325; // FNV-1a: the same in every build
    let exports = effective.storage.exports.iter().map(|export| export.prefix.as_bytes());
    for byte in exports.chain([root.as_os_str().as_encoded_bytes()]).flat_map(|part| part.iter().chain(&[0]))
    {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let last = if first == "/" { root.as_path() } else { Path::new(first) };
    let last: String = last
        .file_name()
        .map(|name| name.to_string_lossy().chars().filter(|c| c.is_ascii_alphanumeric()).take(24).collect())
        .unwrap_or_default();
    // A redirector serves nothing of its own: its role names it.
    let role = effective.cluster.role.value;
    let name = if role.redirects() { role.name().replace(' ', "-") } else { effective.program.clone() };
    format!("{name}-{last}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("scalla-folders-{name}-{}", std::process::id()))
    }

    #[test]
    fn an_admin_folder_has_one_server_at_a_time() {
        let folder = temporary("claim");
        let mut first = AdminFolder::claim(&folder, 0o700, "xrootd").unwrap();
        first.note(1094).unwrap();
        let error = AdminFolder::claim(&folder, 0o700, "xrootd").unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}, port 1094", std::process::id())), "{error}");
        assert!(AdminFolder::claim(&folder, 0o700, "cmsd").is_ok());
        let socket = first.control().path().join(first.socket_name());
        fs::write(&socket, "").unwrap();
        drop(first);
        assert!(!socket.exists());
        let _third = AdminFolder::claim(&folder, 0o700, "xrootd").unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(control_folder(&folder)).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_admin_folder_of_another_user_is_refused_before_anything_in_it_is_read() {
        if !User::is_root() {
            return;
        }
        let folder = temporary("planted");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
        let error = AdminFolder::claim(&folder, 0o700, "xrootd").unwrap_err().to_string();
        assert!(
            error.contains("belongs to nobody (uid 65534), but this server runs as root (uid 0)"),
            "{error}"
        );
        assert!(!control_folder(&folder).exists());
        std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
        std::os::unix::fs::symlink("/tmp", control_folder(&folder)).unwrap();
        let error = AdminFolder::claim(&folder, 0o700, "xrootd").unwrap_err().to_string();
        assert!(error.contains(".scalla is a link of root (uid 0)"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_served_names_the_state() {
        let of = |folder: &str| state_name(&Effective::for_directory(Path::new(folder), false));
        assert!(of("/srv/My Data").starts_with("xrootd-MyData-"));
        assert_ne!(of("/srv/a"), of("/srv/b"));
        assert_eq!(of("/srv/a"), of("/srv/a"));
        assert!(of("/").starts_with("xrootd--"));
    }

    #[test]
    fn a_folder_is_handed_over_without_what_links_lead_to() {
        if !User::is_root() {
            return; // only root gives files away
        }
        let Ok(nobody) = User::find("65534") else { return };
        let folder = temporary("handed");
        let state = folder.join("state");
        fs::create_dir_all(state.join("below")).unwrap();
        fs::create_dir(folder.join("other")).unwrap();
        for name in ["other/file", "state/below/file"] {
            fs::write(folder.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(folder.join("other/file"), state.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.join("other"), state.join("links")).unwrap();
        std::os::unix::fs::symlink(&state, folder.join("name")).unwrap();
        let owner = |name: &str| fs::symlink_metadata(folder.join(name)).unwrap().uid();
        hand_over_at(CWD, folder.join("name").as_os_str(), &nobody).unwrap();
        assert_eq!(owner("state/below/file"), 0, "the folder itself is a link");
        hand_over_at(CWD, state.as_os_str(), &nobody).unwrap();
        for name in ["state", "state/below", "state/below/file", "state/link", "state/links"] {
            assert_eq!(owner(name), nobody.uid(), "{name}");
        }
        assert_eq!((owner("other"), owner("other/file")), (0, 0));
        fs::remove_dir_all(folder).unwrap();
    }
}
