//! Files of passwords on disk: read only if nobody else can have written them, replaced as a whole.

use super::FILE_BYTES_MAX;
use super::file::PwdFile;
use crate::random::SystemRng;
use crate::replaced_file::{
    FileLock, directory_of, editor_trust, owner_for_root, replace_file, sync_directory_of,
};
use crate::trusted_file::{FileTrust, TrustedOwner, read_trusted};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Permissions of directories that are created for a file. The file protects itself.
const DIRECTORY_MODE: u32 = 0o755;

/// Permissions of the files.
const FILE_MODE: u32 = 0o600;

/// The demands on the file.
const TRUST: FileTrust =
    FileTrust::private(TrustedOwner::Own, "read hashes of passwords", FILE_BYTES_MAX as u64);

impl PwdFile {
    /// Reads a file of passwords, which only its owner may read. Blocks.
    ///
    /// # Errors
    /// The file, and the reason why it cannot be used.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::read_with(path, &TRUST)
    }

    /// Reads a file that meets these demands.
    pub(super) fn read_with(path: &Path, trust: &FileTrust) -> Result<Self, String> {
        let (bytes, _) = read_trusted(path, trust).map_err(|error| error.text_of(path))?;
        Self::decode(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads a file of passwords for somebody who may change it. In a directory of its own, root may
    /// change the files of all users. Blocks.
    ///
    /// # Errors
    /// The file, and the reason why it cannot be used.
    pub fn read_as_editor(path: &Path) -> Result<Self, String> {
        Self::read_with(path, &FileTrust { owner: editor_trust(path), ..TRUST })
    }

    /// Changes a file of passwords. `change` gets the present content, if there is a file, and returns
    /// the new one. Blocks.
    ///
    /// * Changes wait for each other, so that none is lost. `change` must not wait for a person.
    /// * A reader sees either the old file or the new one.
    /// * In a directory of its own, root can change the file of another user, which keeps its owner.
    /// * Only the owner of the file may read it. Missing directories are created.
    ///
    /// # Errors
    /// The error of `change`, or the reason why the file cannot be read or replaced. The file is
    /// unchanged then, unless the error is that of the last step, which makes the new one durable.
    pub fn update<T>(
        path: &Path,
        now: u32,
        change: impl FnOnce(Option<Self>) -> Result<(Self, T), String>,
    ) -> Result<T, String> {
        Self::update_with(path, &TRUST, now, change)
    }

    /// Changes a file that meets these demands. `now` is the time in seconds since 1970.
    pub(super) fn update_with<T>(
        path: &Path,
        trust: &FileTrust,
        now: u32,
        change: impl FnOnce(Option<Self>) -> Result<(Self, T), String>,
    ) -> Result<T, String> {
        let failed = |error: io::Error| format!("{}: {}", path.display(), base::errno_text(&error));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE).create(directory_of(path)).map_err(failed)?;
        let _lock = FileLock::acquire(path).map_err(failed)?;
        let present = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Ok(found) if found.is_symlink() => {
                return Err(format!("{} is a link; name the file itself", path.display()));
            }
            _ => Some(Self::read_with(path, &FileTrust { owner: editor_trust(path), ..*trust })?),
        };
        let (file, result) = change(present)?;
        let owner = owner_for_root(path);
        replace_file(path, &file.encode(now), FILE_MODE, owner, &mut SystemRng).map_err(failed)?;
        sync_directory_of(path).map_err(failed)?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pwd::file::{EntryStatus, PwdEntry};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    /// A directory that is removed afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("auth-pwd-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
            Self(directory)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn add(path: &Path, name: &str) -> Result<usize, String> {
        PwdFile::update(path, 7, |file| {
            let mut file = file.unwrap_or_default();
            let (name, status) = (name.to_owned(), EntryStatus::OK);
            file.set(PwdEntry { name, status, count: 0, changed: 0, buffers: Default::default() });
            let count = file.entries().len();
            Ok((file, count))
        })
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let scratch = Scratch::new("parallel");
        let path = &scratch.0.join("sub/pwdadmin");
        std::thread::scope(|scope| {
            for number in 0..16 {
                scope.spawn(move || add(path, &format!("user{number}")).unwrap());
            }
        });
        assert_eq!(PwdFile::read(path).unwrap().entries().len(), 16);
        assert_eq!(names_in(&scratch.0.join("sub")), ["pwdadmin"], "nothing is left behind");
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_change_that_fails_leaves_everything_as_it_was() {
        let scratch = Scratch::new("fails");
        let path = scratch.0.join("pwdadmin");
        // Files of others under names that a process could choose.
        let other = scratch.0.join(format!("pwdadmin.{}", std::process::id()));
        fs::write(&other, "other").unwrap();
        add(&path, "alice").unwrap();
        let kept = PwdFile::update(&path, 7, |_| Err::<(PwdFile, ()), _>("kept".to_owned()));
        assert_eq!(kept, Err("kept".to_owned()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(add(&path, "alice").unwrap_err().contains("not a regular file"));
        fs::remove_dir(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert!(add(&path, "alice").unwrap_err().contains("is a link"));
        assert_eq!(fs::read(&other).unwrap(), b"other");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no file of passwords").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(add(&path, "alice").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"no file of passwords");
        assert_eq!(names_in(&scratch.0).len(), 2, "nothing is left behind");
    }

    #[test]
    fn root_changes_the_file_of_a_server_in_its_own_directory() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        const OWNER: u32 = 4711;
        let scratch = Scratch::new("owner");
        let path = scratch.0.join("pwdadmin");
        add(&path, "alice").unwrap();
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        assert_eq!(add(&path, "bob"), Ok(2));
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OWNER, OWNER, 0o600));
        assert_eq!(PwdFile::read_as_editor(&path).unwrap().entries().len(), 2);
        assert!(PwdFile::read(&path).is_err(), "a server of root does not use it");
        // The owner could exchange it for a link to a file of root.
        chown(&scratch.0, Some(OWNER), None).unwrap();
        assert!(add(&path, "carol").is_err() && PwdFile::read_as_editor(&path).is_err());
        assert_eq!(fs::metadata(&path).unwrap().uid(), OWNER);
    }
}
