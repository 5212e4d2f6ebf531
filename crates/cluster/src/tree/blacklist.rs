//! The administrator's black list (or white list) of nodes. Source: cms protocol 3, black list
//! file.
//!
//! The list is checked at each login and, when it changes, for all children: see `members`.

use super::address::Address;
use super::peer_address::PeerAddress;

/// One line of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlacklistRule {
    /// A host name or address, with at most one `*` that matches any text.
    pub pattern: String,
    /// The managers to which such a node is redirected; may be empty.
    pub redirect: Vec<Address>,
}

/// The list. An empty list bans no node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blacklist {
    /// The lines of the list.
    pub rules: Vec<BlacklistRule>,
    /// The list names the nodes that may join, not those that may not.
    pub inverted: bool,
}

/// The verdict of the list on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BlacklistVerdict {
    /// The node may join.
    Fine,
    /// The node may not join.
    Banned,
    /// The node is redirected to these managers.
    Elsewhere(Vec<Address>),
}

impl Blacklist {
    /// Returns the verdict of the list on a node.
    pub fn verdict(&self, peer: &PeerAddress) -> BlacklistVerdict {
        let ip = peer.ip.to_string();
        let rule =
            self.rules.iter().find(|rule| matches(&rule.pattern, &peer.host) || matches(&rule.pattern, &ip));
        match (rule, self.inverted) {
            (None, false) | (Some(_), true) => BlacklistVerdict::Fine,
            (None, true) => BlacklistVerdict::Banned,
            (Some(rule), false) if rule.redirect.is_empty() => BlacklistVerdict::Banned,
            (Some(rule), false) => BlacklistVerdict::Elsewhere(rule.redirect.clone()),
        }
    }
}

/// Reports whether `text` matches a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(text),
        Some((head, tail)) => {
            let (text, head, tail) =
                (text.to_ascii_lowercase(), head.to_ascii_lowercase(), tail.to_ascii_lowercase());
            text.strip_prefix(head.as_str()).is_some_and(|rest| rest.ends_with(tail.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(lines: &[(&str, &str)], inverted: bool, host: &str) -> BlacklistVerdict {
        let rules = lines.iter().map(|(pattern, redirect)| BlacklistRule {
            pattern: (*pattern).to_owned(),
            redirect: redirect.split_whitespace().map(|host| Address::new(host, 1)).collect(),
        });
        let peer = PeerAddress { ip: "10.1.2.3".parse().expect("an address"), host: host.to_owned() };
        Blacklist { rules: rules.collect(), inverted }.verdict(&peer)
    }

    #[test]
    fn names_patterns_and_addresses() {
        let list = [("bad.site", ""), ("*.old.site", "new newer"), ("10.1.2.4", "")];
        assert_eq!(verdict(&list, false, "good.site"), BlacklistVerdict::Fine);
        assert_eq!(verdict(&list, false, "BAD.site"), BlacklistVerdict::Banned);
        assert_eq!(
            verdict(&list, false, "x.old.site"),
            BlacklistVerdict::Elsewhere(vec![Address::new("new", 1), Address::new("newer", 1)])
        );
        assert_eq!(verdict(&[("10.1.*", "")], false, "any"), BlacklistVerdict::Banned);
        assert_eq!(
            verdict(&[("ab*ba", "")], false, "aba"),
            BlacklistVerdict::Fine,
            "head and tail do not overlap"
        );
        assert_eq!(verdict(&[], false, "any"), BlacklistVerdict::Fine);
    }

    #[test]
    fn a_white_list_turns_it_around() {
        assert_eq!(verdict(&[("a*", "")], true, "abc"), BlacklistVerdict::Fine);
        assert_eq!(verdict(&[("a*", "")], true, "bcd"), BlacklistVerdict::Banned);
    }
}
