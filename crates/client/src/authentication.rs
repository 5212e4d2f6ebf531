//! Authentication at a server: the choice of protocols and the exchange.
//!
//! The client tries the protocols in the order of the server's list, as far as the user allows them
//! (`XrdSecPROTOCOL`, or `xrd.wantprot` in the URL) and this client supports them. A refusal, or
//! missing credentials, lead to the next protocol.
//!
//! Source: security facts, section 1.5.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use auth::{ClientContext, ClientLogin, OfferedProtocol, allowed_by, offered_protocols};
use rawclient::{AuthenticationStep, Connection, Login, TlsSupport};
use tokio::sync::oneshot;

use crate::credentials::{CredentialChoice, Credentials, PROTOCOLS_VARIABLE, UserCredentials};
use crate::failure::Cause;
use crate::tls_trust::TlsTrust;
use crate::url::{Scheme, Url};

/// Maximum number of requests for authentication of one login.
const STEPS_MAX: usize = 32;

/// The login of a connection, the credentials of the client, and the choice among them.
#[derive(Clone, Debug)]
pub(crate) struct LoginRequest {
    pub(crate) login: Login,
    /// The host of the URL, whose name the certificate of the server must have.
    pub(crate) host: String,
    pub(crate) tls: TlsTrust,
    credentials: Credentials,
    choice: CredentialChoice,
}

impl LoginRequest {
    /// Creates the login at the server of a URL; `login` is the one of the process. The URL may be
    /// the target of a redirect, so it chooses no credentials.
    pub(crate) fn new(
        login: &Login,
        credentials: &Credentials,
        choice: &CredentialChoice,
        url: &Url,
        tls: &TlsTrust,
    ) -> Self {
        let mut login = login.clone();
        login.authenticates = credentials.user().is_some();
        if let Some(user) = &choice.user {
            login.user.clone_from(user);
        }
        login.token.clone_from(&url.token);
        login.tls = match url.scheme {
            Scheme::Roots => TlsSupport::Required,
            _ => TlsSupport::Supported,
        };
        let (credentials, choice) = (credentials.clone(), choice.clone());
        Self { login, host: url.host.clone(), tls: tls.clone(), credentials, choice }
    }

    /// Returns the properties of the connection with this address for the protocols.
    fn context(&self, local_address: SocketAddr, is_tls: bool) -> ClientContext {
        ClientContext {
            local_address,
            host: self.login.host.clone(),
            server_host: self.host.clone(),
            user: self.choice.user.clone(),
            is_tls,
            sss_keytab: self.choice.sss_keytab(),
            token_file: self.choice.token_file(),
            grid_files: self.choice.grid_files(),
            ticket_cache: self.choice.ticket_cache(),
        }
    }
}

/// A step of an exchange that the server requested.
enum OwnedStep {
    Offers(Vec<u8>),
    Challenge(Vec<u8>),
    Refused(String),
}

impl From<AuthenticationStep<'_>> for OwnedStep {
    fn from(step: AuthenticationStep<'_>) -> Self {
        match step {
            AuthenticationStep::Offers(text) => Self::Offers(text.to_vec()),
            AuthenticationStep::Challenge(challenge) => Self::Challenge(challenge.to_vec()),
            AuthenticationStep::Refused(error) => {
                let text = String::from_utf8_lossy(error.text).trim_end_matches('.').to_owned();
                Self::Refused(format!("the server refused it: {text}"))
            }
        }
    }
}

/// Authentication of one connection.
pub(crate) struct Authentication {
    exchange: Option<Exchange>,
    context: ClientContext,
    /// The list of the user.
    allowed: Option<String>,
    /// Name of the source of that list.
    allowed_by: &'static str,
    steps: usize,
}

