//! The ports of a server: that of the xroot protocol, and those on which only HTTP is served.

use crate::admission::Doorkeeper;
use crate::error::StartError;
use crate::http_service::HttpService;
use crate::port_acceptor::PortAcceptor;
use crate::process;
use config::Effective;
use net::{BindError, Door, Listener, Loops, Refusals};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use xroot::XrootDoor;

/// Ports that are open, but nobody is served yet.
pub(crate) struct OpenPorts {
    xroot: Listener,
    /// Those on which only HTTP is served.
    http: Vec<Listener>,
    /// HTTP is served on the port of the xroot protocol.
    is_shared: bool,
}

impl OpenPorts {
    /// Opens the ports that the configuration names.
    ///
    /// # Errors
    /// The first port that cannot be opened.
    pub(crate) fn open(effective: &Effective, descriptors: u64) -> Result<Self, BindError> {
        let open = |port| {
            let config = || crate::assembly::listener(effective, port, descriptors);
            process::open_when_free(|| Listener::bind(config()), |error: &BindError| error.source.kind())
        };
        Ok(Self {
            xroot: open(effective.network.port.to_bind())?,
            http: effective.own_http_ports().into_iter().map(open).collect::<Result<_, _>>()?,
            is_shared: effective.shares_port_with_http(),
        })
    }

    /// Returns the address of the port of the xroot protocol.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.xroot.local_address()
    }

    /// Begins to accept connections, about which the doorkeeper decides.
    ///
    /// # Errors
    /// No loop runs.
    pub(crate) fn accept(
        self,
        loops: &Arc<Loops>,
        xroot: &Arc<XrootDoor>,
        http: Option<&HttpService>,
        keeper: &Arc<Doorkeeper>,
    ) -> Result<PortAcceptors, StartError> {
        let refusals = Arc::<Refusals>::default();
        let start = |listener, doors: Arc<[Arc<dyn Door>]>| {
            let admission = Doorkeeper::admission(keeper.clone());
            PortAcceptor::start(listener, loops.clone(), doors, admission, refusals.clone())
                .map_err(|source| StartError::System { what: "a thread", source })
        };
        let http = http.map(HttpService::door);
        let shared = http.clone().filter(|_| self.is_shared);
        // The door of the xroot protocol is asked first.
        let first = xroot.clone() as Arc<dyn Door>;
        let mut acceptors = vec![start(self.xroot, std::iter::once(first).chain(shared).collect())?];
        for listener in self.http {
            acceptors.push(start(listener, http.iter().cloned().collect())?);
        }
        Ok(PortAcceptors { acceptors, refusals })
    }
}

/// Accepts connections until the ports are closed.
pub(crate) struct PortAcceptors {
    acceptors: Vec<PortAcceptor>,
    refusals: Arc<Refusals>,
}

impl PortAcceptors {
    /// Returns the numbers of refused connections of all ports.
    pub(crate) const fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// Closes the ports.
    pub(crate) fn stop(self) {
        for acceptor in self.acceptors {
            acceptor.stop();
        }
    }
}
