//! Checks the owner and the writers of files of the server's state, and formats the error with its
//! remedy.
//!
//! The checks work on open descriptors, so that a file cannot be exchanged between the check and
//! its use.

use crate::user_names::UserNameCache;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, FileType, Mode, Stat};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The requirements for a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnershipRule {
    /// Owned by this user and not writable for others.
    Private,
    /// As `Private`, but an earlier version may have created the file with the umask of the
    /// process. Its mode may let others write it if only this user can access its directory.
    Inherited,
    /// Owned by this user or root. A directory may instead be writable for a group of this process.
    /// A file must not be writable for everybody; a directory may be if it has the sticky bit.
    Shared,
    /// As `Shared`, but the file is only appended to, and may be a terminal or a pipe.
    Log,
}

/// The error for a file or directory that another user can change or could have created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UntrustedFile {
    path: PathBuf,
    problem: OwnershipProblem,
    user: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum OwnershipProblem {
    Owner(u32),
    Writable(u32),
    Link(u32),
    NotDirectory,
    NotFile,
    HardLinks(u64),
}

impl UntrustedFile {
    fn new(path: &Path, problem: OwnershipProblem) -> Self {
        Self { path: path.to_owned(), problem, user: user() }
    }

    /// Returns the error for a link where none is followed.
    pub(super) fn link(path: &Path, owner: u32) -> Self {
        Self::new(path, OwnershipProblem::Link(owner))
    }

    /// Returns the error for a file in the place of a directory.
    pub(super) fn no_directory(path: &Path) -> Self {
        Self::new(path, OwnershipProblem::NotDirectory)
    }

    /// Returns the error for a file or directory of another user.
    pub(super) fn owner(path: &Path, owner: u32) -> Self {
        Self::new(path, OwnershipProblem::Owner(owner))
    }
}

impl fmt::Display for UntrustedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = UserNameCache::new();
        let name = |uid: u32| format!("{} (uid {uid})", names.user(uid));
        write!(f, "{} ", self.path.display())?;
        match self.problem {
            // A file of root is usually left by an earlier start without the option to switch to
            // another user.
            OwnershipProblem::Owner(0) => write!(
                f,
                "belongs to {}, but this server runs as {}; if an earlier start as root created it, hand it over with \
                 `chown -R {} {}`; otherwise remove it, or name another place",
                name(0),
                name(self.user),
                names.user(self.user),
                self.path.display()
            ),
            OwnershipProblem::Owner(owner) => write!(
                f,
                "belongs to {}, but this server runs as {}; start it as that user, or remove it, or name another place",
                name(owner),
                name(self.user)
            ),
            OwnershipProblem::Writable(mode) => {
                let who = if mode & 0o002 != 0 { "every user" } else { "its group" };
                write!(
                    f,
                    "can be written by {who} (mode {mode:04o}); check what it holds, then chmod go-w it"
                )
            }
            OwnershipProblem::Link(owner) => {
                write!(
                    f,
                    "is a link of {}, which is not followed; remove it, or name the place it leads to",
                    name(owner)
                )
            }
            OwnershipProblem::NotDirectory => {
                f.write_str("is not a directory; remove it, or name another place")
            }
            OwnershipProblem::NotFile => {
                f.write_str("is not a regular file; remove it, or name another place")
            }
            OwnershipProblem::HardLinks(count) => {
                write!(
                    f,
                    "has {count} names (hard links), so it may be another file; remove it, or name another place"
                )
            }
        }
    }
}

impl std::error::Error for UntrustedFile {}

impl From<UntrustedFile> for io::Error {
    fn from(error: UntrustedFile) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, error)
    }
}

/// Returns the effective user of this process.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Reports whether files of this owner are trusted. Those of root are, because root can change
/// everything.
pub(super) fn is_trusted(owner: u32) -> bool {
    owner == user() || owner == 0
}

