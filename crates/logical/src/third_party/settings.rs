//! What a server is told of third-party copies: `ofs.tpc`.

use base::{Identity, LogicalPath};
use config::HostPattern;
use digest::Algorithm;
use std::time::Duration;

/// One rule of those who may fetch from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRule {
    /// The destination's host, by name or address; `None` when the rule says nothing of it.
    pub host: Option<HostPattern>,
    /// The rule also names what only authentication tells (a distinguished name, a group, an organization). Nobody has it
    /// as long as hosts alone are known, so such a rule admits nobody.
    pub needs_attributes: bool,
}

/// How somebody must have been authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProofRule {
    /// The protocol.
    pub protocol: String,
    /// The connection must be encrypted too.
    pub encrypted: bool,
}

/// Limits and rules of third-party copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a grant holds unless the client asks for another time.
    pub ttl: Duration,
    /// The most a client may ask for, and how long a destination that came first waits.
    pub ttl_max: Duration,
    /// Copies that run at once; more wait for their turn.
    pub jobs_max: usize,
    /// Streams of a copy whose client says nothing.
    pub streams: u32,
    /// The most a client may ask for.
    pub streams_max: u32,
    /// The checksum that every copy is verified with; a client may ask for another one.
    pub checksum: Option<Algorithm>,
    /// Only what lies below one of these takes part; empty: everything.
    pub restrict: Vec<LogicalPath>,
    /// Who may fetch from here; empty: everybody with a grant.
    pub allow: Vec<HostRule>,
    /// What a client must have proven, one of these; empty: nothing.
    pub require_client: Vec<ProofRule>,
    /// The same for a destination.
    pub require_destination: Vec<ProofRule>,
    /// Sources may have names that are not absolute paths.
    pub object_ids: bool,
    /// Copies that succeed are logged too.
    pub log_success: bool,
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
        }
    }
}

impl Settings {
    /// May this path take part?
    pub(crate) fn admits_path(&self, path: &LogicalPath) -> bool {
        self.restrict.is_empty() || self.restrict.iter().any(|prefix| path.is_within(prefix))
    }

    /// May this destination, known under these names, fetch from here?
    pub(crate) fn admits_host(&self, names: &[&str]) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|rule| rule.admits(names))
    }

    /// Has `who` proven what `rules` demand? Else what is missing.
    pub(crate) fn check_proof(rules: &[ProofRule], who: &Identity) -> Result<(), &'static str> {
        let Some(rule) = rules.iter().find(|rule| rule.protocol == who.protocol) else {
            return if rules.is_empty() { Ok(()) } else { Err("improper tpc authentication") };
        };
        // Connections are not encrypted.
        if rule.encrypted { Err("unencrypted tpc disallowed") } else { Ok(()) }
    }

    /// How long a grant holds for which the client asks `wanted` seconds.
    pub(crate) fn ttl_for(&self, wanted: Option<u64>) -> Duration {
        wanted.filter(|wanted| *wanted > 0).map_or(self.ttl, Duration::from_secs).min(self.ttl_max)
    }

    /// Streams of a copy for which the client asks for so many.
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
    use base::Told;

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
    fn a_rule_that_asks_for_what_nobody_has_admits_nobody() {
        let host =
            |text: &str, needs_attributes| HostRule { host: HostPattern::parse(text), needs_attributes };
        let settings = Settings { allow: vec![host("*.example.org", false)], ..Settings::default() };
        assert!(settings.admits_host(&["10.0.0.1", "d.example.org"]) && !settings.admits_host(&["10.0.0.1"]));
        let settings = Settings { allow: vec![host("*", true)], ..Settings::default() };
        assert!(!settings.admits_host(&["d.example.org"]));
    }

    #[test]
    fn proof_is_of_the_named_protocol() {
        let who = Identity::new(&Told::default(), 1, None, "host");
        let rule = |protocol: &str, encrypted| ProofRule { protocol: protocol.to_owned(), encrypted };
        assert_eq!(Settings::check_proof(&[], &who), Ok(()));
        assert_eq!(Settings::check_proof(&[rule("gsi", false), rule("host", false)], &who), Ok(()));
        assert_eq!(Settings::check_proof(&[rule("gsi", false)], &who), Err("improper tpc authentication"));
        assert_eq!(Settings::check_proof(&[rule("host", true)], &who), Err("unencrypted tpc disallowed"));
    }

    #[test]
    fn what_clients_ask_for_is_limited() {
        let settings = Settings::default();
        let seconds = |wanted| settings.ttl_for(wanted).as_secs();
        assert_eq!([seconds(None), seconds(Some(0)), seconds(Some(3)), seconds(Some(99))], [7, 7, 3, 15]);
        assert_eq!(
            [settings.streams_for(None), settings.streams_for(Some(4)), settings.streams_for(Some(99))],
            [0, 4, 15]
        );
    }
}
