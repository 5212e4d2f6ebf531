//! [`Personas`]: requests to origins with the identities of clients (`pss.persona client`, decision 049).
//!
//! Each identity has connections of its own, which are selected by the user of their URL. `sss` sends the
//! identity that is registered for that user. Users are never used for another identity, so no connection
//! is.

use auth::Entity;
use auth::sss::{IdentityTable, OriginalClient, SssIdentity};
use base::{Error, ErrorKind, Owner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use vfs::Caller;

/// Maximum number of identities.
const PERSONAS_MAX: usize = 4096;
/// Number of unused identities that are forgotten at once, when there are too many.
const FORGOTTEN: usize = 256;
/// Time without requests after which an identity that nobody uses is forgotten when there is a new one.
const UNUSED: Duration = Duration::from_secs(600);

/// Last letters of the users of connections for open files, which are no digits of the number of an identity. The
/// sessions of one identity, which can be those of a whole organization, are spread over them.
const FILE_LETTERS: [char; 4] = ['w', 'x', 'y', 'z'];
/// Numbers of identities up to which each has four and two connections for open files. All share those to one
/// server.
const FEW_PERSONAS: usize = 4;
const SOME_PERSONAS: usize = 16;

/// Protocols whose logins prove names. Others are refused: `host` and `unix` prove none, and the name and the
/// rights of a token (`ztn`) count for a request only, see [`Entity::verified_bearer`].
const PROVING: [&str; 4] = ["gsi", "krb5", "pwd", "sss"];

/// The identities of clients.
pub(crate) struct Personas {
    table: Arc<IdentityTable>,
    known: Mutex<KnownPersonas>,
}

/// The identities with the times of their last requests.
#[derive(Default)]
struct KnownPersonas {
    personas: HashMap<PersonaKey, (Arc<Persona>, Instant)>,
    /// The number of the last one.
    last: u64,
}

/// What a server may decide by.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct PersonaKey {
    name: String,
    protocol: Box<str>,
    /// Organizations, roles, groups, capabilities and endorsements.
    parts: [Box<str>; 5],
    attributes: Vec<(Box<str>, Box<str>)>,
}

/// The identity of clients at origins, as long as it is used.
pub(crate) struct Persona {
    user: String,
    /// The last letters of the users of its connections for open files.
    file_letters: &'static [char],
    table: Arc<IdentityTable>,
}

impl Persona {
    fn new(number: u64, others: usize, table: &Arc<IdentityTable>) -> Self {
        let letters = match others {
            ..FEW_PERSONAS => FILE_LETTERS.len(),
            FEW_PERSONAS..SOME_PERSONAS => 2,
            _ => 1,
        };
        let file_letters = FILE_LETTERS.get(..letters).unwrap_or_default();
        Self { user: format!("U{number:x}"), file_letters, table: table.clone() }
    }

    /// Returns the user of the connection for the open files of a session.
    pub(crate) fn user_of_files(&self, owner: Owner) -> String {
        let count = self.file_letters.len().max(1) as u64;
        let chosen = usize::try_from(owner.0 % count).ok().and_then(|at| self.file_letters.get(at));
        format!("{}{}", self.user, chosen.copied().unwrap_or_default())
    }

    /// Returns the user of the connection for quick requests about names.
    pub(crate) fn user_of_quick_requests(&self) -> String {
        format!("{}q", self.user)
    }

    /// Returns the user of the connections for requests that can occupy a server for long.
    pub(crate) fn user_of_slow_requests(&self) -> String {
        format!("{}s", self.user)
    }

    fn users(&self) -> impl Iterator<Item = String> {
        let letters = self.file_letters.iter().chain(&['q', 's']);
        letters.map(|letter| format!("{}{letter}", self.user))
    }
}

impl Drop for Persona {
    fn drop(&mut self) {
        self.users().for_each(|user| self.table.remove(&user));
    }
}

impl Personas {
    /// Creates the identities of a proxy, which `table` has for logins.
    pub(crate) fn new(table: Arc<IdentityTable>) -> Self {
        Self { table, known: Mutex::default() }
    }