/// The state that moves to a thread for each step.
struct Exchange {
    credentials: Arc<UserCredentials>,
    /// The protocols that were not tried yet, in order.
    offers: std::vec::IntoIter<OfferedProtocol>,
    /// The names of all protocols of the server.
    offered: String,
    current: Option<(&'static str, Box<dyn ClientLogin>)>,
    /// The protocols that failed, with the reason.
    failed: Vec<String>,
}

impl Authentication {
    /// Prepares authentication of a connection whose own address is `local_address`.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if the client has no credentials.
    pub(crate) fn new(
        request: &LoginRequest,
        local_address: SocketAddr,
        is_tls: bool,
    ) -> Result<Self, Cause> {
        let Some(credentials) = request.credentials.user().cloned() else {
            return Err(Cause::NotAuthenticated("this client has no credentials".to_owned()));
        };
        let (allowed, allowed_by) = match request.choice.protocols() {
            Some(list) => (Some(list.to_owned()), "xrd.wantprot"),
            None => (credentials.allowed.clone(), PROTOCOLS_VARIABLE),
        };
        let exchange = Exchange {
            credentials,
            offers: Vec::new().into_iter(),
            offered: String::new(),
            current: None,
            failed: Vec::new(),
        };
        let context = request.context(local_address, is_tls);
        Ok(Self { exchange: Some(exchange), context, allowed, allowed_by, steps: 0 })
    }

    /// Returns protocol and credentials for the next request.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if no protocol is left.
    pub(crate) async fn next(&mut self, step: AuthenticationStep<'_>) -> Result<CredentialPayload, Cause> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Cause::NotAuthenticated("the server does not end the authentication".to_owned()));
        }
        let step = OwnedStep::from(step);
        let (allowed, source) = (self.allowed.clone(), self.allowed_by);
        let context = self.context.clone();
        let Some(mut exchange) = self.exchange.take() else {
            return Err(Cause::NotAuthenticated("a step of it was interrupted".to_owned()));
        };
        // Key tables and names of users may be on file systems and services that hang.
        let (answer, result) = oneshot::channel();
        let work = move || {
            let credentials = exchange.next(step, &context, allowed.as_deref(), source);
            let _ = answer.send((exchange, credentials));
        };
        let failed = |error: String| Cause::NotAuthenticated(error);
        std::thread::Builder::new()
            .name("authentication".to_owned())
            .spawn(work)
            .map_err(|error| failed(format!("no thread for it: {error}")))?;
        let (exchange, credentials) = result.await.map_err(|_| failed("its thread ended".to_owned()))?;
        self.exchange = Some(exchange);
        credentials
    }

    /// Hands the session key, if the protocol agreed on one, to the connection.
    pub(crate) fn complete(self, machine: &mut Connection) {
        let current = self.exchange.and_then(|exchange| exchange.current);
        if let Some((id, login)) = current {
            tracing::debug!(protocol = id, "authenticated");
            if let Some(cipher) = login.signature_cipher() {
                machine.sign_with(cipher);
            }
        }
    }
}

/// The content of one request for authentication.
pub(crate) struct CredentialPayload {
    /// The protocol.
    pub(crate) id: &'static str,
    /// The payload of the request.
    pub(crate) bytes: Vec<u8>,
}

impl Exchange {
    fn next(
        &mut self,
        step: OwnedStep,
        context: &ClientContext,
        allowed: Option<&str>,
        source: &str,
    ) -> Result<CredentialPayload, Cause> {
        let now = SystemTime::now();
        match step {
            OwnedStep::Offers(text) => self.take_offers(&text, allowed, source)?,
            OwnedStep::Refused(reason) => self.fail(reason),
            OwnedStep::Challenge(challenge) if challenge.is_empty() => {
                self.fail("the server sent an empty challenge".to_owned());
            }
            OwnedStep::Challenge(challenge) => {
                if let Some((id, login)) = &mut self.current {
                    match login.step(Some(&challenge), now) {
                        Ok(bytes) => return Ok(CredentialPayload { id, bytes }),
                        Err(error) => self.fail(error.to_string()),
                    }
                }
            }
        }
        self.begin_next(context, now)
    }

    fn take_offers(&mut self, text: &[u8], allowed: Option<&str>, source: &str) -> Result<(), Cause> {
        let offers = offered_protocols(text);
        let names: Vec<&str> = offers.iter().map(|offer| offer.id.as_str()).collect();
        self.offered = names.join(", ");
        let usable: Vec<_> = offers.into_iter().filter(|offer| allowed_by(allowed, &offer.id)).collect();
        if let Some(list) = allowed.filter(|_| usable.is_empty()) {
            let offered = &self.offered;
            let text =
                format!("{source}={list} allows none of the server's protocols ({offered}); change it");
            return Err(Cause::NotAuthenticated(text));
        }
        self.offers = usable.into_iter();
        Ok(())
    }

