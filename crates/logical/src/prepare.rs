//! Prepare requests of a server whose files are all on disk: there is nothing to bring and nothing to wait for, but
//! clients want an id that they can ask about and cancel.
//!
//! Nothing is remembered. An id carries the server's own mark, so that it is known again at any time, also after the
//! request is long done or the server was restarted, and a server that never issued it says so.

use crate::errno::{self, unable};
use crate::exports::Exports;
use crate::job;
use crate::lists::{self, Next, Walk};
use base::{Clock, Error, ErrorKind, LogicalPath, Owner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;
use storage::{Backend, Pool, Progress, STEP_ITEMS_MAX, Work, WorkEnd};
use vfs::{Answer, Caller, PrepareRequest, ReplyTo, Started, Target, TargetList, Value};

/// Bytes of lists whose access times wait to be renewed, those of all sessions together. What comes beyond is not renewed.
const FRESHEN_BYTES_MAX: usize = 16 << 20;

/// Issues ids of prepare requests and knows them again, also those of earlier runs.
pub struct Prepares {
    /// What all ids of this server start with, in every run of it.
    mark: String,
    /// What those of this run go on with.
    run: u32,
    next: AtomicU64,
}

/// Threads that look at paths of long lists without asking a disk.
const CHECK_THREADS_MAX: usize = 2;

/// Serves prepare requests.
pub(crate) struct PrepareRequests {
    ids: Prepares,
    exports: Arc<Exports>,
    backend: Arc<dyn Backend>,
    /// Checks long lists of paths, which waits for no disk.
    checks: Arc<Pool>,
    /// Bytes of lists of files whose access times are being renewed.
    freshening: AtomicUsize,
}

impl PrepareRequests {
    pub(crate) fn new(ids: Prepares, exports: Arc<Exports>, backend: Arc<dyn Backend>) -> Self {
        let checks = Pool::for_long_work("lists", CHECK_THREADS_MAX);
        Self { ids, exports, backend, checks, freshening: AtomicUsize::new(0) }
    }
}

impl Prepares {
    /// For the server that is known by `name`, of this run, which began now.
    pub fn new(name: &str, clock: &dyn Clock) -> Self {
        let mark = format!("scalla{:08x}", digest::crc32c(name.as_bytes()));
        // The second of the start, as far as eight digits go: until 2106.
        let run = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        Self { mark, run, next: AtomicU64::new(1) }
    }

    /// One more id.
    pub fn issue(&self) -> String {
        format!("{}{:08x}.{}", self.mark, self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Was it issued by this server, in this run or an earlier one?
    pub fn knows(&self, id: &[u8]) -> bool {
        let rest = std::str::from_utf8(id).ok().and_then(|text| text.strip_prefix(self.mark.as_str()));
        let Some((run, number)) = rest.and_then(|rest| rest.split_once('.')) else { return false };
        let issued = u32::from_str_radix(run, 16).is_ok_and(|run| run <= self.run);
        run.len() == 8 && issued && number.parse::<u64>().is_ok_and(|number| number > 0)
    }

    fn check(&self, id: &[u8]) -> Result<(), Error> {
        if self.knows(id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::ArgInvalid, "Prepare requestid owned by an unknown server"))
    }
}

/// Accepts a request. With staging asked for, the answer is its id.
pub(crate) fn start(
    requests: &Arc<PrepareRequests>,
    caller: &Arc<Caller>,
    request: PrepareRequest,
    targets: TargetList,
    reply: &ReplyTo,
) -> Started {
    let (checking, inside, list, owner) =
        (requests.clone(), requests.clone(), targets.clone(), reply.owner());
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
            freshen_all(&inside, owner, &targets);
        }
        let id = || Value::Text(inside.ids.issue().into_bytes());
        Answer::Value(if stages { id() } else { Value::Nothing })
    };
    lists::check_each(&requests.checks, caller, &list, reply, check, accept)
}

/// Renews the access time of all files of a list. Nobody waits for that, so lists of more than [`FRESHEN_BYTES_MAX`] together
/// are not kept for it: a server that has so much to do has more important things to do.
fn freshen_all(requests: &Arc<PrepareRequests>, owner: Owner, targets: &TargetList) {
    let bytes = targets.bytes();
    let before = requests.freshening.fetch_add(bytes, Ordering::Relaxed);
    let walk = Walk::new(&requests.backend, targets);
    let pool = walk.pool().clone();
    let work = Freshen { requests: requests.clone(), walk, bytes };
    // Dropped, it gives back the bytes.
    if before + bytes <= FRESHEN_BYTES_MAX {
        pool.start(owner, Box::new(work));
    }
}

/// Renews access times. Its client may leave: it only said that it will come for the files.
struct Freshen {
    requests: Arc<PrepareRequests>,
    walk: Walk,
    bytes: usize,
}

impl Drop for Freshen {
    fn drop(&mut self) {
        self.requests.freshening.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Work for Freshen {
    fn step(&mut self) -> Progress {
        for _ in 0..STEP_ITEMS_MAX {
            match self.walk.next() {
                Next::Target(target) => renew(self.requests.backend.as_ref(), &target.path.without_slash()),
                Next::MoveTo(pool) => return Progress::MoveTo(pool),
                Next::Wrong(_) => {}
                Next::End => return Progress::Done,
            }
        }
        Progress::More
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn end(self: Box<Self>, _: WorkEnd) {}
}

fn renew(backend: &dyn Backend, name: &LogicalPath) {
    if let Err(error) = backend.renew_access(name) {
        tracing::debug!(path = %name.shown(), "its access time is not renewed: {error}");
    }
}

/// Says that a file is wanted: whoever makes room by the time of the last access spares it. A hint; nobody waits for it, and
/// nobody hears what became of it.
pub(crate) fn freshen(backend: &Arc<dyn Backend>, path: &LogicalPath) {
    let (inside, name) = (backend.clone(), path.without_slash());
    let job = move |_| renew(inside.as_ref(), &name);
    // A pool that is full has more important things to do.
    job::at(backend, Owner::SERVER, path, None, job, || {});
}

/// Cancels: what is done already cannot be undone, which is fine.
pub(crate) fn cancel(requests: &PrepareRequests, id: &[u8]) -> Result<Value, Error> {
    requests.ids.check(id).map(|()| Value::Nothing)
}

/// The state of a request: there is nothing in progress.
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
        // They have to be paths; that is all.
        Some(list) => lists::check_each(&requests.checks, caller, &list, reply, |_| Ok(()), answer),
        None => Started::Done(answer()),
    }
}

/// What is said of a request of which nothing is in progress.
pub fn nothing_known() -> Value {
    Value::Text(b"No information found.".to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn only_own_ids_are_known() {
        let ours = Prepares::new("a:1094", &At(5));
        let theirs = Prepares::new("b:1094", &At(5));
        let (first, second) = (ours.issue(), ours.issue());
        assert_ne!(first, second);
        assert!(ours.knows(first.as_bytes()) && ours.knows(second.as_bytes()));
        assert!(Prepares::new("a:1094", &At(6)).knows(first.as_bytes()), "after a restart");
        assert!(!ours.knows(theirs.issue().as_bytes()));
        let future = Prepares::new("a:1094", &At(6)).issue();
        let cut = first.replace(".1", ".");
        for forged in [future.as_str(), &cut, "badid", "", &ours.mark] {
            assert!(!ours.knows(forged.as_bytes()), "{forged}");
        }
    }
}
