//! [`Client`]: the settings, connections and memory that all operations of a program share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rawclient::Login;
use tokio::time::Instant;

use crate::buffer_pool::DataBufferPool;
use crate::channel::{Channel, Deadlines};
use crate::checksum_timeout::PendingChecksums;
use crate::connect::AddressFilter;
use crate::failure::Error;
use crate::listing_memory::ListingMemory;
use crate::pool::ConnectionPool;
use crate::settings::Settings;
use crate::url::Url;
use crate::waits::{WaitFor, Waits};

/// Timeout for one reply unless `XRD_REQUESTTIMEOUT` sets another. Arriving data and servers that
/// request more time extend it.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Settings, connections and memory shared by operations. Clones share one client.
///
/// All its futures must run on one Tokio runtime, of either kind, because connections are driven by
/// tasks of the runtime on which they were first used. [`blocking`](crate::blocking) needs no
/// runtime.
#[derive(Clone)]
pub struct Client(Arc<ClientState>);

pub(crate) struct ClientState {
    pub(crate) settings: Settings,
    pub(crate) pool: ConnectionPool,
    pub(crate) blocks: DataBufferPool,
    pub(crate) pending_checksums: PendingChecksums,
    pub(crate) waits: Waits,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Creates a client of the program `program` with the settings of this process.
    #[must_use]
    pub fn new(program: &str) -> Self {
        Self::with(Settings::of_process(), program)
    }

    /// Creates a client with these settings.
    #[must_use]
    pub fn with(settings: Settings, program: &str) -> Self {
        Self::build(settings, program, None)
    }

    /// Creates a client with these settings that connects only to addresses which `filter` allows,
    /// including the targets of redirects.
    #[must_use]
    pub fn filtered(settings: Settings, program: &str, filter: AddressFilter) -> Self {
        Self::build(settings, program, Some(filter))
    }

    fn build(settings: Settings, program: &str, filter: Option<AddressFilter>) -> Self {
        let program = if settings.app_name.is_empty() { program } else { &settings.app_name };
        let mut login = Login::of_process(program);
        login.redirects = true;
        login.info.clone_from(&settings.mon_info);
        let blocks = DataBufferPool::default();
        let pool = ConnectionPool::new(login, filter, blocks.clone());
        Self(Arc::new(ClientState {
            settings,
            pool,
            blocks,
            pending_checksums: PendingChecksums::default(),
            waits: Waits::default(),
        }))
    }

    /// Returns the settings of the client.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns the pool of memory for reads. Callers can take blocks for writes from it.
    #[must_use]
    pub fn blocks(&self) -> &DataBufferPool {
        &self.0.blocks
    }

    /// Returns the connection to the server of a URL and connects if there is none. It serves
    /// requests that this library has no methods for, and queries about the server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn channel(&self, url: &Url) -> Result<Arc<Channel>, Error> {
        let until = Instant::now() + self.settings().operation_time();
        let rounds = self.settings().connection_retry;
        let _waiting = self.waits().begin(url, WaitFor::Connection);
        let made = self.0.pool.channel(url, self.settings(), rounds, until).await;
        made.map_err(|cause| Error::new("connect", url, cause).at(url.authority(), &[]))
    }

    /// Returns the waits of its operations.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.0.waits
    }

    /// Returns the memory limit for the listings that one operation holds at once.
    pub(crate) fn listing_memory(&self) -> ListingMemory {
        ListingMemory::new(usize::try_from(self.settings().listing_bytes).unwrap_or(usize::MAX))
    }

    pub(crate) fn pending_checksums(&self) -> &PendingChecksums {
        &self.0.pending_checksums
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.0.pool
    }

    /// Returns the deadline of an operation that begins now.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + self.settings().operation_time()
    }

    /// Returns the deadlines of one reply within an operation that ends at `end`.
    pub(crate) fn until(&self, end: Instant) -> Deadlines {
        let settings = self.settings();
        let time = if settings.is_set("RequestTimeout") { settings.operation_time() } else { ANSWER_TIME };
        Deadlines { answer: end.min(Instant::now() + time), end }
    }
}
