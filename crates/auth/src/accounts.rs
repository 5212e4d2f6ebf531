//! The port to the users and groups of the system.
//!
//! A look-up may ask a directory server, so it can block and must not run on an event loop.

use std::io;

/// An account of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserAccount {
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
}

/// The users and groups of the system. Calls may block.
///
/// An unknown name is `Ok(None)`. An error means that the database could not be asked: a caller
/// that needs the answer for a decision refuses.
pub trait AccountDatabase: Send + Sync {
    /// Returns the account of a user.
    ///
    /// # Errors
    /// The database did not answer.
    fn user(&self, name: &str) -> io::Result<Option<UserAccount>>;

    /// Returns the id of a group.
    ///
    /// # Errors
    /// The database did not answer.
    fn group(&self, name: &str) -> io::Result<Option<u32>>;

    /// Returns the names of all groups of a user, the primary one first; empty for an unknown user.
    ///
    /// # Errors
    /// The database did not answer.
    fn groups_of(&self, name: &str) -> io::Result<Vec<String>>;

    /// Returns the ids of all groups of a user, whose primary group is `gid`.
    ///
    /// # Errors
    /// The database did not answer.
    fn group_ids_of(&self, name: &str, gid: u32) -> io::Result<Vec<u32>>;
}

/// Accounts of tests: `alice` has one, and the look-up of `broken` fails.
#[cfg(test)]
pub(crate) struct TestAccounts;

#[cfg(test)]
impl AccountDatabase for TestAccounts {
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
