//! [`SssClient`]: the client's side of `sss`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base::Rng;

use super::keytab::{Keytab, KeytabError, SssKey};
use super::packet::{CREDENTIAL_BYTES_MAX, ItemKind, PacketBody, PacketHeader, RANDOM_BYTES};
use super::parameters::SssParameters;
use super::{SSS, seconds};
use crate::address_text;
use crate::age::age;
use crate::client::{ClientAuthError, ClientContext, ClientLogin, ClientProtocol};
use crate::offers::OfferedProtocol;
use crate::secret::Secret;

/// Variables with the key table; the first one that is set counts.
const KEYTAB_VARIABLES: [&str; 2] = ["XrdSecSSSKT", "XrdSecsssKT"];
const ENDORSEMENTS_VARIABLE: &str = "XrdSecsssENDORSEMENT";
/// The key table of a user, and of a server that names none, below the home directory.
pub const HOME_KEYTAB: &str = ".xrd/sss.keytab";
/// Minimum length of the items of version 1, so that the length of a packet does not reveal short
/// names.
const ITEM_BYTES_MIN: usize = 125;
/// Bytes in front of the data of an item.
const ITEM_HEADER_BYTES: usize = 3;

/// The identity that a client sends with a key for any user.
#[derive(Clone, Debug)]
pub struct SssIdentity {
    /// User.
    pub name: String,
    /// Groups.
    pub groups: String,
    /// Virtual organizations.
    pub vorg: String,
    /// Roles.
    pub role: String,
    /// Capabilities.
    pub capabilities: String,
    /// Endorsements.
    pub endorsements: String,
    /// Attributes.
    pub attributes: Vec<(String, String)>,
    /// The original client, for a proxy that forwards its identity.
    pub original: Option<OriginalClient>,
}

/// The client whose identity a proxy forwards.
#[derive(Clone, Debug)]
pub struct OriginalClient {
    /// Protocol by which it authenticated at the proxy.
    pub protocol: String,
    /// Its trace id `user.pid:fd@host`.
    pub trace_id: String,
    /// Its local user, unless it is root.
    pub unix_user: Option<String>,
    /// Its local group, unless it is that of root.
    pub unix_group: Option<String>,
    /// Its credentials, which are sent if the server asks for them.
    pub credentials: Option<Secret>,
}

impl SssIdentity {
    /// Creates the identity of a user without further properties.
    #[must_use]
    pub fn new(name: &str, groups: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.to_owned(),
            vorg: String::new(),
            role: String::new(),
            capabilities: String::new(),
            endorsements: String::new(),
            attributes: Vec::new(),
            original: None,
        }
    }

    /// Creates the identity that clients send if they do not act for anybody.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new("nobody", "nogroup")
    }
}

/// The source of the identity that is sent.
#[derive(Clone, Debug)]
pub enum IdentitySource {
    /// The user of the URL, otherwise `nobody`.
    Default,
    /// Always this one.
    Fixed(Arc<SssIdentity>),
    /// The one that is registered under the user of the URL.
    ByUser(Arc<IdentityTable>),
    /// The one that is registered under the login id, which the server is asked for first.
    ByLoginId(Arc<IdentityTable>),
}

/// Identities of the clients of a proxy or a mount.
#[derive(Default, Debug)]
pub struct IdentityTable(Mutex<HashMap<String, Arc<SssIdentity>>>);

/// Maximum number of identities in a table.
const IDENTITIES_MAX: usize = 65_536;

