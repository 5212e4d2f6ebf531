//! The configuration of third-party copies (`ofs.tpc`). It is separate from [`crate::config`]
//! because a server without the directive does not have it.

use base::{Identity, LogicalPath};
use config::HostPattern;
use digest::Algorithm;
use std::time::Duration;

/// A rule for destinations that may fetch from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRule {
    /// The host of the destination, by name or address; `None` if the rule does not restrict it.
    pub host: Option<HostPattern>,
    /// The rule also requires attributes of the client (a distinguished name, a group, an
    /// organization). Attributes are not compared yet, so such a rule admits no destination.
    pub needs_attributes: bool,
}

/// A required authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProofRule {
    /// The authentication protocol.
    pub protocol: String,
    /// The connection must also be encrypted.
    pub encrypted: bool,
}

/// The use of credentials that clients delegate to this server, for the login at sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DelegatedCredentials {
    /// They are not used.
    #[default]
    Unused,
    /// They are used where there are some.
    Optional,
    /// A copy without them fails.
    Required,
}

/// Limits and rules of third-party copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Validity of a grant, unless the client requests another.
    pub ttl: Duration,
    /// Maximum validity that a client may request, and maximum wait of a destination that comes
    /// first.
    pub ttl_max: Duration,
    /// Number of copies that run at once; further ones wait.
    pub jobs_max: usize,
    /// Default number of streams of a copy.
    pub streams: u32,
    /// Maximum number of streams that a client may request.
    pub streams_max: u32,
    /// The checksum with which every copy is verified; a client may request another one.
    pub checksum: Option<Algorithm>,
    /// Only paths below one of these take part; empty: all paths.
    pub restrict: Vec<LogicalPath>,
    /// Destinations that may fetch from here; empty: all with a grant.
    pub allow: Vec<HostRule>,
    /// Authentication required of clients, one of these; empty: none.
    pub require_client: Vec<ProofRule>,
    /// Authentication required of destinations, one of these; empty: none.
    pub require_destination: Vec<ProofRule>,
    /// Sources may have names that are not absolute paths.
    pub object_ids: bool,
    /// Log successful copies too.
    pub log_success: bool,
    /// Credentials of clients for the login at sources.
    pub credentials: DelegatedCredentials,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(7),
            ttl_max: Duration::from_secs(15),
            jobs_max: 9,
            streams: 0,
            streams_max: 15,
            checksum: None,
            restrict: Vec::new(),
            allow: Vec::new(),
            require_client: Vec::new(),
            require_destination: Vec::new(),
            object_ids: false,
            log_success: false,
            credentials: DelegatedCredentials::default(),
        }
    }
}

impl Settings {
    /// Reports whether this path may take part.
    pub(crate) fn admits_path(&self, path: &LogicalPath) -> bool {
        self.restrict.is_empty() || self.restrict.iter().any(|prefix| path.is_within(prefix))
    }

    /// Reports whether a destination with these names may fetch from here.
    pub(crate) fn admits_host(&self, names: &[&str]) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|rule| rule.admits(names))
    }

    /// Checks whether `who` satisfies `rules`; the error is the missing authentication.
    pub(crate) fn check_proof(rules: &[ProofRule], who: &Identity) -> Result<(), &'static str> {
        let Some(rule) = rules.iter().find(|rule| rule.protocol == who.protocol()) else {
            return if rules.is_empty() { Ok(()) } else { Err("improper tpc authentication") };
        };
        // An identity does not know the encryption of its connection, so nobody fulfils this rule.
        if rule.encrypted { Err("unencrypted tpc disallowed") } else { Ok(()) }
    }

    /// Returns the validity of a grant for which the client requests `wanted` seconds.
    pub(crate) fn ttl_for(&self, wanted: Option<u64>) -> Duration {
        wanted.filter(|wanted| *wanted > 0).map_or(self.ttl, Duration::from_secs).min(self.ttl_max)
    }

    /// Returns the number of streams of a copy for which the client requests `wanted`.
    pub(crate) fn streams_for(&self, wanted: Option<u32>) -> u32 {
        wanted.unwrap_or(self.streams).min(self.streams_max)
    }
}

impl HostRule {
    fn admits(&self, names: &[&str]) -> bool {
        let fits = |pattern: &HostPattern| names.iter().any(|name| pattern.matches(name));
        !self.needs_attributes && self.host.as_ref().is_none_or(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LoginNames;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_restricted_paths_take_part() {
        let settings = Settings { restrict: vec![path("/data"), path("/x/y")], ..Settings::default() };
        assert!(settings.admits_path(&path("/data/f")) && settings.admits_path(&path("/x/y")));
        assert!(!settings.admits_path(&path("/database")) && !settings.admits_path(&path("/x")));
        assert!(Settings::default().admits_path(&path("/x")));
    }

    #[test]
    fn a_rule_that_needs_attributes_admits_no_destination() {
        let host =
            |text: &str, needs_attributes| HostRule { host: HostPattern::parse(text), needs_attributes };
        let settings = Settings { allow: vec![host("*.example.org", false)], ..Settings::default() };
        assert!(settings.admits_host(&["10.0.0.1", "d.example.org"]) && !settings.admits_host(&["10.0.0.1"]));
        let settings = Settings { allow: vec![host("*", true)], ..Settings::default() };
        assert!(!settings.admits_host(&["d.example.org"]));
    }

    #[test]
    fn proof_is_of_the_named_protocol() {
        let who = Identity::new(&LoginNames::default(), 1, None, "host");
        let rule = |protocol: &str, encrypted| ProofRule { protocol: protocol.to_owned(), encrypted };
        assert_eq!(Settings::check_proof(&[], &who), Ok(()));
        assert_eq!(Settings::check_proof(&[rule("gsi", false), rule("host", false)], &who), Ok(()));
        assert_eq!(Settings::check_proof(&[rule("gsi", false)], &who), Err("improper tpc authentication"));
        assert_eq!(Settings::check_proof(&[rule("host", true)], &who), Err("unencrypted tpc disallowed"));
    }

    #[test]
    fn requested_values_are_limited() {
        let settings = Settings::default();
        let seconds = |wanted| settings.ttl_for(wanted).as_secs();
        assert_eq!([seconds(None), seconds(Some(0)), seconds(Some(3)), seconds(Some(99))], [7, 7, 3, 15]);
        assert_eq!(
            [settings.streams_for(None), settings.streams_for(Some(4)), settings.streams_for(Some(99))],
            [0, 4, 15]
        );
    }
}
