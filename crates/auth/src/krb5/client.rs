//! [`Krb5Client`]: the client's side of `krb5`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::explain::{TicketFault, no_forwarding, no_request};
use super::library::{KerberosError, KerberosExchange};
use super::settings::{FORWARD_VARIABLE, Krb5ClientSettings};
use super::{ContextMaker, FORWARD_CHALLENGE, FORWARD_PARAMETER, KRB5, PREFIX, kinit, system_contexts};
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::offers::OfferedProtocol;

/// Services of the KDC itself, for which no server may ask a client.
const KDC_SERVICES: [&str; 2] = ["krbtgt", "kadmin"];

/// `krb5` as a client supports it.
pub struct Krb5Client {
    settings: Krb5ClientSettings,
    contexts: ContextMaker,
    /// Held while the user is asked for a password, so that the connections of a process ask once.
    prompt: Arc<Mutex<()>>,
}

impl Krb5Client {
    /// Creates the protocol of a user. The Kerberos library is opened at the first exchange.
    #[must_use]
    pub fn new(settings: Krb5ClientSettings) -> Self {
        Self::with_contexts(settings, system_contexts())
    }

    pub(super) fn with_contexts(settings: Krb5ClientSettings, contexts: ContextMaker) -> Self {
        Self { settings, contexts, prompt: Arc::default() }
    }

    /// Returns the cache with the tickets; `None` for the default of the library.
    fn cache(&self, of_url: Option<&str>) -> Option<String> {
        let named = of_url.map(str::to_owned).or_else(|| self.settings.cache.clone());
        named.or_else(|| {
            let usual = format!("/tmp/krb5cc_{}", rustix::process::geteuid().as_raw());
            is_readable(Path::new(&usual)).then(|| format!("FILE:{usual}"))
        })
    }
}

fn is_readable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

impl ClientProtocol for Krb5Client {
    fn id(&self) -> &'static str {
        KRB5
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let (service, forwards) =
            offered_service(&offer.parameters).ok_or(ClientAuthError::BadChallenge("offer of krb5"))?;
        // The ticket gives all rights of the user, and the exchange does not authenticate the server.
        if forwards && !context.is_tls && !self.settings.forwards_in_clear {
            return Err(ClientAuthError::NoCredentials {
                reason: "the server wants the ticket of the user, which is not forwarded without encryption"
                    .to_owned(),
                remedy: format!("use roots://, or set {FORWARD_VARIABLE}=1"),
            });
        }
        Ok(Box::new(Krb5ClientLogin {
            service,
            forwards,
            cache: self.cache(context.ticket_cache.as_deref()),
            runs_kinit: self.settings.runs_kinit,
            contexts: Arc::clone(&self.contexts),
            prompt: Arc::clone(&self.prompt),
            stage: InitiatorStage::Request,
        }))
    }
}

/// Returns the principal of a server, and whether it wants the ticket of the user, from its offer.
/// `None` if the offer is malformed or names a service of the KDC.
#[must_use]
pub fn offered_service(parameters: &[u8]) -> Option<(String, bool)> {
    let text = std::str::from_utf8(parameters).ok()?;
    let mut parts = text.split(',');
    let service = parts.next().filter(|service| !service.is_empty() && !service.contains('\0'))?;
    let kind = service.split(['/', '@']).next().unwrap_or_default();
    if KDC_SERVICES.contains(&kind) {
        return None;
    }
    Some((service.to_owned(), parts.any(|part| part == FORWARD_PARAMETER)))
}

/// An exchange with one server.
struct Krb5ClientLogin {
    /// Principal of the server.
    service: String,
    /// Set if the server may ask for the ticket of the user.
    forwards: bool,
    cache: Option<String>,
    runs_kinit: bool,
    contexts: ContextMaker,
    prompt: Arc<Mutex<()>>,
    stage: InitiatorStage,
}

