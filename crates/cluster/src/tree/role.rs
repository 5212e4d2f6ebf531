//! The roles that a parent accepts. Source: cms protocol 3, role seen by the accepting side.
//!
//! The rules are one table, so that logins are refused for the same reasons at every acceptor.

use std::fmt;

use wire::cms::flags::Mode;
use wire::cms::login::{Acceptor as Side, Role};

/// The role of the accepting side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptorRole {
    /// Root of a tree.
    Manager,
    /// Root of a tree of proxies.
    ProxyManager,
    /// Root above managers.
    MetaManager,
    /// Inner node of a tree.
    Supervisor,
    /// Inner node of a tree of proxies.
    ProxySupervisor,
    /// A leaf: only redirectors log in here.
    Server,
}

impl AcceptorRole {
    /// Reports whether the node and its children decide about their names, and no node above.
    pub const fn is_root_of_names(self) -> bool {
        matches!(self, Self::Manager | Self::ProxyManager)
    }

    /// Reports whether the node is between a root and its servers.
    pub const fn is_supervisor(self) -> bool {
        matches!(self, Self::Supervisor | Self::ProxySupervisor)
    }

    /// Reports whether the children are proxies, and not data servers.
    const fn is_of_proxies(self) -> bool {
        matches!(self, Self::ProxyManager | Self::ProxySupervisor)
    }
}

/// The reason why the role of a node is refused. On the wire all are equal: the reply, then the end
/// of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleError {
    /// The login claims no role.
    None,
    /// Clusters of peers no longer exist; real nodes cannot be configured for them.
    Peer,
    /// Proxies and data servers do not mix in one cell.
    Proxy,
    /// See [`RoleError::Proxy`].
    NotProxy,
    /// Leaves have no children.
    Leaf,
}

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "the login names no role",
            Self::Peer => "the login is that of a peer cluster, which is not supported",
            Self::Proxy => "a proxy logged in to a parent of data servers",
            Self::NotProxy => "a data server logged in to a parent of proxies",
            Self::Leaf => "a node logged in to a server, which has no children",
        })
    }
}

/// Returns the role of a node of this mode for `acceptor`.
///
/// # Errors
///
/// An error if `acceptor` does not accept such nodes.
pub fn role(mode: Mode, acceptor: AcceptorRole) -> Result<Role, RoleError> {
    let side = if acceptor == AcceptorRole::MetaManager { Side::MetaManager } else { Side::Manager };
    let role = Role::of(mode, side).ok_or(RoleError::None)?;
    let proxies = acceptor.is_of_proxies();
    match role {
        Role::Redirector => Ok(role),
        _ if acceptor == AcceptorRole::Server => Err(RoleError::Leaf),
        Role::Peer | Role::PeerManager => Err(RoleError::Peer),
        // Real proxy managers refuse these: a tree of real proxies has one level. Ours may have
        // more.
        Role::ProxyManager if !proxies && acceptor != AcceptorRole::MetaManager => Err(RoleError::Proxy),
        // Clients that look for a file of data servers must not get to a proxy.
        Role::ProxyServer if !proxies => Err(RoleError::Proxy),
        Role::Supervisor | Role::Server if proxies => Err(RoleError::NotProxy),
        _ => Ok(role),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_accepts_the_right_children() {
        let (manager, server, proxy) = (Mode::MANAGER, Mode::SERVER, Mode::PROXY);
        let table = [
            (Mode::DIRECTOR | manager, AcceptorRole::Manager, Ok(Role::Redirector)),
            (Mode::DIRECTOR, AcceptorRole::Server, Ok(Role::Redirector)),
            (manager | server, AcceptorRole::Supervisor, Ok(Role::Supervisor)),
            (manager | server, AcceptorRole::MetaManager, Ok(Role::Manager)),
            (manager | Mode::SUBMAN, AcceptorRole::Manager, Ok(Role::Manager)),
            (manager | proxy, AcceptorRole::ProxyManager, Ok(Role::ProxyManager)),
            (manager | proxy, AcceptorRole::MetaManager, Ok(Role::ProxyManager)),
            (manager | proxy, AcceptorRole::Manager, Err(RoleError::Proxy)),
            (manager, AcceptorRole::ProxyManager, Err(RoleError::NotProxy)),
            (manager | Mode::PEER, AcceptorRole::Manager, Err(RoleError::Peer)),
            (server, AcceptorRole::Supervisor, Ok(Role::Server)),
            (server | proxy, AcceptorRole::Supervisor, Err(RoleError::Proxy)),
            (server | proxy, AcceptorRole::ProxySupervisor, Ok(Role::ProxyServer)),
            (server, AcceptorRole::ProxySupervisor, Err(RoleError::NotProxy)),
            (manager | server, AcceptorRole::ProxySupervisor, Err(RoleError::NotProxy)),
            (manager | server | proxy, AcceptorRole::ProxySupervisor, Ok(Role::ProxyManager)),
            (manager | server | proxy, AcceptorRole::Supervisor, Err(RoleError::Proxy)),
            (Mode::DIRECTOR | manager, AcceptorRole::ProxySupervisor, Ok(Role::Redirector)),
            (server, AcceptorRole::Server, Err(RoleError::Leaf)),
            (server | proxy, AcceptorRole::Manager, Err(RoleError::Proxy)),
            (server | proxy, AcceptorRole::ProxyManager, Ok(Role::ProxyServer)),
            (server, AcceptorRole::ProxyManager, Err(RoleError::NotProxy)),
            (Mode::PEER, AcceptorRole::Supervisor, Err(RoleError::Peer)),
            (Mode::NONE, AcceptorRole::Manager, Err(RoleError::None)),
        ];
        for (mode, acceptor, expected) in table {
            assert_eq!(role(mode, acceptor), expected, "{mode:?} at {acceptor:?}");
        }
    }
}
