//! [`ExportRecord`]: the note about an exported file that lets the next process remove it.
//!
//! A process that is killed leaves the files of its sessions behind. So each of them is recorded
//! before it appears: its path, and what identifies the file that was written there. Only files with
//! this identity are removed. The directory in which the file is written is recorded before it is
//! created, because its random name identifies it.
//!
//! A record has one of these forms, with NUL between the fields:
//!
//! ```text
//! 1  directory
//! 1  directory  path  inode  size  seconds  nanoseconds
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, statat, unlinkat};
use rustix::io::Errno;

/// The version of the form.
const VERSION: &[u8] = b"1";

/// The records of exported files, which outlive the process.
pub trait ExportRecords: Send + Sync {
    /// Writes or replaces a record. It survives the end of the process, but not always a power failure.
    /// Blocks.
    ///
    /// # Errors
    /// The error of the system.
    fn write(&self, name: &str, record: &[u8]) -> io::Result<()>;

    /// Removes a record. Blocks.
    ///
    /// # Errors
    /// The error of the system.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The files that one record describes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExportRecord {
    /// The private directory in which the file is written.
    pub(crate) directory: PathBuf,
    /// The file, once it is written.
    pub(crate) file: Option<RecordedFile>,
}

/// A path, and the identity of the file there. A rename does not change the identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordedFile {
    path: PathBuf,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl RecordedFile {
    /// Describes a file that will have a path.
    pub(crate) fn new(written: &Path, path: &Path) -> io::Result<Self> {
        let metadata = File::open(written)?.metadata()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Self { path: path.to_owned(), inode: metadata.ino(), size: metadata.size(), modified })
    }

    fn is(&self, stat: &Stat) -> bool {
        let modified = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(-1));
        is_own(stat)
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_ino == self.inode
            && u64::try_from(stat.st_size).is_ok_and(|size| size == self.size)
            && modified == self.modified
    }
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

impl ExportRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut record = [VERSION, b"\0", self.directory.as_os_str().as_bytes()].concat();
        if let Some(RecordedFile { path, inode, size, modified: (seconds, nanoseconds) }) = &self.file {
            record.push(0);
            record.extend_from_slice(path.as_os_str().as_bytes());
            record.extend_from_slice(format!("\0{inode}\0{size}\0{seconds}\0{nanoseconds}").as_bytes());
        }
        record
    }

    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        fn number<N: std::str::FromStr>(field: Option<&[u8]>) -> Option<N> {
            std::str::from_utf8(field?).ok()?.parse().ok()
        }
        let path = |field: &[u8]| {
            let path = Path::new(OsStr::from_bytes(field));
            path.is_absolute().then(|| path.to_owned())
        };
        let mut fields = record.split(|byte| *byte == 0);
        if fields.next() != Some(VERSION) {
            return None;
        }
        let directory = path(fields.next()?)?;
        let file = match fields.next() {
            None => None,
            Some(file) => Some(RecordedFile {
                path: path(file)?,
                inode: number(fields.next())?,
                size: number(fields.next())?,
                modified: (number(fields.next())?, number(fields.next())?),
            }),
        };
        fields.next().is_none().then_some(Self { directory, file })
    }
}

/// The result of the search for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeftoverState {
    Removed,
    Absent,
    /// The path has another file.
    Replaced,
    /// The path has the file, which has further names.
    Linked,
}

/// Opens the directory of a path; `None` if it is missing.
fn parent(path: &Path) -> Result<Option<(rustix::fd::OwnedFd, &OsStr)>, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(directory) => Ok(Some((directory, name))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file if it is the recorded one.
fn remove_file(file: &RecordedFile) -> Result<LeftoverState, Errno> {
    let Some((directory, name)) = parent(&file.path)? else { return Ok(LeftoverState::Absent) };
    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(LeftoverState::Absent),
        Err(error) => Err(error),
        Ok(stat) if !file.is(&stat) => Ok(LeftoverState::Replaced),
        Ok(stat) if stat.st_nlink > 1 => Ok(LeftoverState::Linked),
        Ok(_) => unlinkat(&directory, name, AtFlags::empty()).map(|()| LeftoverState::Removed),
    }
}

