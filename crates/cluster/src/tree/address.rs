//! Where a node of the cluster listens: a host and a port, as a `try` names it.

use std::fmt;
use std::sync::Arc;

/// A host (name, IPv4 or IPv6 without brackets) and a port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// The address of these parts.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `host:port`, `[v6]:port`, `host` or `[v6]`; `default` is the port of the latter two. `None` when the text
    /// is no such thing.
    pub fn parse(text: &str, default: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
            }
            None => match text.split_once(':') {
                // More than one colon and no brackets: an IPv6 address without a port.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok()?,
            None => default,
        };
        let proper = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
        proper.then(|| Self::new(host, port))
    }

    /// The host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the list of a `try`: entries separated by any amount of blanks. What is no address is left out, and so is what
/// comes behind the first [`limits::CANDIDATES_MAX`](super::limits::CANDIDATES_MAX) entries.
pub fn parse_list(list: &str, default_port: u16) -> Vec<Address> {
    let blank = |c: char| c.is_whitespace() || c == '\0';
    let entries = list.split(blank).filter(|entry| !entry.is_empty());
    entries
        .filter_map(|entry| Address::parse(entry, default_port))
        .take(super::limits::CANDIDATES_MAX)
        .collect()
}

/// The list of a `try`: entries separated by single blanks.
pub fn format_list<'a>(addresses: impl IntoIterator<Item = &'a Address>) -> String {
    let mut list = String::new();
    for address in addresses {
        if !list.is_empty() {
            list.push(' ');
        }
        list.push_str(&address.to_string());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_an_entry() {
        let read = |text: &str| Address::parse(text, 1213).map(|address| address.to_string());
        assert_eq!(read("a.b:17").as_deref(), Some("a.b:17"));
        assert_eq!(read("a.b").as_deref(), Some("a.b:1213"));
        assert_eq!(read("[::1]:17").as_deref(), Some("[::1]:17"));
        assert_eq!(read("[::1]").as_deref(), Some("[::1]:1213"));
        assert_eq!(read("fe80::1").as_deref(), Some("[fe80::1]:1213"));
        for wrong in ["", ":17", "a:99999", "a:x", "[::1", "[::1]17", "a b:1"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_list_of_blanks_as_real_parents_send_it() {
        let list = format!("{:254}{:254}{:254}\0", "sup1:22003", "", "[::2]:22004");
        let read = parse_list(&list, 1);
        assert_eq!(format_list(&read), "sup1:22003 [::2]:22004");
        assert_eq!(parse_list("  \0", 1), []);
        let long = "h:1 ".repeat(500);
        assert_eq!(parse_list(&long, 1).len(), super::super::limits::CANDIDATES_MAX);
    }
}
