//! [`Fqan`]: a name of a group of a virtual organization, with a role.

use std::fmt;

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The role of a member that has none.
const NO_ROLE: &str = "NULL";

/// A fully qualified attribute name: `/VO/GROUP/Role=ROLE/Capability=NULL`.
///
/// Names have no control characters and no commas, because lists of them are separated by commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fqan {
    text: Box<str>,
    group_length: usize,
    role: Box<str>,
}

impl Fqan {
    /// Parses a name; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_printable = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b',';
        if text.len() > NAME_BYTES_MAX || !text.bytes().all(is_printable) {
            return None;
        }
        let mut elements = text.strip_prefix('/')?.split('/').peekable();
        let mut group_length = 0;
        while let Some(group) = elements.next_if(|element| !element.contains('=')) {
            if group.is_empty() {
                return None;
            }
            group_length += 1 + group.len();
        }
        if group_length == 0 {
            return None;
        }
        let role = elements.next_if(|element| element.starts_with("Role="));
        let role = role.and_then(|element| element.strip_prefix("Role=")).unwrap_or(NO_ROLE);
        elements.next_if(|element| element.starts_with("Capability="));
        if elements.next().is_some() || role.is_empty() {
            return None;
        }
        Some(Self { text: text.into(), group_length, role: role.into() })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the group: `/VO/GROUP`.
    #[must_use]
    pub fn group(&self) -> &str {
        self.text.get(..self.group_length).unwrap_or_default()
    }

    /// Returns the virtual organization, which is the first element of the group.
    #[must_use]
    pub fn organization(&self) -> &str {
        self.group().split('/').nth(1).unwrap_or_default()
    }

    /// Returns the role; `NULL` if there is none.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }
}

impl fmt::Display for Fqan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_group_and_at_most_one_role() {
        let parts = |text: &str| {
            Fqan::parse(text)
                .map(|name| (name.organization().to_owned(), name.group().to_owned(), name.role().to_owned()))
        };
        let some = |organization: &str, group: &str, role: &str| {
            Some((organization.to_owned(), group.to_owned(), role.to_owned()))
        };
        assert_eq!(parts("/cms"), some("cms", "/cms", "NULL"));
        assert_eq!(parts("/cms/a b/Role=prod/Capability=NULL"), some("cms", "/cms/a b", "prod"));
        assert_eq!(parts("/cms/Role=Role=x"), some("cms", "/cms", "Role=x"));
        assert_eq!(parts("/cms/Capability=NULL"), some("cms", "/cms", "NULL"));
        for wrong in [
            "",
            "/",
            "cms",
            "//cms",
            "/cms/",
            "/cms//x",
            "/Role=prod",
            "/cms/Role=",
            "/cms/Role=a/Role=b",
            "/cms/Role=a/x",
            "/cms/Capability=NULL/Role=a",
            "/cms/x=y",
            "/cms,/atlas",
            "/cms\n",
            "/cm\u{e9}s",
        ] {
            assert_eq!(parts(wrong), None, "{wrong:?}");
        }
        assert_eq!(parts(&format!("/{}", "a".repeat(NAME_BYTES_MAX))), None);
    }
}