    /// Returns the identity of a client.
    ///
    /// # Errors
    /// The client has none that an origin could know.
    pub(crate) fn of(&self, caller: &Caller) -> Result<Arc<Persona>, Error> {
        let refused = |why: &str| Err(Error::new(ErrorKind::NotAuthorized, why.to_owned()));
        let Some(entity) = caller.entity().filter(|entity| !entity.has_expired()) else {
            return refused("the origin decides about clients that have logged in");
        };
        if !proves_name(&entity.protocol) || entity.verified_bearer().is_some() {
            return refused(
                "the origin decides about clients by their names, and your login does not prove yours",
            );
        }
        let Some(name) = entity.name.as_deref().filter(|name| !name.is_empty()) else {
            return refused("the origin decides about clients by their names, and your login has none");
        };
        self.of_key(PersonaKey::new(name, entity), &caller.identity.to_string())
    }

    /// Returns the identity with this key. `trace_id` is that of the first client that has it.
    fn of_key(&self, key: PersonaKey, trace_id: &str) -> Result<Arc<Persona>, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((persona, used)) = known.personas.get_mut(&key) {
            *used = Instant::now();
            return Ok(persona.clone());
        }
        known.make_room();
        if known.personas.len() >= PERSONAS_MAX {
            return Err(Error::new(ErrorKind::Overloaded, "the proxy is busy with too many users"));
        }
        known.last += 1;
        let persona = Arc::new(Persona::new(known.last, known.personas.len(), &self.table));
        for user in persona.users() {
            if !self.table.insert(&user, key.identity(trace_id)) {
                return Err(Error::new(ErrorKind::Overloaded, "the proxy is busy with too many users"));
            }
        }
        known.personas.insert(key, (persona.clone(), Instant::now()));
        Ok(persona)
    }
}

/// Reports whether logins by a protocol prove the names of clients.
fn proves_name(protocol: &str) -> bool {
    PROVING.contains(&protocol)
}

impl KnownPersonas {
    /// Forgets identities that nobody uses: after some time, and the longest unused ones if there are too many.
    fn make_room(&mut self) {
        self.personas.retain(|_, (persona, used)| Arc::strong_count(persona) > 1 || used.elapsed() < UNUSED);
        if self.personas.len() < PERSONAS_MAX {
            return;
        }
        let unused = self.personas.iter().filter(|(_, (persona, _))| Arc::strong_count(persona) == 1);
        let mut unused: Vec<_> = unused.map(|(key, (_, used))| (*used, key.clone())).collect();
        unused.sort_by_key(|(used, _)| *used);
        for (_, key) in unused.iter().take(FORGOTTEN) {
            self.personas.remove(key);
        }
    }
}

impl PersonaKey {
    fn new(name: &str, entity: &Entity) -> Self {
        let text = |part: &Option<Box<str>>| part.clone().unwrap_or_default();
        Self {
            name: name.to_owned(),
            protocol: entity.protocol.clone(),
            parts: [&entity.vorg, &entity.role, &entity.groups, &entity.capabilities, &entity.endorsements]
                .map(text),
            attributes: entity.attributes.clone(),
        }
    }