impl IdentityTable {
    /// Registers an identity; it replaces the one of the same key. Returns `false` if the table is
    /// full.
    pub fn insert(&self, key: &str, identity: SssIdentity) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= IDENTITIES_MAX && !table.contains_key(key) {
            return false;
        }
        table.insert(key.to_owned(), Arc::new(identity));
        true
    }

    /// Removes an identity.
    pub fn remove(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Reports whether an identity is registered under this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn get(&self, key: &str) -> Option<Arc<SssIdentity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct SssClientSettings {
    /// Key table from the environment, and the variable; it is used if it exists.
    pub keytab: Option<(&'static str, PathBuf)>,
    /// Key table in the home directory.
    pub home_keytab: Option<PathBuf>,
    /// Endorsements for identities that have none.
    pub endorsements: Option<String>,
    /// The identity that is sent.
    pub identity: IdentitySource,
}

impl SssClientSettings {
    /// Takes the settings from the environment.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let keytab = KEYTAB_VARIABLES.iter().find_map(|name| Some((*name, PathBuf::from(value(name)?))));
        Self {
            keytab,
            home_keytab: value("HOME").map(|home| Path::new(&home).join(HOME_KEYTAB)),
            endorsements: value(ENDORSEMENTS_VARIABLE),
            identity: IdentitySource::Default,
        }
    }

    /// Opens the key table for a server.
    fn open(
        &self,
        context: &ClientContext,
        suggested: Option<&Path>,
    ) -> Result<(PathBuf, Keytab), ClientAuthError> {
        let (path, source) = if let Some(path) = &context.sss_keytab {
            (path.clone(), "xrd.sss of the URL")
        } else if let Some((variable, path)) = self.keytab.as_ref().filter(|(_, path)| path.exists()) {
            (path.clone(), *variable)
        } else if let Some(path) = suggested.filter(|path| path.is_absolute() && path.exists()) {
            (path.to_owned(), "the server's suggestion")
        } else if let Some(path) = self.home_keytab.as_ref().filter(|path| path.exists()) {
            (path.clone(), "the home directory")
        } else {
            return Err(self.no_keytab(suggested));
        };
        match Keytab::open(&path) {
            Ok(keys) => Ok((path, keys)),
            Err(KeytabError::Unsafe { reason, remedy, .. }) => Err(ClientAuthError::NoCredentials {
                reason: format!("the key table {} ({source}) is not used: {reason}", path.display()),
                remedy,
            }),
            Err(KeytabError::BadLine { line, problem }) => Err(ClientAuthError::NoCredentials {
                reason: format!("{}:{line}: {problem}", path.display()),
                remedy: "get a new key table from the administrator of the server".to_owned(),
            }),
            Err(KeytabError::Absent { .. }) => Err(ClientAuthError::NoCredentials {
                reason: format!("there is no key table {} ({source})", path.display()),
                remedy: "check the path".to_owned(),
            }),
            Err(KeytabError::Unreadable { reason, .. }) => Err(ClientAuthError::NoCredentials {
                reason: format!("cannot open the key table {} ({source}): {reason}", path.display()),
                remedy: "check the path and its permissions".to_owned(),
            }),
        }
    }

    fn no_keytab(&self, suggested: Option<&Path>) -> ClientAuthError {
        let home = self.home_keytab.as_ref().map(|path| path.display().to_string());
        let mut places = vec![match &self.keytab {
            Some((variable, path)) => format!("{variable} names {}, which does not exist", path.display()),
            None => "XrdSecSSSKT is not set".to_owned(),
        }];
        places.extend(home.map(|path| format!("{path} does not exist")));
        places.extend(suggested.map(|path| format!("{} does not exist", path.display())));
        ClientAuthError::NoCredentials {
            reason: format!("there is no key table ({})", places.join(", ")),
            remedy: "get a key table from the administrator of the server and name it with XrdSecSSSKT"
                .to_owned(),
        }
    }
}

/// `sss` as a client supports it.
pub struct SssClient {
    settings: SssClientSettings,
    rng: Arc<Mutex<dyn Rng>>,
}

impl SssClient {
    /// Creates the client's side with these settings.
    #[must_use]
    pub fn new(settings: SssClientSettings, rng: Arc<Mutex<dyn Rng>>) -> Self {
        Self { settings, rng }
    }
}

impl ClientProtocol for SssClient {
    fn id(&self) -> &'static str {
        SSS
    }

    fn begin(
        &self,
        offer: &OfferedProtocol,
        context: &ClientContext,
    ) -> Result<Box<dyn ClientLogin>, ClientAuthError> {
        let parameters = SssParameters::parse(&offer.parameters)
            .ok_or(ClientAuthError::BadChallenge("list of protocols"))?;
        let (path, keys) = self.settings.open(context, parameters.client_keytab.as_deref())?;
        let settings = self.settings.clone();
        let (context, rng) = (context.clone(), Arc::clone(&self.rng));
        Ok(Box::new(SssClientLogin { settings, parameters, path, keys, context, rng, phase: Phase::Begin }))
    }
}

