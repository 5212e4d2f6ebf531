//! The system id, which identifies a node across restarts and reconnects.
//!
//! The form is `[*]t-instance SP cid`. `t` is `m` for a manager, `s` for a server, `u` for a
//! supervisor, in upper case for proxies. The instance is `name@host`; with an asterisk in front it
//! is an id that does not depend on the host. The cluster id `cid` is derived from the addresses of
//! the cluster's managers ([`super::cluster_id`]).
//!
//! Two logins belong to the same node if the texts are equal and, without the asterisk, address and
//! data port are equal as well. A parent treats the second one as a reconnect or as a duplicate.
//!
//! Source: cms protocol version 3, section 2.5. Recorded: 01, 09, 10.

use crate::codec::{Decode, Encode};
use crate::error::WireError;

/// The kind of node in a system id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemIdKind {
    /// The root of a tree, or a meta manager.
    Manager,
    /// A leaf.
    Server,
    /// An inner node.
    Supervisor,
}

/// The parts of a system id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemId<'a> {
    /// The id identifies the node independently of its address.
    pub anywhere: bool,
    /// Kind of the node.
    pub kind: SystemIdKind,
    /// The node is a proxy.
    pub proxy: bool,
    /// `name@host`, or an id that does not depend on the host.
    pub instance: &'a [u8],
    /// The cluster id.
    pub cluster: &'a [u8],
}

impl Encode for SystemId<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        if self.anywhere {
            out.push(b'*');
        }
        let letter = match self.kind {
            SystemIdKind::Manager => b'm',
            SystemIdKind::Server => b's',
            SystemIdKind::Supervisor => b'u',
        };
        out.push(if self.proxy { letter.to_ascii_uppercase() } else { letter });
        out.push(b'-');
        out.extend_from_slice(self.instance);
        out.push(b' ');
        out.extend_from_slice(self.cluster);
    }
}

impl<'a> Decode<'a> for SystemId<'a> {
    /// Parses a system id. The cluster id is the text behind the last blank.
    ///
    /// # Errors
    /// [`WireError::BadText`] for any other form. Such a text can still serve as an identity,
    /// because nodes only compare it.
    fn decode(text: &'a [u8]) -> Result<Self, WireError> {
        Self::take_apart(text).ok_or(WireError::BadText { field: "SID" })
    }
}

impl<'a> SystemId<'a> {
    fn take_apart(text: &'a [u8]) -> Option<Self> {
        let (anywhere, text) = match text {
            [b'*', text @ ..] => (true, text),
            text => (false, text),
        };
        let [letter, b'-', names @ ..] = text else { return None };
        let kind = match letter.to_ascii_lowercase() {
            b'm' => SystemIdKind::Manager,
            b's' => SystemIdKind::Server,
            b'u' => SystemIdKind::Supervisor,
            _ => return None,
        };
        let blank = names.iter().rposition(|&byte| byte == b' ')?;
        let (instance, cluster) = names.split_at_checked(blank)?;
        let (_, cluster) = cluster.split_first()?;
        let whole = !instance.is_empty() && !cluster.is_empty() && !names.contains(&0);
        whole.then_some(Self { anywhere, kind, proxy: letter.is_ascii_uppercase(), instance, cluster })
    }

    /// Returns the cluster id of any text, including one that is not a valid system id: the text
    /// behind the last blank.
    #[must_use]
    pub fn cluster_of(text: &[u8]) -> Option<&[u8]> {
        let blank = text.iter().rposition(|&byte| byte == b' ')?;
        text.get(blank.checked_add(1)?..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_ids_parse_and_encode() {
        let id =
            |kind, instance, cluster| SystemId { anywhere: false, kind, proxy: false, instance, cluster };
        let cases = [
            (&b"s-srv1@vm 22001localhost"[..], id(SystemIdKind::Server, b"srv1@vm", b"22001localhost")),
            (b"m-man@vm 22000localhost", id(SystemIdKind::Manager, b"man@vm", b"22000localhost")),
            (b"u-sup@vm 22003localhost", id(SystemIdKind::Supervisor, b"sup@vm", b"22003localhost")),
            (b"m-meta@vm meta@vm", id(SystemIdKind::Manager, b"meta@vm", b"meta@vm")),
        ];
        for (text, id) in cases {
            assert_eq!(SystemId::decode(text), Ok(id));
            assert_eq!(SystemId::cluster_of(text), Some(id.cluster));
            assert_eq!(id.encoded(), text);
        }
    }

    #[test]
    fn ids_with_an_asterisk_and_of_proxies_parse() {
        let text = b"*S-rack 7 box 3 tag.22001localhost";
        let id = SystemId::decode(text).unwrap();
        assert!(id.anywhere && id.proxy);
        assert_eq!((id.kind, id.instance), (SystemIdKind::Server, &b"rack 7 box 3"[..]));
        assert_eq!(id.cluster, b"tag.22001localhost");
        assert_eq!(id.encoded(), text);
    }

    #[test]
    fn invalid_system_ids_are_refused() {
        for bad in [&b""[..], b"*", b"s", b"s-", b"s- c", b"s-i", b"s-i ", b"x-i c", b"s i c", b"s-i\0 c"] {
            assert_eq!(SystemId::decode(bad), Err(WireError::BadText { field: "SID" }), "{bad:?}");
        }
        assert_eq!(SystemId::cluster_of(b"whatever c"), Some(&b"c"[..]));
        assert_eq!(SystemId::cluster_of(b"whatever"), None);
    }
}
