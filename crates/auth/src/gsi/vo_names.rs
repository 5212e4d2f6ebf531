//! [`VoNames`]: the user and the group of a client by its virtual organization.
//!
//! Source: security facts, section 3.9, the plug-in for virtual organizations.

use crate::entity::EntityFields;

/// Maximum length of the name of an organization in bytes.
const ORGANIZATION_BYTES_MAX: usize = 255;

/// Stands for the organization in texts.
const VO: &str = "%s";

/// The field of a subject with the name of a person.
const COMMON_NAME: &str = "CN=";

/// The user of a client of a virtual organization.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum VoUser {
    /// That of the protocol. If this is the subject, the first common name in it, with `_` for blanks.
    #[default]
    CommonName,
    /// The one that it has without the organization.
    Unchanged,
    /// A text in which `%s` stands for the organization.
    Format(String),
}

/// Names that are derived from the virtual organization. A client without one is refused, and one of
/// several, because it would be uncertain which of them gives the names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VoNames {
    /// Organizations that are accepted; empty for all.
    pub organizations: Vec<String>,
    /// The group, in which `%s` stands for the organization; `None` leaves the groups as they are.
    pub group: Option<String>,
    /// The user.
    pub user: VoUser,
    /// Clients with attributes of VOMS are left as they are.
    pub only_without_attributes: bool,
}

impl VoNames {
    /// Replaces the names of a client with this subject.
    ///
    /// # Errors
    /// The reason why the client is refused.
    pub(super) fn apply(&self, fields: &mut EntityFields, subject: &str) -> Result<(), String> {
        // One word for each group of the client.
        let mut organizations =
            fields.vorg.as_deref().unwrap_or_default().split(' ').filter(|word| !word.is_empty());
        let Some(organization) = organizations.next() else {
            return Err(format!("{subject} is in no virtual organization, which -authzfun requires"));
        };
        if self.only_without_attributes {
            return Ok(());
        }
        let mut columns = 1;
        for other in organizations {
            columns += 1;
            if other != organization {
                return Err(format!(
                    "{subject} is in more than one virtual organization ({organization:?} and {other:?}), \
                     but -authzfun names a client by one"
                ));
            }
        }
        let is_accepted =
            self.organizations.is_empty() || self.organizations.iter().any(|one| one == organization);
        if organization.len() > ORGANIZATION_BYTES_MAX || !is_accepted {
            return Err(format!("the virtual organization {organization:?} is not one of -authzfunparms"));
        }
        let user = match &self.user {
            VoUser::CommonName if fields.name.as_deref() == Some(subject) => {
                Some(common_name(subject).ok_or_else(|| {
                    format!("{subject} has no common name that can be the name of a user (-authzfun)")
                })?)
            }
            VoUser::CommonName | VoUser::Unchanged => None,
            VoUser::Format(format) => Some(format.replace(VO, organization)),
        };
        // Each role belongs to the group at its place, so each place has a group.
        let groups = |format: &String| vec![format.replace(VO, organization); columns].join(" ").into();
        let groups = self.group.as_ref().map(groups);
        if let Some(user) = user {
            fields.name = Some(user.into());
        }
        if groups.is_some() {
            fields.groups = groups;
        }
        Ok(())
    }
}

/// Returns the first common name of a subject, with `_` for blanks.
fn common_name(subject: &str) -> Option<String> {
    let name = fields(subject).find_map(|field| field.strip_prefix(COMMON_NAME))?.replace(' ', "_");
    super::identity_rules::is_user_name(&name).then_some(name)
}

/// Returns the fields of a subject. A slash within a value is escaped by a backslash.
fn fields(subject: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    subject.split(move |letter| {
        let ends = letter == '/' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: &str = "/O=Grid/CN=Alice B Example/CN=1234";

    fn named(names: &VoNames, organization: Option<&str>) -> Result<(String, String), String> {
        renamed(names, "5cdab576.0", organization)
    }

    fn renamed(names: &VoNames, name: &str, organization: Option<&str>) -> Result<(String, String), String> {
        let mut fields = EntityFields {
            name: Some(name.into()),
            vorg: organization.map(Into::into),
            groups: Some("/cms/prod".into()),
            ..EntityFields::default()
        };
        names.apply(&mut fields, SUBJECT)?;
        Ok((fields.name.unwrap().into(), fields.groups.unwrap().into()))
    }

    fn both(name: &str, group: &str) -> Result<(String, String), String> {
        Ok((name.to_owned(), group.to_owned()))
    }

    #[test]
    fn users_and_groups_have_the_name_of_the_organization() {
        let names = VoNames::default();
        assert_eq!(renamed(&names, SUBJECT, Some("cms")), both("Alice_B_Example", "/cms/prod"));
        assert_eq!(renamed(&names, "alice", Some("cms")), both("alice", "/cms/prod"), "by the grid map");
        let names = VoNames { group: Some("vo-%s".to_owned()), user: VoUser::Unchanged, ..names };
        assert_eq!(renamed(&names, SUBJECT, Some("cms")), both(SUBJECT, "vo-cms"));
        let names = VoNames { user: VoUser::Format("%susr".to_owned()), ..names };
        assert_eq!(named(&names, Some("cms")), both("cmsusr", "vo-cms"));
    }

    #[test]
    fn an_organization_of_several_groups_is_one() {
        let names = VoNames {
            organizations: vec!["atlas".to_owned()],
            group: Some("g-%s".to_owned()),
            user: VoUser::Format("%susr".to_owned()),
            ..VoNames::default()
        };
        assert_eq!(named(&names, Some("atlas atlas atlas")), both("atlasusr", "g-atlas g-atlas g-atlas"));
        let many = vec!["atlas"; 100].join(" ");
        let (user, groups) = named(&names, Some(&many)).unwrap();
        assert_eq!((user.as_str(), groups.split(' ').count()), ("atlasusr", 100));
        let two = named(&VoNames::default(), Some("atlas atlas cms")).unwrap_err();
        assert!(two.contains("more than one virtual organization (\"atlas\" and \"cms\")"), "{two}");
    }

    #[test]
    fn other_organizations_are_refused() {
        let names =
            VoNames { organizations: vec!["cms".to_owned(), "atlas".to_owned()], ..VoNames::default() };
        assert!(named(&names, Some("atlas")).is_ok());
        for refused in [None, Some(""), Some(" "), Some("atla"), Some("atlas2"), Some("cms atlas")] {
            assert!(named(&names, refused).is_err(), "{refused:?}");
        }
        let long = "x".repeat(256);
        assert!(named(&VoNames::default(), Some(&long)).is_err());
        assert!(named(&VoNames::default(), Some(&long[1..])).is_ok());
        let names = VoNames { only_without_attributes: true, ..names };
        assert_eq!(named(&names, Some("lhcb")), both("5cdab576.0", "/cms/prod"));
        assert!(named(&names, None).is_err());
    }

    #[test]
    fn a_common_name_must_be_that_of_a_user() {
        assert_eq!(common_name("/O=Grid/CN=alice").as_deref(), Some("alice"));
        // The value of another field looks like a common name.
        assert_eq!(common_name("/O=x\\/CN=root/CN=alice").as_deref(), Some("alice"));
        assert_eq!(common_name("/O=x\\\\/CN=bob/CN=alice").as_deref(), Some("bob"));
        for subject in ["/O=Grid", "/CN=", "/CN=a\\/CN=b", "/CN=-x", "/CN=a:b", "/O=x CN=alice", "/CN=\u{e9}"]
        {
            assert_eq!(common_name(subject), None, "{subject}");
        }
    }
}
