//! [`Authorizer`]: decides about the requests of clients with the rules in force, renews the rules,
//! and writes audit lines.

use super::database::{AccessDatabase, AuthdbCheck, AuthdbError, AuthdbSource, ClientRecords};
use super::netgroups::NetgroupDatabase;
use super::principal::{Principal, RequestIdentity};
use super::privileges::{AccessOperation, Privileges};
use crate::Entity;
use crate::entity::WeakEntity;
use crate::trusted_file::FileStamp;
use base::LogicalPath;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Number of independently locked parts of the cache of clients.
const CACHE_SHARDS: usize = 16;
/// Maximum number of clients in one part of the cache. Beyond that, the part is emptied, and the
/// next decision about each client looks its records up again.
const SHARD_CLIENTS_MAX: usize = 1024;

/// `acc.audit`: the decisions that are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditedDecisions {
    /// Log granted operations.
    pub grants: bool,
    /// Log denied operations.
    pub denials: bool,
}

/// The settings of authorization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizerSettings {
    /// The rule file.
    pub source: AuthdbSource,
    /// Logged decisions.
    pub audit: AuditedDecisions,
    /// Maximum age of netgroups before they are looked up again.
    pub netgroup_lifetime: Duration,
}

/// The result of a renewal of the rules.
#[derive(Debug)]
pub enum RulesRefresh {
    /// The file has not changed, and its rules depend on nothing else.
    Unchanged,
    /// New rules are in force.
    Replaced(Arc<AccessDatabase>),
    /// The file is not usable. The earlier rules stay in force.
    Kept(AuthdbError),
}

/// The rules in force.
#[derive(Clone, Debug)]
struct RulesInForce {
    database: Arc<AccessDatabase>,
    /// Increases with each replacement.
    generation: u64,
    /// Time of the last load.
    loaded: Duration,
}

/// The records of a client, as of one generation of the rules. `None` if its attributes are
/// inconsistent.
struct CachedClient {
    /// Keeps the address of the entity from being used for another one.
    _entity: WeakEntity,
    generation: u64,
    records: Option<Arc<ClientRecords>>,
}

type CacheShard = Mutex<HashMap<usize, CachedClient>>;

/// The client of a request: authenticated, or known only by its host.
#[derive(Clone, Copy, Debug)]
pub enum AccessClient<'a> {
    /// The result of authentication.
    Entity(&'a Entity),
    /// The address of a client whose host was not looked up, as text.
    Host(&'a str),
    /// A client whose request has a credential of its own.
    Bearer(Principal<'a>, RequestIdentity<'a>),
}

impl<'a> AccessClient<'a> {
    /// Returns the client as the rules see it.
    #[must_use]
    pub fn principal(self) -> Principal<'a> {
        match self {
            Self::Entity(entity) => Principal::of(entity),
            Self::Host(host) => Principal {
                protocol: "host",
                host,
                address: host,
                is_host_uncertain: true,
                ..Principal::default()
            },
            Self::Bearer(principal, _) => principal,
        }
    }

    /// Returns the client with the credential of one request.
    #[must_use]
    pub fn with(self, identity: RequestIdentity<'a>) -> Self {
        Self::Bearer(self.principal().with(identity), identity)
    }
}

/// Decides about the requests of clients. Decisions never block; renewals do.
pub struct Authorizer {
    settings: AuthorizerSettings,
    netgroups: Arc<dyn NetgroupDatabase>,
    rules: RwLock<RulesInForce>,
    /// Held during a whole renewal, so that rules that were read earlier never replace later ones.
    renewal: Mutex<()>,
    /// The reason why the present file is not in force, if it is not.
    failure: Mutex<Option<String>>,
    cache: [CacheShard; CACHE_SHARDS],
}

