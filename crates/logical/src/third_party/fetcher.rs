//! The ports of third-party copies: who pulls a file from another server, and who knows hosts.

use base::Error;
use digest::{Algorithm, Checksum};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What is to be pulled.
#[derive(Clone)]
pub struct Fetch {
    /// The server that has it: `host:port`.
    pub source: String,
    /// Its name there.
    pub path: String,
    /// What the source is to be told beside the rendezvous, `key=value&…`; may be empty. May hold secrets.
    pub cgi: String,
    /// The key of the rendezvous: whoever knows it gets the file.
    pub key: String,
    /// Who arranged it, `user.pid@host`, in the forms in which the source may know that client, the likeliest first: a
    /// source that knows another form lets one wait.
    pub origins: Vec<String>,
    /// Streams beside the first.
    pub streams: u32,
    /// Bytes it should have, as far as the client says.
    pub size: Option<u64>,
    /// The checksum the source is to be asked for.
    pub checksum: Option<Algorithm>,
    /// The name of the destination here, for messages.
    pub destination: String,
    /// For whom, for messages.
    pub client: String,
    /// The client's address: what it can reach itself it may have copied.
    pub client_address: Option<IpAddr>,
}

/// What was pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Bytes of the source: all of them were written.
    pub bytes: u64,
    /// The source's checksum, if it was asked for and could be had.
    pub checksum: Option<Checksum>,
    /// The fetcher has compared the checksums itself.
    pub verified: bool,
}

/// Pulls files from other servers.
pub trait Fetcher: Send + Sync {
    /// Starts; never blocks. `finish` is told the result when nothing is written any more; an error says what is wrong,
    /// without naming the source. A source that does not answer any more must end it in bounded time.
    fn start(&self, fetch: Fetch, sink: Arc<dyn Sink>, finish: Finish) -> Box<dyn Running>;
}

/// A pull under way.
pub trait Running: Send {
    /// It is to end soon; its [`Finish`] is still called.
    fn cancel(&self);
}

/// Called with the outcome of one write, in any thread.
pub type Written = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Bytes on their way to a sink, in whatever the fetcher received them in.
pub type Bytes = Box<dyn AsRef<[u8]> + Send>;

/// Where the bytes go.
pub trait Sink: Send + Sync {
    /// Writes all of `bytes` at `offset` and then tells; never blocks. In which order pieces come, and how many are under
    /// way, is the fetcher's business, which bounds them.
    fn write(&self, offset: u64, bytes: Bytes, then: Written);

    /// The file itself, where it is a plain file, for a program that writes it on its own.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// So many bytes came that did not pass through [`Sink::write`]; 0 if the source only shows that it is alive.
    fn moved(&self, bytes: u64);
}

type Then = Box<dyn FnOnce(Result<Fetched, Error>) + Send>;

/// Takes the result of a pull, once. Dropped without one, it tells that the work broke off.
pub struct Finish(Option<Then>);

impl Finish {
    /// `then` is told the result.
    pub fn new(then: impl FnOnce(Result<Fetched, Error>) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Tells the result.
    pub fn done(mut self, result: Result<Fetched, Error>) {
        if let Some(then) = self.0.take() {
            then(result);
        }
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            let text = "the work broke off; see the destination's log";
            then(Err(Error::new(base::ErrorKind::ServerError, text)));
        }
    }
}

/// Knows hosts. Both calls may block.
pub trait Names: Send + Sync {
    /// The addresses of a name, or the address that it is.
    fn addresses(&self, name: &str) -> Vec<IpAddr>;

    /// The name of an address.
    fn name(&self, address: IpAddr) -> Option<String>;
}
