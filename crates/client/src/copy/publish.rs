//! Publishing of files and directories of this machine under their names.
//!
//! The bytes of a file are on the disk before it has its name, and the name is before the copy
//! counts as complete. After a loss of power, the name belongs to a complete file or to the
//! previous file. The names of directories that a copy creates are on the disk before anything is
//! created in them, so that a copied file can be reached.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::failure::CopyError;
use crate::path::shown_path;

/// Maximum length of a name to which a suffix is added; file systems accept 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// The steps, in their order. Tests make each of them fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PublishStep {
    CreateDirectory,
    SyncFile,
    Rename,
    SyncDirectory,
}

#[cfg(not(test))]
const fn reach(_: PublishStep) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use faults::reach;

/// Syncs the bytes of a file to stable storage.
pub(super) fn sync_file(file: &File, path: &Path) -> Result<(), CopyError> {
    let synced = reach(PublishStep::SyncFile).and_then(|()| file.sync_all());
    synced.map_err(|error| CopyError::local("sync", path, &error))
}

/// Renames the file `temporary` to its name. `force` replaces an existing file.
pub(super) fn rename(temporary: &Path, path: &Path, force: bool) -> Result<(), CopyError> {
    let fail = |error: io::Error| CopyError::local("rename", path, &error);
    let exists = || CopyError::Exists(shown_path(path).into_owned());
    reach(PublishStep::Rename).map_err(fail)?;
    if !force {
        let (here, flags) = (rustix::fs::CWD, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(here, temporary, here, path, flags) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(exists()),
            // The file system does not support it. A file that is created at this very moment is
            // overwritten.
            Err(_) if path.exists() => return Err(exists()),
            Err(_) => {}
        }
    }
    fs::rename(temporary, path).map_err(fail)
}

/// Syncs the name of a file to stable storage.
pub(super) fn sync_name(path: &Path) -> Result<(), CopyError> {
    sync_directory(path.parent().unwrap_or(Path::new("")))
}

/// Syncs the names in a directory to stable storage.
pub(super) fn sync_directory(directory: &Path) -> Result<(), CopyError> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let synced = reach(PublishStep::SyncDirectory).and_then(|()| match File::open(directory) {
        Ok(directory) => rustix::fs::fsync(&directory).or_else(|error| match error {
            // The file system has nothing to sync there.
            Errno::INVAL | Errno::OPNOTSUPP => Ok(()),
            error => Err(error.into()),
        }),
        // Files can be created in a directory that cannot be read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    });
    synced.map_err(|error| CopyError::local("sync", directory, &error))
}

/// Creates a directory and its missing ancestors. With `sync`, syncs the name of each created
/// directory to stable storage.
pub(super) fn create_directories(path: &Path, sync: bool) -> Result<(), CopyError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| is_missing(above)).collect();
    for directory in missing.into_iter().rev() {
        let created = reach(PublishStep::CreateDirectory).and_then(|()| match fs::create_dir(directory) {
            // Another copy has created it just now, and its name may not be on the disk yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
            created => created,
        });
        created.map_err(|error| CopyError::local("mkdir", directory, &error))?;
        if sync {
            sync_name(directory)?;
        }
    }
    // The existing entry may be a file.
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|error| CopyError::local("mkdir", path, &error))
}

fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty()
        && fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns a name beside `path`.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let mut made = b".".to_vec();
    if name.len() + ending.len() > NAME_BYTES_MAX {
        // The same long name must lead to the same short one.
        made.extend_from_slice(format!("{:08x}", digest::crc32c(name)).as_bytes());
    } else {
        made.extend_from_slice(name);
    }
    made.extend_from_slice(ending.as_bytes());
    path.with_file_name(OsString::from_vec(made))
}

/// The endings of the part of a local target and of its note.
pub(super) const PART: &str = ".part";
pub(super) const PART_NOTE: &str = ".part.note";

