//! Netgroups: sets of users at hosts. The netgroups that the rules name are loaded as a whole and
//! renewed in the background, so that no decision waits for a directory server.

use std::collections::{BTreeMap, HashSet};
use std::io;

/// Maximum number of members of all netgroups of a rule file.
const NETGROUP_MEMBERS_MAX: usize = 1 << 20;

/// A member of a netgroup. `None` stands for any value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetgroupMember {
    /// Host name.
    pub host: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Domain.
    pub domain: Option<String>,
}

/// The netgroups of the system.
pub trait NetgroupDatabase: Send + Sync {
    /// Returns the members of a netgroup, those of nested ones included. May block.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: it does not exist. Others: the database did not answer.
    fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>>;
}

/// The members of one netgroup, by user and host. The empty text stands for any value, which no
/// name of a user or host equals.
type MemberSet = HashSet<(Box<str>, Box<str>)>;

/// The netgroups that the rules name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NetgroupTable(BTreeMap<Box<str>, MemberSet>);

impl NetgroupTable {
    /// Loads netgroups: names, and whether records take privileges away from the members. One that
    /// does not exist has no members, unless that would void a denial. With a `domain`, members of
    /// other domains do not count. May block.
    pub(super) fn load<'a>(
        database: &dyn NetgroupDatabase,
        names: impl Iterator<Item = (&'a str, bool)>,
        domain: Option<&str>,
    ) -> io::Result<Self> {
        let mut table = BTreeMap::new();
        let mut total: usize = 0;
        for (name, denies) in names {
            let members = match database.members(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !denies => {
                    tracing::warn!("netgroup {name} of the authorization rules does not exist");
                    Vec::new()
                }
                members => members?,
            };
            total += members.len();
            if total > NETGROUP_MEMBERS_MAX {
                let text = format!("netgroups have more than {NETGROUP_MEMBERS_MAX} members");
                return Err(io::Error::other(text));
            }
            let is_here = |member: &NetgroupMember| match (&member.domain, domain) {
                (Some(theirs), Some(ours)) => theirs.eq_ignore_ascii_case(ours),
                _ => true,
            };
            let key = |member: NetgroupMember| {
                let host = member.host.unwrap_or_default().to_ascii_lowercase();
                (member.user.unwrap_or_default().into(), host.into())
            };
            let set: MemberSet = members.into_iter().filter(is_here).map(key).collect();
            table.insert(name.into(), set);
        }
        Ok(Self(table))
    }

    /// Reports whether a user at a host belongs to a netgroup.
    pub(super) fn contains(&self, netgroup: &str, user: Option<&str>, host: &str) -> bool {
        let Some(members) = self.0.get(netgroup) else { return false };
        if members.is_empty() {
            return false;
        }
        let host = host.to_ascii_lowercase();
        let users = [user.unwrap_or_default(), ""];
        let hosts = [host.as_str(), ""];
        let mut pairs = users.iter().flat_map(|user| hosts.iter().map(move |host| (*user, *host)));
        pairs.any(|(user, host)| members.contains(&(user.into(), host.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;
    impl NetgroupDatabase for Fixed {
        fn members(&self, netgroup: &str) -> io::Result<Vec<NetgroupMember>> {
            let member = |host: &str, user: &str, domain: &str| {
                let field = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                NetgroupMember { host: field(host), user: field(user), domain: field(domain) }
            };
            match netgroup {
                "mixed" => {
                    Ok(vec![member("H1.o", "ann", ""), member("", "bob", "here"), member("h2.o", "", "far")])
                }
                "absent" => Err(io::ErrorKind::NotFound.into()),
                "broken" => Err(io::Error::other("no answer")),
                _ => Ok(Vec::new()),
            }
        }
    }

    #[test]
    fn members_match_by_user_and_host() {
        let table = NetgroupTable::load(&Fixed, [("mixed", true), ("none", true)].into_iter(), None).unwrap();
        let cases = [
            (Some("ann"), "h1.o", true),
            (Some("ann"), "h3.o", false),
            (Some("bob"), "h3.o", true),
            (Some("eve"), "h2.o", true),
            (None, "h2.o", true),
            (None, "h1.o", false),
        ];
        for (user, host, expected) in cases {
            assert_eq!(table.contains("mixed", user, host), expected, "{user:?} {host}");
        }
        assert!(!table.contains("none", Some("bob"), "h2.o") && !table.contains("unknown", Some("bob"), ""));
        let here = NetgroupTable::load(&Fixed, [("mixed", false)].into_iter(), Some("HERE")).unwrap();
        assert!(here.contains("mixed", Some("bob"), "") && !here.contains("mixed", Some("eve"), "h2.o"));
        let load = |name, denies| NetgroupTable::load(&Fixed, [(name, denies)].into_iter(), None);
        assert!(load("broken", false).is_err());
        assert!(load("absent", true).is_err(), "its denial would be void");
        assert!(!load("absent", false).unwrap().contains("absent", Some("bob"), "h"));
    }
}