impl Authorizer {
    /// Loads the rules. `now` is the time since any fixed moment. Blocks.
    ///
    /// # Errors
    /// The rules cannot be used.
    pub fn new(
        settings: AuthorizerSettings,
        netgroups: Arc<dyn NetgroupDatabase>,
        now: Duration,
    ) -> Result<Self, AuthdbError> {
        let database = AccessDatabase::load(&settings.source, AuthdbCheck::ForServer, netgroups.as_ref())?;
        let database = Arc::new(database);
        report(&database);
        Ok(Self {
            settings,
            netgroups,
            rules: RwLock::new(RulesInForce { database, generation: 0, loaded: now }),
            renewal: Mutex::default(),
            failure: Mutex::default(),
            cache: Default::default(),
        })
    }

    fn rules(&self) -> RulesInForce {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the rules in force.
    pub fn database(&self) -> Arc<AccessDatabase> {
        self.rules().database
    }

    /// Reports whether the rules in force name hosts, so that the names of clients' hosts must be
    /// looked up before decisions.
    pub fn needs_hosts(&self) -> bool {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).database.needs_hosts()
    }

    /// Returns the reason why the present rule file is not in force, if it is not.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the rule file again if it has changed, or with `always`. New rules come into force
    /// at once and as a whole. A file with errors changes nothing. Blocks, also for the end of
    /// another renewal.
    pub fn refresh(&self, now: Duration, always: bool) -> RulesRefresh {
        let _renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let refreshed = self.renew(now, always);
        let failure = match &refreshed {
            RulesRefresh::Unchanged => return refreshed,
            RulesRefresh::Replaced(_) => None,
            RulesRefresh::Kept(error) => Some(error.to_string()),
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        refreshed
    }

    fn renew(&self, now: Duration, always: bool) -> RulesRefresh {
        let rules = self.rules();
        let found = std::fs::symlink_metadata(&self.settings.source.path).ok();
        let stamp = found.map(|found| FileStamp::of(&found));
        let is_old = rules.database.uses_netgroups()
            && now.saturating_sub(rules.loaded) >= self.settings.netgroup_lifetime;
        let is_same = stamp.is_some() && stamp == rules.database.stamp;
        if is_same && !always && !is_old && self.failure().is_none() {
            return RulesRefresh::Unchanged;
        }
        let path = self.settings.source.path.display();
        match AccessDatabase::load(&self.settings.source, AuthdbCheck::ForServer, self.netgroups.as_ref()) {
            Ok(database) => {
                let database = Arc::new(database);
                report(&database);
                let is_of_same_file = database.stamp.is_some() && database.stamp == rules.database.stamp;
                if is_of_same_file && !database.uses_netgroups() && self.failure().is_none() {
                    return RulesRefresh::Unchanged;
                }
                let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
                let generation = rules.generation + 1;
                *rules = RulesInForce { database: database.clone(), generation, loaded: now };
                RulesRefresh::Replaced(database)
            }
            Err(error) => {
                tracing::error!(
                    "the authorization rules stay as they were, because {path} is not usable: {error}"
                );
                RulesRefresh::Kept(error)
            }
        }
    }

    /// Returns the records of a client, from the cache if possible.
    fn records_of(
        &self,
        rules: &RulesInForce,
        client: AccessClient<'_>,
        principal: &Principal<'_>,
    ) -> Option<Arc<ClientRecords>> {
        let AccessClient::Entity(entity) = client else {
            // Without attributes there is little to look up.
            return rules.database.records_of(principal).map(Arc::new);
        };
        let address = entity.address();
        // The low bits of an address are equal for all allocations.
        let shard = self.cache.get((address >> 6) % CACHE_SHARDS)?;
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&address).filter(|found| found.generation == rules.generation) {
            return found.records.clone();
        }
        let records = rules.database.records_of(principal).map(Arc::new);
        if records.is_none() {
            tracing::warn!(
                name = principal.name.unwrap_or("*"),
                host = principal.host,
                "nothing is granted to a client whose organizations, roles and groups have different numbers"
            );
        }
        if principal.is_host_uncertain && rules.database.denies_by_host() {
            tracing::warn!(
                name = principal.name.unwrap_or("*"),
                host = principal.host,
                "nothing is granted to a client whose host has no known name, because rules deny by host"
            );
        }
        let cached = CachedClient {
            _entity: entity.downgrade(),
            generation: rules.generation,
            records: records.clone(),
        };
        let mut clients = lock();
        if clients.len() >= SHARD_CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(address, cached);
        records
    }

