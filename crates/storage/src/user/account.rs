//! [`StorageUser`]: the ids with which the system checks permissions.

/// The maximum number of groups that the kernel accepts.
const GROUPS_MAX: usize = 65_536;

/// The value that the system calls take for "do not change".
const UNCHANGED: u32 = u32::MAX;

/// The user and the groups of storage operations. It is never the superuser.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StorageUser {
    uid: u32,
    gid: u32,
    groups: Box<[u32]>,
}

impl StorageUser {
    /// Returns a user; `None` for the superuser and its group, and for ids that are not valid.
    ///
    /// The group of the superuser is omitted from `groups`, because it owns files of the system.
    pub fn new(uid: u32, gid: u32, groups: impl IntoIterator<Item = u32>) -> Option<Self> {
        let is_valid = |id: u32| id != 0 && id != UNCHANGED;
        let mut groups: Vec<u32> = groups.into_iter().filter(|&group| is_valid(group)).collect();
        groups.sort_unstable();
        groups.dedup();
        let valid = is_valid(uid) && is_valid(gid) && groups.len() <= GROUPS_MAX;
        valid.then(|| Self { uid, gid, groups: groups.into() })
    }

    /// Returns the user id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the id of the primary group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the ids of the supplementary groups in ascending order.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Reports whether the user is in a group.
    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_is_no_user_of_the_storage() {
        assert_eq!(StorageUser::new(0, 1, []), None);
        assert_eq!(StorageUser::new(1, 0, []), None);
        assert_eq!(StorageUser::new(UNCHANGED, 1, []), None);
        assert_eq!(StorageUser::new(1, UNCHANGED, []), None);
        let user = StorageUser::new(1, 2, [9, 0, 4, UNCHANGED, 9]).unwrap();
        assert_eq!((user.uid(), user.gid(), user.groups()), (1, 2, &[4, 9][..]));
        assert_eq!([2, 4, 9, 0, 1].map(|gid| user.is_in_group(gid)), [true, true, true, false, false]);
    }

    #[test]
    fn more_groups_than_the_kernel_accepts_are_refused() {
        let up_to = |last: usize| StorageUser::new(1, 1, (1..=last).map(|gid| gid as u32));
        assert!(up_to(GROUPS_MAX).is_some());
        assert!(up_to(GROUPS_MAX + 1).is_none());
    }
}
