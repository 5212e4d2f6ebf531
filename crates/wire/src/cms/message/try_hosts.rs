//! `try` (24): redirects the login of a node to other managers.
//!
//! One text: hosts separated by any number of blanks, each `host`, `host:port` or `[ipv6]:port`.
//! The text is empty if the sender knows no other manager. XRootD parents send 64 fields of 254
//! bytes, mostly blanks: up to 16259 bytes of payload. Scalla sends single blanks. Direction:
//! parent to node, also in place of the login reply (at most 4096 bytes then), after which the
//! parent closes the connection.
//!
//! [`TryList`] always ends with the address of the sender. A node at the end of its list therefore
//! returns to it immediately instead of after a pause of 9 s. A supervisor sends lists with hosts
//! only to Scalla nodes, or if it knows that the node has other entries left.
//!
//! Source: cms protocol version 3, sections 2.11, 3.3, 3.6. Recorded: 09, 13, 17b, 23.

use std::io::Write as _;

use crate::cms::codes::Code;
use crate::cms::error::EncodeError;
use crate::cms::flags::TryModifier;
use crate::cms::frames::FramePhase;
use crate::cms::limits::TRY_TEXT_BYTES_MAX;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// A redirect of a login: decoded, [`Try::NOWHERE`], or created by a [`TryList`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Try<'a> {
    modifier: TryModifier,
    hosts: &'a [u8],
}

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TryHost<'a> {
    /// Name or address; IPv6 addresses without brackets.
    pub host: &'a [u8],
    /// Port; `None` stands for the receiver's own cms port.
    pub port: Option<u16>,
}

impl<'a> Arguments<'a> for Try<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        let hosts = arguments.optional("hosts")?.unwrap_or_default();
        Ok(Self { modifier: TryModifier(modifier), hosts })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.long_text("hosts", self.hosts, TRY_TEXT_BYTES_MAX + 1)
    }
}

impl<'a> Try<'a> {
    /// An empty list: the sender has no free slot and knows no other manager. Accepted by every
    /// peer.
    pub const NOWHERE: Try<'static> = Try { modifier: TryModifier::NONE, hosts: b"" };

    pub(in crate::cms) const fn modifier(&self) -> TryModifier {
        self.modifier
    }

    /// Reports whether the hosts replace all managers of the site permanently.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        self.modifier.contains(TryModifier::PERMANENT)
    }

    /// Returns the hosts in order. An entry with an invalid port is skipped.
    pub fn hosts(&self) -> impl Iterator<Item = TryHost<'a>> + use<'a> {
        let tokens = self.hosts.split(|byte| byte.is_ascii_whitespace());
        tokens.filter(|token| !token.is_empty()).filter_map(TryHost::parse)
    }
}

impl<'a> TryHost<'a> {
    /// Creates an entry with a port.
    #[must_use]
    pub const fn new(host: &'a [u8], port: u16) -> Self {
        Self { host, port: Some(port) }
    }

    /// Parses `host`, `host:port`, `[ipv6]`, `[ipv6]:port` or an IPv6 address without brackets.
    /// Returns `None` for any other form.
    #[must_use]
    pub fn parse(token: &'a [u8]) -> Option<Self> {
        let (host, port) = if let Some(bracketed) = token.strip_prefix(b"[") {
            let end = bracketed.iter().position(|&byte| byte == b']')?;
            let (host, rest) = bracketed.split_at_checked(end)?;
            match rest.strip_prefix(b"]")? {
                [] => (host, None),
                port => (host, Some(port.strip_prefix(b":")?)),
            }
        } else {
            let mut parts = token.split(|&byte| byte == b':');
            match (parts.next()?, parts.next(), parts.next()) {
                (_, Some(_), Some(_)) => (token, None),
                (host, port, _) => (host, port),
            }
        };
        let port = match port {
            Some(port) => Some(std::str::from_utf8(port).ok()?.parse().ok().filter(|&port| port != 0)?),
            None => None,
        };
        (!host.is_empty()).then_some(Self { host, port })
    }

    fn check(&self) -> Result<(), EncodeError> {
        let bad = |&byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0 | b'[' | b']');
        if self.host.is_empty() || self.host.iter().any(bad) || self.port == Some(0) {
            return Err(EncodeError::Malformed { field: "host" });
        }
        Ok(())
    }

    fn append(&self, out: &mut Vec<u8>) {
        let bracketed = self.host.contains(&b':');
        out.extend_from_slice(if bracketed { b"[" } else { b"" });
        out.extend_from_slice(self.host);
        out.extend_from_slice(if bracketed { b"]" } else { b"" });
        if let Some(port) = self.port {
            // Writing to memory cannot fail.
            let _ = write!(out, ":{port}");
        }
    }
}

/// A builder for the text of a `try`, with single blanks and without duplicate hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TryList {
    modifier: TryModifier,
    hosts: Vec<u8>,
}

