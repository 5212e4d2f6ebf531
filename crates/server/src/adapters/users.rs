//! Names of users and groups, and the identity of this process, for [`logical::Users`].

use logical::UserDirectory;
use std::sync::Arc;
use storage::UserNameCache;

/// The users and groups of this machine. The identity of the process is a snapshot of the time of
/// creation.
pub(crate) struct SystemUsers {
    names: UserNameCache,
    own_uid: u32,
    own_groups: Vec<u32>,
}

impl SystemUsers {
    pub(crate) fn new() -> Self {
        let mut own_groups = vec![nix::unistd::getegid().as_raw()];
        own_groups.extend(rustix::process::getgroups().unwrap_or_default().iter().map(|gid| gid.as_raw()));
        Self { names: UserNameCache::new(), own_uid: nix::unistd::geteuid().as_raw(), own_groups }
    }
}

impl UserDirectory for SystemUsers {
    fn user(&self, uid: u32) -> Arc<str> {
        self.names.user(uid)
    }

    fn group(&self, gid: u32) -> Arc<str> {
        self.names.group(gid)
    }

    fn user_now(&self, uid: u32) -> Option<Arc<str>> {
        self.names.user_now(uid)
    }

    fn group_now(&self, gid: u32) -> Option<Arc<str>> {
        self.names.group_now(gid)
    }

    fn own_uid(&self) -> u32 {
        self.own_uid
    }

    fn is_own_group(&self, gid: u32) -> bool {
        self.own_groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_and_groups_keep_their_numbers() {
        let users = SystemUsers::new();
        assert_eq!(&*users.user(0), "root");
        assert_eq!(&*users.user(3_999_999_999), "3999999999");
        assert!(users.is_own_group(nix::unistd::getegid().as_raw()));
        assert!(!users.is_own_group(3_999_999_999));
    }
}