pub(super) fn mode_of(stat: &Stat) -> u32 {
    Mode::from_raw_mode(stat.st_mode).as_raw_mode()
}

/// Reports whether every user may create entries in a directory of this mode.
pub(super) fn is_for_everybody(stat: &Stat) -> bool {
    mode_of(stat) & 0o002 != 0
}

fn check_owner(stat: &Stat, path: &Path, rule: OwnershipRule) -> Result<(), UntrustedFile> {
    let owned = match rule {
        OwnershipRule::Private | OwnershipRule::Inherited => stat.st_uid == user(),
        OwnershipRule::Shared | OwnershipRule::Log => is_trusted(stat.st_uid),
    };
    if owned { Ok(()) } else { Err(UntrustedFile::owner(path, stat.st_uid)) }
}

/// Reports whether a directory is writable for a group of this process. Containers run as users
/// whose numbers are unknown when the directory is created, but in a known group.
fn is_for_own_group(stat: &Stat) -> bool {
    let is_own = || {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = rustix::process::getegid();
        std::iter::once(own).chain(groups).any(|group| group.as_raw() == stat.st_gid)
    };
    mode_of(stat) & 0o020 != 0 && is_own()
}

/// Reports whether only this user and root can create names in a directory.
fn keeps_others_out(directory: BorrowedFd<'_>) -> bool {
    fs::fstat(directory).is_ok_and(|stat| is_trusted(stat.st_uid) && mode_of(&stat) & 0o022 == 0)
}

/// Reports whether only this user and root can access the content of a directory, independent of
/// the modes of its files.
fn is_for_owner_alone(directory: BorrowedFd<'_>) -> bool {
    fs::fstat(directory).is_ok_and(|stat| stat.st_uid == user() && mode_of(&stat) & 0o077 == 0)
}

pub(super) fn prove_directory(directory: &impl AsFd, path: &Path, rule: OwnershipRule) -> io::Result<()> {
    let stat = fs::fstat(directory)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(UntrustedFile::new(path, OwnershipProblem::NotDirectory).into());
    }
    if rule == OwnershipRule::Private || !is_for_own_group(&stat) {
        check_owner(&stat, path, rule)?;
    }
    let mode = mode_of(&stat);
    let open = match rule {
        OwnershipRule::Private | OwnershipRule::Inherited => mode & 0o022 != 0,
        OwnershipRule::Shared | OwnershipRule::Log => mode & 0o002 != 0 && mode & 0o1000 == 0,
    };
    if open { Err(UntrustedFile::new(path, OwnershipProblem::Writable(mode)).into()) } else { Ok(()) }
}

/// Checks a file that was opened in `directory`.
pub(super) fn prove_file(
    directory: BorrowedFd<'_>,
    file: &impl AsFd,
    path: &Path,
    rule: OwnershipRule,
) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let stream = !matches!(FileType::from_raw_mode(stat.st_mode), FileType::Directory);
        return if rule == OwnershipRule::Log && stream && is_trusted(stat.st_uid) {
            Ok(())
        } else {
            Err(UntrustedFile::new(path, OwnershipProblem::NotFile).into())
        };
    }
    check_owner(&stat, path, rule)?;
    // A log is only appended to. A second name is harmless where only trusted users could create
    // it; administrators keep old logs in this way.
    if stat.st_nlink > 1 && (rule != OwnershipRule::Log || !keeps_others_out(directory)) {
        return Err(UntrustedFile::new(path, OwnershipProblem::HardLinks(stat.st_nlink as u64)).into());
    }
    let mode = mode_of(&stat);
    let open = match rule {
        OwnershipRule::Private => mode & 0o022 != 0,
        OwnershipRule::Inherited => mode & 0o022 != 0 && !is_for_owner_alone(directory),
        OwnershipRule::Shared => mode & 0o002 != 0,
        OwnershipRule::Log => false,
    };
    if open { Err(UntrustedFile::new(path, OwnershipProblem::Writable(mode)).into()) } else { Ok(()) }
}
