//! [`Krb5Server`]: the server's side of `krb5`.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::errno_text;

use super::forwarded::ticket_path;
use super::library::{
    AcceptedTicket, ContextPool, KerberosError, KerberosExchange, KeytabCopy, LibraryFault,
};
use super::message::{KerberosMessage, message};
use super::settings::Krb5ServerSettings;
use super::{ContextMaker, FORWARD_CHALLENGE, FORWARD_PARAMETER, KRB5, PREFIX, system_contexts};
use crate::accounts::AccountDatabase;
use crate::entity::{Entity, EntityFields};
use crate::exported_file::{ExportedFile, ExportedFiles};
use crate::server::{LoginPeer, RefusedLogin, ServerLogin, ServerProtocol, ServerStep, StepCost};
use crate::trusted_file::{FileTrust, TrustedFileError, TrustedOwner, read_trusted};

/// Permissions that a key table may have. Services of one host often share it by a group.
const KEYTAB_MODES: u32 = 0o640;
/// Maximum size of a key table in bytes.
const KEYTAB_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The difference of clocks that the library allows by default. Logins with a ticket are accepted for
/// this time after its end, and so the identity of the client lasts as long.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(300);
/// Maximum length of a local name.
const NAME_BYTES_MAX: usize = 64;
/// Variables that can turn off the replay cache of the library, with the begin of that value.
const REPLAY_VARIABLES: [(&str, &str); 2] = [("KRB5RCACHENAME", "none:"), ("KRB5RCACHETYPE", "none")];

/// `krb5` as a server offers it.
pub struct Krb5Server(Arc<Krb5Shared>);

/// State shared by all exchanges.
struct Krb5Shared {
    settings: Krb5ServerSettings,
    /// The principal with its realm.
    service: String,
    /// The key table as the library reads it.
    keytab: Option<String>,
    accounts: Option<Arc<dyn AccountDatabase>>,
    contexts: ContextPool,
    /// The keys of the key table if it is a file.
    keys: KeytabCopy,
    tickets: Arc<ExportedFiles>,
    /// The reason why the present key table is not usable, if it is not.
    failure: Mutex<Option<String>>,
}

impl Krb5Server {
    /// Opens the Kerberos library and checks the key table. Blocks. `accounts` is needed for `<uid>` in
    /// the file of forwarded tickets.
    ///
    /// # Errors
    /// The missing or unusable part, with its remedy.
    pub fn open(
        settings: Krb5ServerSettings,
        accounts: Option<Arc<dyn AccountDatabase>>,
    ) -> Result<Self, String> {
        check_replay_cache(|name| std::env::var(name).ok())?;
        Self::with_contexts(settings, accounts, system_contexts())
    }

    pub(super) fn with_contexts(
        settings: Krb5ServerSettings,
        accounts: Option<Arc<dyn AccountDatabase>>,
        contexts: ContextMaker,
    ) -> Result<Self, String> {
        let context = contexts().map_err(|fault| format!("{fault}, or remove sec.protocol krb5"))?;
        let service = context.full_name(&settings.principal).map_err(|error| {
            format!(
                "the principal '{}' is not usable: {}; write it as service/host@REALM",
                settings.principal, error.text
            )
        })?;
        let keytab = settings.keytab.as_ref().map(|path| path.to_string_lossy().into_owned());
        let template = settings.ticket_file.clone().unwrap_or_default();
        let shared = Krb5Shared {
            settings,
            service,
            keytab,
            accounts,
            keys: KeytabCopy::new(Arc::clone(&contexts)),
            contexts: ContextPool::new(contexts),
            tickets: ExportedFiles::new("the forwarded ticket", "-exptkn:", template),
            failure: Mutex::default(),
        };
        shared.check_keytab()?;
        Ok(Self(Arc::new(shared)))
    }
}

/// Reports the variable that turns off the replay cache: each request could be used twice.
fn check_replay_cache(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let is_off = |(name, off): &&(&str, &str)| variable(name).is_some_and(|value| value.starts_with(off));
    match REPLAY_VARIABLES.iter().find(is_off) {
        Some((name, _)) => Err(format!("{name} turns off the replay cache of Kerberos; unset it")),
        None => Ok(()),
    }
}

