//! `host`: the identity is the host of the peer. Clients send credentials only if they name the
//! protocol explicitly; otherwise an empty list of protocols means that the host suffices.

use std::time::SystemTime;

use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::entity::Entity;
use crate::offers::OfferedProtocol;
use crate::server::{LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost};

/// The id of the protocol.
pub const HOST: &str = "host";
const CREDENTIALS: &[u8] = b"host\0";

/// `host` as a server offers it to peers to which it is bound.
#[derive(Clone, Copy, Debug)]
pub struct HostServer;

impl ServerProtocol for HostServer {
    fn id(&self) -> &'static str {
        HOST
    }

    fn parameters(&self) -> String {
        String::new()
    }

    fn credential_bytes_min(&self) -> usize {
        CREDENTIALS.len()
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(HostServerLogin { host: peer.host.clone() })
    }
}

struct HostServerLogin {
    host: String,
}

impl ServerLogin for HostServerLogin {
    fn cost(&self) -> StepCost {
        StepCost::Cheap
    }

    fn step(&mut self, credentials: &[u8], _now: SystemTime) -> ServerStep {
        match credentials.strip_prefix(CREDENTIALS) {
            Some(_) => ServerStep::Done(Entity::of_host(&self.host)),
            None => ServerStep::Refused(RefusedLogin::new(HOST, "the credentials are malformed")),
        }
    }
}

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
