//! How a written file of this machine gets its name: its bytes are on the disk before it does, and the name is before the copy
//! counts as done. So after a loss of power there is a whole file under the name, or what was there before.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::failure::CopyError;

/// Longest name to which something is added; file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// The steps, in their order. Tests let each of them fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    SyncFile,
    Rename,
    SyncDirectory,
}

#[cfg(not(test))]
const fn reach(_: Step) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use faults::reach;

/// Brings the bytes of a file to stable storage.
pub(super) fn sync_file(file: &File, path: &Path) -> Result<(), CopyError> {
    let synced = reach(Step::SyncFile).and_then(|()| file.sync_all());
    synced.map_err(|error| CopyError::local("sync", path, &error))
}

/// Gives the file `temporary` its name; `force` replaces what has it.
pub(super) fn rename(temporary: &Path, path: &Path, force: bool) -> Result<(), CopyError> {
    let fail = |error: io::Error| CopyError::local("rename", path, &error);
    let exists = || CopyError::Exists(path.display().to_string());
    reach(Step::Rename).map_err(fail)?;
    if !force {
        let (here, flags) = (rustix::fs::CWD, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(here, temporary, here, path, flags) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(exists()),
            // The file system cannot; whoever makes the file at this very moment loses it.
            Err(_) if path.exists() => return Err(exists()),
            Err(_) => {}
        }
    }
    fs::rename(temporary, path).map_err(fail)
}

/// Brings the name of a file to stable storage.
pub(super) fn sync_name(path: &Path) -> Result<(), CopyError> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let synced = reach(Step::SyncDirectory).and_then(|()| match File::open(directory) {
        Ok(directory) => rustix::fs::fsync(&directory).or_else(|error| match error {
            // The file system has nothing to sync there.
            Errno::INVAL | Errno::OPNOTSUPP => Ok(()),
            error => Err(error.into()),
        }),
        // Names can be made in a directory that cannot be read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    });
    synced.map_err(|error| CopyError::local("sync", directory, &error))
}

/// A name beside `path`.
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

#[cfg(test)]
pub(super) mod faults {
    //! Steps of this thread that are to fail.

    use super::Step;
    use std::cell::RefCell;
    use std::io;

    thread_local! {
        static STATE: RefCell<(Option<Step>, Vec<Step>)> = const { RefCell::new((None, Vec::new())) };
    }

    /// Lets this step fail from now on, and forgets which were reached.
    pub(in crate::copy) fn fail_at(step: Option<Step>) {
        STATE.with_borrow_mut(|state| *state = (step, Vec::new()));
    }

    /// The steps that were reached.
    pub(in crate::copy) fn reached() -> Vec<Step> {
        STATE.with_borrow(|state| state.1.clone())
    }

    pub(in crate::copy) fn reach(step: Step) -> io::Result<()> {
        STATE.with_borrow_mut(|(failing, reached)| {
            reached.push(step);
            if *failing == Some(step) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
