//! The exchange of credentials with a server: the choice of protocols and their steps.
//!
//! The client tries the protocols in the order of the server's list, as far as the user allows them
//! (`XrdSecPROTOCOL`, or `xrd.wantprot` in the URL) and this client supports them. A refusal, or
//! missing credentials, lead to the next protocol.
//!
//! Source: security facts, section 1.5.

use std::sync::Arc;
use std::time::SystemTime;

use auth::{ClientContext, ClientLogin, OfferedProtocol, SignatureCipher, allowed_by, offered_protocols};
use rawclient::{AuthenticationStep, LoginCredentials};

use crate::credentials::UserCredentials;
use crate::failure::Cause;

/// Target of the log of logins, which contains no secrets.
const LOG: &str = "client::security";

/// Maximum number of requests for authentication of one login.
pub(crate) const STEPS_MAX: usize = 32;

/// A step of an exchange that the server requested.
pub(crate) enum OwnedStep {
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

/// The exchange of one connection.
pub(crate) struct CredentialExchange {
    credentials: Arc<UserCredentials>,
    context: ClientContext,
    /// The list of the user.
    allowed: Option<String>,
    /// Name of the source of that list.
    allowed_by: &'static str,
    /// The protocols that were not tried yet, in order.
    offers: std::vec::IntoIter<OfferedProtocol>,
    /// The names of all protocols of the server.
    offered: String,
    current: Option<(&'static str, Box<dyn ClientLogin>)>,
    /// The protocols that failed, with the reason.
    failed: Vec<String>,
    steps: usize,
}

impl CredentialExchange {
    /// Creates the exchange of one connection. `allowed` is the list of the user, and `allowed_by`
    /// the name of its source.
    pub(crate) fn new(
        credentials: Arc<UserCredentials>,
        context: ClientContext,
        allowed: Option<String>,
        allowed_by: &'static str,
    ) -> Self {
        Self {
            credentials,
            context,
            allowed,
            allowed_by,
            offers: Vec::new().into_iter(),
            offered: String::new(),
            current: None,
            failed: Vec::new(),
            steps: 0,
        }
    }

    /// Returns protocol and credentials for the next request. It may block.
    ///
    /// # Errors
    /// [`Cause::NotAuthenticated`] if no protocol is left.
    pub(crate) fn next(&mut self, step: OwnedStep) -> Result<LoginCredentials, Cause> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Cause::NotAuthenticated("the server does not end the authentication".to_owned()));
        }
        let now = SystemTime::now();
        match step {
            OwnedStep::Offers(text) => self.take_offers(&text)?,
            OwnedStep::Refused(reason) => self.refused(reason, now),
            OwnedStep::Challenge(challenge) if challenge.is_empty() => {
                self.fail("the server sent an empty challenge".to_owned());
            }
            OwnedStep::Challenge(challenge) => {
                if let Some((id, login)) = &mut self.current {
                    match login.step(Some(&challenge), now) {
                        Ok(bytes) => return Ok(LoginCredentials { protocol: id, payload: bytes }),
                        Err(error) => self.fail(error.to_string()),
                    }
                }
            }
        }
        self.begin_next(now)
    }

    fn take_offers(&mut self, text: &[u8]) -> Result<(), Cause> {
        let (allowed, source) = (self.allowed.as_deref(), self.allowed_by);
        let offers = offered_protocols(text);
        let names: Vec<&str> = offers.iter().map(|offer| offer.id.as_str()).collect();
        self.offered = names.join(", ");
        let server = &self.context.server_host;
        tracing::debug!(target: LOG, server, offered = self.offered, allowed, is_tls = self.context.is_tls, "login");
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
    fn begin_next(&mut self, now: SystemTime) -> Result<LoginCredentials, Cause> {
        while let Some(offer) = self.offers.next() {
            let Some(protocol) = self.credentials.protocols.iter().find(|protocol| protocol.id() == offer.id)
            else {
                continue;
            };
            let id = protocol.id();
            if protocol.needs_tls() && !self.context.is_tls {
                tracing::debug!(target: LOG, protocol = id, "left out, because the connection is not encrypted");
                continue;
            }
            let begun = protocol.begin(&offer, &self.context);
            match begun.and_then(|mut login| Ok((login.step(None, now)?, login))) {
                Ok((bytes, login)) => {
                    self.current = Some((id, login));
                    tracing::debug!(target: LOG, protocol = id, bytes = bytes.len(), "sends credentials");
                    return Ok(LoginCredentials { protocol: id, payload: bytes });
                }
                Err(error) => self.record_failure(id, &error.to_string()),
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

    /// Records the refusal of the current protocol, with what this client knows about its reason.
    fn refused(&mut self, reason: String, now: SystemTime) {
        let known = self.current.as_ref().and_then(|(_, login)| login.explain_refusal(now));
        self.fail(known.map_or(reason.clone(), |known| format!("{reason}; {known}")));
    }

    /// Records the failure of the current protocol.
    fn fail(&mut self, reason: String) {
        if let Some((id, _)) = self.current.take() {
            self.record_failure(id, &reason);
        }
    }

    fn record_failure(&mut self, protocol: &'static str, reason: &str) {
        tracing::debug!(target: LOG, protocol, reason, "failed");
        self.failed.push(format!("{protocol}: {reason}"));
    }

    /// Returns the session key, if the protocol agreed on one.
    pub(crate) fn signature_cipher(&self) -> Option<Arc<dyn SignatureCipher>> {
        let (protocol, login) = self.current.as_ref()?;
        tracing::debug!(target: LOG, protocol, "authenticated");
        login.signature_cipher()
    }
}
