//! `select` (10) and `locate` (2): requests a node for a client, and the locations of a path.
//!
//! Arguments of both: ident, opts u32, path; optional: opaque, avoid. The answer to `select` is
//! redirect, wait, waitresp or error. The answer to `locate` is data, wait, waitresp or error. A
//! request with streamid 0 is not answered. The path of a `locate` may be `*` (all nodes) or start
//! with `*` (all nodes that export it). Both are in one file because they share their layout.
//! Direction: redirector to manager.
//!
//! Source: cms protocol version 3, sections 1.3, 1.5, 4.6, 4.7, 4.10. Recorded: 03 to 06, 15, 16.

use crate::cms::error::EncodeError;
use crate::cms::flags::{LocateOptions, SelectOptions};
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Requests a node to which a client can be redirected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Select<'a> {
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// Purpose of the request, and the address families that the client can reach.
    pub options: SelectOptions,
    /// The path.
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
    /// Nodes that the client has already tried: [`Select::avoided`].
    pub avoid: Option<&'a [u8]>,
}

/// Requests the locations of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locate<'a> {
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// Form of the answer, and the address families that the client can reach.
    pub options: LocateOptions,
    /// The path, `*`, or a path behind `*`: [`Locate::scope`].
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
    /// Nodes that the client has already tried.
    pub avoid: Option<&'a [u8]>,
}

/// A node or cluster to which a client must not be redirected again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Avoided<'a> {
    /// A host name or address; a port in it is ignored.
    Host(&'a [u8]),
    /// All nodes with this cluster id.
    Cluster(&'a [u8]),
}

/// The subject of a `locate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocateScope<'a> {
    /// All nodes.
    Nodes,
    /// All nodes that export the path.
    Exporting(&'a [u8]),
    /// The nodes that have the path.
    Holding(&'a [u8]),
}

impl<'a> Arguments<'a> for Select<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            ident: arguments.text("ident")?,
            options: SelectOptions(arguments.u32("opts")?),
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
            avoid: arguments.optional("avoid")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        pack(packer, self.ident, self.options.0, self.path, self.opaque, self.avoid)
    }
}

impl<'a> Select<'a> {
    /// Returns the nodes to avoid, in the order of the list.
    pub fn avoided(&self) -> impl Iterator<Item = Avoided<'a>> + use<'a> {
        let tokens = self.avoid.unwrap_or_default().split(|&byte| byte == b',');
        tokens.filter_map(|token| match token {
            [] | [b'+'] => None,
            [b'+', cluster @ ..] => Some(Avoided::Cluster(cluster)),
            host => Some(Avoided::Host(host)),
        })
    }
}

impl<'a> Arguments<'a> for Locate<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            ident: arguments.text("ident")?,
            options: LocateOptions(arguments.u32("opts")?),
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
            avoid: arguments.optional("avoid")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        pack(packer, self.ident, self.options.0, self.path, self.opaque, self.avoid)
    }
}

impl<'a> Locate<'a> {
    /// Returns the subject of the query.
    #[must_use]
    pub const fn scope(&self) -> LocateScope<'a> {
        match self.path {
            [b'*'] => LocateScope::Nodes,
            [b'*', path @ ..] => LocateScope::Exporting(path),
            path => LocateScope::Holding(path),
        }
    }
}

fn pack(
    packer: &mut Packer<'_>,
    ident: &[u8],
    options: u32,
    path: &[u8],
    opaque: Option<&[u8]>,
    avoid: Option<&[u8]>,
) -> Result<(), EncodeError> {
    packer.text("ident", ident)?;
    packer.u32(options);
    packer.filled("path", path)?;
    packer.optional("opaque", opaque)?;
    packer.optional("avoid", avoid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avoided_hosts_and_clusters_are_parsed() {
        let avoided = |avoid| {
            let options = SelectOptions::READ;
            let select = Select { ident: b"", options, path: b"/f", opaque: None, avoid };
            select.avoided().collect::<Vec<_>>()
        };
        assert_eq!(
            avoided(Some(b"vm:1094,,+22000localhost,+,::1")),
            [Avoided::Host(b"vm:1094"), Avoided::Cluster(b"22000localhost"), Avoided::Host(b"::1")]
        );
        assert_eq!(avoided(Some(b"")), []);
        assert_eq!(avoided(None), []);
    }

    #[test]
    fn a_star_locates_nodes() {
        let scope = |path| {
            let options = LocateOptions::NONE;
            Locate { ident: b"", options, path, opaque: None, avoid: None }.scope()
        };
        assert_eq!(scope(b"*"), LocateScope::Nodes);
        assert_eq!(scope(b"*/a"), LocateScope::Exporting(b"/a"));
        assert_eq!(scope(b"/a*"), LocateScope::Holding(b"/a*"));
    }
}
