//! Prepare requests of a server whose files are all on disk. There is nothing to stage, but clients
//! expect an id that they can query and cancel.
//!
//! No request is stored. An id contains a mark of the server. Therefore the server recognises its
//! ids even after a restart, and refuses ids that it never issued. It also contains a mark of the
//! client, by which each server of a cluster recognises the owner of a request.

use crate::errno::{self, unable};
use crate::exports::ExportTable;
use crate::job;
use crate::path_lists::{self, PathListStep, PathListWalk};
use base::{Clock, Error, ErrorKind, LogicalPath, Owner, Rng};
use digest::{Algorithm, RunningChecksum};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;
use storage::{Backend, Pool, STEP_ITEMS_MAX, StepProgress, Work, WorkEnd};
use vfs::{Answer, Caller, PrepareRequest, ReplyTo, Started, Target, TargetList, Value};

/// Maximum total length of the lists whose access times are to be renewed, over all sessions, in
/// bytes. Lists beyond that are ignored.
const FRESHEN_BYTES_MAX: usize = 16 << 20;

/// The begin of all ids.
const PRODUCT: &str = "scalla";

/// Number of hexadecimal digits of the mark of a client.
const OWNER_DIGITS: usize = 32;

/// Issues ids of prepare requests and recognises them, including those of earlier runs.
pub struct Prepares {
    /// Prefix of all ids of this server in every run.
    mark: String,
    /// The part of the ids that identifies this run.
    run: u32,
    next: AtomicU64,
}

/// Maximum number of threads that check the paths of long lists, which accesses no disk.
const CHECK_THREADS_MAX: usize = 2;

/// The components that serve prepare requests.
pub(crate) struct PrepareRequests {
    ids: Arc<Prepares>,
    exports: Arc<ExportTable>,
    backend: Arc<dyn Backend>,
    /// The pool that checks long lists of paths.
    checks: Arc<Pool>,
    /// Total length of the lists whose access times are being renewed, in bytes.
    freshening: Arc<AtomicUsize>,
}

impl PrepareRequests {
    pub(crate) fn new(ids: Prepares, exports: Arc<ExportTable>, backend: Arc<dyn Backend>) -> Self {
        let checks = Pool::for_long_work("lists", CHECK_THREADS_MAX);
        Self { ids: Arc::new(ids), exports, backend, checks, freshening: Arc::default() }
    }

    /// Returns the ids.
    pub(crate) fn ids(&self) -> &Prepares {
        &self.ids
    }

    /// Returns the components for another view of the storage. Ids and limits are common.
    pub(crate) fn with_backend(&self, backend: Arc<dyn Backend>) -> Self {
        Self {
            ids: self.ids.clone(),
            exports: self.exports.clone(),
            backend,
            checks: self.checks.clone(),
            freshening: self.freshening.clone(),
        }
    }
}

impl Prepares {
    /// Returns the ids of the server `name` in this run, which starts now.
    pub fn new(name: &str, clock: &dyn Clock) -> Self {
        let mark = format!("{PRODUCT}{:08x}", digest::crc32c(name.as_bytes()));
        // The start time in seconds, in eight hexadecimal digits: until 2106.
        let run = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        Self { mark, run, next: AtomicU64::new(1) }
    }

    /// Returns a new id for a request of this client.
    pub fn issue(&self, caller: &Caller) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}{:08x}.{number}.{}", self.mark, self.run, owner_mark(caller))
    }

    /// Reports whether an id was issued by this server, in this run or an earlier one.
    pub fn has_issued(&self, id: &[u8]) -> bool {
        let rest = std::str::from_utf8(id).ok().and_then(|text| text.strip_prefix(self.mark.as_str()));
        let Some((run, rest)) = rest.and_then(|rest| rest.split_once('.')) else { return false };
        // Ids of earlier versions have no mark of the client.
        let number = rest.split_once('.').map_or(rest, |(number, _)| number);
        let issued = u32::from_str_radix(run, 16).is_ok_and(|run| run <= self.run);
        run.len() == 8 && issued && number.parse::<u64>().is_ok_and(|number| number > 0)
    }

    /// Returns a new id that nobody can guess.
    pub(crate) fn issue_random(&self, owner: &str, rng: &mut dyn Rng) -> String {
        let mut bytes = [0; size_of::<u64>()];
        rng.fill(&mut bytes);
        let number = u64::from_be_bytes(bytes).max(1);
        format!("{}{:08x}.{number}.{owner}", self.mark, self.run)
    }

    fn check(&self, id: &[u8]) -> Result<(), Error> {
        if self.has_issued(id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::ArgInvalid, "Prepare requestid owned by an unknown server"))
    }
}

/// Reports whether a client made the request of an id that a server of ours issued.
pub(crate) fn is_owner(id: &[u8], caller: &Caller) -> bool {
    owner_of(id).is_some_and(|mark| mark == owner_mark(caller))
}

