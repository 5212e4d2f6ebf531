//! Makes each operation with the rights of the account of its client (multi-user, decision 045).
//!
//! The name of the account is that of the request's token, else that of the login. Each account has
//! its own set of components ([`ClientOperations`]), which accesses the storage with its rights.
//! Clients without a login have the rights of the server.
//!
//! Looking up an account may ask a directory service, so it is done on threads of its own, once for
//! all operations that wait for it. An account that is unknown, too low, or cannot be looked up in
//! time has no rights at all.

use crate::client_operations::ClientOperations;
use crate::{job, third_party};
use auth::AccountDatabase;
use auth::access::Principal;
use base::{Clock, Error, ErrorKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Pool, StorageUser};
use vfs::{Answer, Caller, DeferredReply, Operation, ReplyTo, Started};

/// Maximum number of threads that look up accounts. One that does not return occupies its thread.
const LOOKUP_THREADS_MAX: usize = 4;
/// Time after which an operation that waits for a look-up is refused.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for which an account is used without another look-up.
const ACCOUNT_LIFETIME: Duration = Duration::from_secs(60);
/// Time for which a refusal is repeated without another look-up.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(5);
/// Maximum number of names with a known result. When it is reached, stale ones are evicted, or all.
const NAMES_MAX: usize = 4096;
/// Maximum number of accounts with components. The one that was not used for longest is evicted.
const ACCOUNTS_MAX: usize = 1024;
/// Maximum number of operations that wait for look-ups.
const WAITING_MAX: usize = 16_384;

/// The accounts of users, and their limits.
pub struct UserAccounts {
    /// Finds accounts by name.
    pub database: Arc<dyn AccountDatabase>,
    /// The accounts that may be used.
    pub limits: AccountLimits,
}

/// The lowest ids of accounts that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountLimits {
    /// The lowest user id.
    pub uid_min: u32,
    /// The lowest id of a primary group.
    pub gid_min: u32,
}

/// The components that act for users.
pub(crate) struct MultiUser {
    accounts: UserAccounts,
    /// The components with the rights of the server.
    server: Arc<ClientOperations>,
    clock: Arc<dyn Clock>,
    names: Mutex<HashMap<Box<str>, KnownName>>,
    sets: Mutex<HashMap<Arc<StorageUser>, AccountSet>>,
    waiting: Mutex<WaitingForAccounts>,
    lookups: Arc<Pool>,
}

/// The result of a look-up.
#[derive(Clone)]
struct KnownName {
    account: Result<Arc<StorageUser>, &'static str>,
    until: Duration,
}

/// The components of an account.
struct AccountSet {
    operations: Arc<ClientOperations>,
    used: Duration,
}

/// The operations that wait for look-ups, by the name of the account.
#[derive(Default)]
struct WaitingForAccounts {
    by_name: HashMap<Box<str>, Vec<WaitingOperation>>,
    count: usize,
}

struct WaitingOperation {
    caller: Arc<Caller>,
    operation: Operation,
    reply: ReplyTo,
    /// Answers if the look-up is lost.
    obligation: DeferredReply,
    until: Duration,
}

/// The account of an operation.
#[derive(PartialEq, Eq, Debug)]
enum ActingFor<'a> {
    /// The client has no login, or no account decides.
    Server,
    /// The account of this name.
    Account(&'a str),
    /// The client has a login that names no account, for this reason.
    Nobody(&'static str),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the account with whose rights an operation of a client is made.
fn acting_for<'a>(caller: &'a Caller, operation: &Operation) -> ActingFor<'a> {
    match operation {
        // The position keeps the rights of the first page.
        Operation::ListMore(_) => return ActingFor::Server,
        // The file is opened with the rights of the client that granted it, and only with a grant.
        Operation::Open(target, request) if third_party::collects_grant(target, request) => {
            return ActingFor::Server;
        }
        _ => {}
    }
    if let Some(name) = caller.request_name() {
        return ActingFor::Account(name);
    }
    let Some(entity) = caller.entity() else { return ActingFor::Server };
    if entity.has_expired() {
        return ActingFor::Nobody("its login has expired");
    }
    match Principal::of(entity).name {
        Some(name) => ActingFor::Account(name),
        None if &*entity.protocol == "host" => ActingFor::Server,
        None if entity.verified_bearer().is_some() => ActingFor::Nobody("its token names no account"),
        None => ActingFor::Nobody("its login names no account"),
    }
}

