//! The switch from root to the user of the service (`-R`, `--user`), because a server with the
//! rights of root would bypass file modes.

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

/// The privileges that a process keeps when it switches to its user.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RetainedPrivileges {
    /// The calling thread keeps its permitted capabilities, none of which is effective, so that it can
    /// choose some of them.
    pub capabilities: bool,
    /// Programs that the process executes gain the privileges of their files, such as setuid programs.
    pub programs: bool,
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

    /// Switches the whole process to this user and its groups, permanently. Does nothing if it runs
    /// as that user already. The calling thread and those that it starts have no capabilities
    /// afterwards, and no program that they execute gains privileges.
    ///
    /// # Errors
    /// [`UserError::NotRoot`], [`UserError::Refused`].
    pub fn switch(&self) -> Result<(), UserError> {
        self.switch_retaining(RetainedPrivileges::default())
    }

    /// Switches like [`User::switch`], with these privileges left.
    ///
    /// # Errors
    /// [`UserError::NotRoot`], [`UserError::Refused`].
    pub fn switch_retaining(&self, retained: RetainedPrivileges) -> Result<(), UserError> {
        if unistd::geteuid().as_raw() == self.uid && unistd::getuid().as_raw() == self.uid {
            return Ok(());
        }
        if !Self::is_root() {
            return Err(UserError::NotRoot(self.name.clone()));
        }
        let refused = |why: String| UserError::Refused(self.name.clone(), why);
        if !retained.programs {
            empty_bounding_set().map_err(|error| refused(error.to_string()))?;
        }
        if retained.capabilities {
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
        restrict(retained).map_err(|error| refused(error.to_string()))
    }
}

/// Gives up the privileges of the calling thread that are not retained, and those of programs.
fn restrict(retained: RetainedPrivileges) -> rustix::io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
    let permitted = match retained.capabilities {
        true => capabilities(None)?.permitted,
        false => CapabilitySet::empty(),
    };
    let none = CapabilitySet::empty();
    // Without inheritable capabilities, there are no ambient ones.
    set_capabilities(None, CapabilitySets { effective: none, permitted, inheritable: none })?;
    if retained.programs { Ok(()) } else { set_no_new_privs(true) }
}

/// Empties the set of capabilities that programs can gain. Without the right to do this, as in some
/// containers, the set stays as it is, and programs gain nothing by it because of `no_new_privs`.
fn empty_bounding_set() -> rustix::io::Result<()> {
    use rustix::io::Errno;
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel does not know a capability, or the right is missing.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
