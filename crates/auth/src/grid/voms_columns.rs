//! [`VomsSelection`]: from verified memberships to the groups of an identity.

use super::fqan::Fqan;
use super::voms::VomsMembership;
use std::time::SystemTime;

/// The groups that count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GroupChoice {
    /// All.
    #[default]
    All,
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// The memberships that count, and the texts that they become.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VomsSelection {
    /// The groups that count, of those that the lists below leave.
    pub choice: GroupChoice,
    /// Groups of interest; all if it is empty.
    pub groups: Vec<String>,
    /// Virtual organizations of interest; all if it is empty.
    pub organizations: Vec<String>,
    /// Text instead of a group: `<g>`, `<r>`, `<vo>` and `<an>` stand for group, role, organization
    /// and the whole name.
    pub group_format: Option<String>,
    /// Text instead of a role.
    pub role_format: Option<String>,
    /// Text instead of an organization.
    pub organization_format: Option<String>,
}

/// The memberships of an identity. The i-th words of the lists belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VomsColumns {
    /// Virtual organizations, separated by blanks.
    pub organizations: String,
    /// Groups, separated by blanks.
    pub groups: String,
    /// Roles, separated by blanks.
    pub roles: String,
    /// The whole names, separated by commas.
    pub endorsements: String,
    /// The names.
    pub names: Vec<Fqan>,
    /// The end of the validity: the earliest of the memberships that count.
    pub expires: SystemTime,
}

impl VomsSelection {
    /// Returns the memberships that count; `None` if there is none.
    #[must_use]
    pub fn columns(&self, memberships: &[VomsMembership]) -> Option<VomsColumns> {
        let is_wanted = |list: &[String], text: &str| list.is_empty() || list.iter().any(|one| one == text);
        let mut selected: Vec<(&Fqan, SystemTime)> = memberships
            .iter()
            .filter(|one| is_wanted(&self.organizations, &one.organization))
            .flat_map(|one| one.names.iter().map(|name| (name, one.expires)))
            .filter(|(name, _)| is_wanted(&self.groups, name.group()))
            .collect();
        match self.choice {
            GroupChoice::All => {}
            GroupChoice::First => selected.truncate(1),
            GroupChoice::Last => drop(selected.drain(..selected.len().saturating_sub(1))),
        }
        let expires = selected.iter().map(|(_, expires)| *expires).min()?;
        let names: Vec<Fqan> = selected.into_iter().map(|(name, _)| name.clone()).collect();
        let column = |format: &Option<String>, plain: fn(&Fqan) -> &str| {
            let word = |name| {
                let text = match format {
                    Some(format) => formatted(format, name),
                    None => plain(name).to_owned(),
                };
                // Blanks separate the words.
                text.replace(' ', "\t")
            };
            names.iter().map(word).collect::<Vec<_>>().join(" ")
        };
        Some(VomsColumns {
            organizations: column(&self.organization_format, Fqan::organization),
            groups: column(&self.group_format, Fqan::group),
            roles: column(&self.role_format, Fqan::role),
            endorsements: names.iter().map(Fqan::as_str).collect::<Vec<_>>().join(","),
            names,
            expires,
        })
    }
}

/// Returns a format with the parts of a name. Parts are not searched for placeholders.
fn formatted(format: &str, name: &Fqan) -> String {
    let parts =
        [("<an>", name.as_str()), ("<vo>", name.organization()), ("<g>", name.group()), ("<r>", name.role())];
    let (mut text, mut rest) = (String::new(), format);
    while let Some(first) = rest.chars().next() {
        match parts.iter().find(|(placeholder, _)| rest.starts_with(placeholder)) {
            Some((placeholder, part)) => {
                text.push_str(part);
                rest = rest.get(placeholder.len()..).unwrap_or_default();
            }
            None => {
                text.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn member(organization: &str, names: &[&str], expires: u64) -> VomsMembership {
        VomsMembership {
            organization: organization.to_owned(),
            names: names.iter().map(|name| Fqan::parse(name).unwrap()).collect(),
            expires: UNIX_EPOCH + Duration::from_secs(expires),
        }
    }

    #[test]
    fn the_computed_case_has_its_columns() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/names.json");
        let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let case = &vectors["voms_columns"];
        let names: Vec<&str> =
            case["fqans"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let columns = VomsSelection::default().columns(&[member("atlas", &names, 1)]).unwrap();
        for (key, text) in [
            ("vorg", &columns.organizations),
            ("grps", &columns.groups),
            ("role", &columns.roles),
            ("endorsements", &columns.endorsements),
        ] {
            assert_eq!(case[key].as_str(), Some(text.as_str()), "{key}");
        }
    }

    #[test]
    fn groups_are_selected_before_the_first_or_last_is_taken() {
        let all = [
            member("cms", &["/cms/Role=prod", "/cms/a"], 9),
            member("atlas", &["/atlas", "/atlas/b c/Role=x y"], 5),
        ];
        let groups = |selection: VomsSelection| {
            selection.columns(&all).map(|columns| {
                (columns.groups, columns.expires.duration_since(UNIX_EPOCH).unwrap().as_secs())
            })
        };
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let default = VomsSelection::default();
        assert_eq!(groups(default.clone()), Some(("/cms /cms/a /atlas /atlas/b\tc".to_owned(), 5)));
        let first = VomsSelection { choice: GroupChoice::First, ..default.clone() };
        assert_eq!(groups(first.clone()), Some(("/cms".to_owned(), 9)));
        let last = VomsSelection { choice: GroupChoice::Last, ..default.clone() };
        assert_eq!(groups(last.clone()), Some(("/atlas/b\tc".to_owned(), 5)));
        let of_atlas = VomsSelection { organizations: list(&["atlas"]), ..first };
        assert_eq!(groups(of_atlas), Some(("/atlas".to_owned(), 5)));
        let of_groups = VomsSelection { groups: list(&["/cms", "/cms/a"]), ..last };
        assert_eq!(groups(of_groups), Some(("/cms/a".to_owned(), 9)));
        for (groups_of, organizations) in [(list(&["/lhcb"]), vec![]), (vec![], list(&["lhcb"]))] {
            let selection = VomsSelection { groups: groups_of, organizations, ..default.clone() };
            assert_eq!(groups(selection), None);
        }
    }

    #[test]
    fn formats_replace_each_placeholder_once() {
        let selection = VomsSelection {
            group_format: Some("<r>".to_owned()),
            role_format: Some("<g>=<x>".to_owned()),
            organization_format: Some("<vo> <an>".to_owned()),
            ..VomsSelection::default()
        };
        let columns = selection.columns(&[member("cms", &["/cms/<g>/Role=<an>"], 1)]).unwrap();
        assert_eq!(columns.groups, "<an>");
        assert_eq!(columns.roles, "/cms/<g>=<x>");
        assert_eq!(columns.organizations, "cms\t/cms/<g>/Role=<an>");
    }
}
