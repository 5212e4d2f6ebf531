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