/// The message that the client sends next.
enum InitiatorStage {
    Request,
    Ticket(KerberosExchange),
    Over,
}

impl ClientLogin for Krb5ClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        let stage = std::mem::replace(&mut self.stage, InitiatorStage::Over);
        let message = match (stage, challenge) {
            (InitiatorStage::Request, None) => {
                let (exchange, message) = self.request_or_prompt(now).map_err(TicketFault::into_error)?;
                if self.forwards {
                    self.stage = InitiatorStage::Ticket(exchange);
                }
                message
            }
            (InitiatorStage::Ticket(mut exchange), Some(challenge)) => {
                if challenge != FORWARD_CHALLENGE {
                    return Err(ClientAuthError::BadChallenge("challenge of krb5"));
                }
                let made = exchange.forward(self.cache.as_deref(), &self.service, self.host());
                made.map_err(|error| no_forwarding(&error).into_error())?
            }
            _ => return Err(ClientAuthError::TooManySteps),
        };
        Ok([PREFIX, &message].concat())
    }
}

impl Krb5ClientLogin {
    /// Returns the host of the server's principal.
    fn host(&self) -> &str {
        let name = self.service.split('@').next().unwrap_or_default();
        name.split_once('/').map_or(name, |(_, host)| host)
    }

    /// Makes the AP-REQ. Without a ticket, the user can be asked for a password.
    fn request_or_prompt(&self, now: SystemTime) -> Result<(KerberosExchange, Vec<u8>), TicketFault> {
        let fault = match self.request(now) {
            Err(fault) if fault.needs_ticket && self.runs_kinit => fault,
            made => return made,
        };
        let _prompt = self.prompt.lock().unwrap_or_else(PoisonError::into_inner);
        // Another connection may have asked meanwhile.
        if let Ok(made) = self.request(now) {
            return Ok(made);
        }
        match kinit::run(self.cache.as_deref(), self.forwards) {
            Ok(()) => self.request(SystemTime::now()),
            Err(reason) => Err(fault.after(&reason)),
        }
    }

    fn request(&self, now: SystemTime) -> Result<(KerberosExchange, Vec<u8>), TicketFault> {
        let context = (self.contexts)().map_err(|fault| TicketFault::new(fault.reason, fault.remedy))?;
        let failed = |error: KerberosError| TicketFault::new(error.text, "see krb5.conf");
        let mut exchange = KerberosExchange::new(context).map_err(failed)?;
        let cache = self.cache.as_deref();
        match exchange.request(cache, &self.service) {
            Ok(message) => Ok((exchange, message)),
            Err(error) => Err(no_request(&error, exchange.context(), cache, &self.service, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_name_the_service() {
        let parse = |text: &str| offered_service(text.as_bytes());
        assert_eq!(parse("xrootd/h@R"), Some(("xrootd/h@R".to_owned(), false)));
        assert_eq!(parse("xrootd/h@R,x,fwd"), Some(("xrootd/h@R".to_owned(), true)));
        assert_eq!(parse("xrootd/h@R,fwdx"), Some(("xrootd/h@R".to_owned(), false)));
        for text in ["", ",fwd", "a\0b", "krbtgt/R@R", "krbtgt", "kadmin/admin@R,fwd"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(offered_service(b"x\xff"), None);
    }

    #[test]
    fn the_cache_of_the_url_precedes_that_of_the_environment() {
        let client = |cache: Option<&str>| {
            Krb5Client::new(Krb5ClientSettings {
                cache: cache.map(str::to_owned),
                ..Krb5ClientSettings::default()
            })
        };
        assert_eq!(client(Some("DIR:/c")).cache(Some("/u")).as_deref(), Some("/u"));
        assert_eq!(client(Some("DIR:/c")).cache(None).as_deref(), Some("DIR:/c"));
        let usual = client(None).cache(None);
        assert!(usual.is_none_or(|usual| usual.starts_with("FILE:/tmp/krb5cc_")));
    }
}
