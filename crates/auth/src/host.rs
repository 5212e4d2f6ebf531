//! `host`: the identity is the host of the peer. Clients send credentials only if they name the
//! protocol explicitly; otherwise an empty list of protocols means that the host suffices.
//!
//! There is no server's side: there is nothing to check, so whether a peer may use it is a matter of
//! its binding alone.

use std::time::SystemTime;

use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::offers::OfferedProtocol;

/// The id of the protocol.
pub const HOST: &str = "host";
/// The credentials of a client: the id and its NUL.
pub const CREDENTIALS: &[u8] = b"host\0";

/// `host` as a client supports it.
#[derive(Clone, Copy, Debug)]
pub struct HostClient;

impl ClientProtocol for HostClient {
    fn id(&self) -> &'static str {
        HOST
    }

    fn begin(&self, _: &OfferedProtocol, _: &ClientContext) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        Ok(Box::new(HostClientLogin))
    }
}

struct HostClientLogin;

impl ClientLogin for HostClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, _now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        match challenge {
            None => Ok(CREDENTIALS.to_vec()),
            Some(_) => Err(ClientAuthError::TooManySteps),
        }
    }
}