/// Returns the mark of the client that made the request of an id that a server of ours issued.
pub(crate) fn owner_of(id: &[u8]) -> Option<&str> {
    let id = std::str::from_utf8(id).ok().filter(|id| id.starts_with(PRODUCT));
    id.and_then(|id| id.splitn(3, '.').nth(2))
}

/// Returns the mark of a client: a hash of its authenticated name, or of its host if it has none. The
/// issuer and the subject identify a client that logged in with a token, because not every issuer
/// names its bearers, and issuers can name different ones alike. Other processes of the user have the same mark, because a request outlives the one that made it.
pub(crate) fn owner_mark(caller: &Caller) -> String {
    let entity = caller.entity();
    let mut hash = RunningChecksum::new(Algorithm::Sha256);
    if let Some((issuer, subject)) = entity.and_then(|entity| entity.verified_bearer()) {
        return bearer_mark(issuer, subject);
    }
    let (protocol, name) = match entity.and_then(|entity| Some((&*entity.protocol, entity.name.as_deref()?)))
    {
        Some(named) => named,
        None => ("", entity.map_or(caller.identity.host(), |entity| &*entity.host)),
    };
    hash.update(protocol.as_bytes());
    hash.update(b"\0");
    hash.update(name.as_bytes());
    hash.finish().hex().chars().take(OWNER_DIGITS).collect()
}

/// Returns the mark of the bearer of a token.
pub(crate) fn bearer_mark(issuer: &str, subject: &str) -> String {
    let mut hash = RunningChecksum::new(Algorithm::Sha256);
    // No protocol has an id of this length. The length of the issuer separates it from the
    // subject, which can contain any character.
    hash.update(format!("bearer of a token\0{}\0{issuer}{subject}", issuer.len()).as_bytes());
    hash.finish().hex().chars().take(OWNER_DIGITS).collect()
}

/// Starts a prepare request. If it requests staging, the answer is its id.
pub(crate) fn start(
    requests: &Arc<PrepareRequests>,
    caller: &Arc<Caller>,
    request: PrepareRequest,
    targets: TargetList,
    reply: &ReplyTo,
) -> Started {
    let (checking, inside, list, owner) =
        (requests.clone(), requests.clone(), targets.clone(), reply.owner());
    let client = caller.clone();
    let check = move |target: &Target| {
        let export = checking.exports.find(&target.path, "Preparing")?;
        if request.write && export.is_read_only() {
            return Err(unable("prepare", &target.path, errno::READ_ONLY));
        }
        Ok(())
    };
    let stages = request.stage && !request.evict;
    let accept = move || {
        if request.fresh {
            // The paths have passed their check.
            freshen_all(&inside, owner, &targets.without_check());
        }
        let id = || Value::Text(inside.ids.issue(&client).into_bytes());
        Answer::Value(if stages { id() } else { Value::Nothing })
    };
    path_lists::check_each(&requests.checks, caller, &list, reply, check, accept)
}

/// Renews the access times of all files of a list. No client waits for that, so lists beyond a
/// total of [`FRESHEN_BYTES_MAX`] are ignored.
fn freshen_all(requests: &Arc<PrepareRequests>, owner: Owner, targets: &TargetList) {
    let bytes = targets.bytes();
    let before = requests.freshening.fetch_add(bytes, Ordering::Relaxed);
    let walk = PathListWalk::new(&requests.backend, targets);
    let pool = walk.pool().clone();
    let work = AccessTimeSteps { requests: requests.clone(), walk, bytes };
    // Dropping the work returns its bytes.
    if before + bytes <= FRESHEN_BYTES_MAX {
        pool.start(owner, Box::new(work));
    }
}

/// Renews access times. It continues when its client leaves, because the request only announces
/// later opens.
struct AccessTimeSteps {
    requests: Arc<PrepareRequests>,
    walk: PathListWalk,
    bytes: usize,
}

