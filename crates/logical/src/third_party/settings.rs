//! The configuration of third-party copies (`ofs.tpc`). It is separate from [`crate::config`]
//! because a server without the directive does not have it.

use auth::Entity;
use base::LogicalPath;
use config::HostPattern;
use digest::Algorithm;
use std::time::Duration;
use vfs::Caller;

/// A rule for destinations that may fetch from here. A destination must fit all of its conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostRule {
    /// The host of the destination, by name or address; `None` if the rule does not restrict it.
    pub host: Option<HostPattern>,
    /// The attributes that the identity of the destination must have.
    pub attributes: Vec<DestinationAttribute>,
}

/// A part of the identity of a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DestinationAttribute {
    /// Its name: the subject of its certificate, or the name that its login gives it.
    Subject(String),
    /// One of its groups.
    Group(String),
    /// One of its virtual organizations.
    Organization(String),
}

/// A required authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProofRule {
    /// The authentication protocol.
    pub protocol: String,
    /// Requests must also be encrypted or signed ([`Caller::is_protected`]).
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
    pub(crate) fn admits_host(&self, names: &[&str], entity: Option<&Entity>) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|rule| rule.admits(names, entity))
    }

    /// Reports whether the names of the host of a destination count for a rule that admits its identity.
    pub(crate) fn has_host_rule_for(&self, entity: Option<&Entity>) -> bool {
        self.allow.iter().any(|rule| rule.host.is_some() && rule.admits_entity(entity))
    }

    /// Checks whether `who` satisfies `rules`; the error is the missing authentication.
    pub(crate) fn check_proof(rules: &[ProofRule], who: &Caller) -> Result<(), &'static str> {
        let mut fitting = rules.iter().filter(|rule| rule.protocol == who.identity.protocol()).peekable();
        // An identity that has expired no longer proves anything.
        let has_expired = who.entity().is_some_and(|entity| entity.has_expired());
        if rules.is_empty() {
            Ok(())
        } else if fitting.peek().is_none() || has_expired {
            Err("improper tpc authentication")
        } else if fitting.all(|rule| rule.encrypted && !who.is_protected) {
            Err("unencrypted tpc disallowed")
        } else {
            Ok(())
        }
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
    fn admits(&self, names: &[&str], entity: Option<&Entity>) -> bool {
        let fits = |pattern: &HostPattern| names.iter().any(|name| pattern.matches(name));
        self.host.as_ref().is_none_or(fits) && self.admits_entity(entity)
    }

    fn admits_entity(&self, entity: Option<&Entity>) -> bool {
        let entity = entity.filter(|entity| !entity.has_expired());
        self.attributes.iter().all(|attribute| entity.is_some_and(|entity| attribute.is_of(entity)))
    }
}

impl DestinationAttribute {
    fn is_of(&self, entity: &Entity) -> bool {
        match self {
            Self::Subject(subject) => entity.has_subject(subject),
            Self::Group(group) => entity.is_in_group(group),
            Self::Organization(organization) => entity.is_in_organization(organization),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Identity, LoginNames};

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
    fn a_host_is_admitted_by_a_name_or_address() {
        let rule = HostRule { host: HostPattern::parse("*.example.org"), attributes: Vec::new() };
        let settings = Settings { allow: vec![rule], ..Settings::default() };
        assert!(settings.admits_host(&["10.0.0.1", "d.example.org"], None));
        assert!(!settings.admits_host(&["10.0.0.1"], None));
        assert!(Settings::default().admits_host(&["10.0.0.1"], None));
    }

    #[test]
    fn a_destination_without_a_login_has_no_attributes() {
        let attributes = vec![DestinationAttribute::Group("cms".to_owned())];
        let rule = HostRule { host: HostPattern::parse("*"), attributes };
        let admits = |rules: &[HostRule], entity: Option<&Entity>| {
            Settings { allow: rules.to_vec(), ..Settings::default() }.admits_host(&["d.example.org"], entity)
        };
        let host = Entity::of_host("d.example.org");
        assert!(!admits(std::slice::from_ref(&rule), None));
        assert!(!admits(std::slice::from_ref(&rule), Some(&host)));
        let by_host = HostRule { host: HostPattern::parse("d.*"), ..HostRule::default() };
        assert!(admits(&[rule, by_host], Some(&host)), "any rule");
    }

    #[test]
    fn proof_is_of_the_named_protocol() {
        let caller = |protected| {
            let identity = Identity::new(&LoginNames::default(), 1, None, "host");
            Caller::new(identity, true, true).with_protection(protected)
        };
        let rule = |protocol: &str, encrypted| ProofRule { protocol: protocol.to_owned(), encrypted };
        let check = |rules: &[ProofRule], protected| Settings::check_proof(rules, &caller(protected));
        assert_eq!(check(&[], false), Ok(()));
        assert_eq!(check(&[rule("gsi", false), rule("host", false)], false), Ok(()));
        assert_eq!(check(&[rule("gsi", false)], true), Err("improper tpc authentication"));
        assert_eq!(check(&[rule("host", true)], false), Err("unencrypted tpc disallowed"));
        assert_eq!(check(&[rule("host", true)], true), Ok(()));
        assert_eq!(check(&[rule("host", true), rule("host", false)], false), Ok(()), "any rule");
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
