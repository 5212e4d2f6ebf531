//! The client's side of authentication: supported protocols and exchanges with one server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::gsi::GridFiles;
use crate::offers::OfferedProtocol;
use crate::signing::SignatureCipher;

/// The properties of one connection that protocols use on the side of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientContext {
    /// Address and port of this end of the connection.
    pub local_address: SocketAddr,
    /// Name of this host.
    pub host: String,
    /// Name of the server in the URL.
    pub server_host: String,
    /// User of the URL.
    pub user: Option<String>,
    /// Set if the connection is encrypted.
    pub is_tls: bool,
    /// Key table of `sss` from the URL (`xrd.sss`).
    pub sss_keytab: Option<PathBuf>,
    /// Token file of `ztn` from the URL (`xrd.ztn`).
    pub token_file: Option<PathBuf>,
    /// Files of `gsi` from the URL (`xrd.gsiusrpxy`, `xrd.gsiusrcrt`, `xrd.gsiusrkey`).
    pub grid_files: GridFiles,
    /// Set if the user wants to delegate a proxy to this server, also without `XrdSecGSIDELEGPROXY`.
    pub delegates: bool,
    /// Cache of the tickets of `krb5` from the URL (`xrd.k5ccname`).
    pub ticket_cache: Option<String>,
}

impl ClientContext {
    /// Creates the context of an unencrypted connection whose URL names no user and no files.
    #[must_use]
    pub fn new(local_address: SocketAddr, host: &str, server_host: &str) -> Self {
        Self {
            local_address,
            host: host.to_owned(),
            server_host: server_host.to_owned(),
            user: None,
            is_tls: false,
            sss_keytab: None,
            token_file: None,
            grid_files: GridFiles::default(),
            delegates: false,
            ticket_cache: None,
        }
    }
}

/// The reason why a client has no credentials for a protocol. It contains no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientAuthError {
    /// There is nothing to authenticate with.
    #[error("{reason}; {remedy}")]
    NoCredentials {
        /// The missing or unusable credential.
        reason: String,
        /// What the user can do.
        remedy: String,
    },
    /// The server cannot prove its identity.
    #[error("{reason}; {remedy}")]
    UntrustedServer {
        /// What is wrong.
        reason: String,
        /// What the user can do.
        remedy: String,
    },
    /// The parameters or the challenge of the server are malformed.
    #[error("the server's {0} is malformed")]
    BadChallenge(&'static str),
    /// The server asked for more than the protocol allows.
    #[error("the server asked for credentials again after the last step")]
    TooManySteps,
}

/// One exchange with one server, on the side of the client.
pub trait ClientLogin: Send {
    /// Returns the payload of the next `kXR_auth`. `challenge` is the body of the server's
    /// `kXR_authmore`, and `None` for the first step.
    ///
    /// # Errors
    /// [`ClientAuthError`]; the client tries the next protocol.
    fn step(&mut self, challenge: Option<&[u8]>, now: SystemTime) -> Result<Vec<u8>, ClientAuthError>;

    /// Returns a likely reason for the refusal of the last credentials, and the remedy. It contains no
    /// secret.
    fn explain_refusal(&self, _now: SystemTime) -> Option<String> {
        None
    }

    /// Returns the cipher for signatures of requests, after the login, for protocols that agree on
    /// a session key.
    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        None
    }
}

/// A protocol that a client supports.
pub trait ClientProtocol: Send + Sync {
    /// Returns the id, at most 7 letters and digits.
    fn id(&self) -> &'static str;

    /// Reports whether it may be used on encrypted connections only.
    fn needs_tls(&self) -> bool {
        false
    }

    /// Begins an exchange. It may read files.
    ///
    /// # Errors
    /// [`ClientAuthError`]; the client tries the next protocol.
    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError>;
}
