//! The entry point of the front end: accepts connections, drains, and reports totals.
//!
//! `net` decides by the first bytes whether a connection belongs here; `connection` serves it.

use crate::connection;
use crate::driver::SessionHub;
use crate::front_end::{Config, FrontEnd};
use crate::stats::{FrontEndFigures, Totals};
use net::{Arrival, LoopHandle, LoopPresence, ProtocolMatch};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vfs::FileSystem;
use wire::xroot::header::Handshake;
use wire::xroot::limits::HANDSHAKE_BYTES;

/// Interval between checks whether a drain has ended.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Maximum time for the loops to close all connections, and for the last packets of detailed monitoring to be sent.
const LAST_PACKETS_MAX: Duration = Duration::from_secs(1);

/// The xroot protocol on the shared port.
pub struct XrootDoor {
    shared: Arc<FrontEnd>,
}

impl XrootDoor {
    /// Returns a front end for `files`.
    pub fn new(config: Config, files: Arc<dyn FileSystem>) -> Self {
        Self { shared: Arc::new(FrontEnd::new(config, files)) }
    }

    /// Returns the counters since the start.
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Returns all figures at this moment.
    pub fn figures(&self) -> FrontEndFigures {
        self.shared.figures()
    }

    /// Returns the number of sessions, including those without a login.
    pub fn sessions(&self) -> usize {
        self.shared.registry.len()
    }

    /// Returns the memory in bytes that sessions have claimed for work in flight.
    pub fn memory_claimed(&self) -> usize {
        self.shared.memory.claimed()
    }

    /// Returns the identities of all clients.
    pub fn clients(&self) -> Vec<base::Identity> {
        self.shared.registry.identities()
    }

    /// Drains the front end: takes no further requests, waits at most `limit` for work in flight,
    /// then closes all connections. Returns the clients whose requests did not complete in time.
    pub async fn drain(&self, loops: &[LoopHandle], limit: Duration) -> Vec<base::Identity> {
        self.shared.draining.store(true, Ordering::Relaxed);
        let on_all = |work: fn(&SessionHub)| {
            for handle in loops {
                let shared = self.shared.clone();
                handle.run(move || work(&SessionHub::of(&shared)));
            }
        };
        on_all(SessionHub::drain);
        let until = Instant::now() + limit;
        while self.sessions() > 0 && Instant::now() < until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        let left = self.clients();
        on_all(SessionHub::abort);
        let (ended, mut all_ended) = tokio::sync::mpsc::channel::<()>(1);
        for handle in loops {
            let ended = ended.clone();
            // The work before it has closed the files of the loop, and has sent its last packets.
            handle.run(move || drop(ended));
        }
        drop(ended);
        // It ends when all loops have dropped their ends.
        let _ = tokio::time::timeout(LAST_PACKETS_MAX, all_ended.recv()).await;
        if let Some(streams) = &self.shared.config.streams {
            let until = Instant::now() + LAST_PACKETS_MAX;
            while !streams.is_sent() && Instant::now() < until {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        }
        left
    }
}

impl net::Door for XrootDoor {
    fn name(&self) -> &'static str {
        "xroot"
    }

    fn claims(&self, first: &[u8]) -> ProtocolMatch {
        match first.first_chunk::<HANDSHAKE_BYTES>() {
            Some(bytes) if Handshake::is(bytes) => ProtocolMatch::Mine,
            None if Handshake::may_become(first) => ProtocolMatch::NeedMore,
            _ => ProtocolMatch::NotMine,
        }
    }

    fn serve(&self, arrival: Arrival, presence: LoopPresence) {
        connection::serve(&self.shared, arrival, presence);
    }
}
