//! A running server of one side.

use anyhow::Context;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use crate::children::ChildServer;
use crate::proxies::OriginProcess;
use crate::secured::RowSecurity;

/// Path of the server of the Debian package.
pub(crate) const XROOTD: &str = "/usr/bin/xrootd";
/// Configuration that enables polling in our server, and in the floor.
pub(crate) const POLLING: &str = "scalla.polling on";

/// A compared server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerSide {
    Ours,
    Theirs,
    Floor,
    /// The floor with files.
    Bare,
}

/// A running server.
pub(crate) struct Server {
    _running: Vec<ChildServer>,
    pids: Vec<u32>,
    port: u16,
    /// Ports of additional servers with the same files.
    others: Vec<u16>,
    pub(crate) side: ServerSide,
    pub(crate) security: Option<RowSecurity>,
    /// The origin and the directory of a proxy.
    proxied: Option<(OriginProcess, PathBuf)>,
}

impl Server {
    /// Creates a server of several processes, of which `pids` are measured; all end on drop.
    /// Returns `None` without `pids`.
    pub(crate) fn of(running: Vec<ChildServer>, pids: Vec<u32>, port: u16, side: ServerSide) -> Option<Self> {
        (!pids.is_empty()).then_some(Self {
            _running: running,
            pids,
            port,
            others: Vec::new(),
            side,
            security: None,
            proxied: None,
        })
    }

    /// Creates a server of one process, which ends on drop.
    pub(crate) fn alone(running: ChildServer, port: u16, side: ServerSide) -> Self {
        Self {
            pids: vec![running.pid()],
            _running: vec![running],
            port,
            others: Vec::new(),
            side,
            security: None,
            proxied: None,
        }
    }

    /// Combines servers with the same files, which are measured as one.
    pub(crate) fn group(all: Vec<Self>, side: ServerSide) -> Self {
        let others = all.iter().skip(1).map(|server| server.port).collect();
        let pids = all.iter().map(Self::pid).collect();
        let port = all.first().map_or(0, |server| server.port);
        let running = all.into_iter().flat_map(|server| server._running).collect();
        Self { _running: running, pids, port, others, side, security: None, proxied: None }
    }

    /// Returns the measured process, or the first of several.
    pub(crate) fn pid(&self) -> u32 {
        self.pids.first().copied().unwrap_or_default()
    }

    /// Returns all measured processes.
    pub(crate) fn pids(&self) -> &[u32] {
        &self.pids
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns the ports of all servers with the same files.
    pub(crate) fn ports(&self) -> Vec<u16> {
        std::iter::once(self.port).chain(self.others.iter().copied()).collect()
    }

    /// Returns the server for the client of another side.
    pub(crate) fn on(self, side: ServerSide) -> Self {
        Self { side, ..self }
    }

    /// Returns the same server as a proxy of this origin, with its own files in `directory`.
    pub(crate) fn behind(self, origin: OriginProcess, directory: PathBuf) -> Self {
        Self { proxied: Some((origin, directory)), ..self }
    }

    /// Returns the origin of a proxy.
    pub(crate) fn origin(&self) -> anyhow::Result<OriginProcess> {
        self.proxied.as_ref().map(|(origin, _)| *origin).context("the server is no proxy")
    }

    /// Returns the directory of the cache of a proxy.
    pub(crate) fn cache(&self) -> anyhow::Result<PathBuf> {
        let (_, directory) = self.proxied.as_ref().context("the server is no proxy")?;
        Ok(directory.join("cache"))
    }

    /// Returns the same server, which demands this security.
    pub(crate) fn secured(self, security: Option<RowSecurity>) -> Self {
        Self { security, ..self }
    }

    /// Returns the URL of the server for HTTP.
    pub(crate) fn web_url(&self) -> String {
        let (scheme, host) = match self.security {
            Some(security) => ("https", security.origin().1),
            None => ("http", "127.0.0.1"),
        };
        format!("{scheme}://{host}:{}", self.port)
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        let (scheme, host) = self.security.map_or(("root", "127.0.0.1"), RowSecurity::origin);
        format!("{scheme}://{host}:{}/{path}", self.port)
    }
}

/// Returns a free port, for programs that cannot report a port assigned by the kernel.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
