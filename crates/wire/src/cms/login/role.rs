//! What a node is to the one that accepts it.
//!
//! | bits of the mode | acceptor                                 | role           |
//! |------------------|------------------------------------------|----------------|
//! | director         | any                                      | redirector     |
//! | manager, proxy   | any                                      | proxy manager  |
//! | manager, peer    | any                                      | peer manager   |
//! | manager          | a meta manager, or the bit subman is set | manager        |
//! | manager          | another                                  | supervisor     |
//! | server, proxy    | any                                      | proxy server   |
//! | server           | any                                      | server         |
//! | peer             | any                                      | peer           |
//!
//! Whom an acceptor takes is its own affair: real managers refuse proxy servers, proxy managers take nobody else,
//! supervisors refuse peers. Source: cms protocol version 3, section 2.4.

use std::fmt;

use crate::cms::flags::Mode;

/// Who accepts a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptor {
    /// A meta manager.
    MetaManager,
    /// A manager or a supervisor.
    Manager,
}

/// What a node is to the one that accepts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Asks where files are; no node of the tree.
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
    /// The role that a login's mode means to `acceptor`; `None`: to be refused.
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

    /// Whether it accepts children: an `M` in the list of locations, in a tree never displaced by a server.
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
    fn the_other_rows_of_the_table() {
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
