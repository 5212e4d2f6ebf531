//! The role of a node, as seen by the node that accepts its login.
//!
//! | bits of the mode | acceptor                                 | role          |
//! |------------------|------------------------------------------|---------------|
//! | director         | any                                      | redirector    |
//! | manager, proxy   | any                                      | proxy manager |
//! | manager, peer    | any                                      | peer manager  |
//! | manager          | a meta manager, or the bit subman is set | manager       |
//! | manager          | another                                  | supervisor    |
//! | server, proxy    | any                                      | proxy server  |
//! | server           | any                                      | server        |
//! | peer             | any                                      | peer          |
//!
//! The acceptor decides separately which roles it admits. In XRootD, managers refuse proxy servers,
//! proxy managers admit only those, and supervisors refuse peers.
//!
//! Source: cms protocol version 3, section 2.4.

use std::fmt;

use crate::cms::flags::Mode;

/// The kind of node that accepts a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptor {
    /// A meta manager.
    MetaManager,
    /// A manager or a supervisor.
    Manager,
}

/// The role of a node for its acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A redirector, which queries file locations; it is not a node of the tree.
    Redirector,
    /// The root of a tree below a meta manager, or of a subcluster.
    Manager,
    /// An inner node.
    Supervisor,
    /// A leaf.
    Server,
    /// A manager of proxies.
    ProxyManager,
    /// A proxy.
    ProxyServer,
    /// A manager of another cluster.
    PeerManager,
    /// Another cluster.
    Peer,
}

impl Role {
    /// Returns the role that a login's mode means to `acceptor`; `None` if the login must be
    /// refused.
    #[must_use]
    pub const fn of(mode: Mode, acceptor: Acceptor) -> Option<Self> {
        let (proxy, peer) = (mode.contains(Mode::PROXY), mode.contains(Mode::PEER));
        let meta = matches!(acceptor, Acceptor::MetaManager) || mode.contains(Mode::SUBMAN);
        if mode.contains(Mode::DIRECTOR) {
            Some(Self::Redirector)
        } else if mode.contains(Mode::MANAGER) {
            Some(match (proxy, peer, meta) {
                (true, _, _) => Self::ProxyManager,
                (_, true, _) => Self::PeerManager,
                (_, _, true) => Self::Manager,
                _ => Self::Supervisor,
            })
        } else if mode.contains(Mode::SERVER) {
            Some(if proxy { Self::ProxyServer } else { Self::Server })
        } else if peer {
            Some(Self::Peer)
        } else {
            None
        }
    }

    /// Reports whether the node accepts children. Such a node is an `M` in a list of locations, and
    /// a server never displaces it in a tree.
    #[must_use]
    pub const fn has_children(self) -> bool {
        matches!(self, Self::Manager | Self::Supervisor | Self::ProxyManager | Self::PeerManager)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redirector => "redirector",
            Self::Manager => "manager",
            Self::Supervisor => "supervisor",
            Self::Server => "server",
            Self::ProxyManager => "proxy manager",
            Self::ProxyServer => "proxy server",
            Self::PeerManager => "peer manager",
            Self::Peer => "peer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_modes_have_their_roles() {
        let to = |mode, acceptor| Role::of(Mode(mode), acceptor);
        assert_eq!(to(0x0080_0248, Acceptor::Manager), Some(Role::Server));
        assert_eq!(to(0x0080_034a, Acceptor::Manager), Some(Role::Supervisor));
        assert_eq!(to(0x2880_0342, Acceptor::MetaManager), Some(Role::Manager));
        assert_eq!(to(0x41, Acceptor::Manager), Some(Role::Redirector));
    }

    #[test]
    fn other_modes_have_the_roles_of_the_table() {
        let to_manager = |mode: Mode| Role::of(mode, Acceptor::Manager);
        assert_eq!(to_manager(Mode::MANAGER | Mode::SUBMAN), Some(Role::Manager));
        assert_eq!(to_manager(Mode(0x1a)), Some(Role::ProxyManager));
        assert_eq!(to_manager(Mode::MANAGER | Mode::PEER), Some(Role::PeerManager));
        assert_eq!(to_manager(Mode::SERVER | Mode::PROXY), Some(Role::ProxyServer));
        assert_eq!(to_manager(Mode::PEER), Some(Role::Peer));
        assert_eq!(to_manager(Mode::PROXY | Mode::BLREDIR), None);
        assert_eq!(to_manager(Mode::DIRECTOR | Mode::MANAGER), Some(Role::Redirector));
    }
}