impl TryList {
    /// Creates a list of the hosts to try in order, followed by the sender's own address. Hosts
    /// that do not fit are omitted, but never the sender's address.
    ///
    /// `phase` is [`FramePhase::Login`] if the message replaces the login reply, which has a
    /// smaller limit.
    ///
    /// # Errors
    /// [`EncodeError::Malformed`] if a host is empty or contains blanks, brackets or a NUL, or if a
    /// port is 0.
    pub fn new<'h>(
        phase: FramePhase,
        hosts: impl IntoIterator<Item = TryHost<'h>>,
        own: TryHost<'h>,
    ) -> Result<Self, EncodeError> {
        Self::build(TryModifier::NONE, phase, hosts, Some(own))
    }

    /// Creates a list of hosts that replace all managers of the site permanently. Hosts that do not
    /// fit are omitted.
    ///
    /// # Errors
    /// [`EncodeError::Malformed`] as for [`TryList::new`]; [`EncodeError::Missing`] without hosts.
    pub fn permanent<'h>(
        phase: FramePhase,
        hosts: impl IntoIterator<Item = TryHost<'h>>,
    ) -> Result<Self, EncodeError> {
        let list = Self::build(TryModifier::PERMANENT, phase, hosts, None)?;
        if list.hosts.is_empty() { Err(EncodeError::Missing { field: "hosts" }) } else { Ok(list) }
    }

    fn build<'h>(
        modifier: TryModifier,
        phase: FramePhase,
        hosts: impl IntoIterator<Item = TryHost<'h>>,
        own: Option<TryHost<'h>>,
    ) -> Result<Self, EncodeError> {
        // The length takes two bytes and the NUL one.
        let room = phase.payload_bytes_max(Code::TRY).saturating_sub(3);
        let mut last = Vec::new();
        if let Some(own) = own {
            own.check()?;
            own.append(&mut last);
        }
        let mut list: Vec<u8> = Vec::new();
        let mut entry = Vec::new();
        for host in hosts {
            host.check()?;
            entry.clear();
            host.append(&mut entry);
            let bytes =
                [list.len(), 1, entry.len(), 1, last.len()].into_iter().fold(0, usize::saturating_add);
            if entry == last || bytes > room || list.split(|&byte| byte == b' ').any(|known| known == entry) {
                continue;
            }
            append_token(&mut list, &entry);
        }
        if !last.is_empty() {
            append_token(&mut list, &last);
        }
        if list.len() > room {
            return Err(EncodeError::TooLong { field: "hosts", limit: room, bytes: list.len() });
        }
        Ok(Self { modifier, hosts: list })
    }

    /// Returns the message with this list.
    #[must_use]
    pub fn message(&self) -> Try<'_> {
        Try { modifier: self.modifier, hosts: &self.hosts }
    }
}

fn append_token(list: &mut Vec<u8>, token: &[u8]) {
    if !list.is_empty() {
        list.push(b' ');
    }
    list.extend_from_slice(token);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &[u8]) -> Vec<TryHost<'_>> {
        Try { modifier: TryModifier::NONE, hosts: text }.hosts().collect()
    }

    #[test]
    fn every_form_of_host_is_parsed() {
        assert_eq!(
            hosts(b"  vm:22052   10.0.0.1:1\t[::1]:2 [2001:db8::1] ::1 plain \n"),
            [
                TryHost::new(b"vm", 22052),
                TryHost::new(b"10.0.0.1", 1),
                TryHost::new(b"::1", 2),
                TryHost { host: b"2001:db8::1", port: None },
                TryHost { host: b"::1", port: None },
                TryHost { host: b"plain", port: None },
            ]
        );
        assert_eq!(hosts(b"a:0 a:x a:70000 :1 []:1 [::1 [::1]1 [::1]: b:"), []);
        assert_eq!(Try::NOWHERE.hosts().count(), 0);
    }

    #[test]
    fn a_list_ends_with_the_own_address() {
        let own = TryHost::new(b"root", 1213);
        let supervisors = [TryHost::new(b"a", 1), TryHost::new(b"::1", 2), own, TryHost::new(b"a", 1)];
        let list = TryList::new(FramePhase::Established, supervisors, own).unwrap();
        assert_eq!(list.message(), Try { modifier: TryModifier::NONE, hosts: b"a:1 [::1]:2 root:1213" });
        assert_eq!(list.message().hosts().last(), Some(own));
        assert!(!list.message().is_permanent());
    }

    #[test]
    fn a_long_list_is_cut_but_keeps_the_own_address() {
        let names: Vec<_> = (0..2000).map(|i| format!("supervisor-{i}.example.org").into_bytes()).collect();
        let own = TryHost::new(b"root.example.org", 1213);
        for (phase, limit) in [(FramePhase::Login, 4093), (FramePhase::Established, 16_381)] {
            let list = TryList::new(phase, names.iter().map(|name| TryHost::new(name, 1213)), own).unwrap();
            assert!(list.hosts.len() <= limit && list.hosts.len() > limit - 100);
            assert_eq!(list.message().hosts().last(), Some(own));
            assert!(list.message().hosts().count() > 100);
        }
    }

    #[test]
    fn a_permanent_list_is_not_empty() {
        let vm = TryHost::new(b"vm", 22178);
        let list = TryList::permanent(FramePhase::Login, [vm, vm]).unwrap();
        assert!(list.message().is_permanent());
        assert_eq!(list.message().hosts().collect::<Vec<_>>(), [vm]);
        assert_eq!(TryList::permanent(FramePhase::Login, []), Err(EncodeError::Missing { field: "hosts" }));
    }

    #[test]
    fn an_invalid_host_is_refused() {
        let own = TryHost::new(b"root", 1);
        for host in [&b""[..], b"a b", b"a\0", b"[::1]", b"a\tb"] {
            let refused = Err(EncodeError::Malformed { field: "host" });
            assert_eq!(TryList::new(FramePhase::Login, [TryHost::new(host, 1)], own), refused);
            assert_eq!(TryList::new(FramePhase::Login, [], TryHost::new(host, 1)), refused);
        }
        assert!(TryList::new(FramePhase::Login, [TryHost::new(b"a", 0)], own).is_err());
    }
}
