//! The users and groups of the system. Look-ups can ask a directory server.

use auth::{AccountDatabase, UserAccount};
use nix::unistd::{Gid, Group, User, getgrouplist};
use std::ffi::CString;
use std::io;

/// The users and groups of the system.
pub(crate) struct SystemAccounts;

impl AccountDatabase for SystemAccounts {
    fn user(&self, name: &str) -> io::Result<Option<UserAccount>> {
        // A name with a zero byte is that of nobody.
        if name.contains('\0') {
            return Ok(None);
        }
        let user = User::from_name(name)?;
        Ok(user.map(|user| UserAccount { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
    }

    fn group(&self, name: &str) -> io::Result<Option<u32>> {
        Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
    }

    fn groups_of(&self, name: &str) -> io::Result<Vec<String>> {
        let Some(user) = User::from_name(name)? else { return Ok(Vec::new()) };
        let mut ids = getgrouplist(&CString::new(name)?, user.gid)?;
        ids.sort_by_key(|id| *id != user.gid);
        let name = |id| Ok(Group::from_gid(id)?.map(|group| group.name));
        ids.into_iter().filter_map(|id| name(id).transpose()).collect()
    }

    fn group_ids_of(&self, name: &str, gid: u32) -> io::Result<Vec<u32>> {
        let ids = getgrouplist(&CString::new(name)?, Gid::from_raw(gid))?;
        Ok(ids.into_iter().map(Gid::as_raw).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_those_of_the_system() {
        assert_eq!(SystemAccounts.user("root").unwrap().map(|root| (root.uid, root.gid)), Some((0, 0)));
        assert_eq!(SystemAccounts.user("no-such-user-4711").unwrap(), None);
        assert_eq!(SystemAccounts.user("root\0x").unwrap(), None);
        assert_eq!(SystemAccounts.group("root").unwrap(), Some(0));
        assert_eq!(SystemAccounts.groups_of("root").unwrap().first().map(String::as_str), Some("root"));
        assert_eq!(SystemAccounts.groups_of("no-such-user-4711").unwrap(), [""; 0]);
        assert!(SystemAccounts.group_ids_of("root", 0).unwrap().contains(&0));
    }
}
