//! [`read_trusted`]: reads files with keys or rules, which nobody but root and the user of this
//! process may have written.
//!
//! All checks are made on descriptors, so that a file cannot be exchanged between check and use. The
//! directory counts as well, because its writers can replace the file. Directories above it are not
//! checked.
//!
//! The path may be a link, because mounted secrets and configuration maps of Kubernetes are links.
//! The directory of the link is checked, and the link must have the owner that a file must have. This
//! owner chose the target, so directories and links behind the link are not checked. The final file
//! is checked like one without a link.

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// All permission bits.
pub(crate) const ANY_MODE: u32 = 0o7777;
/// Permissions of the owner to read and write.
const OWNER_ONLY: u32 = 0o600;
/// Permissions of group and others to write.
const SHARED_WRITE: u32 = 0o022;
/// All permissions without those of group and others to write.
pub(crate) const NO_SHARED_WRITE: u32 = ANY_MODE & !SHARED_WRITE;
/// The bit of directories in which users can replace only files of their own.
pub(crate) const STICKY: u32 = 0o1000;

/// Part of the reason why a file is not read, which is about its owner: a program that is not run as the
/// user of a server can judge by it that the reason may not concern the server.
pub const OTHER_OWNER: &str = "belongs to user id";

/// Number of reads of a file that changes each time.
const READS_MAX: u32 = 3;

/// The demands on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileTrust {
    pub(crate) owner: TrustedOwner,
    /// Permissions that the file may have. Without those of group and others to write, the
    /// directory must not have them either, unless it is sticky.
    pub(crate) modes: u32,
    /// The effect of other permissions, for messages: `allow others to ...`.
    pub(crate) danger: &'static str,
    /// Maximum size in bytes.
    pub(crate) bytes_max: u64,
}

impl FileTrust {
    /// Returns the demands on a file with a secret, which only its owner may read.
    pub(crate) const fn private(owner: TrustedOwner, danger: &'static str, bytes_max: u64) -> Self {
        Self { owner, modes: OWNER_ONLY, danger, bytes_max }
    }
}

/// The users that may own a file and its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrustedOwner {
    /// Root and the user of this process own the file, the directory and the link.
    Own,
    /// Any user owns the file, in a directory of root that nobody else can write, so that the owner
    /// cannot exchange the file.
    AnyInDirectoryOfRoot,
    /// Any user owns the file, the directory and the link.
    Any,
}

/// The reason why a file is not read.
#[derive(Debug)]
pub(crate) enum TrustedFileError {
    /// The error of the system, or a file that is too large.
    Unreadable(io::Error),
    /// Others could have written the file.
    Untrusted {
        /// The property that is not safe.
        reason: String,
        /// The action that makes it safe.
        remedy: String,
    },
}

impl TrustedFileError {
    /// Returns the text of this error about the file at a path.
    pub(crate) fn text_of(self, path: &Path) -> String {
        let shown = path.display();
        match self {
            Self::Unreadable(error) => format!("cannot read {shown}: {}", base::errno_text(&error)),
            Self::Untrusted { reason, remedy } => format!("{shown} is not used: {reason}; {remedy}"),
        }
    }
}

impl From<Errno> for TrustedFileError {
    fn from(error: Errno) -> Self {
        Self::Unreadable(error.into())
    }
}

impl From<io::Error> for TrustedFileError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

fn untrusted(reason: impl Into<String>, remedy: impl Into<String>) -> TrustedFileError {
    TrustedFileError::Untrusted { reason: reason.into(), remedy: remedy.into() }
}

/// Properties by which a change of a file is recognized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// User and group.
    pub(crate) owner: (u32, u32),
}

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            owner: (metadata.uid(), metadata.gid()),
        }
    }

    /// Reports whether the last change was at least this time ago.
    pub(crate) fn is_older(&self, time: Duration, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        now.duration_since(UNIX_EPOCH + Duration::from_secs(seconds)).is_ok_and(|age| age > time)
    }
}

/// The content of a file, and its state at that time.
type StampedContent = (Zeroizing<Vec<u8>>, FileStamp);

/// Reads a regular file as a whole. A file that changes meanwhile is read again, because the content
/// may be half old and half new. Blocks.
pub(crate) fn read_trusted(path: &Path, trust: &FileTrust) -> Result<StampedContent, TrustedFileError> {
    until_unchanged(|| {
        let mut file = open(path, trust)?;
        let before = file.metadata()?;
        check(path, &before, trust)?;
        read_unchanged(&mut file, &before, trust.bytes_max)
    })
}

/// Repeats a read that found a change. A program that replaces a file is done with it soon, but one
/// that writes without end must not hold the reader.
fn until_unchanged(
    mut read: impl FnMut() -> Result<Option<StampedContent>, TrustedFileError>,
) -> Result<StampedContent, TrustedFileError> {
    for _ in 0..READS_MAX {
        if let Some(content) = read()? {
            return Ok(content);
        }
    }
    Err(io::Error::other("it changed while it was read; try again").into())
}