/// Reports whether a name may be that of the part or the note of another target in its directory.
pub(super) fn is_part_name(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let Some(rest) = name.strip_prefix(b".") else { return false };
    let is_of_some = |ending: &str| rest.strip_suffix(ending.as_bytes()).is_some_and(|of| !of.is_empty());
    is_of_some(PART) || is_of_some(PART_NOTE)
}

#[cfg(test)]
pub(super) mod faults {
    //! Steps that fail on this thread.

    use super::PublishStep;
    use std::cell::RefCell;
    use std::io;

    thread_local! {
        static STATE: RefCell<(Option<PublishStep>, Vec<PublishStep>)> = const { RefCell::new((None, Vec::new())) };
    }

    /// Makes this step fail from now on, and clears the list of reached steps.
    pub(in crate::copy) fn fail_at(step: Option<PublishStep>) {
        STATE.with_borrow_mut(|state| *state = (step, Vec::new()));
    }

    /// Returns the steps that were reached.
    pub(in crate::copy) fn reached() -> Vec<PublishStep> {
        STATE.with_borrow(|state| state.1.clone())
    }

    pub(in crate::copy) fn reach(step: PublishStep) -> io::Result<()> {
        STATE.with_borrow_mut(|(failing, reached)| {
            reached.push(step);
            if *failing == Some(step) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::local::LocalTarget;
    use crate::copy::options::CopyOptions;
    use crate::settings::Settings;

    #[test]
    fn a_name_of_a_part_is_no_target_of_copies_that_continue() {
        let directory = std::env::temp_dir().join(format!("scalla-part-names-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let create = |name: &str, resume| {
            let options = CopyOptions { resume, ..CopyOptions::of(&Settings::default()) };
            LocalTarget::create(&directory.join(name), &options, None).map(|(target, _)| target)
        };
        for name in [".file.part", ".file.part.note", ".\u{e4}.part"] {
            assert!(matches!(create(name, true), Err(CopyError::PartName(_))), "{name}");
            create(name, false).unwrap().finish(0, None).unwrap();
            assert!(matches!(create(name, true), Err(CopyError::PartName(_))), "an existing one: {name}");
        }
        for name in [".part", "..part", "file.part", ".file.parts", ".part.note"] {
            create(name, true).unwrap().finish(0, None).unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_name_of_a_directory_is_on_the_disk_before_anything_is_created_in_it() {
        use PublishStep::{CreateDirectory, SyncDirectory};
        let root = std::env::temp_dir().join(format!("scalla-publish-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let (above, path) = (root.join("a"), root.join("a/b/c"));
        faults::fail_at(Some(SyncDirectory));
        assert!(create_directories(&path, true).is_err());
        assert!(above.is_dir() && !root.join("a/b").exists());
        faults::fail_at(None);
        create_directories(&path, true).unwrap();
        // Existing directories are not synced.
        assert_eq!(faults::reached(), [CreateDirectory, SyncDirectory, CreateDirectory, SyncDirectory]);
        faults::fail_at(None);
        create_directories(&path, true).unwrap();
        assert_eq!(faults::reached(), []);
        create_directories(&path.join("d/"), false).unwrap();
        assert_eq!((faults::reached(), path.join("d").is_dir()), (vec![CreateDirectory], true));
        fs::write(path.join("file"), "").unwrap();
        assert!(create_directories(&path.join("file"), true).is_err());
        assert!(create_directories(&path.join("file/below"), true).is_err());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn long_names_get_short_ones_beside_them() {
        let long = PathBuf::from("/d").join("n".repeat(255));
        assert!(beside(&long, ".part").file_name().unwrap().len() < 30);
        assert_eq!(beside(&long, ".part"), beside(&long, ".part"));
        assert_eq!(beside(Path::new("/d/a"), ".part"), Path::new("/d/.a.part"));
        let bytes = |name: &[u8]| PathBuf::from(OsString::from_vec(name.to_vec()));
        assert_ne!(beside(&bytes(b"a\xff"), ".part"), beside(&bytes(b"a\xfe"), ".part"));
    }
}