/// Returns the refusal of an operation. The name is not repeated, because it comes from outside.
fn refusal(why: &str) -> Answer {
    let text = format!("Unable to act for the client; {why}");
    Answer::Error(Error::new(ErrorKind::NotAuthorized, text))
}

impl MultiUser {
    pub(crate) fn new(
        accounts: UserAccounts,
        server: Arc<ClientOperations>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            accounts,
            server,
            clock,
            names: Mutex::default(),
            sets: Mutex::default(),
            waiting: Mutex::default(),
            lookups: Pool::new("accounts", LOOKUP_THREADS_MAX),
        })
    }

    /// Starts an operation with the rights of its client; never blocks.
    pub(crate) fn start(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        operation: Operation,
        reply: &ReplyTo,
    ) -> Started {
        let name = match acting_for(caller, &operation) {
            ActingFor::Server => return self.server.start(caller, operation, reply),
            ActingFor::Nobody(why) => {
                tracing::debug!("{}: refused, because {why}", caller.identity);
                return Started::Done(refusal(why));
            }
            ActingFor::Account(name) => name,
        };
        match self.known(name) {
            Some(account) => self.start_as(account, caller, operation, reply),
            None => self.wait_for(name, caller, operation, reply),
        }
    }

    fn start_as(
        &self,
        account: Result<Arc<StorageUser>, &'static str>,
        caller: &Arc<Caller>,
        operation: Operation,
        reply: &ReplyTo,
    ) -> Started {
        match account.and_then(|user| self.operations_of(&user)) {
            Ok(operations) => operations.start(caller, operation, reply),
            Err(why) => {
                tracing::debug!("{}: refused, because {why}", caller.identity);
                Started::Done(refusal(why))
            }
        }
    }

    fn known(&self, name: &str) -> Option<Result<Arc<StorageUser>, &'static str>> {
        let names = lock(&self.names);
        let known = names.get(name).filter(|known| self.clock.now() < known.until)?;
        Some(known.account.clone())
    }

    /// Returns the components of an account.
    fn operations_of(&self, user: &Arc<StorageUser>) -> Result<Arc<ClientOperations>, &'static str> {
        let used = self.clock.now();
        let mut sets = lock(&self.sets);
        if let Some(set) = sets.get_mut(user) {
            set.used = used;
            return Ok(set.operations.clone());
        }
        let operations = self.server.for_user(user).ok_or("this storage cannot act for users")?;
        let operations = Arc::new(operations);
        if sets.len() >= ACCOUNTS_MAX {
            // Operations in progress keep their components.
            let oldest = sets.iter().min_by_key(|(_, set)| set.used).map(|(user, _)| user.clone());
            oldest.map(|oldest| sets.remove(&oldest));
        }
        sets.insert(user.clone(), AccountSet { operations: operations.clone(), used });
        Ok(operations)
    }

    /// Queues an operation until its account is known, and looks it up if nobody waits for it yet.
    fn wait_for(
        self: &Arc<Self>,
        name: &str,
        caller: &Arc<Caller>,
        operation: Operation,
        reply: &ReplyTo,
    ) -> Started {
        let is_first = {
            let mut waiting = lock(&self.waiting);
            if waiting.count >= WAITING_MAX {
                return Started::Done(job::overloaded());
            }
            waiting.count += 1;
            let of_name = waiting.by_name.get_mut(name);
            let one = WaitingOperation {
                caller: caller.clone(),
                operation,
                reply: reply.clone(),
                obligation: reply.defer(),
                until: self.clock.now() + LOOKUP_TIME_MAX,
            };
            match of_name {
                Some(others) => {
                    others.push(one);
                    false
                }
                None => {
                    waiting.by_name.insert(name.into(), vec![one]);
                    true
                }
            }
        };
        if is_first {
            let lookup = PendingLookup { of: self.clone(), name: name.into(), has_ended: false };
            // A refused or panicked look-up is dropped, which refuses the operations.
            drop(self.lookups.run(reply.owner(), Box::new(move || lookup.run())));
        }
        Started::Pending
    }

    /// Looks an account up. Blocks.
    fn look_up(&self, name: &str) -> Result<Arc<StorageUser>, &'static str> {
        const FAILED: &str = "the database of accounts does not answer";
        let UserAccounts { database, limits } = &self.accounts;
        let failed = |error: std::io::Error| {
            tracing::warn!("cannot look up the account {}: {error}", base::shown(name));
            FAILED
        };
        let found = database.user(name).map_err(failed)?.ok_or("its name is not that of an account here")?;
        if found.uid == 0 || found.gid == 0 {
            return Err("its account is that of the superuser");
        }
        if found.uid < limits.uid_min || found.gid < limits.gid_min {
            return Err(
                "its account is below the lowest user or group id (multiuser.minuid, multiuser.mingid)",
            );
        }
        let groups = database.group_ids_of(name, found.gid).map_err(failed)?;
        let user = StorageUser::new(found.uid, found.gid, groups);
        user.map(Arc::new).ok_or("its account is not usable")
    }

    fn remember(&self, name: &str, account: Result<Arc<StorageUser>, &'static str>) {
        let now = self.clock.now();
        let lifetime = if account.is_ok() { ACCOUNT_LIFETIME } else { REFUSAL_LIFETIME };
        let mut names = lock(&self.names);
        if names.len() >= NAMES_MAX {
            names.retain(|_, known| now < known.until);
            if names.len() >= NAMES_MAX {
                names.clear();
            }
        }
        names.insert(name.into(), KnownName { account, until: now + lifetime });
    }

    /// Ends the wait for an account.
    fn release(&self, name: &str, account: &Result<Arc<StorageUser>, &'static str>) {
        let released = {
            let mut waiting = lock(&self.waiting);
            let released = waiting.by_name.remove(name).unwrap_or_default();
            waiting.count -= released.len();
            released
        };
        for one in released {
            let WaitingOperation { caller, operation, reply, obligation, .. } = one;
            match self.start_as(account.clone(), &caller, operation, &reply) {
                Started::Done(answer) => obligation.send(answer),
                // The deferral of a late answer is not sent, because the call is already pending.
                Started::Pending | Started::Later { .. } => obligation.release(),
            }
        }
    }

    /// Refuses the operations that have waited too long, and does the regular work of all accounts.
    /// Never blocks.
    pub(crate) fn tick(&self) {
        let now = self.clock.now();
        let late = {
            let mut waiting = lock(&self.waiting);
            let of_each = waiting.by_name.values_mut();
            // An empty list stays, because its look-up still occupies a thread.
            let late: Vec<_> = of_each.flat_map(|all| all.extract_if(.., |one| one.until <= now)).collect();
            waiting.count -= late.len();
            late
        };
        for one in late {
            tracing::warn!("{}: the look-up of its account takes too long", one.caller.identity);
            one.obligation.send(refusal("the look-up of its account takes too long"));
        }
        let sets: Vec<_> = lock(&self.sets).values().map(|set| set.operations.clone()).collect();
        sets.iter().for_each(|operations| operations.tick());
    }

    /// Adds up a number of the components of all accounts.
    pub(crate) fn sum(&self, number: impl Fn(&ClientOperations) -> usize) -> usize {
        lock(&self.sets).values().map(|set| number(&set.operations)).sum()
    }
}

/// A look-up that is queued or running. Dropping it refuses the operations that wait for it.
struct PendingLookup {
    of: Arc<MultiUser>,
    name: Box<str>,
    has_ended: bool,
}

impl PendingLookup {
    fn run(mut self) {
        let account = self.of.look_up(&self.name);
        self.of.remember(&self.name, account.clone());
        self.has_ended = true;
        self.of.release(&self.name, &account);
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        if !self.has_ended {
            self.of.release(&self.name, &Err("its account cannot be looked up now"));
        }
    }
}
