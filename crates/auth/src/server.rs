//! The server's side of authentication: configured protocols and exchanges with one peer.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::entity::Entity;
use crate::exported_file::ExportedFiles;
use crate::signing::SignatureCipher;

/// The peer of a login, as the server knows it before authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginPeer {
    /// Address and port of the peer.
    pub address: SocketAddr,
    /// Name of its host, or its address as text if the name is unknown.
    pub host: String,
    /// Login id: the part `user` of the trace id `user.pid:fd@host`.
    pub login_id: String,
    /// Set if the connection is encrypted.
    pub is_tls: bool,
}

/// The thread on which a step may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepCost {
    /// Takes microseconds and never waits; it may run on an event loop.
    Cheap,
    /// Computes for long or waits for a look-up; it must run on a pool.
    Expensive,
}

/// The result of one step of a [`ServerLogin`].
#[derive(Debug)]
pub enum ServerStep {
    /// The peer is authenticated.
    Done(Entity),
    /// The peer receives these bytes as `kXR_authmore` and replies with further credentials.
    Continue(Vec<u8>),
    /// The peer is refused; the exchange is over.
    Refused(RefusedLogin),
    /// The step depends on other exchanges. The driver repeats it with the same credentials after
    /// [`ServerLogin::wake_when_ready`], and needs no thread meanwhile.
    Later,
}

/// Called once when a step that returned [`ServerStep::Later`] can be repeated. It must not block.
pub type LoginWaker = Box<dyn FnOnce() + Send>;

/// The reason for a refusal. It is for the log only; the peer receives
/// [`RefusedLogin::text_for_peer`].
#[derive(Clone, PartialEq, Eq)]
pub struct RefusedLogin {
    protocol: &'static str,
    reason: String,
}

impl RefusedLogin {
    /// Creates a refusal. The reason must not contain a secret.
    #[must_use]
    pub fn new(protocol: &'static str, reason: impl Into<String>) -> Self {
        Self { protocol, reason: reason.into() }
    }

    /// Returns the reason for the log of the server. It can contain text of the peer, which is not
    /// escaped.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the text for the peer, without key ids, file names and reasons.
    #[must_use]
    pub fn text_for_peer(&self) -> String {
        format!("{} authentication failed; the reason is in the log of the server.", self.protocol)
    }
}

impl fmt::Debug for RefusedLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.protocol, self.reason)
    }
}

/// One exchange with one peer, on the side of the server.
///
/// The driver checks before each step that the credentials begin with the id of the protocol and a
/// NUL, and that they have at least [`ServerProtocol::credential_bytes_min`] bytes. After `Done` or
/// `Refused` the exchange is over and is dropped.
pub trait ServerLogin: Send {
    /// Returns the cost of the next step.
    fn cost(&self) -> StepCost;

    /// Processes the payload of a `kXR_auth`.
    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep;

    /// Calls `waker` when the step that returned [`ServerStep::Later`] can be repeated: immediately, or
    /// from the thread of another exchange. An exchange that is dropped calls no waker.
    fn wake_when_ready(&mut self, waker: LoginWaker) {
        waker();
    }

    /// Returns the cipher for signatures of requests, after `Done`, for protocols that agree on a
    /// session key.
    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        None
    }
}

/// Files of a protocol that are read again at an interval of their own.
pub struct FileRefresh {
    /// Time between two reads.
    pub interval: Duration,
    read: Box<dyn Fn() -> Result<(), String> + Send>,
}

impl FileRefresh {
    /// Creates the refresh of some files. `read` blocks.
    #[must_use]
    pub fn new(interval: Duration, read: impl Fn() -> Result<(), String> + Send + 'static) -> Self {
        Self { interval, read: Box::new(read) }
    }

    /// Reads the files again. Blocks.
    ///
    /// # Errors
    /// As for [`ServerProtocol::refresh`].
    pub fn read(&self) -> Result<(), String> {
        (self.read)()
    }
}

/// The certificate by which a protocol authenticates the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateInForce {
    /// Its file.
    pub path: PathBuf,
    /// The beginning of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub expires: SystemTime,
}

/// A protocol as the server is configured to offer it.
pub trait ServerProtocol: Send + Sync {
    /// Returns the id, at most 7 letters and digits.
    fn id(&self) -> &'static str;

    /// Returns the parameters for the list of protocols, without the comma in front; may be empty.
    fn parameters(&self) -> String;

    /// Returns the minimum number of bytes of credentials, including the id and its NUL.
    fn credential_bytes_min(&self) -> usize;

    /// Reports whether the protocol may be offered and used on encrypted connections only.
    fn needs_tls(&self) -> bool {
        false
    }

    /// Reports whether the name of the host of a peer decides about its identity, so that no peer can log in while
    /// names cannot be looked up.
    fn needs_host_name(&self) -> bool {
        false
    }

    /// Reports whether the name of the host of a peer is used. Without it less is allowed.
    fn wants_host_name(&self) -> bool {
        self.needs_host_name()
    }

    /// Begins an exchange with a peer.
    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin>;

    /// Begins a login of a peer that has shown these certificates in a handshake of TLS, its own first. Its first
    /// step needs no credentials. Returns `None` if certificates do not count for this protocol.
    fn begin_with_chain(&self, peer: &LoginPeer, chain: Arc<[Vec<u8>]>) -> Option<Box<dyn ServerLogin>> {
        let _ = (peer, chain);
        None
    }

    /// Returns the time at which the protocol accepts the first credentials. A client whose exchange
    /// begins earlier may be refused.
    fn ready_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    /// Returns the files that are read again at an interval, grouped by their intervals.
    fn periodic_refreshes(&self) -> Vec<FileRefresh> {
        Vec::new()
    }

    /// Reads all files of the protocol again. It blocks. Exchanges go on with the previous content
    /// until it returns, and after an error.
    ///
    /// # Errors
    /// The file and the reason why its new content is not used.
    fn refresh(&self) -> Result<(), String> {
        let failures: Vec<String> =
            self.periodic_refreshes().iter().filter_map(|refresh| refresh.read().err()).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Returns reasons for attention to files that are in force: parts that are not used, or that expire
    /// in less than `soon`. [`Self::certificate`] is not among them.
    fn warnings(&self, now: SystemTime, soon: Duration) -> Vec<String> {
        let _ = (now, soon);
        Vec::new()
    }

    /// Returns the files with credentials of users that the protocol writes; `None` if it writes none.
    fn exported_files(&self) -> Option<&ExportedFiles> {
        None
    }

    /// Returns the certificate of the server in force; `None` for a protocol without certificates.
    fn certificate(&self) -> Option<CertificateInForce> {
        None
    }

    /// Describes the files in force, and the reason why the present one is not; empty for a protocol
    /// without files.
    fn state(&self) -> String {
        String::new()
    }
}
