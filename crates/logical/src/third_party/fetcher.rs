//! The ports of third-party copies: [`Fetcher`] transfers a file from another server, and
//! [`HostLookup`] resolves hosts.
//!
//! They are traits, because this crate contains neither a client nor a resolver; the `server` crate
//! implements both.

use auth::gsi::DelegatedProxy;
use base::Error;
use digest::{Algorithm, Checksum};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A request to transfer a file.
#[derive(Clone)]
pub struct TransferRequest {
    /// The source server: `host:port`.
    pub source: String,
    /// The connection must be encrypted.
    pub encrypted: bool,
    /// The path on the source.
    pub path: String,
    /// Additional cgi for the source, `key=value&…`; may be empty. It may contain secrets.
    pub cgi: String,
    /// The key of the rendezvous, which gives access to the file; `None` if the credentials do.
    pub key: Option<String>,
    /// The client that arranged the copy, `user.pid@host`, in the forms in which the source may
    /// know it, the likeliest first. A source that knows another form makes the destination wait.
    pub origins: Vec<String>,
    /// Credentials of the client for the login at the source.
    pub credentials: Option<Arc<DelegatedProxy>>,
    /// Number of streams in addition to the first.
    pub streams: u32,
    /// Size in bytes that the client announced.
    pub size: Option<u64>,
    /// The checksum to request from the source.
    pub checksum: Option<Algorithm>,
    /// The path of the destination, for messages.
    pub destination: String,
    /// The client, for messages.
    pub client: String,
    /// The address of the client. Hosts that the client can reach itself may be sources.
    pub client_address: Option<IpAddr>,
}

/// The result of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferResult {
    /// Size of the source in bytes; all of them were written.
    pub bytes: u64,
    /// The checksum of the source, if it was requested and available.
    pub checksum: Option<Checksum>,
    /// Set if the fetcher has compared the checksums itself.
    pub verified: bool,
}

/// Transfers files from other servers.
pub trait Fetcher: Send + Sync {
    /// Starts a transfer; never blocks. `finish` is called after the last write. Its error contains
    /// the reason but not the source. A source that no longer answers must end the transfer in
    /// bounded time.
    fn start(
        &self,
        fetch: TransferRequest,
        sink: Arc<dyn TransferSink>,
        finish: TransferCompletion,
    ) -> Box<dyn RunningTransfer>;
}

/// A transfer in progress.
pub trait RunningTransfer: Send {
    /// Cancels the transfer soon; its [`TransferCompletion`] is still called.
    fn cancel(&self);
}

/// The callback with the result of one write, on any thread.
pub type Written = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Data on its way to a sink, in the buffer in which the fetcher received it.
pub type Bytes = Box<dyn AsRef<[u8]> + Send>;

/// The destination of the data.
pub trait TransferSink: Send + Sync {
    /// Writes all of `bytes` at `offset` and then calls `then`; never blocks. The fetcher chooses
    /// the order of the pieces, and bounds the number in progress.
    fn write(&self, offset: u64, bytes: Bytes, then: Written);

    /// Returns the descriptor of a plain file, for a program that writes the file itself.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Reports bytes that did not pass through [`TransferSink::write`]; 0 if the source only shows
    /// that it is alive.
    fn moved(&self, bytes: u64);
}

type Then = Box<dyn FnOnce(Result<TransferResult, Error>) + Send>;

/// Receives the result of a transfer, once. If it is dropped without a result, it reports an
/// internal error.
pub struct TransferCompletion(Option<Then>);

impl TransferCompletion {
    /// Calls `then` with the result.
    pub fn new(then: impl FnOnce(Result<TransferResult, Error>) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Reports the result.
    pub fn done(mut self, result: Result<TransferResult, Error>) {
        if let Some(then) = self.0.take() {
            then(result);
        }
    }
}

impl Drop for TransferCompletion {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            let text = "internal error; see the destination's log";
            then(Err(Error::new(base::ErrorKind::ServerError, text)));
        }
    }
}

/// Resolves hosts. Both calls may block.
pub trait HostLookup: Send + Sync {
    /// Returns the addresses of a name, or the address that the name is.
    fn addresses(&self, name: &str) -> Vec<IpAddr>;

    /// Returns the name of an address.
    fn name(&self, address: IpAddr) -> Option<String>;
}