impl Krb5Shared {
    /// Checks that nobody else can read the key table, and that it has a key of the server.
    fn check_keytab(&self) -> Result<(), String> {
        let context = self.contexts.make()?;
        let name = context.keytab_name(self.keytab.as_deref()).map_err(|error| error.text)?;
        let file = name.strip_prefix("FILE:").or_else(|| name.strip_prefix("WRFILE:"));
        self.keys.set_file(file);
        if let Some(file) = file {
            check_file(Path::new(file))?;
        }
        let service = &self.service;
        context.check_key(self.keytab.as_deref(), service).map_err(|error| {
            let shown = file.unwrap_or(&name);
            format!(
                "the key table {shown} has no key of {service}: {}; write one with kadmin: ktadd -k {shown} \
                 {service}",
                error.text
            )
        })
    }

    /// Verifies an AP-REQ with the present keys. Blocks.
    fn verify(
        &self,
        request: &[u8],
        peer: IpAddr,
        now: SystemTime,
    ) -> Result<(KerberosExchange, AcceptedTicket), String> {
        let keys = self.keys.current(now);
        let result = match &keys {
            Some(keys) => match self.verify_with(Some(keys.name()), request, peer, now)? {
                // The library finds keys of old files that it does not find in memory.
                Err(error) if error.is_of_keys() => {
                    self.verify_with(self.keytab.as_deref(), request, peer, now)?
                }
                result => result,
            },
            None => self.verify_with(self.keytab.as_deref(), request, peer, now)?,
        };
        result.map_err(|error| error.text)
    }

    /// Verifies an AP-REQ with the keys of a key table. Blocks.
    fn verify_with(
        &self,
        keytab: Option<&str>,
        request: &[u8],
        peer: IpAddr,
        now: SystemTime,
    ) -> Result<Result<(KerberosExchange, AcceptedTicket), KerberosError>, LibraryFault> {
        let context = self.contexts.take(now)?;
        let verify = move || {
            let mut exchange = KerberosExchange::new(context)?;
            if self.settings.checks_addresses {
                exchange.restrict_to(peer)?;
            }
            let accepted = exchange.accept(request, &self.service, keytab)?;
            Ok((exchange, accepted))
        };
        Ok(verify())
    }

    /// Returns the local name of a client.
    fn name(&self, exchange: &KerberosExchange, client: &str) -> Result<String, String> {
        let name = exchange.context().local_name(client);
        let name =
            name.map_err(|error| format!("the local name of {client} cannot be found: {}", error.text))?;
        let name = name.ok_or_else(|| {
            format!("{client} has no local name; map it with auth_to_local in krb5.conf if it may log in")
        })?;
        if is_local_name(&name) {
            Ok(name)
        } else {
            Err(format!("the local name of {client} is '{name}', which is not a valid name"))
        }
    }
}

fn check_file(path: &Path) -> Result<(), String> {
    let trust = FileTrust {
        owner: TrustedOwner::Own,
        modes: KEYTAB_MODES,
        danger: "use the keys",
        bytes_max: KEYTAB_BYTES_MAX,
    };
    let shown = path.display();
    match read_trusted(path, &trust) {
        Ok(_) => Ok(()),
        Err(TrustedFileError::Unreadable(error)) => Err(format!(
            "the key table {shown} cannot be read: {}; name one that the server's user can read",
            errno_text(&error)
        )),
        Err(TrustedFileError::Untrusted { reason, remedy }) => {
            Err(format!("the key table {shown} is not used: {reason}; {remedy}"))
        }
    }
}

/// Reports whether a name consists of letters, digits and `._@$-`. It does not begin with one of them
/// except `_`, so it is neither an option nor a path.
fn is_local_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(is_plain);
    begins
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| is_plain(byte) || b".@$-".contains(&byte))
}

impl ServerProtocol for Krb5Server {
    fn id(&self) -> &'static str {
        KRB5
    }

    fn parameters(&self) -> String {
        let service = &self.0.service;
        match self.0.settings.ticket_file {
            Some(_) => format!("{service},{FORWARD_PARAMETER}"),
            None => service.clone(),
        }
    }

    fn credential_bytes_min(&self) -> usize {
        PREFIX.len() + 1
    }

    fn begin(&self, peer: &LoginPeer) -> Box<dyn ServerLogin> {
        Box::new(Krb5ServerLogin {
            shared: Arc::clone(&self.0),
            host: peer.host.clone(),
            address: peer.address.ip(),
            stage: AcceptorStage::Request,
        })
    }

    /// Checks the key table. Its state is compared for each login, so new keys count at once.
    fn refresh(&self) -> Result<(), String> {
        self.0.contexts.clear();
        let checked = self.0.check_keytab();
        *self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) = checked.as_ref().err().cloned();
        checked
    }

    fn exported_files(&self) -> Option<&ExportedFiles> {
        self.0.settings.ticket_file.is_some().then_some(&*self.0.tickets)
    }

    fn state(&self) -> String {
        let state = format!("krb5: {}", self.0.service);
        match self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(failure) => format!("{state}; {failure}"),
            None => state,
        }
    }
}