/// Checks that others cannot exchange a file or directory: its directory, and the link if it is one.
/// Blocks.
pub(crate) fn check_place(path: &Path, trust: &FileTrust) -> Result<(), TrustedFileError> {
    open(path, trust).map(drop)
}

/// Returns the content, or `None` if the file is no longer as `before`.
fn read_unchanged(
    file: &mut File,
    before: &Metadata,
    bytes_max: u64,
) -> Result<Option<StampedContent>, TrustedFileError> {
    // One allocation, because growing would leave copies of keys behind.
    let capacity = before.len().min(bytes_max) + 1;
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(capacity).unwrap_or(0)));
    file.take(bytes_max + 1).read_to_end(&mut text)?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if length > bytes_max {
        return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")).into());
    }
    let stamp = FileStamp::of(before);
    let is_unchanged = FileStamp::of(&file.metadata()?) == stamp && length == before.len();
    Ok(is_unchanged.then_some((text, stamp)))
}

/// Opens the file in its directory, which is checked.
fn open(path: &Path, trust: &FileTrust) -> Result<File, TrustedFileError> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(openat(CWD, &parent, flags, Mode::empty())?);
    check_directory(&parent, &directory.metadata()?, trust)?;
    // A pipe under this name must not block the open.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = match openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::LOOP) => {
            let target = link_target(&directory, name, trust)?;
            openat(&directory, target.as_c_str(), flags, Mode::empty())
        }
        opened => opened,
    };
    Ok(File::from(opened?))
}

/// Returns the target of a link, whose owner is checked: in a sticky directory, each user can create
/// a link to a file of the user of this process.
fn link_target(directory: &File, name: &OsStr, trust: &FileTrust) -> Result<CString, TrustedFileError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = File::from(openat(directory, name, flags, Mode::empty())?);
    let metadata = link.metadata()?;
    if foreign_owner(&metadata, trust).is_some() {
        let reason = format!("it is a link that {OTHER_OWNER} {}", metadata.uid());
        return Err(untrusted(reason, "name the file itself"));
    }
    Ok(readlinkat(&link, "", Vec::new())?)
}

fn check_directory(path: &Path, metadata: &Metadata, trust: &FileTrust) -> Result<(), TrustedFileError> {
    let (shown, mode) = (path.display(), metadata.mode() & ANY_MODE);
    if trust.owner == TrustedOwner::AnyInDirectoryOfRoot && !is_of_root_alone(metadata) {
        let reason = format!("others than root can replace files in its directory {shown}");
        return Err(untrusted(reason, format!("run chown root {shown} and chmod go-w,-t {shown}")));
    }
    if let Some(user) = foreign_owner(metadata, trust) {
        let reason = format!("its directory {shown} {OTHER_OWNER} {}", metadata.uid());
        return Err(untrusted(reason, format!("run chown {user} {shown}")));
    }
    if mode & SHARED_WRITE & !trust.modes != 0 && mode & STICKY == 0 {
        let reason =
            format!("the permissions {mode:04o} of its directory {shown} allow others to replace it");
        return Err(untrusted(reason, format!("run chmod go-w {shown}")));
    }
    Ok(())
}

fn check(path: &Path, metadata: &Metadata, trust: &FileTrust) -> Result<(), TrustedFileError> {
    let shown = path.display();
    if !metadata.is_file() {
        return Err(untrusted("it is not a regular file", "name a file"));
    }
    let is_any = trust.owner != TrustedOwner::Own;
    if let Some(user) = foreign_owner(metadata, trust).filter(|_| !is_any) {
        let owner = metadata.uid();
        let reason = format!("it {OTHER_OWNER} {owner}, and this program runs as {user}");
        return Err(untrusted(reason, format!("run chown {user} {shown}")));
    }
    let mode = metadata.mode() & ANY_MODE;
    if mode & !trust.modes != 0 {
        let reason = format!("its permissions {mode:04o} allow others to {}", trust.danger);
        return Err(untrusted(reason, format!("run chmod {:o} {shown}", mode & trust.modes)));
    }
    Ok(())
}

/// Returns the user of this process if a file belongs neither to that user nor to root.
fn foreign_owner(metadata: &Metadata, trust: &FileTrust) -> Option<u32> {
    let user = rustix::process::geteuid().as_raw();
    let is_own = [0, user].contains(&metadata.uid());
    (trust.owner != TrustedOwner::Any && !is_own).then_some(user)
}