    /// Returns the number of clients in the cache.
    #[cfg(test)]
    pub(super) fn cached_clients(&self) -> usize {
        self.cache.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Takes the rules in force and looks the records of a client up in them.
    fn look_up<'a>(&self, client: AccessClient<'a>) -> ClientLookup<'a> {
        let (rules, principal) = (self.rules(), client.principal());
        let records = self.records_of(&rules, client, &principal);
        ClientLookup { database: rules.database, principal, records }
    }

    /// Returns the privileges of a client on a path.
    pub fn privileges(&self, client: AccessClient<'_>, path: &LogicalPath) -> Privileges {
        self.look_up(client).privileges(path)
    }

    /// Returns the privileges that a client can pass on for a path and everything below, to be used from
    /// anywhere and at other servers: those that the name and the groups of its credential give it, as far as
    /// it has them here. Rules for hosts and rules for everybody give nothing to pass on.
    pub fn privileges_to_pass_on(&self, client: AccessClient<'_>, path: &LogicalPath) -> Privileges {
        let AccessClient::Bearer(_, identity) = client else { return Privileges::NONE };
        let anywhere = Principal::default().with(identity);
        let ClientLookup { database, principal, records } = self.look_up(client);
        let (Some(own), Some(here)) = (database.records_anywhere(&anywhere), records) else {
            return Privileges::NONE;
        };
        let own = database.privileges_throughout(&own, anywhere.name, path);
        match own.is_empty() {
            true => Privileges::NONE,
            false => own.common(database.privileges_throughout(&here, principal.name, path)),
        }
    }

    /// Reports whether a rule grants a client any privilege on any path.
    pub fn grants_any(&self, client: AccessClient<'_>) -> bool {
        let ClientLookup { database, records, .. } = self.look_up(client);
        records.is_some_and(|records| database.grants_any(&records))
    }

    /// Reports whether rules for paths below `directory` apply to a client, so that its privileges
    /// may differ there.
    pub fn has_pair_below(&self, client: AccessClient<'_>, directory: &LogicalPath) -> bool {
        let ClientLookup { database, principal, records } = self.look_up(client);
        records.is_some_and(|records| database.has_pair_below(&records, principal.name, directory))
    }

    /// Decides whether a client may perform an operation, and logs the decision if configured.
    /// `trace` names the session in the log.
    pub fn allows(
        &self,
        client: AccessClient<'_>,
        operation: AccessOperation,
        path: &LogicalPath,
        trace: &dyn fmt::Display,
    ) -> bool {
        // The line explains the decision with the rules and records that made it.
        let found = self.look_up(client);
        let is_allowed = operation.is_granted_by(found.privileges(path));
        let audit = &self.settings.audit;
        if if is_allowed { audit.grants } else { audit.denials } {
            tracing::info!("{trace} {}{}", found.audit_text(operation, path), bearer(client));
        }
        is_allowed
    }
}

/// A client with its records, as of one generation of the rules.
struct ClientLookup<'a> {
    database: Arc<AccessDatabase>,
    principal: Principal<'a>,
    records: Option<Arc<ClientRecords>>,
}

impl ClientLookup<'_> {
    fn privileges(&self, path: &LogicalPath) -> Privileges {
        let Some(records) = &self.records else { return Privileges::NONE };
        self.database.privileges(records, self.principal.name, path)
    }

    /// Returns the text of an audit line: `grant|deny <protocol> <name>@<host> <operation> <path>`,
    /// and the positions of the deciding rules.
    fn audit_text(&self, operation: AccessOperation, path: &LogicalPath) -> String {
        let Self { database, principal, records } = self;
        let explanation = database.explain_with(records.as_deref(), principal.name, operation, path);
        let decision = if explanation.is_allowed { "grant" } else { "deny" };
        let host = if principal.host.is_empty() { "?" } else { principal.host };
        let name = principal.name.unwrap_or("*");
        let (protocol, name, host) = (AuditField(principal.protocol), AuditField(name), AuditField(host));
        let rules: Vec<String> = explanation.pairs.iter().map(|pair| pair.path_at.to_string()).collect();
        let rules = if rules.is_empty() { "no rule".to_owned() } else { rules.join(" ") };
        format!(
            "{decision} {protocol} {name}@{host} {} {} ({}: {rules})",
            operation.name(),
            path.shown(),
            database.path().display(),
        )
    }
}

