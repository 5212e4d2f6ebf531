//! The identity that a server would give the owner of a credential, without a connection: for
//! explanations.

use super::credential::GridCredential;
use super::server::GsiServer;
use crate::entity::Entity;
use crate::grid::ChainRole;
use crate::server::LoginPeer;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::SystemTime;

impl GsiServer {
    /// Returns the identity of a client of a host that logs in with a credential.
    ///
    /// # Errors
    /// The reason for which the server refuses the login.
    pub fn identity(
        &self,
        credential: &GridCredential,
        host: &str,
        now: SystemTime,
    ) -> Result<Entity, String> {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let peer = LoginPeer { address, host: host.to_owned(), login_id: String::new(), is_tls: false };
        let login = self.exchange(&peer);
        login.check_key_size(credential.bits())?;
        let chain: Vec<Vec<u8>> =
            credential.sent_chain().map(|certificate| certificate.der.clone()).collect();
        let identity = login.shared.trust.verify(&chain, ChainRole::Client, now)?;
        login.entity(&identity, &chain, None).map(Entity::new)
    }
}
