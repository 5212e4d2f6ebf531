//! The roles that a parent accepts. Source: cms protocol 3, role seen by the accepting side.
//!
//! The rules are one table, so that logins are refused for the same reasons at every acceptor.

use std::fmt;

use wire::cms::flags::Mode;
use wire::cms::login::{Acceptor as Side, Role};

/// The role of the accepting side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptor {
    /// Root of a tree.
    Manager,
    /// Root of a tree of proxies.
    ProxyManager,
    /// Root above managers.
    MetaManager,
    /// Inner node of a tree.
    Supervisor,
    /// A leaf: only redirectors log in here.
    Server,
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
pub fn role(mode: Mode, acceptor: Acceptor) -> Result<Role, RoleError> {
    let side = if acceptor == Acceptor::MetaManager { Side::MetaManager } else { Side::Manager };
    let role = Role::of(mode, side).ok_or(RoleError::None)?;
    let proxies = acceptor == Acceptor::ProxyManager;
    match role {
        Role::Redirector => Ok(role),
        _ if acceptor == Acceptor::Server => Err(RoleError::Leaf),
        Role::Peer | Role::PeerManager => Err(RoleError::Peer),
        // Real proxy managers refuse these: a tree of real proxies has one level. Ours may have
        // more.
        Role::ProxyManager if !proxies && acceptor != Acceptor::MetaManager => Err(RoleError::Proxy),
        // A supervisor of proxies does not report that its servers are proxies, so both kinds pass
        // there.
        Role::ProxyServer if !proxies && acceptor != Acceptor::Supervisor => Err(RoleError::Proxy),
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
            (Mode::DIRECTOR | manager, Acceptor::Manager, Ok(Role::Redirector)),
            (Mode::DIRECTOR, Acceptor::Server, Ok(Role::Redirector)),
            (manager | server, Acceptor::Supervisor, Ok(Role::Supervisor)),
            (manager | server, Acceptor::MetaManager, Ok(Role::Manager)),
            (manager | Mode::SUBMAN, Acceptor::Manager, Ok(Role::Manager)),
            (manager | proxy, Acceptor::ProxyManager, Ok(Role::ProxyManager)),
            (manager | proxy, Acceptor::MetaManager, Ok(Role::ProxyManager)),
            (manager | proxy, Acceptor::Manager, Err(RoleError::Proxy)),
            (manager, Acceptor::ProxyManager, Err(RoleError::NotProxy)),
            (manager | Mode::PEER, Acceptor::Manager, Err(RoleError::Peer)),
            (server, Acceptor::Supervisor, Ok(Role::Server)),
            (server, Acceptor::Server, Err(RoleError::Leaf)),
            (server | proxy, Acceptor::Manager, Err(RoleError::Proxy)),
            (server | proxy, Acceptor::ProxyManager, Ok(Role::ProxyServer)),
            (server, Acceptor::ProxyManager, Err(RoleError::NotProxy)),
            (Mode::PEER, Acceptor::Supervisor, Err(RoleError::Peer)),
            (Mode::NONE, Acceptor::Manager, Err(RoleError::None)),
        ];
        for (mode, acceptor, expected) in table {
            assert_eq!(role(mode, acceptor), expected, "{mode:?} at {acceptor:?}");
        }
    }
}
