//! [`ForwardedTicket`]: the ticket of a user in a file, for later layers.
//!
//! The library writes the file in a new private directory, and it is renamed when it is complete. So
//! readers see a whole ticket, and nobody else can prepare the file. All sessions of a user share one
//! file; it is removed with the last of them.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Rng, errno_text};

use crate::accounts::AccountDatabase;
use crate::random::SystemRng;

/// Permissions of the file.
const FILE_MODE: u32 = 0o600;
/// Permissions of the directory in which it is written.
const DIRECTORY_MODE: u32 = 0o700;
/// Random bytes in the name of that directory.
const RANDOM_BYTES: usize = 16;
/// Variables of a template.
const USER: &str = "<user>";
const USER_ID: &str = "<uid>";

/// The files of all forwarded tickets of a server, with the number of sessions that use each.
#[derive(Default, Debug)]
pub(super) struct TicketFiles(Mutex<HashMap<PathBuf, usize>>);

/// A ticket in a file. The file is removed when the last ticket of this path is dropped, which is one
/// call of the system and can wait for the disk.
#[derive(Debug)]
pub struct ForwardedTicket {
    path: PathBuf,
    files: Arc<TicketFiles>,
}

impl ForwardedTicket {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ForwardedTicket {
    fn drop(&mut self) {
        let mut sessions = self.files.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sessions.remove(&self.path).unwrap_or(1);
        if count > 1 {
            sessions.insert(self.path.clone(), count - 1);
            return;
        }
        // The lock is held, so that no new ticket is removed.
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let (shown, reason) = (self.path.display(), errno_text(&error));
                tracing::warn!("the forwarded ticket {shown} is not removed: {reason}; remove it");
            }
            _ => {}
        }
    }
}

impl TicketFiles {
    /// Stores a ticket at a path, where it replaces an earlier one. `write` writes the file that it is
    /// given. Blocks.
    pub(super) fn store(
        self: &Arc<Self>,
        path: &Path,
        write: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<ForwardedTicket, String> {
        let failed = |error: &io::Error| {
            let (shown, reason) = (path.display(), errno_text(error));
            format!(
                "the forwarded ticket cannot be stored as {shown}: {reason}; name a directory of the server's \
                 user with -exptkn:"
            )
        };
        let parent = path.parent().ok_or("the file of the ticket has no directory")?;
        let directory = TicketDirectory::create(parent).map_err(|error| failed(&error))?;
        let new = directory.0.join("ticket");
        write(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(FILE_MODE)).map_err(|error| failed(&error))?;
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fs::rename(&new, path).map_err(|error| failed(&error))?;
        *sessions.entry(path.to_owned()).or_default() += 1;
        Ok(ForwardedTicket { path: path.to_owned(), files: Arc::clone(self) })
    }
}

/// A new directory that nobody else can use. It is removed on drop.
struct TicketDirectory(PathBuf);

impl TicketDirectory {
    fn create(parent: &Path) -> io::Result<Self> {
        let mut random = [0; RANDOM_BYTES];
        SystemRng.fill(&mut random);
        let name = format!(".krb5cc-{:032x}", u128::from_ne_bytes(random));
        let path = parent.join(name);
        DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TicketDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is not removed: {}; remove it", self.0.display(), errno_text(&error));
        }
    }
}

/// Returns the path of a user's ticket. The name of the user has been checked, so it is no path.
pub(super) fn ticket_path(
    template: &str,
    user: &str,
    accounts: Option<&dyn AccountDatabase>,
) -> Result<PathBuf, String> {
    let mut path = template.replace(USER, user);
    if path.contains(USER_ID) {
        let account = accounts.map(|accounts| accounts.user(user)).transpose();
        let account = account.map_err(|error| {
            format!("the accounts of this host cannot be asked for {user}: {}", errno_text(&error))
        })?;
        let account = account.flatten().ok_or_else(|| {
            format!("{user} has no account on this host; use <user> instead of <uid> in -exptkn:")
        })?;
        path = path.replace(USER_ID, &account.uid.to_string());
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::UserAccount;
    use std::os::unix::fs::{MetadataExt, symlink};

    struct Accounts;

    impl AccountDatabase for Accounts {
        fn user(&self, name: &str) -> io::Result<Option<UserAccount>> {
            match name {
                "broken" => Err(io::Error::from(io::ErrorKind::TimedOut)),
                name => Ok((name == "alice").then_some(UserAccount { uid: 1001, gid: 1 })),
            }
        }

        fn group(&self, _: &str) -> io::Result<Option<u32>> {
            Ok(None)
        }

        fn groups_of(&self, _: &str) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }

        fn group_ids_of(&self, _: &str, gid: u32) -> io::Result<Vec<u32>> {
            Ok(vec![gid])
        }
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("auth-krb5-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_ticket_is_private_and_replaces_links() {
        let top = directory("private");
        let (path, other) = (top.join("krb5cc_1"), top.join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        let files = Arc::new(TicketFiles::default());
        let write = |path: &Path| {
            fs::write(path, "ticket").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            Ok(())
        };
        let ticket = files.store(&path, write).unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!((metadata.is_file(), metadata.mode() & 0o7777), (true, 0o600));
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&other).unwrap()),
            (b"ticket".into(), b"other".into())
        );
        assert_eq!(fs::read_dir(&top).unwrap().count(), 2, "nothing else remains");
        drop(ticket);
        assert!(!path.exists() && other.exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_last_session_removes_the_file() {
        let top = directory("sessions");
        let path = top.join("krb5cc_1");
        let files = Arc::new(TicketFiles::default());
        let store = |text: &'static str| {
            files.store(&path, |path| fs::write(path, text).map_err(|error| error.to_string())).unwrap()
        };
        let (first, second) = (store("1"), store("2"));
        drop(first);
        assert_eq!(fs::read(&path).unwrap(), b"2");
        drop(second);
        assert!(!path.exists() && files.0.lock().unwrap().is_empty());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn failures_leave_nothing() {
        let top = directory("failures");
        let files = Arc::new(TicketFiles::default());
        let failed = files.store(&top.join("f"), |path| {
            fs::write(path, "half").unwrap();
            Err("no ticket".to_owned())
        });
        assert_eq!(failed.unwrap_err(), "no ticket");
        fs::create_dir(top.join("taken")).unwrap();
        let write = |path: &Path| fs::write(path, "ticket").map_err(|error| error.to_string());
        let failed = files.store(&top.join("taken"), write).unwrap_err();
        assert!(failed.contains("cannot be stored as ") && failed.contains("-exptkn:"), "{failed}");
        assert!(files.store(&top.join("none/f"), write).is_err());
        assert_eq!(fs::read_dir(&top).unwrap().count(), 1);
        assert!(files.0.lock().unwrap().is_empty());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn templates_name_the_user() {
        let path = |template, user| ticket_path(template, user, Some(&Accounts));
        assert_eq!(path("/t/krb5cc_<uid>", "alice"), Ok("/t/krb5cc_1001".into()));
        assert_eq!(path("/t/<user>/<uid>", "alice"), Ok("/t/alice/1001".into()));
        assert_eq!(path("/t/<user>", "bob"), Ok("/t/bob".into()));
        assert!(path("/t/<uid>", "bob").unwrap_err().contains("use <user> instead of <uid>"));
        assert!(path("/t/<uid>", "broken").unwrap_err().contains("cannot be asked for broken"));
        assert!(ticket_path("/t/<uid>", "alice", None).is_err());
    }
}