/// Reports whether only root can replace the files of a directory.
pub(crate) fn is_of_root_alone(directory: &Metadata) -> bool {
    directory.uid() == 0 && directory.mode() & (SHARED_WRITE | STICKY) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    const TRUST: FileTrust =
        FileTrust { owner: TrustedOwner::Own, modes: NO_SHARED_WRITE, danger: "change it", bytes_max: 10 };

    fn fault(path: &Path) -> String {
        match read_trusted(path, &TRUST) {
            Ok(_) => "accepted".to_owned(),
            Err(TrustedFileError::Unreadable(error)) => error.to_string(),
            Err(TrustedFileError::Untrusted { reason, remedy }) => format!("{reason}; {remedy}"),
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let directory = std::env::temp_dir().join(format!("auth-trusted-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("file");
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        fs::write(&file, "text").unwrap();
        let cases = [
            (0o755, 0o644, "accepted"),
            (0o755, 0o664, "0664 allow others to change it; run chmod 644 "),
            (0o755, 0o646, "0646 allow others to change it; run chmod 644 "),
            (0o775, 0o644, "allow others to replace it; run chmod go-w "),
            (0o757, 0o644, "allow others to replace it; run chmod go-w "),
            (0o1777, 0o644, "accepted"),
        ];
        for (directory_mode, mode, expected) in cases {
            set(&directory, directory_mode);
            set(&file, mode);
            let found = fault(&file);
            assert!(found.contains(expected), "{directory_mode:o} {mode:o}: {found}");
        }
        fs::write(directory.join("large"), "12345678901").unwrap();
        assert!(fault(&directory.join("large")).contains("larger than 10 bytes"));
        fs::create_dir(directory.join("sub")).unwrap();
        assert!(fault(&directory.join("sub")).contains("not a regular file"));
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(4711), None).unwrap();
            assert!(fault(&file).contains("it belongs to user id 4711"));
            chown(&file, Some(0), None).unwrap();
            chown(&directory, Some(4711), None).unwrap();
            assert!(fault(&file).contains("belongs to user id 4711; run chown 0 "));
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_link_is_followed_if_its_directory_and_its_owner_are_trusted() {
        let top = std::env::temp_dir().join(format!("auth-links-{}", std::process::id()));
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // As in a volume of Kubernetes: `file` leads to `..data/file`, and `..data` to a directory.
        let (volume, version) = (top.join("volume"), top.join("volume/..version"));
        fs::create_dir_all(&version).unwrap();
        fs::write(version.join("file"), "text").unwrap();
        set(&version.join("file"), 0o644);
        symlink("..version", volume.join("..data")).unwrap();
        let link = volume.join("file");
        symlink("..data/file", &link).unwrap();
        let cases = [
            (0o755, 0o755, 0o644, "accepted"),
            (0o1777, 0o755, 0o644, "accepted"),
            (0o3777, 0o755, 0o644, "accepted"),
            // The owner of the link chose this directory.
            (0o755, 0o777, 0o644, "accepted"),
            (0o777, 0o755, 0o644, "allow others to replace it; run chmod go-w "),
            (0o755, 0o755, 0o664, "0664 allow others to change it; run chmod 644 "),
        ];
        for (volume_mode, version_mode, mode, expected) in cases {
            set(&volume, volume_mode);
            set(&version, version_mode);
            set(&version.join("file"), mode);
            let found = fault(&link);
            assert!(found.contains(expected), "{volume_mode:o} {version_mode:o} {mode:o}: {found}");
        }
        set(&version.join("file"), 0o644);
        symlink("..version", volume.join("sub")).unwrap();
        assert!(fault(&volume.join("sub")).contains("not a regular file"));
        symlink("none", volume.join("dangling")).unwrap();
        assert!(fault(&volume.join("dangling")).contains("No such file"));
        symlink("loop", volume.join("loop")).unwrap();
        assert!(fault(&volume.join("loop")).contains("symbolic links"));
        if rustix::process::geteuid().is_root() {
            set(&volume, 0o1777);
            lchown(&link, Some(4711), None).unwrap();
            assert!(fault(&link).contains("it is a link that belongs to user id 4711"));
            lchown(&link, Some(0), None).unwrap();
            chown(version.join("file"), Some(4711), None).unwrap();
            assert!(fault(&link).contains("it belongs to user id 4711"));
        }
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let path = std::env::temp_dir().join(format!("auth-changing-{}", std::process::id()));
        fs::write(&path, "ab").unwrap();
        let mut file = File::open(&path).unwrap();
        let before = file.metadata().unwrap();
        assert!(read_unchanged(&mut file, &before, 10).unwrap().is_some());
        // Another program changes the file between the look at its state and the read.
        let mut reads = 0;
        let mut read = |changes: u32, change: &dyn Fn()| {
            let result = until_unchanged(|| {
                let mut file = File::open(&path).unwrap();
                let before = file.metadata().unwrap();
                reads += 1;
                if reads <= changes {
                    change();
                }
                read_unchanged(&mut file, &before, 10)
            });
            (std::mem::take(&mut reads), result.map(|(text, _)| text.to_vec()))
        };
        let append = || File::options().append(true).open(&path).unwrap().write_all(b"c").unwrap();
        // A change of permissions alone counts: the check of them was before it.
        let permit = || fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(read(1, &append), (2, Ok(text)) if text == b"abc"));
        assert!(matches!(read(2, &append), (3, Ok(text)) if text == b"abccc"));
        assert!(matches!(read(1, &permit), (2, Ok(text)) if text == b"abccc"));
        let (reads, result) = read(9, &append);
        assert_eq!(reads, READS_MAX);
        assert!(format!("{:?}", result.unwrap_err()).contains("changed while it was read"));
        fs::remove_file(path).unwrap();
    }
}
