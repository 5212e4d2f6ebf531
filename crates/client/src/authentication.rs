//! The login at a server, and the thread of each step of its authentication.

use std::net::SocketAddr;

use auth::ClientContext;
use rawclient::{AuthenticationStep, Connection, Login, LoginCredentials, TlsSupport};
use tokio::sync::oneshot;

use crate::credential_exchange::{CredentialExchange, OwnedStep};
use crate::credentials::{CredentialChoice, Credentials, PROTOCOLS_VARIABLE, UserCredentials};
use crate::failure::Cause;
use crate::tls_trust::TlsTrust;
use crate::url::{Scheme, Url};

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
    /// the target of a redirect, so it chooses no credentials. At a proxy server, `choice` comes from one
    /// of its clients. It has no effect then except for the name of the login, because it would name files
    /// of the proxy server, or delegate its proxy.
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
        let is_proxy_server = credentials.user().is_some_and(|user| user.is_proxy_server);
        let choice = if is_proxy_server { CredentialChoice::default() } else { choice.clone() };
        let credentials = credentials.clone();
        Self { login, host: url.host.clone(), tls: tls.clone(), credentials, choice }
    }

    /// Begins the exchange of a connection whose own address is `local_address`.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if the client has no credentials.
    pub(crate) fn exchange(
        &self,
        local_address: SocketAddr,
        is_tls: bool,
    ) -> Result<CredentialExchange, Cause> {
        let Some(credentials) = self.credentials.user().cloned() else {
            return Err(Cause::NotAuthenticated("this client has no credentials".to_owned()));
        };
        credentials.keep_out_of_core_dumps();
        let (allowed, allowed_by) = allowed_protocols(&self.choice, &credentials);
        let context = self.context(local_address, is_tls);
        Ok(CredentialExchange::new(credentials, context, allowed, allowed_by))
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
            delegates: self.choice.delegates(),
            ticket_cache: self.choice.ticket_cache(),
        }
    }
}

/// Returns the list of protocols that the user allows, and the name of its source.
fn allowed_protocols(
    choice: &CredentialChoice,
    credentials: &UserCredentials,
) -> (Option<String>, &'static str) {
    match choice.protocols() {
        Some(list) => (Some(list.to_owned()), "xrd.wantprot"),
        None => (credentials.allowed.clone(), PROTOCOLS_VARIABLE),
    }
}

