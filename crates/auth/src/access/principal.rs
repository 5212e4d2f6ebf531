//! The client of a request as authorization sees it: borrowed from the entity of the session and
//! the credential of the request, and dropped after the request.

use crate::Entity;

/// The attribute with the name that the credential of one request gives its client. It takes
/// precedence over the name of the entity.
const REQUEST_NAME: &str = "request.name";

/// The client of a request.
///
/// `organizations`, `roles` and `groups` are lists separated by blanks; the i-th entries of each
/// belong together. If there is at most one organization and one role, they belong to every group.
#[derive(Clone, Copy, Default, Debug)]
pub struct Principal<'a> {
    /// Authentication protocol, for audit lines.
    pub protocol: &'a str,
    /// Name, if the client has one.
    pub name: Option<&'a str>,
    /// Host name, or address as text; empty if unknown.
    pub host: &'a str,
    /// Address as text; empty if unknown. Rules that name an address apply to it whether or not the
    /// host has a name.
    pub address: &'a str,
    /// The name of the host is not known, so rules by name may fail to match.
    pub is_host_uncertain: bool,
    /// Virtual organizations.
    pub organizations: &'a str,
    /// Roles.
    pub roles: &'a str,
    /// Groups.
    pub groups: &'a str,
}

/// The identity that the credential of one request gives its client, for the rules.
#[derive(Clone, Copy, Default, Debug)]
pub struct RequestIdentity<'a> {
    /// Name, which takes precedence over that of the session.
    pub name: Option<&'a str>,
    /// Virtual organization, which replaces those of the session.
    pub organizations: Option<&'a str>,
    /// Groups, which replace those of the session.
    pub groups: Option<&'a str>,
    /// Subject of the credential, for audit lines.
    pub subject: &'a str,
    /// Issuer of the credential, for audit lines.
    pub issuer: &'a str,
}

/// The attributes of a client that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AttributeColumn<'a> {
    pub(crate) organization: Option<&'a str>,
    pub(crate) role: Option<&'a str>,
    pub(crate) group: Option<&'a str>,
}

impl<'a> Principal<'a> {
    /// Returns the client of a request without a credential of its own. A client that logged in with a
    /// token has no name by itself: the name comes from its token, as long as that is valid.
    #[must_use]
    pub fn of(entity: &'a Entity) -> Self {
        let text = |field: &'a Option<Box<str>>| field.as_deref().unwrap_or_default();
        let own_name = || entity.name.as_deref().filter(|_| entity.verified_bearer().is_none());
        Self {
            protocol: &entity.protocol,
            name: entity.attribute(REQUEST_NAME).or_else(own_name).filter(|name| !name.is_empty()),
            host: entity.host_name.known().map_or(&*entity.host, |name| &**name),
            address: &entity.address,
            is_host_uncertain: entity.host_name.known().is_none(),
            organizations: text(&entity.vorg),
            roles: text(&entity.role),
            groups: text(&entity.groups),
        }
    }

    /// Returns the client of a request with a credential of its own. If the credential has groups,
    /// those of the session and its organizations and roles do not count, because attributes of
    /// different sources do not belong together.
    #[must_use]
    pub fn with(self, identity: RequestIdentity<'a>) -> Self {
        let named = Self { name: identity.name.or(self.name), ..self };
        match identity.groups {
            None => named,
            Some(groups) => {
                Self { organizations: identity.organizations.unwrap_or_default(), roles: "", groups, ..named }
            }
        }
    }

    /// Returns the columns of attributes; one empty column for a client without attributes. Returns
    /// `None` if the lists have different lengths, because then it is unknown which entries belong
    /// together.
    pub(crate) fn columns(&self) -> Option<impl Iterator<Item = AttributeColumn<'a>>> {
        let count = |list| words(list).count();
        let (organizations, roles, groups) =
            (count(self.organizations), count(self.roles), count(self.groups));
        let length = organizations.max(roles).max(groups);
        let is_shared = organizations <= 1 && roles <= 1;
        if !is_shared && [organizations, roles, groups].iter().any(|count| *count != 0 && *count != length) {
            return None;
        }
        let shared = |list| words(list).next().filter(|_| is_shared);
        let (organization, role) = (shared(self.organizations), shared(self.roles));
        let (mut organization_list, mut role_list) = (words(self.organizations), words(self.roles));
        let mut group_list = words(self.groups);
        Some((0..length.max(1)).map(move |_| AttributeColumn {
            organization: organization.or_else(|| organization_list.next()),
            role: role.or_else(|| role_list.next()),
            group: group_list.next(),
        }))
    }
}

/// Returns the words of a list. Names may contain any character except blanks.
pub(super) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(' ').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(organizations: &str, roles: &str, groups: &str) -> Option<Vec<String>> {
        let principal = Principal { organizations, roles, groups, ..Principal::default() };
        let text = |part: Option<&str>| part.unwrap_or("-").to_owned();
        let columns = principal.columns()?;
        Some(
            columns
                .map(|column| [column.organization, column.role, column.group].map(text).join(" "))
                .collect(),
        )
    }

    #[test]
    fn columns_belong_together() {
        let found = |o, r, g| columns(o, r, g).unwrap_or_default();
        assert_eq!(found("", "", ""), ["- - -"]);
        assert_eq!(found("cms", "", "a  b"), ["cms - a", "cms - b"]);
        assert_eq!(found("cms atlas", "p q", "a b"), ["cms p a", "atlas q b"]);
        assert_eq!(found("cms atlas", "", ""), ["cms - -", "atlas - -"]);
        assert_eq!(found("", "p q", "a b"), ["- p a", "- q b"]);
        assert_eq!(found("cms", "p", ""), ["cms p -"]);
    }

    #[test]
    fn lists_of_different_lengths_are_no_columns() {
        let lists = [
            ("x y z", "", "a b"),
            ("", "x y", "a b c"),
            ("p q", "", "a"),
            ("p", "x y z", "a b"),
            ("cms", "p q", "a b"),
            ("cms atlas", "p", ""),
        ];
        for (o, r, g) in lists {
            assert_eq!(columns(o, r, g), None, "{o} {r} {g}");
        }
    }
}
