//! [`SharedTickets`]: tickets of TLS for many connections to one server at once.
//!
//! A ticket is used once. The store of the library keeps eight of a server, so that with sixteen
//! connections about half of the handshakes of a load generator would be full ones.

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Maximum number of kept tickets; the oldest ones are dropped.
const TICKETS_MAX: usize = 4096;

/// The sessions of one server.
#[derive(Debug)]
pub(crate) struct SharedTickets {
    tickets: Mutex<VecDeque<Tls13ClientSessionValue>>,
    /// All other state of sessions.
    rest: ClientSessionMemoryCache,
}

impl SharedTickets {
    pub(crate) fn new() -> Self {
        Self { tickets: Mutex::default(), rest: ClientSessionMemoryCache::new(1) }
    }
}

impl ClientSessionStore for SharedTickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.rest.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.rest.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.rest.set_tls12_session(server, session);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.rest.tls12_session(server)
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.rest.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, _server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).pop_back()
    }
}