/// Returns the end of an audit line about a client whose request has a token.
fn bearer(client: AccessClient<'_>) -> String {
    match client {
        AccessClient::Bearer(_, RequestIdentity { subject, issuer, .. }) => {
            format!(" token of {} from {}", AuditField(subject), AuditField(issuer))
        }
        AccessClient::Entity(_) | AccessClient::Host(_) => String::new(),
    }
}

/// A field of an audit line. Text of clients that could be taken for other fields, or that could look
/// like another name, is quoted and escaped.
pub(super) struct AuditField<'a>(pub(super) &'a str);

impl fmt::Display for AuditField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if !self.0.is_empty() && self.0.bytes().all(is_plain) {
            f.write_str(self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// Logs the number of records and the warnings of new rules.
fn report(database: &AccessDatabase) {
    tracing::info!("{} auth entries processed in {}", database.len(), database.path().display());
    for warning in database.warnings() {
        tracing::warn!("{}:{warning}", database.path().display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityFields;
    use crate::access::{AuthdbEncoding, NetgroupMember, PathMatch};

    struct NoNetgroups;
    impl NetgroupDatabase for NoNetgroups {
        fn members(&self, _: &str) -> std::io::Result<Vec<NetgroupMember>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn an_audit_line_explains_with_the_rules_that_decided() {
        let file = std::env::temp_dir().join(format!("auth-audit-{}", std::process::id()));
        let source = AuthdbSource {
            path: file.clone(),
            encoding: AuthdbEncoding::default(),
            matching: PathMatch::Component,
            netgroup_domain: None,
        };
        let audit = AuditedDecisions { grants: true, denials: true };
        let settings = AuthorizerSettings { source, audit, netgroup_lifetime: Duration::MAX };
        std::fs::write(&file, "u bob /a r\n").unwrap();
        let authorizer = Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap();
        let fields =
            EntityFields { protocol: "unix".into(), name: Some("bob".into()), ..EntityFields::default() };
        let entity = Entity::new(fields);
        let path = LogicalPath::parse(b"/a/x").unwrap();
        let text = |found: &ClientLookup<'_>| {
            let text = found.audit_text(AccessOperation::Read, &path);
            text.replace(&file.display().to_string(), "FILE")
        };
        let before = authorizer.look_up(AccessClient::Entity(&entity));
        assert_eq!(text(&before), "grant unix bob@? read /a/x (FILE: 1:7)");
        std::fs::write(&file, "u eve /a/x r\n").unwrap();
        assert!(matches!(authorizer.refresh(Duration::ZERO, true), RulesRefresh::Replaced(_)));
        assert_eq!(text(&before), "grant unix bob@? read /a/x (FILE: 1:7)");
        let after = authorizer.look_up(AccessClient::Entity(&entity));
        assert_eq!(text(&after), "deny unix bob@? read /a/x (FILE: no rule)");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn names_cannot_forge_fields_of_an_audit_line() {
        let cases = [
            ("bob", "bob"),
            ("/C=CH/CN=bob", "/C=CH/CN=bob"),
            ("bob@h read /x", "\"bob@h read /x\""),
            ("a\"b", "\"a\\\"b\""),
            ("\u{202e}bob", "\"\\u{202e}bob\""),
            ("", "\"\""),
        ];
        for (name, expected) in cases {
            assert_eq!(AuditField(name).to_string(), expected);
        }
    }
}