    /// Returns the identity as `sss` sends it, with the trace id of a client that has it.
    fn identity(&self, trace_id: &str) -> SssIdentity {
        let [vorg, role, groups, capabilities, endorsements] =
            self.parts.each_ref().map(|part| part.to_string());
        let attributes = self.attributes.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        SssIdentity {
            name: self.name.clone(),
            groups,
            vorg,
            role,
            capabilities,
            endorsements,
            attributes: attributes.collect(),
            original: Some(OriginalClient {
                protocol: self.protocol.to_string(),
                trace_id: trace_id.to_owned(),
                unix_user: None,
                unix_group: None,
                // They are for this proxy, and the origin could use them elsewhere.
                credentials: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Identity, LoginNames};

    fn key(name: &str, groups: &str) -> PersonaKey {
        let mut parts: [Box<str>; 5] = Default::default();
        parts[2] = groups.into();
        PersonaKey { name: name.to_owned(), parts, ..PersonaKey::default() }
    }

    #[test]
    fn each_identity_has_users_of_its_own_that_no_other_one_gets() {
        let table = Arc::<IdentityTable>::default();
        let personas = Personas::new(table.clone());
        let user = |name: &str, groups: &str| {
            personas.of_key(key(name, groups), "u.1@h").unwrap().user_of_quick_requests()
        };
        let alice = user("alice", "a");
        assert_eq!(user("alice", "a"), alice, "all of its clients share connections");
        assert_ne!(user("alice", "b"), alice);
        assert_ne!(user("bob", "a"), alice);
        let used = personas.of_key(key("used", ""), "u.1@h").unwrap();
        // Those that nobody uses are forgotten when there are too many, and never return.
        for number in 0..2 * PERSONAS_MAX {
            user(&number.to_string(), "");
        }
        assert!(personas.known.lock().unwrap().personas.len() <= PERSONAS_MAX);
        assert!(table.has(&used.user_of_files(Owner(1))) && table.has(&used.user_of_slow_requests()));
        assert!(!table.has(&alice));
        let again = user("alice", "a");
        assert!(again != alice && table.has(&again));
    }

    #[tokio::test(start_paused = true)]
    async fn the_sessions_of_an_identity_are_spread_over_its_connections() {
        let table = Arc::<IdentityTable>::default();
        let personas = Personas::new(table.clone());
        let of = |number: usize| personas.of_key(key(&number.to_string(), ""), "u.1@h").unwrap();
        let files = |persona: &Persona| {
            let users: std::collections::HashSet<_> =
                (0..100).map(|at| persona.user_of_files(Owner(at))).collect();
            assert!(users.iter().all(|user| table.has(user) && user.len() <= 8), "{users:?}");
            assert!(!users.contains(&persona.user_of_quick_requests()));
            assert!(!users.contains(&persona.user_of_slow_requests()));
            users.len()
        };
        let used: Vec<_> = (0..20).map(of).collect();
        let counts: Vec<_> = used.iter().map(|persona| files(persona)).collect();
        assert_eq!((counts[0], counts[FEW_PERSONAS], counts[SOME_PERSONAS]), (4, 2, 1));
        // A session keeps its connection.
        assert_eq!(used[0].user_of_files(Owner(7)), of(0).user_of_files(Owner(7)));
        // After some time, those of before do not count.
        drop(used);
        tokio::time::advance(UNUSED).await;
        assert_eq!(files(&of(99)), 4);
    }

    #[test]
    fn users_are_limited_and_those_in_use_stay() {
        let personas = Personas::new(Arc::default());
        let of = |number: usize| personas.of_key(key(&number.to_string(), ""), "u.1@h");
        let used: Vec<_> = (0..PERSONAS_MAX).map(|number| of(number).unwrap()).collect();
        assert_eq!(of(PERSONAS_MAX).err().unwrap().kind, ErrorKind::Overloaded);
        of(7).unwrap();
        drop(used);
        of(PERSONAS_MAX).unwrap();
    }

    #[test]
    fn clients_without_a_proven_name_have_no_identity() {
        let personas = Personas::new(Arc::default());
        let caller = Caller::new(Identity::new(&LoginNames::default(), 1, None, "host"), true, true);
        let kind = |caller: &Caller| personas.of(caller).err().unwrap().kind;
        assert_eq!(kind(&caller), ErrorKind::NotAuthorized);
        for name in [None, Some("alice".into())] {
            let entity = Entity::of_host("h").renamed(auth::EntityNames { name, attributes: None });
            assert_eq!(kind(&caller.with_entity(entity)), ErrorKind::NotAuthorized);
        }
        let proving = ["gsi", "host", "krb5", "pwd", "sss", "unix", "ztn", "", "other"].map(proves_name);
        assert_eq!(proving, [true, false, true, true, true, false, false, false, false]);
    }
}
