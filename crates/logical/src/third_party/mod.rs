//! Third-party copy: two servers pass a file between them, and the client only arranges it.
//!
//! The rendezvous: the client opens the file at the source and so registers who may fetch it (a grant: key, path, client,
//! destination); it opens the destination, which pulls the file with the same key when the client syncs twice. Whoever comes
//! first waits for the other, for a short time. Source: xroot protocol 5.2.0, "Third party copy".
//!
//! A destination is a file that persists only on successful close, asked for or not, and it closes successfully only after
//! the whole file has come and was checked. So a failure, a cancellation and a crash at any moment leave nothing that looks
//! whole.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | what the server is told: limits and rules |
//! | `request` | the cgi of an open, understood |
//! | `rendezvous` | grants and who waits for one: pure, time is an argument |
//! | `grant` | the grant of an open file |
//! | `source` | opens at a source: registering, fetching |
//! | `hosts` | names and rights of hosts |
//! | `copy` | one copy at a destination, from the first sync to its result |
//! | `pull_state` | the state of a copy that its destination file needs |
//! | `jobs` | which copies run, and which wait for their turn: pure |
//! | `fetcher` | the ports: who pulls the bytes, who knows names of hosts |

mod copy;
mod fetcher;
mod grant;
mod hosts;
mod jobs;
mod pull_state;
mod rendezvous;
mod request;
mod settings;
mod source;

pub use fetcher::{Bytes, Fetch, Fetched, Fetcher, Finish, Names, Running, Sink, Written};
pub use settings::{HostRule, ProofRule, Settings};

pub(crate) use copy::Copy;
pub(crate) use grant::HeldGrant;
pub(crate) use pull_state::PullState;
pub(crate) use request::{Pull, Role, parse};
pub(crate) use source::{Offer, collect, register};

use base::{ClientHost, Clock, Error, ErrorKind, LogicalPath, Owner};
use jobs::Jobs;
use rendezvous::{GrantNumber, Rendezvous};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::Pool;
use vfs::{Answer, Reply};

/// Threads that ask for names of hosts.
const THREADS_MAX: usize = 8;

/// What a client that waits for a copy, or for a grant, is told to wait at most, in seconds.
pub(crate) const LATER_SECONDS: u32 = 1800;

/// What third-party copies need from outside, and what they are told.
pub struct ThirdPartyParts {
    /// Limits and rules.
    pub settings: Settings,
    /// Who pulls.
    pub fetcher: Arc<dyn Fetcher>,
    /// Who knows hosts.
    pub names: Arc<dyn Names>,
}

/// All of it, of one server.
pub(crate) struct ThirdParty {
    pub(crate) settings: Settings,
    fetcher: Arc<dyn Fetcher>,
    names: Arc<dyn Names>,
    clock: Arc<dyn Clock>,
    rendezvous: Arc<Mutex<Rendezvous<Reply>>>,
    jobs: Mutex<Jobs<Arc<Copy>>>,
    /// Names of destinations that were asked for lately, and until when they are believed.
    known: Mutex<HashMap<IpAddr, (Option<String>, Duration)>>,
    /// Asks for names of hosts. A slow name service holds up nothing else.
    pool: Arc<Pool>,
    /// Gives each client host its key in that pool.
    host_keys: RandomState,
    /// Starts copies, which asks for the name of the client.
    starts: Arc<Pool>,
    /// As many threads as copies may run: one that waits for a disk holds up no other.
    checks: Arc<Pool>,
}

impl ThirdParty {
    pub(crate) fn new(parts: ThirdPartyParts, clock: Arc<dyn Clock>) -> Self {
        let jobs = Jobs::new(parts.settings.jobs_max);
        let checks = Pool::new("third-party-check", parts.settings.jobs_max);
        let starts = Pool::new("third-party-start", parts.settings.jobs_max);
        Self {
            settings: parts.settings,
            fetcher: parts.fetcher,
            names: parts.names,
            clock,
            rendezvous: Arc::default(),
            jobs: Mutex::new(jobs),
            known: Mutex::default(),
            pool: Pool::new("third-party-names", THREADS_MAX),
            host_keys: RandomState::new(),
            starts,
            checks,
        }
    }

    fn rendezvous(&self) -> MutexGuard<'_, Rendezvous<Reply>> {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a look-up of names that this client host caused. The pool shares its threads out by host and not by session,
    /// because one host opens as many sessions as it likes. Dropped, a look-up that is refused answers.
    fn look_up(&self, client: Option<IpAddr>, look_up: impl FnOnce() + Send + 'static) {
        // The first bit tells it from the keys of sessions.
        let key = self.host_keys.hash_one(ClientHost::from(client)) | 1 << 63;
        drop(self.pool.run(Owner(key), Box::new(look_up)));
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs<Arc<Copy>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what withdraws a grant when its file is let go.
    fn held_grant(&self, number: GrantNumber) -> HeldGrant {
        HeldGrant { rendezvous: self.rendezvous.clone(), number }
    }

    /// What is over by now: grants, waits for one, copies that do not move. To be called about once a second; never blocks.
    pub(crate) fn tick(&self) {
        let now = self.clock.now();
        let over = self.rendezvous().expire(now);
        for path in over.grants {
            tracing::info!(path = %path.shown(), "a third-party copy was arranged here, and nobody fetched the file in time");
        }
        for reply in over.waiting {
            reply.send(Answer::error(ErrorKind::NotAuthorized, "tpc authorization expired"));
        }
        let running: Vec<Arc<Copy>> = self.jobs().running().cloned().collect();
        for copy in running {
            copy.check_progress(now);
        }
    }
}

/// An open that is refused, as clients are told.
pub(crate) fn refused(path: &LogicalPath, kind: ErrorKind, why: &str) -> Error {
    Error::new(kind, format!("Unable to open {}; {why}", path.text()))
}
