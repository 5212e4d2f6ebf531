//! [`PwdUsers`]: the content of the file of a server, by which passwords are checked, and the names in it.

use super::MODULE_SUFFIX;
use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::hash::{self, StoredPassword};
use super::server_key::{SERVER_ID, ServerKey};
use crate::random::SystemRng;
use std::path::Path;

/// Maximum length of the name of a user.
const USER_BYTES_MAX: usize = 64;

/// The content of the file of a server.
pub(super) struct PwdUsers {
    pub(super) id: String,
    pub(super) key: ServerKey,
    pub(super) file: PwdFile,
    /// The number of iterations that the check of any password takes: the highest one of the file.
    iterations_max: u32,
}

impl PwdUsers {
    /// Reads the file. Blocks.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let file = PwdFile::read(path)?;
        Self::of_file(file).map_err(|error| format!("{shown}: {error}"))
    }

    /// Takes the content of the file.
    pub(super) fn of_file(file: PwdFile) -> Result<Self, String> {
        let entry = file.find(SERVER_ID).ok_or("it has no id of the server")?;
        let [id, ..] = &entry.buffers;
        let id = id.expose().strip_suffix(b"\0").unwrap_or(id.expose());
        let id = std::str::from_utf8(id).unwrap_or_default().to_owned();
        if !is_server_id(&id) {
            return Err("the id of the server is malformed".to_owned());
        }
        let key = ServerKey::of_file(&file, &mut SystemRng)?;
        let passwords = file.entries().iter().filter_map(PwdEntry::password);
        let of_file = passwords.map(|stored| stored.iterations()).max().unwrap_or(0);
        Ok(Self { id, key, file, iterations_max: of_file.max(hash::ITERATIONS.get()) })
    }

    /// Returns the entry of a user.
    pub(super) fn entry_of(&self, user: &str) -> Option<&PwdEntry> {
        self.file.find(&format!("{user}{MODULE_SUFFIX}"))
    }

    /// Checks the hash of a password. The time does not depend on whether the user exists, and on which
    /// of the users it is.
    pub(super) fn check(&self, user: &str, credentials: &[u8]) -> Result<VerifiedPassword, PasswordFault> {
        let entry = self.entry_of(user);
        let stored = entry.and_then(PwdEntry::password);
        let spent = stored.as_ref().map_or(0, StoredPassword::iterations);
        let is_right = stored.is_some_and(|stored| stored.is_password_of(credentials));
        hash::spend(self.iterations_max.saturating_sub(spent));
        let Some(entry) = entry.filter(|_| is_right) else {
            return Err(if entry.is_some() { PasswordFault::Wrong } else { PasswordFault::UnknownUser });
        };
        match entry.status {
            EntryStatus::OK => Ok(VerifiedPassword::Current),
            _ if entry.must_change() => Ok(VerifiedPassword::MustChange(Box::new(entry.clone()))),
            _ => Err(PasswordFault::Disabled),
        }
    }
}

/// A password that is right.
pub(super) enum VerifiedPassword {
    /// It logs the user in.
    Current,
    /// It must be changed first. This is the entry whose password it is.
    MustChange(Box<PwdEntry>),
}

/// The reason why a password does not log a user in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum PasswordFault {
    #[error("too many failed attempts of this user or from this address")]
    Locked,
    #[error("the password is missing")]
    Missing,
    #[error("unknown user")]
    UnknownUser,
    #[error("wrong password")]
    Wrong,
    #[error("the password must be changed, and the client cannot ask for a new one")]
    Expired,
    #[error("the user is disabled")]
    Disabled,
}

/// Maximum length of the id of a server in bytes.
pub const SERVER_ID_BYTES_MAX: usize = 32;

/// Reports whether text can be the id of a server, which is a part of the list of protocols.
#[must_use]
pub fn is_server_id(text: &str) -> bool {
    (1..=SERVER_ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"&,:".contains(&byte))
}

/// Reports whether text can be the name of a user.
#[must_use]
pub fn is_user_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= USER_BYTES_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.@$-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    /// The check of a password takes as many iterations for a user with few of them, and for nobody.
    #[test]
    fn the_iterations_of_a_check_are_the_most_of_the_file() {
        let mut file = PwdFile::of_new_server("lab", &mut SystemRng, 0).unwrap();
        let users = |file: &PwdFile| PwdUsers::of_file(file.clone()).unwrap();
        assert_eq!(users(&file).iterations_max, 10_000);
        for (user, salt) in [("alice", &b"salt"[..]), ("bob", b"$$30000$salt"), ("carol", b"$$2$salt")] {
            let buffers = [salt, &[0; hash::HASH_BYTES], b"", b""].map(Secret::from);
            let (name, status) = (format!("{user}{MODULE_SUFFIX}"), EntryStatus::OK);
            file.set(PwdEntry { name, status, count: 0, changed: 0, buffers });
        }
        assert_eq!(users(&file).iterations_max, 30_000);
        for (user, fault) in [("carol", PasswordFault::Wrong), ("nobody", PasswordFault::UnknownUser)] {
            assert_eq!(users(&file).check(user, b"x").err(), Some(fault), "{user}");
        }
    }
}
