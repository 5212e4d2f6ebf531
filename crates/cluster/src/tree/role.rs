//! What a node is to the one it logs in to. Source: cms protocol 3, role seen by the accepting side.

use std::fmt;

/// What a login says about the node, as far as its role goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// It asks where files are, and belongs to no cell.
    pub director: bool,
    /// It accepts children.
    pub manager: bool,
    /// It provides data or, with `manager`, is an inner node of a tree.
    pub server: bool,
    /// It stands in for data elsewhere.
    pub proxy: bool,
    /// It is the root of a peer cluster.
    pub peer: bool,
    /// It is the root of a cluster that is part of another cluster.
    pub subcluster: bool,
}

/// What the accepting side itself is.
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
    /// A leaf: nobody logs in here but redirectors.
    Server,
}

/// What a node is to its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Asks where files are.
    Redirector,
    /// Root of a tree of its own, below a meta manager or as a subcluster.
    Manager,
    /// Inner node of this tree.
    Supervisor,
    /// Leaf with data.
    Server,
    /// Root or inner node of a tree of proxies.
    ProxyManager,
    /// Leaf without data of its own.
    ProxyServer,
}

impl Role {
    /// Whether the node has children: it is asked for a place rather than for a file, and displaces servers.
    pub const fn is_parent(self) -> bool {
        matches!(self, Self::Manager | Self::Supervisor | Self::ProxyManager)
    }

    /// The letter of the role in lists of nodes.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Redirector => "D",
            Self::Manager => "M",
            Self::Supervisor => "R",
            Self::Server => "S",
            Self::ProxyManager => "PM",
            Self::ProxyServer => "PS",
        }
    }
}

/// Why a login is refused for what the node is. On the wire all are alike: the reply, then the end of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleError {
    /// The login claims nothing.
    None,
    /// Clusters of peers do not exist any more; no real node can be configured so.
    Peer,
    /// Data of proxies and of servers do not mix in one cell.
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

/// The role of a node that claims `claim` to `acceptor`.
pub fn role(claim: Claim, acceptor: Acceptor) -> Result<Role, RoleError> {
    if claim.director {
        return Ok(Role::Redirector);
    }
    if acceptor == Acceptor::Server {
        return Err(RoleError::Leaf);
    }
    let proxies = acceptor == Acceptor::ProxyManager;
    if claim.peer {
        Err(RoleError::Peer)
    } else if claim.manager {
        let root = acceptor == Acceptor::MetaManager || claim.subcluster;
        match (claim.proxy, root) {
            // Real proxy managers refuse these: a tree of proxies of real nodes has one level. Ours may have more.
            (true, _) if proxies || acceptor == Acceptor::MetaManager => Ok(Role::ProxyManager),
            (true, _) => Err(RoleError::Proxy),
            (false, true) => Ok(Role::Manager),
            (false, false) if proxies => Err(RoleError::NotProxy),
            (false, false) => Ok(Role::Supervisor),
        }
    } else if claim.server {
        match claim.proxy {
            // A supervisor of proxies does not say of itself that it is one of proxies: both kinds pass there.
            true if proxies || acceptor == Acceptor::Supervisor => Ok(Role::ProxyServer),
            true => Err(RoleError::Proxy),
            false if proxies => Err(RoleError::NotProxy),
            false => Ok(Role::Server),
        }
    } else {
        Err(RoleError::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(words: &str) -> Claim {
        let has = |word: &str| words.split(' ').any(|w| w == word);
        Claim {
            director: has("director"),
            manager: has("manager"),
            server: has("server"),
            proxy: has("proxy"),
            peer: has("peer"),
            subcluster: has("subcluster"),
        }
    }

    #[test]
    fn roles_as_the_protocol_derives_them() {
        use Acceptor::*;
        let table = [
            ("director manager", Manager, Ok(Role::Redirector)),
            ("director", Server, Ok(Role::Redirector)),
            ("manager", Manager, Ok(Role::Supervisor)),
            ("manager server", Supervisor, Ok(Role::Supervisor)),
            ("manager server", MetaManager, Ok(Role::Manager)),
            ("manager subcluster", Manager, Ok(Role::Manager)),
            ("manager proxy", ProxyManager, Ok(Role::ProxyManager)),
            ("manager proxy", Manager, Err(RoleError::Proxy)),
            ("manager", ProxyManager, Err(RoleError::NotProxy)),
            ("manager peer", Manager, Err(RoleError::Peer)),
            ("server", Manager, Ok(Role::Server)),
            ("server", Supervisor, Ok(Role::Server)),
            ("server", Server, Err(RoleError::Leaf)),
            ("server proxy", Manager, Err(RoleError::Proxy)),
            ("server proxy", ProxyManager, Ok(Role::ProxyServer)),
            ("server", ProxyManager, Err(RoleError::NotProxy)),
            ("peer", Supervisor, Err(RoleError::Peer)),
            ("", Manager, Err(RoleError::None)),
        ];
        for (words, acceptor, expected) in table {
            assert_eq!(role(claim(words), acceptor), expected, "{words} at {acceptor:?}");
        }
    }
}