    /// Begins with the next protocol for which there are credentials.
    fn begin_next(&mut self, context: &ClientContext, now: SystemTime) -> Result<CredentialPayload, Cause> {
        for offer in self.offers.by_ref() {
            let Some(protocol) = self.credentials.protocols.iter().find(|protocol| protocol.id() == offer.id)
            else {
                continue;
            };
            if protocol.needs_tls() && !context.is_tls {
                continue;
            }
            let id = protocol.id();
            let begun = protocol.begin(&offer, context);
            match begun.and_then(|mut login| Ok((login.step(None, now)?, login))) {
                Ok((bytes, login)) => {
                    self.current = Some((id, login));
                    return Ok(CredentialPayload { id, bytes });
                }
                Err(error) => self.failed.push(format!("{id}: {error}")),
            }
        }
        let text = if self.failed.is_empty() {
            let offered = &self.offered;
            format!(
                "the server demands one of the protocols {offered}, which this client cannot do; \
                 use a server that offers gsi, krb5, sss or unix"
            )
        } else {
            self.failed.join(", and ")
        };
        Err(Cause::NotAuthenticated(text))
    }

    /// Records the failure of the current protocol.
    fn fail(&mut self, reason: String) {
        if let Some((id, _)) = self.current.take() {
            self.failed.push(format!("{id}: {reason}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authentication(url: &str) -> Authentication {
        let url = Url::parse(url).unwrap();
        let (login, choice) = (Login::of_process("test"), CredentialChoice::of(&url));
        let request = LoginRequest::new(&login, &Credentials::of_user(), &choice, &url, &TlsTrust::default());
        Authentication::new(&request, "127.0.0.1:4711".parse().unwrap(), false).unwrap()
    }

    fn refused(text: &[u8]) -> AuthenticationStep<'_> {
        let code = wire::xroot::ErrorCode::AUTH_FAILED;
        AuthenticationStep::Refused(wire::xroot::reply::ErrorReply { code, text })
    }

    fn why(result: Result<CredentialPayload, Cause>) -> String {
        let Err(Cause::NotAuthenticated(text)) = result else { panic!("credentials") };
        text
    }

    #[tokio::test]
    async fn a_refusal_leads_to_the_next_protocol() {
        let mut login = authentication("root://h//a?xrd.sss=/nonexistent/keytab");
        let offers = AuthenticationStep::Offers(b"&P=gsi,v:1&P=sss,0.+13:&P=unix&P=host");
        let first = login.next(offers).await.unwrap();
        assert_eq!((first.id, first.bytes.starts_with(b"unix\0")), ("unix", true));
        let second = login.next(refused(b"not you.")).await.unwrap();
        assert_eq!((second.id, second.bytes.as_slice()), ("host", b"host\0".as_slice()));
        let text = why(login.next(AuthenticationStep::Challenge(b"?")).await);
        assert!(text.contains("sss: there is no key table /nonexistent/keytab"), "{text}");
        assert!(text.contains("unix: the server refused it: not you, and host: "), "{text}");
    }

    #[tokio::test]
    async fn the_user_restricts_the_choice() {
        let mut login = authentication("root://h//a?xrd.wantprot=host");
        let offers = AuthenticationStep::Offers(b"&P=unix&P=host");
        assert_eq!(login.next(offers).await.unwrap().id, "host");
        let mut login = authentication("root://h//a?xrd.wantprot=gsi");
        let text = why(login.next(AuthenticationStep::Offers(b"&P=unix&P=host")).await);
        assert_eq!(text, "xrd.wantprot=gsi allows none of the server's protocols (unix, host); change it");
        let mut login = authentication("root://h//a");
        let text = why(login.next(AuthenticationStep::Offers(b"&P=pwd,v:1&P=pwd2")).await);
        assert!(text.starts_with("the server demands one of the protocols pwd, pwd2, which"), "{text}");
    }

    #[tokio::test]
    async fn a_server_that_asks_forever_is_left() {
        let mut login = authentication("root://h//a?xrd.wantprot=host");
        login.next(AuthenticationStep::Offers(b"&P=host&P=unix")).await.unwrap();
        let mut steps = 1;
        while login.next(AuthenticationStep::Offers(b"&P=host")).await.is_ok() {
            steps += 1;
        }
        assert_eq!(steps, STEPS_MAX);
    }
}
