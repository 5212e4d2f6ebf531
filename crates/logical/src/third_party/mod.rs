//! Third-party copy: a file is transferred directly between two servers, and the client only
//! arranges it.
//!
//! The rendezvous: the client opens the file at the source and thereby registers a grant (key,
//! path, client, destination). It then opens the destination, which fetches the file with the same
//! key when the client syncs for the second time. The side that comes first waits a short time for
//! the other. Source: xroot protocol 5.2.0, "Third party copy".
//!
//! A destination always persists only on successful close, even if the client did not request that
//! (decision 014). It closes successfully only after the whole file was received and verified. So a
//! failure, a cancellation or a crash at any moment never leaves a file that looks complete. A file
//! behind this server (`copying_files`) persists on close there, and is removed by requests when the copy
//! fails. If the server behind cannot do the former, a part stays if this server crashes or that one fails.
//!
//! | file | content |
//! |---|---|
//! | `settings` | configuration: limits and rules |
//! | `request` | parses the cgi of an open |
//! | `rendezvous` | grants and the destinations that wait for one: pure, time is an argument |
//! | `grant` | the grant that an open file holds |
//! | `delegation` | the access of a copy to its source: a grant or delegated credentials |
//! | `source` | opens at a source: registering and collecting |
//! | `hosts` | names and permissions of hosts |
//! | `copy` | a copy at a destination, from the first sync to its result |
//! | `pull_state` | the state of a copy that its destination file needs |
//! | `jobs` | the queue of copies: pure |
//! | `counters` | numbers of copies |
//! | `target` | the file that a copy writes |
//! | `copying_files` | [`CopyingFiles`]: copies of files that are not on this server |
//! | `copied_file` | these files, open for a copy |
//! | `observer` | the port that gets the ends of copies |
//! | `fetcher` | the ports: transfer of the data, resolution of host names |

mod copied_file;
mod copy;
mod copying_files;
mod counters;
mod delegation;
mod fetcher;
mod grant;
mod hosts;
mod jobs;
mod observer;
mod pull_state;
mod rendezvous;
mod request;
mod settings;
mod source;
mod target;

pub use copying_files::CopyingFiles;
pub use counters::ThirdPartyCounts;
pub use fetcher::{
    Bytes, Fetcher, HostLookup, RunningTransfer, TransferCompletion, TransferRequest, TransferResult,
    TransferSink, Written,
};
pub use observer::{CopyObserver, EndedPull};
pub use request::is_copy;
pub use settings::{DelegatedCredentials, DestinationAttribute, HostRule, ProofRule, Settings};

pub(crate) use copy::RunningCopy;
pub(crate) use grant::HeldGrant;
pub(crate) use pull_state::PullState;
pub(crate) use request::{CopyRole, PullRequest, collects_grant, parse};
pub(crate) use source::{GrantOffer, collect, register};
pub(crate) use target::CopyTarget;

use base::{ClientHost, Clock, Error, ErrorKind, LogicalPath, Owner};
use counters::ThirdPartyCounters;
use jobs::CopyQueue;
use rendezvous::{GrantNumber, Rendezvous};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::Pool;
use vfs::{Answer, DeferredReply};

/// Number of threads that look up names of hosts.
const THREADS_MAX: usize = 8;

/// Maximum wait of a client for a copy or a grant, in seconds.
pub(crate) const LATER_SECONDS: u32 = 1800;

/// The external parts of third-party copies, and their configuration.
pub struct ThirdPartyParts {
    /// Limits and rules.
    pub settings: Settings,
    /// Transfers files from other servers.
    pub fetcher: Arc<dyn Fetcher>,
    /// Resolves hosts.
    pub names: Arc<dyn HostLookup>,
    /// Gets the ends of copies, if anybody wants to know of them.
    pub observer: Option<Arc<dyn CopyObserver>>,
}

/// The state of all third-party copies of a server.
pub(crate) struct ThirdPartyCopies {
    pub(crate) settings: Settings,
    pub(crate) counters: ThirdPartyCounters,
    fetcher: Arc<dyn Fetcher>,
    names: Arc<dyn HostLookup>,
    observer: Option<Arc<dyn CopyObserver>>,
    clock: Arc<dyn Clock>,
    rendezvous: Arc<Mutex<Rendezvous<DeferredReply>>>,
    jobs: Mutex<CopyQueue<Arc<RunningCopy>>>,
    /// Cached names of destinations, with the times at which they become stale.
    known: Mutex<HashMap<IpAddr, (Option<String>, Duration)>>,
    /// The pool for lookups of host names, so that a slow name service delays nothing else.
    pool: Arc<Pool>,
    /// Derives the key of a client host in that pool.
    host_keys: RandomState,
    /// The pool that starts copies, which includes looking up the name of the client.
    starts: Arc<Pool>,
    /// The pool that verifies copies. It has as many threads as copies may run, so that one that
    /// waits for a disk does not delay the others.
    checks: Arc<Pool>,
}

impl ThirdPartyCopies {
    pub(crate) fn new(parts: ThirdPartyParts, clock: Arc<dyn Clock>) -> Self {
        let jobs = CopyQueue::new(parts.settings.jobs_max);
        let checks = Pool::new("third-party-check", parts.settings.jobs_max);
        let starts = Pool::new("third-party-start", parts.settings.jobs_max);
        Self {
            settings: parts.settings,
            counters: ThirdPartyCounters::default(),
            fetcher: parts.fetcher,
            names: parts.names,
            observer: parts.observer,
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

    fn rendezvous(&self) -> MutexGuard<'_, Rendezvous<DeferredReply>> {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a lookup of names for a client host. The pool shares its threads between hosts, because
    /// one host can open any number of sessions. A refused lookup is dropped, which answers its
    /// client.
    fn look_up(&self, client: Option<IpAddr>, look_up: impl FnOnce() + Send + 'static) {
        // The highest bit distinguishes the key from those of sessions.
        let key = self.host_keys.hash_one(ClientHost::from(client)) | 1 << 63;
        drop(self.pool.run(Owner(key), Box::new(look_up)));
    }

    fn jobs(&self) -> MutexGuard<'_, CopyQueue<Arc<RunningCopy>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a copy that is refused for this reason.
    pub(crate) fn denied(&self, error: Error) -> Error {
        self.counters.denied.add(1);
        error
    }

    /// Returns the handle that withdraws a grant when its file is released.
    fn held_grant(&self, number: GrantNumber) -> HeldGrant {
        HeldGrant { rendezvous: self.rendezvous.clone(), number }
    }

    /// Ends what has timed out: grants, waits for a grant, and copies without progress. To be
    /// called about once per second; never blocks.
    pub(crate) fn tick(&self) {
        let now = self.clock.now();
        let over = self.rendezvous().expire(now);
        self.counters.expired.add(over.grants.len() + over.waiting.len());
        for path in over.grants {
            tracing::info!(path = %path.shown(), "a third-party copy was arranged here, but the destination did not fetch the file in time");
        }
        for reply in over.waiting {
            reply.send(Answer::error(ErrorKind::NotAuthorized, "tpc authorization expired"));
        }
        let running: Vec<Arc<RunningCopy>> = self.jobs().running().cloned().collect();
        for copy in running {
            copy.check_progress(now);
        }
    }
}

/// Returns the error of a refused open.
pub(crate) fn refused(path: &LogicalPath, kind: ErrorKind, why: &str) -> Error {
    Error::new(kind, format!("Unable to open {}; {why}", path.text()))
}