/// The position in an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    LoginIdAsked,
    IdentitySent,
}

/// An exchange with one server.
struct SssClientLogin {
    settings: SssClientSettings,
    parameters: SssParameters,
    path: PathBuf,
    keys: Keytab,
    context: ClientContext,
    rng: Arc<Mutex<dyn Rng>>,
    phase: Phase,
}

impl ClientLogin for SssClientLogin {
    fn step(&mut self, challenge: Option<&[u8]>, now: SystemTime) -> Result<Vec<u8>, ClientAuthError> {
        let now = seconds(now);
        let key = self.keys.choose(now).ok_or_else(|| self.no_key(now))?;
        let speaks_for_others =
            matches!(self.settings.identity, IdentitySource::ByUser(_) | IdentitySource::ByLoginId(_));
        if speaks_for_others && !key.is_for_clients() {
            return Err(self.key_of_one_user(key));
        }
        let is_version_2 = self.parameters.is_version_2;
        let header = PacketHeader { key_id: key.id, key_name: is_version_2.then(|| key.name.clone()) };
        let identity = match (self.phase, challenge, &self.settings.identity) {
            (Phase::Begin, None, IdentitySource::ByLoginId(_)) => {
                let packet = PacketBody::new(self.random(), now, true).seal(&header, &key.secret);
                self.phase = Phase::LoginIdAsked;
                return Ok(packet);
            }
            (Phase::Begin, None, _) => self.identity()?,
            (Phase::LoginIdAsked, Some(challenge), IdentitySource::ByLoginId(table)) => {
                let login_id = login_id(challenge, key)?;
                table.get(&login_id).ok_or_else(|| no_identity(&login_id))?
            }
            _ => return Err(ClientAuthError::TooManySteps),
        };
        let mut body = PacketBody::new(self.random(), now, false);
        self.add_items(&identity, &mut body);
        let packet = body.seal(&header, &key.secret);
        self.phase = Phase::IdentitySent;
        Ok(packet)
    }
}

impl SssClientLogin {
    fn random(&self) -> [u8; RANDOM_BYTES] {
        let mut random = [0; RANDOM_BYTES];
        self.fill(&mut random);
        random
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }

    fn identity(&self) -> Result<Arc<SssIdentity>, ClientAuthError> {
        match &self.settings.identity {
            IdentitySource::Fixed(identity) => Ok(Arc::clone(identity)),
            IdentitySource::ByUser(table) => {
                let user = self.context.user.as_deref().unwrap_or_default();
                table.get(user).ok_or_else(|| no_identity(user))
            }
            IdentitySource::Default | IdentitySource::ByLoginId(_) => {
                let mut identity = SssIdentity::nobody();
                if let Some(user) = &self.context.user {
                    identity.name.clone_from(user);
                }
                Ok(Arc::new(identity))
            }
        }
    }

    fn add_items(&self, identity: &SssIdentity, body: &mut PacketBody) {
        let endorsements = self.settings.endorsements.as_deref().unwrap_or_default();
        let endorsements =
            Some(identity.endorsements.as_str()).filter(|own| !own.is_empty()).unwrap_or(endorsements);
        body.text(ItemKind::HOST, &socket_address_text(self.context.local_address));
        body.text(ItemKind::HOST, &self.context.host);
        body.text(ItemKind::NAME, &identity.name);
        body.text(ItemKind::VORG, &identity.vorg);
        body.text(ItemKind::ROLE, &identity.role);
        body.text(ItemKind::GROUPS, &identity.groups);
        body.text(ItemKind::CAPABILITIES, &identity.capabilities);
        body.text(ItemKind::ENDORSEMENTS, endorsements);
        let missing = ITEM_BYTES_MIN.saturating_sub(body.items_len());
        if missing > 0 {
            let mut filler = vec![0; missing.saturating_sub(ITEM_HEADER_BYTES).max(1)];
            self.fill(&mut filler);
            // Real servers refuse every item that begins with a NUL as an empty text.
            if let Some(first @ 0) = filler.first_mut() {
                *first = 1;
            }
            body.bytes(ItemKind::FILLER, &filler);
        }
        if self.parameters.is_version_2 {
            self.add_items_2(identity, body);
        }
    }

