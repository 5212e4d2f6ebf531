//! Authentication at a server: the choice of protocols and the exchange.
//!
//! The client tries the protocols in the order of the server's list, as far as the user allows them
//! (`XrdSecPROTOCOL`, or `xrd.wantprot` in the URL) and this client supports them. A refusal, or
//! missing credentials, lead to the next protocol.
//!
//! Source: security facts, section 1.5.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use auth::host::HostClient;
use auth::sss::{SssClient, SssClientSettings};
use auth::unix::{UNIX, UnixClient};
use auth::{
    ClientAuthError, ClientContext, ClientLogin, ClientProtocol, OfferedProtocol, SystemRng, allowed_by,
    offered_protocols,
};
use nix::unistd::{Gid, Group, Uid, User};
use rawclient::{AuthenticationStep, Connection, Login};
use tokio::sync::oneshot;

use crate::failure::Cause;
use crate::url::Url;

/// Maximum number of requests for authentication of one login.
const STEPS_MAX: usize = 32;
/// The variable with the protocols that the user allows.
const PROTOCOLS_VARIABLE: &str = "XrdSecPROTOCOL";

/// The login of a connection and the choices of its URL for authentication.
#[derive(Clone, Debug)]
pub(crate) struct LoginRequest {
    pub(crate) login: Login,
    /// User of the URL.
    user: Option<String>,
    /// Name of the server in the URL.
    server: String,
    /// Protocols that the URL allows, otherwise those of the environment.
    protocols: Option<String>,
    /// Key table of the URL.
    sss_keytab: Option<PathBuf>,
}

impl LoginRequest {
    /// Creates the login for a URL; `login` is the one of the process.
    pub(crate) fn new(login: &Login, url: &Url) -> Self {
        let mut login = login.clone();
        login.authenticates = true;
        if let Some(user) = &url.user {
            login.user.clone_from(user);
        }
        login.token.clone_from(&url.token);
        let value = |key: &str| url.cgi.get(key).filter(|value| !value.is_empty()).cloned();
        Self {
            login,
            user: url.user.clone(),
            server: url.host.clone(),
            protocols: value("xrd.wantprot"),
            sss_keytab: value("xrd.sss").map(PathBuf::from),
        }
    }

    /// Returns the properties of the connection with this address for the protocols.
    fn context(&self, local_address: SocketAddr) -> ClientContext {
        ClientContext {
            local_address,
            host: self.login.host.clone(),
            server: self.server.clone(),
            user: self.user.clone(),
            is_tls: false,
            sss_keytab: self.sss_keytab.clone(),
        }
    }
}

/// The protocol `unix` with the user of this process. The look-up of names can block, so it is made
/// for each exchange, outside of the runtime.
struct ProcessUser;

impl ClientProtocol for ProcessUser {
    fn id(&self) -> &'static str {
        UNIX
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let user = User::from_uid(Uid::effective()).ok().flatten().map(|user| user.name);
        let group = Group::from_gid(Gid::effective()).ok().flatten().map(|group| group.name);
        UnixClient { user, group }.begin(offer, context)
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
    protocols: Vec<Box<dyn ClientProtocol>>,
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
    pub(crate) fn new(request: &LoginRequest, local_address: SocketAddr) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let sss =
            SssClient::new(SssClientSettings::of_environment(variable), Arc::new(Mutex::new(SystemRng)));
        let protocols: Vec<Box<dyn ClientProtocol>> =
            vec![Box::new(sss), Box::new(ProcessUser), Box::new(HostClient)];
        let (allowed, allowed_by) = match &request.protocols {
            Some(list) => (Some(list.clone()), "xrd.wantprot"),
            None => (variable(PROTOCOLS_VARIABLE), PROTOCOLS_VARIABLE),
        };
        let exchange = Exchange {
            protocols,
            offers: Vec::new().into_iter(),
            offered: String::new(),
            current: None,
            failed: Vec::new(),
        };
        let context = request.context(local_address);
        Self { exchange: Some(exchange), context, allowed, allowed_by, steps: 0 }
    }

    /// Returns protocol and credentials for the next request.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if no protocol is left.
    pub(crate) async fn next(&mut self, step: AuthenticationStep<'_>) -> Result<Credentials, Cause> {
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
pub(crate) struct Credentials {
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
    ) -> Result<Credentials, Cause> {
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
                        Ok(bytes) => return Ok(Credentials { id, bytes }),
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
    fn begin_next(&mut self, context: &ClientContext, now: SystemTime) -> Result<Credentials, Cause> {
        for offer in self.offers.by_ref() {
            let Some(protocol) = self.protocols.iter().find(|protocol| protocol.id() == offer.id) else {
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
                    return Ok(Credentials { id, bytes });
                }
                Err(error) => self.failed.push(format!("{id}: {error}")),
            }
        }
        let text = if self.failed.is_empty() {
            let offered = &self.offered;
            format!(
                "the server demands one of the protocols {offered}, which this client cannot do; \
                 use a server that offers sss or unix"
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
        let request = LoginRequest::new(&Login::of_process("test"), &url);
        Authentication::new(&request, "127.0.0.1:4711".parse().unwrap())
    }

    fn refused(text: &[u8]) -> AuthenticationStep<'_> {
        let code = wire::xroot::ErrorCode::AUTH_FAILED;
        AuthenticationStep::Refused(wire::xroot::reply::ErrorReply { code, text })
    }

    fn why(result: Result<Credentials, Cause>) -> String {
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
        assert!(text.contains("sss: cannot open the key table /nonexistent/keytab"), "{text}");
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
        let text = why(login.next(AuthenticationStep::Offers(b"&P=gsi,v:1&P=krb5")).await);
        assert!(text.starts_with("the server demands one of the protocols gsi, krb5, which"), "{text}");
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