impl Drop for AccessTimeSteps {
    fn drop(&mut self) {
        self.requests.freshening.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Work for AccessTimeSteps {
    fn step(&mut self) -> StepProgress {
        for _ in 0..STEP_ITEMS_MAX {
            match self.walk.next() {
                PathListStep::Target(target) => {
                    renew(self.requests.backend.as_ref(), &target.path.without_slash())
                }
                PathListStep::MoveTo(pool) => return StepProgress::MoveTo(pool),
                PathListStep::Wrong(_) => {}
                PathListStep::End => return StepProgress::Done,
            }
        }
        StepProgress::More
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn end(self: Box<Self>, _: WorkEnd) {}
}

fn renew(backend: &dyn Backend, name: &LogicalPath) {
    if let Err(error) = backend.renew_access(name) {
        tracing::debug!(path = %name.shown(), "cannot renew the access time of a file: {error}");
    }
}

/// Renews the access time of a file in the background, so that eviction by access time spares it.
/// This is a hint, and its result is not reported.
pub(crate) fn freshen(backend: &Arc<dyn Backend>, path: &LogicalPath) {
    let (inside, name) = (backend.clone(), path.without_slash());
    let job = move |_| renew(inside.as_ref(), &name);
    // A full pool ignores the hint.
    job::run_where_blocking(backend, Owner::SERVER, path, None, job, || {});
}

/// Cancels a request. It has completed already, so there is nothing to undo.
pub(crate) fn cancel(requests: &PrepareRequests, id: &[u8]) -> Result<Value, Error> {
    requests.ids.check(id).map(|()| Value::Nothing)
}

/// Answers a query for the state of a request: nothing is in progress.
pub(crate) fn query(
    requests: &Arc<PrepareRequests>,
    caller: &Arc<Caller>,
    id: &[u8],
    targets: Option<TargetList>,
    reply: &ReplyTo,
) -> Started {
    if let Err(error) = requests.ids.check(id) {
        return Started::Done(Answer::Error(error));
    }
    let answer = || Answer::Value(nothing_known());
    match targets {
        // The paths only have to be valid.
        Some(list) => path_lists::check_each(&requests.checks, caller, &list, reply, |_| Ok(()), answer),
        None => Started::Done(answer()),
    }
}

/// Returns the answer for a request of which nothing is in progress.
pub fn nothing_known() -> Value {
    Value::Text(b"No information found.".to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::unix::UnixServer;
    use auth::{Entity, LoginPeer, ServerProtocol, ServerStep};
    use base::{Identity, LoginNames};
    use std::time::{Duration, SystemTime};

    struct At(u64);
    impl Clock for At {
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn today(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(self.0)
        }
    }

    #[test]
    fn only_ids_of_this_server_are_recognised() {
        let ours = Prepares::new("a:1094", &At(5));
        let theirs = Prepares::new("b:1094", &At(5));
        let caller = at("h.o", 1);
        let (first, second) = (ours.issue(&caller), ours.issue(&caller));
        assert_ne!(first, second);
        assert!(ours.has_issued(first.as_bytes()) && ours.has_issued(second.as_bytes()));
        assert!(Prepares::new("a:1094", &At(6)).has_issued(first.as_bytes()), "after a restart");
        assert!(!ours.has_issued(theirs.issue(&caller).as_bytes()));
        let future = Prepares::new("a:1094", &At(6)).issue(&caller);
        let (old, _) = first.rsplit_once('.').unwrap();
        assert!(ours.has_issued(old.as_bytes()), "of an earlier version");
        let cut = first.replace(".1.", "..");
        for forged in [future.as_str(), &cut, "badid", "", &ours.mark] {
            assert!(!ours.has_issued(forged.as_bytes()), "{forged}");
        }
    }

    fn at(host: &str, pid: u32) -> Caller {
        Caller::new(
            Identity::new(&LoginNames { user: "u", host, ..LoginNames::default() }, pid, None, "host"),
            true,
            false,
        )
    }

    fn named(name: &str, host: &str) -> Caller {
        let (address, login_id) = (([192, 0, 2, 1], 1).into(), String::new());
        let peer = LoginPeer { address, host: host.to_owned(), login_id, is_tls: false };
        let credentials = format!("unix\0{name} staff\0");
        let ServerStep::Done(entity) = UnixServer.begin(&peer).step(credentials.as_bytes(), UNIX_EPOCH)
        else {
            panic!("{name}")
        };
        at(host, 1).with_entity(entity)
    }

    #[test]
    fn a_request_belongs_to_the_user_or_else_to_the_host() {
        let ids = Prepares::new("a:1094", &At(5));
        let clients =
            [at("h.o", 1), at("h2.o", 1), named("ann", "h.o"), named("bob", "h.o"), named("h.o", "h.o")];
        for (number, client) in clients.iter().enumerate() {
            let id = ids.issue(client);
            for (other_number, other) in clients.iter().enumerate() {
                assert_eq!(is_owner(id.as_bytes(), other), number == other_number, "{number} {other_number}");
            }
        }
        let of_host = ids.issue(&at("h.o", 1));
        assert!(is_owner(of_host.as_bytes(), &at("h.o", 2)), "another process");
        let of_host_protocol = at("h.o", 3).with_entity(Entity::of_host("h.o"));
        assert!(is_owner(of_host.as_bytes(), &of_host_protocol));
        let of_ann = ids.issue(&named("ann", "h.o"));
        assert!(is_owner(of_ann.as_bytes(), &named("ann", "elsewhere")));
        for foreign in ["52087f000001:e2ae223c.6b0060ba:2", "scalla", "", "scalla1.1", "scalla1.1."] {
            assert!(!is_owner(foreign.as_bytes(), &at("h.o", 1)), "{foreign}");
        }
    }
}
