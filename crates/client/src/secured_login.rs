//! TLS and credentials of the user for connections without Tokio, such as those of a load generator.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use auth::SignatureCipher;
use auth::tls::TrustAnchors;
use rawclient::{AuthenticationStep, Login, LoginCredentials, LoginSecurity};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection};

use crate::authentication::LoginRequest;
use crate::credential_exchange::{CredentialExchange, OwnedStep};
use crate::credentials::{CredentialChoice, Credentials};
use crate::server_stream::server_name;
use crate::shared_tickets::SharedTickets;
use crate::tls_trust::{TlsTrust, own_certificate};
use crate::url::Url;

/// The login of the user at one server, for many connections.
#[derive(Clone, Debug)]
pub struct SecuredLogin {
    request: LoginRequest,
    /// The context of TLS, read when the first connection needs it.
    config: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
    /// Later connections resume the TLS session of earlier ones.
    resumes: bool,
}

impl SecuredLogin {
    /// Creates the login at the server of a URL; `login` is the one of the process. With `resumes`
    /// connections resume TLS sessions.
    #[must_use]
    pub fn new(login: &Login, url: &Url, resumes: bool) -> Self {
        let choice = CredentialChoice::of(url);
        let request = LoginRequest::new(login, &Credentials::of_user(), &choice, url, &TlsTrust::default());
        Self { request, config: Arc::default(), resumes }
    }

    /// Returns the login to send.
    #[must_use]
    pub const fn login(&self) -> &Login {
        &self.request.login
    }

    /// Creates the security of one connection.
    #[must_use]
    pub fn security(&self) -> Box<dyn LoginSecurity> {
        Box::new(UserSecurity { login: self.clone(), exchange: None })
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let read = || {
            let own = own_certificate();
            own.refresh();
            let config = TrustAnchors::of_environment().client_config_with(Some(own));
            let config = config.map_err(|error| error.to_string())?;
            let mut config = ClientConfig::clone(&config);
            config.resumption = match self.resumes {
                true => Resumption::store(Arc::new(SharedTickets::new())),
                false => Resumption::disabled(),
            };
            Ok(Arc::new(config))
        };
        self.config.get_or_init(read).clone().map_err(io::Error::other)
    }
}

/// The security of one connection of the user.
struct UserSecurity {
    login: SecuredLogin,
    exchange: Option<CredentialExchange>,
}

impl fmt::Debug for UserSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserSecurity").field("login", &self.login).finish_non_exhaustive()
    }
}

impl LoginSecurity for UserSecurity {
    fn encrypt(&mut self) -> io::Result<ClientConnection> {
        let name = server_name(&self.login.request.host)?;
        ClientConnection::new(self.login.config()?, name).map_err(io::Error::other)
    }

    fn credentials(
        &mut self,
        step: AuthenticationStep<'_>,
        local: SocketAddr,
        is_tls: bool,
    ) -> io::Result<LoginCredentials> {
        let exchange = match &mut self.exchange {
            Some(exchange) => exchange,
            none => {
                let begun = self.login.request.exchange(local, is_tls).map_err(failed)?;
                none.insert(begun)
            }
        };
        exchange.next(OwnedStep::from(step)).map_err(failed)
    }

    fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        self.exchange.as_ref()?.signature_cipher()
    }
}

fn failed(cause: crate::failure::Cause) -> io::Error {
    io::Error::other(cause.to_string())
}
