//! [`PeerHostPattern`], [`TextPattern`]: patterns of hosts and of names.

use crate::grid::Glob;
use base::written_ip;
use std::net::IpAddr;

/// A pattern of a text, and the text by which it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TextPattern {
    glob: Glob,
    text: String,
}

impl TextPattern {
    /// Returns a pattern of certificate subjects and names, whose escapes are characters.
    pub(crate) fn of_names(text: &str) -> Self {
        Self { glob: Glob::with_star(text), text: text.to_owned() }
    }

    pub(crate) fn of_words(text: &str) -> Self {
        Self { glob: Glob::without_escapes(text), text: text.to_owned() }
    }

    pub(crate) fn matches(&self, text: Option<&str>) -> bool {
        text.is_some_and(|text| self.glob.matches(text))
    }

    /// Reports whether the pattern matches all texts that another one matches. A `*` of the other one can
    /// only be matched by a `*`, so it may be compared like a character.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.glob.matches(&other.text)
    }
}

/// A pattern of hosts, in which `*` stands for any text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerHostPattern(HostKind);

#[derive(Clone, PartialEq, Eq, Debug)]
enum HostKind {
    Any,
    /// It compares with names only: the owner of an address chooses its name, which can look like an
    /// address.
    Name(TextPattern),
    Address(TextPattern),
}

impl PeerHostPattern {
    /// Parses the pattern of a name or of an address, such as `*.example.org` or `10.1.*`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim_matches(['[', ']']).to_ascii_lowercase();
        // Other spellings of an address, such as that in the log, would never match.
        let text = match written_ip(&text) {
            Some(address) => base::meant_ip(address).to_string(),
            None => {
                text.strip_prefix("::ffff:").filter(|rest| rest.contains('.')).unwrap_or(&text).to_owned()
            }
        };
        let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
        let is_address =
            has_digits && text.bytes().all(|byte| byte.is_ascii_digit() || b".*".contains(&byte));
        Self(match text.as_str() {
            "*" => HostKind::Any,
            _ if is_address || text.contains(':') => HostKind::Address(TextPattern::of_words(&text)),
            _ => HostKind::Name(TextPattern::of_words(&text)),
        })
    }

    /// Reports whether a host matches. `host` is its name, or its address as text if the name is unknown.
    #[must_use]
    pub fn matches(&self, host: &str, address: Option<IpAddr>) -> bool {
        match &self.0 {
            HostKind::Any => true,
            HostKind::Name(pattern) => {
                written_ip(host).is_none() && pattern.matches(Some(&host.to_ascii_lowercase()))
            }
            HostKind::Address(pattern) => {
                let address = address.map(base::meant_ip);
                pattern.matches(address.map(|address| address.to_string()).as_deref())
            }
        }
    }

    /// Reports whether it is unknown if a host matches, because its name is.
    pub(crate) fn is_unknown_for(&self, host: &str) -> bool {
        self.needs_host_name() && written_ip(host).is_some()
    }

    /// Reports whether the name of a host decides.
    #[must_use]
    pub fn needs_host_name(&self) -> bool {
        matches!(self.0, HostKind::Name(_))
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0 == HostKind::Any
    }

    /// Reports whether the pattern matches all hosts that another one matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (HostKind::Any, _) => true,
            (HostKind::Name(own), HostKind::Name(other)) => own.covers(other),
            (HostKind::Address(own), HostKind::Address(other)) => own.covers(other),
            _ => false,
        }
    }
}
