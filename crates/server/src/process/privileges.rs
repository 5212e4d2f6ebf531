//! [`give_up_privileges`]: what a server keeps of the privileges with which it was started.
//!
//! Capabilities and `no_new_privs` are attributes of a thread, which those that it starts inherit. So
//! they are given up before the first other thread starts.

use super::user::{User, UserError};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, no_new_privs,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::fmt;

/// The privileges that a process keeps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RetainedPrivileges {
    /// The calling thread keeps its permitted capabilities, none of which is effective, so that it can
    /// choose some of them.
    pub capabilities: bool,
    /// Programs that the process executes gain the privileges of their files, such as setuid programs.
    pub programs: bool,
}

/// The privileges that a process can still have or gain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrivilegeState {
    /// It serves as the superuser.
    Superuser,
    /// Its programs gain the privileges of their files.
    Programs,
    /// It can gain none.
    None {
        /// The start could not empty the set of capabilities that programs can gain. They gain nothing by
        /// it because of `no_new_privs`.
        has_bounding_set: bool,
    },
}

impl fmt::Display for PrivilegeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superuser => "privileges: those of the superuser",
            Self::Programs => {
                "privileges: none, but programs that the server executes gain those of their files (setuid), because the \
                 configuration names programs"
            }
            Self::None { has_bounding_set: false } => {
                "privileges: none, and programs that the server executes gain none (no_new_privs)"
            }
            Self::None { has_bounding_set: true } => {
                "privileges: none, and programs that the server executes gain none (no_new_privs); the bounding set of \
                 capabilities is not empty, because the start had no right to reduce it"
            }
        })
    }
}

/// Switches to a user, if one is named, and gives up the privileges that are not retained: also those
/// that a service manager has granted (ambient capabilities). The superuser keeps its own.
///
/// # Errors
/// [`UserError`].
pub fn give_up_privileges(
    user: Option<&User>,
    retained: RetainedPrivileges,
) -> Result<PrivilegeState, UserError> {
    if user.is_none() && User::is_root() {
        return Ok(PrivilegeState::Superuser);
    }
    let failed = |errno: Errno| UserError::Privileges(errno.to_string());
    // A service manager can have decided it, and no process can undo it.
    let programs = retained.programs && !no_new_privs().map_err(failed)?;
    let retained = RetainedPrivileges { programs, ..retained };
    // This needs a capability that the switch takes away.
    let state = match retained.programs {
        true => PrivilegeState::Programs,
        false => PrivilegeState::None { has_bounding_set: !empty_bounding_set().map_err(failed)? },
    };
    if let Some(user) = user {
        user.become_user(retained.capabilities)?;
    }
    restrict(retained).map_err(failed)?;
    Ok(state)
}

/// Gives up the privileges of the calling thread that are not retained, and those of programs.
fn restrict(retained: RetainedPrivileges) -> rustix::io::Result<()> {
    let permitted = match retained.capabilities {
        true => capabilities(None)?.permitted,
        false => CapabilitySet::empty(),
    };
    let none = CapabilitySet::empty();
    // Without inheritable capabilities, there are no ambient ones.
    set_capabilities(None, CapabilitySets { effective: none, permitted, inheritable: none })?;
    if retained.programs { Ok(()) } else { set_no_new_privs(true) }
}

/// Empties the set of capabilities that programs can gain. Returns false if the process has no right to
/// do this, as in some containers.
fn empty_bounding_set() -> rustix::io::Result<bool> {
    // The kernel may know more capabilities than the library.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => {}
            Ok(false) => continue,
            // The kernel has no further ones.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
