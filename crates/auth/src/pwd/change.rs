//! [`PasswordChange`]: the change of a password during a login.
//!
//! The user has proved the present password, which is one for a single login or has expired. The client
//! then sends the hash of a new password twice, because a user who mistyped it could not log in again.
//!
//! ```text
//! server                                             client
//! status: new, expired; challenge                -->
//!                                               <--  hash of the new password
//! status: new again, expired; challenge          -->
//!                                               <--  the same hash
//! ```

use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::hash::{HASH_BYTES, StoredPassword, credentials_of};
use super::messages::RequestedPassword;
use crate::random::SystemRng;
use crate::secret::Secret;
use std::path::Path;

/// Number of new passwords that a client can send in one exchange, without their repetitions.
const CHANGES_MAX: u32 = 3;

/// A change of a password that has begun.
pub(super) struct PasswordChange {
    /// The entry whose password was proved.
    entry: PwdEntry,
    /// The new password, until it is repeated.
    chosen: Option<Secret>,
    changes: u32,
}

/// The continuation of a change.
pub(super) enum ChangeStep {
    /// The client is asked for this password.
    Ask(RequestedPassword, &'static str),
    /// The client has sent the new password twice.
    Chosen(Secret),
}

impl PasswordChange {
    /// Begins the change of the password of an entry.
    pub(super) fn of_entry(entry: PwdEntry) -> Self {
        Self { entry, chosen: None, changes: 0 }
    }

    /// Takes the hash of a new password, or its repetition.
    pub(super) fn take(&mut self, credentials: &[u8]) -> Result<ChangeStep, &'static str> {
        let problem = match self.chosen.take() {
            Some(chosen) if chosen.is_equal(credentials) => return Ok(ChangeStep::Chosen(chosen)),
            Some(_) => "the passwords differ",
            None if credentials.len() != HASH_BYTES || credentials_of(b"").is_equal(credentials) => {
                "the password is empty"
            }
            None if self.entry.password().is_some_and(|known| known.is_password_of(credentials)) => {
                "the new password is the present one"
            }
            None => {
                self.chosen = Some(Secret::from(credentials));
                return Ok(ChangeStep::Ask(RequestedPassword::NewAgain, "repeat the new password"));
            }
        };
        self.changes += 1;
        if self.changes < CHANGES_MAX {
            Ok(ChangeStep::Ask(RequestedPassword::New, problem))
        } else {
            Err(problem)
        }
    }

    /// Replaces the password in the file, unless the entry was changed meanwhile. Returns the new content
    /// of the file. Blocks.
    pub(super) fn store(&self, path: &Path, chosen: &Secret, now: u32) -> Result<PwdFile, String> {
        let stored = StoredPassword::of_credentials(chosen.expose(), &mut SystemRng);
        PwdFile::update(path, now, |file| {
            let mut file = file.ok_or_else(|| format!("{} was removed", path.display()))?;
            let is_same = file.find(&self.entry.name).is_some_and(|present| {
                let buffers = present.buffers.iter().zip(&self.entry.buffers);
                present.status == self.entry.status
                    && buffers.into_iter().all(|(one, other)| one.is_equal(other.expose()))
            });
            if !is_same {
                return Err("the entry was changed meanwhile".to_owned());
            }
            let [salt, hash] = stored.buffers().map(Secret::from);
            let buffers = [salt, hash, Secret::default(), Secret::default()];
            let name = self.entry.name.clone();
            file.set(PwdEntry { name, status: EntryStatus::OK, count: 0, changed: now, buffers });
            Ok((file.clone(), file))
        })
    }
}