/// An exchange with one peer.
struct Krb5ServerLogin {
    shared: Arc<Krb5Shared>,
    host: String,
    address: IpAddr,
    stage: AcceptorStage,
}

/// The message that the client sends next.
enum AcceptorStage {
    Request,
    Ticket { exchange: KerberosExchange, accepted: AcceptedTicket, name: String },
    Over,
}

impl ServerLogin for Krb5ServerLogin {
    /// The library reads and locks files, and the mapping of names can ask a directory server.
    fn cost(&self) -> StepCost {
        StepCost::Expensive
    }

    fn step(&mut self, credentials: &[u8], now: SystemTime) -> ServerStep {
        let stage = std::mem::replace(&mut self.stage, AcceptorStage::Over);
        let step = match stage {
            AcceptorStage::Request => self.accept(credentials, now),
            AcceptorStage::Ticket { exchange, accepted, name } => {
                self.take_ticket(exchange, &accepted, &name, credentials)
            }
            AcceptorStage::Over => Err("the exchange is over".to_owned()),
        };
        step.unwrap_or_else(|reason| ServerStep::Refused(RefusedLogin::new(KRB5, reason)))
    }
}

impl Krb5ServerLogin {
    fn accept(&mut self, credentials: &[u8], now: SystemTime) -> Result<ServerStep, String> {
        let request = message(credentials, KerberosMessage::ApReq)?;
        let Krb5Shared { settings, contexts, .. } = &*self.shared;
        let (exchange, accepted) = self.shared.verify(request, self.address, now)?;
        let name = self.shared.name(&exchange, &accepted.client)?;
        if settings.ticket_file.is_none() {
            contexts.give_back(exchange.into_context());
            return Ok(self.done(&name, &accepted, None));
        }
        self.stage = AcceptorStage::Ticket { exchange, accepted, name };
        Ok(ServerStep::Continue(FORWARD_CHALLENGE.to_vec()))
    }

    fn take_ticket(
        &self,
        mut exchange: KerberosExchange,
        accepted: &AcceptedTicket,
        name: &str,
        credentials: &[u8],
    ) -> Result<ServerStep, String> {
        let ticket = message(credentials, KerberosMessage::KrbCred)?;
        let Krb5Shared { settings, accounts, contexts, tickets, .. } = &*self.shared;
        let template = settings.ticket_file.as_deref().unwrap_or_default();
        let path = ticket_path(template, name, accounts.as_deref())?;
        let stored = tickets.store(&path, &accepted.client, |new| {
            let cache = format!("FILE:{}", new.display());
            exchange.store_forwarded(ticket, &accepted.client, &cache).map_err(|error| error.text)
        })?;
        contexts.give_back(exchange.into_context());
        Ok(self.done(name, accepted, stored))
    }

    fn done(&self, name: &str, accepted: &AcceptedTicket, ticket: Option<ExportedFile>) -> ServerStep {
        ServerStep::Done(Entity::new(EntityFields {
            protocol: KRB5.into(),
            name: Some(name.into()),
            host: self.host.as_str().into(),
            forwarded_ticket: ticket.map(Arc::new),
            expires: Some(UNIX_EPOCH + Duration::from_secs(accepted.end.into()) + CLOCK_DIFFERENCE_MAX),
            ..EntityFields::default()
        }))
    }
}

#[cfg(test)]
impl Krb5Server {
    pub(super) fn kept_keys(&self, now: SystemTime) -> Option<Arc<super::library::CopiedKeys>> {
        self.0.keys.current(now)
    }

    pub(super) fn keep_keys_of(&self, file: &Path) {
        self.0.keys.set_file(file.to_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_are_neither_options_nor_paths() {
        for name in ["alice", "_svc", "a.b@c$", "1-2"] {
            assert!(is_local_name(name), "{name}");
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "-a", ".", "..", "@a", "a/b", "a b", "a\n", "ä", &long] {
            assert!(!is_local_name(name), "{name}");
        }
    }

    #[test]
    fn a_server_without_a_replay_cache_does_not_start() {
        let check = |name: &'static str, value: &'static str| {
            check_replay_cache(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(check("KRB5RCACHENAME", "dfl:"), Ok(()));
        assert!(check("KRB5RCACHENAME", "none:").unwrap_err().contains("unset it"));
        assert!(check("KRB5RCACHETYPE", "none").unwrap_err().starts_with("KRB5RCACHETYPE turns off"));
    }
}
