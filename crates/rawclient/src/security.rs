//! The interface for TLS and credentials of a login.
//!
//! Both depend on libraries and files that this crate does not know, so the owner of a connection
//! supplies them.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use auth::SignatureCipher;
use rustls::ClientConnection;

use crate::connection::AuthenticationStep;

/// The security of one connection.
pub trait LoginSecurity: Debug {
    /// Creates the TLS connection. It verifies the server.
    ///
    /// # Errors
    /// The context of TLS cannot be created, for example without authorities.
    fn encrypt(&mut self) -> io::Result<ClientConnection>;

    /// Returns the credentials for a step of the authentication. `local` is this end of the
    /// connection.
    ///
    /// # Errors
    /// The user has credentials for none of the protocols of the server.
    fn credentials(
        &mut self,
        step: AuthenticationStep<'_>,
        local: SocketAddr,
        is_tls: bool,
    ) -> io::Result<LoginCredentials>;

    /// Returns the session key of the authentication, if the protocol agrees on one.
    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>>;
}

/// The content of one request for authentication.
#[derive(Debug)]
pub struct LoginCredentials {
    /// The protocol.
    pub protocol: &'static str,
    /// The payload of the request. It may be a secret.
    pub payload: Vec<u8>,
}