/// Removes a directory in which a file was written, with the file. One that others can access is not
/// touched.
fn remove_directory(path: &Path) -> Result<(), Errno> {
    let Some((parent, name)) = parent(path)? else { return Ok(()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(&parent, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error),
    };
    let stat = fstat(&directory)?;
    if !is_own(&stat) || stat.st_mode & 0o077 != 0 {
        return Ok(());
    }
    match unlinkat(&directory, super::exported_file::NEW_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => unlinkat(&parent, name, AtFlags::REMOVEDIR),
        Err(error) => Err(error),
    }
}

/// Removes the files that a record describes, as far as they are those that were recorded. The process
/// that has written the record must have ended. Reports whether the record is done; otherwise it is
/// needed at the next start. Blocks.
#[must_use]
pub fn remove_exported_leftovers(name: &str, record: &[u8]) -> bool {
    let Some(record) = ExportRecord::decode(record).filter(|record| is_directory_of(name, record)) else {
        tracing::warn!(
            "the record {} of an exported file is malformed, as after a power failure; remove the files of \
             delegated credentials that an earlier process has left",
            base::shown(name.as_bytes())
        );
        return true;
    };
    let failed = |path: &Path, error: Errno| {
        let path = path.display();
        tracing::warn!("{path} is not removed, which an earlier process has left: {error}; remove it");
        false
    };
    let directory = remove_directory(&record.directory);
    let is_directory_done = directory.map_or_else(|error| failed(&record.directory, error), |()| true);
    // The credentials are removed also if the directory cannot be.
    let Some(file) = &record.file else { return is_directory_done };
    let path = file.path.display();
    let is_file_done = match remove_file(file) {
        Ok(LeftoverState::Removed) => {
            tracing::info!("{path} is removed: an earlier process has left these credentials");
            true
        }
        Ok(LeftoverState::Replaced) => {
            tracing::info!("{path} stays: it is not the file that an earlier process has left there");
            true
        }
        Ok(LeftoverState::Linked) => {
            tracing::warn!(
                "{path} is not removed: an earlier process has left these credentials, but the file has \
                 further names (hard links); remove all of them"
            );
            false
        }
        Ok(LeftoverState::Absent) => true,
        Err(error) => failed(&file.path, error),
    };
    is_directory_done && is_file_done
}

fn is_directory_of(name: &str, record: &ExportRecord) -> bool {
    let expected = super::exported_file::directory_name(name);
    record.directory.file_name().is_some_and(|directory| directory == expected.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const NAME: &str = "00112233445566778899aabbccddeeff";

    fn top(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("auth-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    /// Returns a record of a file that was stored.
    fn stored(top: &Path) -> (PathBuf, ExportRecord) {
        let path = top.join("x509up\nu1");
        fs::write(&path, "proxy").unwrap();
        let file = Some(RecordedFile::new(&path, &path).unwrap());
        let directory = top.join(format!(".export-{NAME}"));
        (path, ExportRecord { directory, file })
    }

    fn sweep(record: &ExportRecord) -> bool {
        remove_exported_leftovers(NAME, &record.encode())
    }

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let top = top("decode");
        let (_, record) = stored(&top);
        let begun = ExportRecord { file: None, ..record.clone() };
        for record in [&record, &begun] {
            assert_eq!(ExportRecord::decode(&record.encode()).as_ref(), Some(record));
        }
        let encoded = record.encode();
        for malformed in [b"".as_slice(), b"1", b"2\0/a", b"1\0a", &encoded[..encoded.len() - 20], b"1\0/a\0"]
        {
            assert_eq!(ExportRecord::decode(malformed), None, "{}", String::from_utf8_lossy(malformed));
        }
        assert_eq!(ExportRecord::decode(&[&encoded[..], b"\x001"].concat()), None);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_recorded_file_is_removed_and_no_other() {
        let top = top("identity");
        let (path, record) = stored(&top);
        // A file that was written anew, one that was changed, and links.
        let other = top.join("other");
        fs::rename(&path, &other).unwrap();
        fs::write(&path, "proxy").unwrap();
        assert!(sweep(&record) && path.exists(), "the content is the same");
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert!(sweep(&record) && path.is_symlink() && other.exists());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&other, &path).unwrap();
        assert!(!sweep(&record) && path.exists(), "the file has another name, and its record is kept");
        fs::remove_file(&other).unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap();
        let grown = fs::OpenOptions::new().append(true).open(&path).unwrap();
        grown.set_len(9).unwrap();
        assert!(sweep(&record) && path.exists(), "the file was changed");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(sweep(&record) && path.exists());
        fs::remove_dir(&path).unwrap();
        let (path, record) = stored(&top);
        assert!(sweep(&record) && !path.exists());
        assert!(sweep(&record), "it is gone");
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_directory_of_a_file_that_was_not_complete_is_removed() {
        let top = top("directory");
        let directory = top.join(format!(".export-{NAME}"));
        let record = ExportRecord { directory: directory.clone(), file: None };
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("new"), "half").unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        assert!(sweep(&record) && directory.join("new").exists(), "others can access it");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        assert!(sweep(&record) && !directory.exists());
        // A planted link to a directory.
        let precious = top.join("precious");
        fs::create_dir(&precious).unwrap();
        fs::set_permissions(&precious, Permissions::from_mode(0o700)).unwrap();
        fs::write(precious.join("new"), "precious").unwrap();
        symlink(&precious, &directory).unwrap();
        assert!(sweep(&record) && precious.join("new").exists());
        // A record that names another directory.
        let planted = ExportRecord { directory: precious.clone(), file: None };
        assert!(sweep(&planted) && precious.join("new").exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_record_is_kept_while_its_files_cannot_be_removed() {
        let top = top("kept");
        let directory = top.join(format!(".export-{NAME}"));
        let record = ExportRecord { directory: directory.clone(), file: None };
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        fs::write(directory.join("unexpected"), "").unwrap();
        assert!(!sweep(&record) && directory.exists());
        let (path, complete) = stored(&top);
        assert!(!sweep(&complete) && directory.exists());
        assert!(!path.exists(), "the directory does not keep the credentials");
        fs::remove_file(directory.join("unexpected")).unwrap();
        assert!(sweep(&record) && !directory.exists());
        fs::remove_dir_all(top).unwrap();
    }
}