/// Authentication of one connection. Each step runs on a thread of its own.
pub(crate) struct Authentication(Option<CredentialExchange>);

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
        request.exchange(local_address, is_tls).map(|exchange| Self(Some(exchange)))
    }

    /// Returns protocol and credentials for the next request.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if no protocol is left.
    pub(crate) async fn next(&mut self, step: AuthenticationStep<'_>) -> Result<LoginCredentials, Cause> {
        let step = OwnedStep::from(step);
        let Some(mut exchange) = self.0.take() else {
            return Err(Cause::NotAuthenticated("a step of it was interrupted".to_owned()));
        };
        // Key tables and names of users may be on file systems and services that hang.
        let (answer, result) = oneshot::channel();
        let work = move || {
            let credentials = exchange.next(step);
            let _ = answer.send((exchange, credentials));
        };
        let failed = |error: String| Cause::NotAuthenticated(error);
        std::thread::Builder::new()
            .name("authentication".to_owned())
            .spawn(work)
            .map_err(|error| failed(format!("no thread for it: {error}")))?;
        let (exchange, credentials) = result.await.map_err(|_| failed("its thread ended".to_owned()))?;
        self.0 = Some(exchange);
        credentials
    }

    /// Hands the session key, if the protocol agreed on one, to the connection.
    pub(crate) fn complete(self, machine: &mut Connection) {
        if let Some(cipher) = self.0.and_then(|exchange| exchange.signature_cipher()) {
            machine.sign_with(cipher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential_exchange::STEPS_MAX;
    use auth::gsi::GridFiles;

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

    fn why(result: Result<LoginCredentials, Cause>) -> String {
        let Err(Cause::NotAuthenticated(text)) = result else { panic!("credentials") };
        text
    }

    #[tokio::test]
    async fn a_refusal_leads_to_the_next_protocol() {
        let mut login = authentication("root://h//a?xrd.sss=/nonexistent/keytab");
        let offers = AuthenticationStep::Offers(b"&P=gsi,v:1&P=sss,0.+13:&P=unix&P=host");
        let first = login.next(offers).await.unwrap();
        assert_eq!((first.protocol, first.payload.starts_with(b"unix\0")), ("unix", true));
        let second = login.next(refused(b"not you.")).await.unwrap();
        assert_eq!((second.protocol, second.payload.as_slice()), ("host", b"host\0".as_slice()));
        let text = why(login.next(AuthenticationStep::Challenge(b"?")).await);
        assert!(text.contains("sss: there is no key table /nonexistent/keytab"), "{text}");
        assert!(text.contains("unix: the server refused it: not you, and host: "), "{text}");
    }

    #[tokio::test]
    async fn the_user_restricts_the_choice() {
        let mut login = authentication("root://h//a?xrd.wantprot=host");
        let offers = AuthenticationStep::Offers(b"&P=unix&P=host");
        assert_eq!(login.next(offers).await.unwrap().protocol, "host");
        let mut login = authentication("root://h//a?xrd.wantprot=gsi");
        let text = why(login.next(AuthenticationStep::Offers(b"&P=unix&P=host")).await);
        assert_eq!(text, "xrd.wantprot=gsi allows none of the server's protocols (unix, host); change it");
        let mut login = authentication("root://h//a");
        let text = why(login.next(AuthenticationStep::Offers(b"&P=pwd1&P=pwd2")).await);
        assert!(text.starts_with("the server demands one of the protocols pwd1, pwd2, which"), "{text}");
    }

    #[test]
    fn the_urls_of_a_proxy_server_choose_no_credentials() {
        let mut url = "root://alice@h//a?xrdcl.intent=tpc&xrd.wantprot=unix".to_owned();
        for key in ["ztn", "sss", "gsiusrpxy", "gsiusrcrt", "gsiusrkey", "k5ccname"] {
            url.push_str(&format!("&xrd.{key}=/etc/{key}"));
        }
        let url = Url::parse(&url).unwrap();
        let request = |is_proxy_server| {
            let allowed = Some("gsi".to_owned());
            let credentials = Credentials::of_protocols(Vec::new(), allowed, is_proxy_server);
            let login = Login::of_process("test");
            let choice = CredentialChoice::of(&url);
            LoginRequest::new(&login, &credentials, &choice, &url, &TlsTrust::default())
        };
        let chosen = |is_proxy_server| {
            let request = request(is_proxy_server);
            let context = request.context("127.0.0.1:4711".parse().unwrap(), true);
            let GridFiles { proxy, certificate, key } = context.grid_files;
            let files = [proxy, certificate, key, context.sss_keytab, context.token_file];
            let count = files.iter().flatten().count() + usize::from(context.ticket_cache.is_some());
            (count, context.delegates, context.user)
        };
        assert_eq!(chosen(false), (6, true, Some("alice".to_owned())));
        assert_eq!(chosen(true), (0, false, None));
        let allowed = |is_proxy_server| {
            let request = request(is_proxy_server);
            let (allowed, source) = allowed_protocols(&request.choice, request.credentials.user().unwrap());
            (allowed.unwrap(), source)
        };
        assert_eq!(allowed(false), ("unix".to_owned(), "xrd.wantprot"));
        assert_eq!(allowed(true), ("gsi".to_owned(), "XrdSecPROTOCOL"));
        assert_eq!(request(true).login.user, "alice", "it proves nothing");
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