    /// Adds the items that only servers of version 2 know.
    fn add_items_2(&self, identity: &SssIdentity, body: &mut PacketBody) {
        match &identity.original {
            None => body.text(ItemKind::PROTOCOL, SSS),
            Some(original) => {
                body.text(ItemKind::PROTOCOL, &original.protocol);
                body.text(ItemKind::TRACE_ID, &original.trace_id);
                if original.protocol != SSS {
                    body.text(ItemKind::UNIX_USER, original.unix_user.as_deref().unwrap_or_default());
                    body.text(ItemKind::UNIX_GROUP, original.unix_group.as_deref().unwrap_or_default());
                }
            }
        }
        for (key, value) in
            identity.attributes.iter().filter(|(key, value)| !key.is_empty() && !value.is_empty())
        {
            body.text(ItemKind::ATTRIBUTE_KEY, key);
            body.text(ItemKind::ATTRIBUTE_VALUE, value);
        }
        let credentials = identity.original.as_ref().and_then(|original| original.credentials.as_ref());
        let credentials = credentials.map(Secret::expose).filter(|bytes| bytes.len() <= CREDENTIAL_BYTES_MAX);
        if let Some(credentials) = credentials.filter(|_| self.parameters.wants_credentials) {
            body.bytes(ItemKind::CREDENTIAL, credentials);
        }
    }

    /// Returns the error of a key that would give all clients the rights of one user or group.
    fn key_of_one_user(&self, key: &SssKey) -> ClientAuthError {
        let (path, name, user, group) = (self.path.display(), &key.name, &key.user, &key.group);
        ClientAuthError::NoCredentials {
            reason: format!(
                "the key {name} of {path} is that of user {user} and group {group}, and cannot stand for clients"
            ),
            remedy: "make a key for them: xrdsssadmin -u allusers -g anygroup add".to_owned(),
        }
    }

    fn no_key(&self, now: u64) -> ClientAuthError {
        let path = self.path.display();
        let last = self.keys.keys.iter().map(|key| key.expires).max();
        let reason = match last {
            None => format!("the key table {path} has no keys"),
            Some(expired) => {
                format!("the keys of {path} expired, the last one {} ago", age(now.saturating_sub(expired)))
            }
        };
        let remedy = "get a new key table from the administrator of the server".to_owned();
        ClientAuthError::NoCredentials { reason, remedy }
    }
}

/// Returns the login id in the challenge of a server.
fn login_id(challenge: &[u8], key: &SssKey) -> Result<String, ClientAuthError> {
    const BAD: ClientAuthError = ClientAuthError::BadChallenge("challenge");
    let (_, encrypted) = PacketHeader::decode(challenge).map_err(|_| BAD)?;
    let body = PacketBody::open(encrypted, &key.secret).map_err(|_| BAD)?;
    for item in body.items() {
        let item = item.map_err(|_| BAD)?;
        if item.kind == ItemKind::LOGIN_ID {
            return item.text().map(str::to_owned).map_err(|_| BAD);
        }
    }
    Err(BAD)
}

fn no_identity(user: &str) -> ClientAuthError {
    ClientAuthError::NoCredentials {
        reason: format!("no identity is registered for the user {user:?}"),
        remedy: "let the user log in at the proxy first".to_owned(),
    }
}

/// Returns the form of an address that servers compare: `[::ffff:192.0.2.1]:4711`.
fn socket_address_text(address: std::net::SocketAddr) -> String {
    format!("{}:{}", address_text(address.ip()), address.port())
}
