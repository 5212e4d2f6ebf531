//! The switch from root to the user of the service (`-R`, `--user`), because a server with the
//! rights of root would bypass file modes.

use super::privileges::{RetainedPrivileges, give_up_privileges};
use nix::unistd;
use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

/// A user of this machine, found by name or number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// An error that prevents running as the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UserError {
    /// The name or number is unknown.
    Unknown(String),
    /// The user is the superuser.
    Superuser(String),
    /// Only root may switch to another user.
    NotRoot(String),
    /// The system refused.
    Refused(String, String),
    /// The process could not give up privileges.
    Privileges(String),
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "there is no user `{name}` on this machine; create it or name another")
            }
            Self::Superuser(name) => {
                write!(f, "`{name}` is the superuser; name the user the service belongs to")
            }
            Self::NotRoot(name) => {
                write!(f, "only root can switch to user `{name}`; start as root, or as that user")
            }
            Self::Refused(name, why) => write!(f, "cannot switch to user `{name}`: {why}"),
            Self::Privileges(why) => write!(f, "cannot give up privileges: {why}"),
        }
    }
}

impl std::error::Error for UserError {}

impl User {
    /// Finds a user that is not the superuser.
    ///
    /// # Errors
    /// [`UserError::Unknown`], [`UserError::Superuser`].
    pub fn find(name: &str) -> Result<Self, UserError> {
        let by_number =
            || name.parse().ok().and_then(|uid| unistd::User::from_uid(unistd::Uid::from_raw(uid)).ok()?);
        let found = unistd::User::from_name(name).ok().flatten().or_else(by_number);
        let Some(user) = found else { return Err(UserError::Unknown(name.to_owned())) };
        if user.uid.is_root() {
            return Err(UserError::Superuser(name.to_owned()));
        }
        Ok(Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw(), home: user.dir })
    }

    /// Returns the user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Reports whether this process runs as root.
    pub fn is_root() -> bool {
        unistd::geteuid().is_root()
    }

    /// Switches the whole process to this user and its groups, permanently. The calling thread and those
    /// that it starts have no capabilities afterwards, and no program that they execute gains privileges.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn switch(&self) -> Result<(), UserError> {
        give_up_privileges(Some(self), RetainedPrivileges::default()).map(drop)
    }

    /// Changes the user and the groups of the whole process, permanently. Does nothing if they are those
    /// of the user already.
    pub(super) fn become_user(&self, keeps_capabilities: bool) -> Result<(), UserError> {
        if unistd::geteuid().as_raw() == self.uid && unistd::getuid().as_raw() == self.uid {
            return Ok(());
        }
        if !Self::is_root() {
            return Err(UserError::NotRoot(self.name.clone()));
        }
        let refused = |why: String| UserError::Refused(self.name.clone(), why);
        if keeps_capabilities {
            let kept = rustix::thread::set_keep_capabilities(true);
            kept.map_err(|error| refused(error.to_string()))?;
        }
        let name = CString::new(self.name.as_str()).map_err(|error| refused(error.to_string()))?;
        let gid = unistd::Gid::from_raw(self.gid);
        unistd::initgroups(&name, gid)
            .and_then(|()| unistd::setgid(gid))
            .and_then(|()| unistd::setuid(unistd::Uid::from_raw(self.uid)))
            .map_err(|errno| refused(errno.desc().to_owned()))?;
        // If the process can become root again, it would serve with the rights of root.
        if unistd::setuid(unistd::Uid::from_raw(0)).is_ok() {
            return Err(refused("the system gives root's rights back".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_and_the_superuser_are_refused() {
        assert_eq!(User::find("no-such-user"), Err(UserError::Unknown("no-such-user".to_owned())));
        assert_eq!(User::find("root"), Err(UserError::Superuser("root".to_owned())));
        assert_eq!(User::find("0"), Err(UserError::Superuser("0".to_owned())));
        assert_eq!(User::find("nobody").map(|user| user.uid()), User::find("65534").map(|user| user.uid()));
    }
}
